"""How far apart are the nodes of a network, which switches and links does it have, and where is it narrow?

Node counts are floats, so that a design may vary them; the formulas are exact at the sizes that can be built.
A node is what a link of the network ends at: a port of a chip, or a block of chips that route among themselves.
Hops are links on the shortest path; means are over all ordered pairs of nodes, including a node with itself.

Shared arguments [1]: `radix` k, ports per switch; `routers_per_group` a, `global_links` h per router and
`hosts_per_router` p.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real

UNLIMITED = 1e12  # nodes: more than any network has; infinity would make gradients of quotients undefined


def fat_tree_nodes(radix: Numeric) -> Float[Array, "..."]:
    """Nodes of a full three-level fat tree of k-port switches, `n = k^3 / 4` [Al-Fares et al. 2008, sec. 3].

    **Returns:** nodes [1].
    """
    return jnp.asarray(radix) ** 3 / 4.0


def fat_tree_switches(radix: Numeric) -> Float[Array, "..."]:
    """Switches of a full three-level fat tree of k-port switches, `5 k^2 / 4` [Al-Fares et al. 2008, sec. 3].

    **Returns:** switches [1].
    """
    return 5.0 * jnp.asarray(radix) ** 2 / 4.0


def tier_share(nodes: Numeric, capacity: Numeric) -> Float[Array, "..."]:
    """Part of the next tier that n nodes need if c do without, `min(max(n / c - 1, 0), 1)` [derivation below].

    A network for c + x nodes connects the last x with the others: x links up on either side, `2 x <= n` in all. From
    2 c nodes on every node has a link up.

    **Arguments:**

    - `capacity`: c [1], positive.

    **Returns:** share [1].
    """
    return jnp.clip(jnp.asarray(nodes) / capacity - 1.0, 0.0, 1.0)


def dragonfly_groups(routers_per_group: Numeric, global_links: Numeric) -> Float[Array, "..."]:
    """Groups of the largest dragonfly, with one global link between any two, `g = a h + 1` [Kim et al. 2008, sec. 3.1].

    **Returns:** groups [1].
    """
    return jnp.asarray(routers_per_group) * global_links + 1.0


def dragonfly_nodes(
    routers_per_group: Numeric, global_links: Numeric, hosts_per_router: Numeric
) -> Float[Array, "..."]:
    """Nodes of the largest dragonfly, `n = a p (a h + 1)` [Kim et al. 2008, sec. 3.1].

    **Returns:** nodes [1].
    """
    a = jnp.asarray(routers_per_group)
    return a * hosts_per_router * dragonfly_groups(a, global_links)


class AbstractTopology(eqx.Module):
    """Shape of a network of `nodes` nodes."""

    @abstractmethod
    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Hops between the most distant nodes [1]."""

    @abstractmethod
    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """Links of the smallest cut that divides the nodes into halves [1]."""

    @abstractmethod
    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """Hops between two nodes on average [1]."""

    @abstractmethod
    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """Links to buy per node [1]."""

    @abstractmethod
    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """Nodes of a network of so many chips in so many blocks, with so many lanes per chip [1]."""

    @abstractmethod
    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """Switches (or routers on chips) on the path between two different nodes on average [1]."""

    @abstractmethod
    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """Ports of switches in use per node; routers on chips have none [1]."""

    @abstractmethod
    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """Most neighboring nodes of full bandwidth: those below a tier that may be oversubscribed [1]."""

    @abstractmethod
    def uplink_ratio(self) -> Float[Array, "..."]:
        """Bandwidth of the nodes of a domain over that of its links to other domains, at least 1 [1]."""


class Ring(AbstractTopology):
    """Every node linked to two neighbors [Dally & Towles 2004, ch. 5]; exact for an even number of nodes."""

    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Half the ring, `n / 2` [1]."""
        return jnp.asarray(nodes) / 2.0

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """Two [1]."""
        return jnp.full_like(jnp.asarray(nodes), 2.0)

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """A quarter of the ring, `n / 4` [1]."""
        return jnp.asarray(nodes) / 4.0

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones_like(jnp.asarray(nodes))

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """One for each block of chips [1]."""
        return jnp.asarray(blocks)

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """A router at the end of each hop [1]."""
        return self.mean_hops(nodes)

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """None [1]."""
        return jnp.zeros_like(jnp.asarray(nodes))

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """Any number [1]."""
        return jnp.full_like(jnp.asarray(nodes), UNLIMITED)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones(())


class Torus(AbstractTopology):
    """Grid of d dimensions closed on itself, side `a = n^(1/d)` [Dally & Towles 2004, ch. 5]; exact for even a > 2."""

    dimensions: Real = real("1")

    def side(self, nodes: Numeric) -> Float[Array, "..."]:
        """Nodes along one dimension, `a = n^(1/d)` [1]."""
        return jnp.exp(jnp.log(jnp.asarray(nodes)) / self.dimensions)

    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Half the ring in each dimension, `d a / 2` [1]."""
        return self.side(nodes) * self.dimensions / 2.0

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """Two per ring that is cut, `2 n / a` [1]."""
        return 2.0 * jnp.asarray(nodes) / self.side(nodes)

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """A quarter of the ring in each dimension, `d a / 4` [1]."""
        return self.side(nodes) * self.dimensions / 4.0

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """One per dimension, `d` [1]."""
        return jnp.full_like(jnp.asarray(nodes), 1.0) * self.dimensions

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """One for each block of chips [1]."""
        return jnp.asarray(blocks)

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """A router at the end of each hop [1]."""
        return self.mean_hops(nodes)

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """None [1]."""
        return jnp.zeros_like(jnp.asarray(nodes))

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """Any number [1]."""
        return jnp.full_like(jnp.asarray(nodes), UNLIMITED)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones(())


class FatTree(AbstractTopology):
    """Tree of k-port switches in up to three tiers, with an oversubscribed top [Al-Fares et al. 2008, sec. 3].

    Up to k nodes share one switch. A leaf switch has k / 2 nodes and as many links up, and k^2 / 2 nodes (or a pod, if
    that is larger) need two tiers. Above, pods are joined by a third tier with one link for every o nodes. Between
    the sizes that fill a tier, as much of the next one is built as is needed (`tier_share`). Valid up to k pods.
    """

    radix: Real = real("1", 64.0, doc="ports of a switch")
    pod: Real = real("1", 1024.0, doc="nodes of a pod, among which bandwidth is full")
    oversubscription: Real = real("1", 1.0, doc="bandwidth of the nodes of a pod over that of its links upwards")
    port_lanes: Real = real("1", 4.0, doc="lanes of a port of a switch")

    def tiers(self, nodes: Numeric) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Parts of the second and of the third tier that are built [1]."""
        return tier_share(nodes, self.radix), tier_share(nodes, self.two_tiers)

    @property
    def two_tiers(self) -> Float[Array, "..."]:
        """Most nodes of two tiers, `max(k^2 / 2, pod)` [1]."""
        return jnp.maximum(0.5 * jnp.asarray(self.radix) ** 2, self.pod)

    @property
    def most_nodes(self) -> Float[Array, "..."]:
        """Most nodes of three tiers, k pods: `k^3 / 4` for pods of k^2 / 4 nodes [1]."""
        return jnp.asarray(self.radix) * self.pod

    def switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """Switches, `n` times their ports per node over k: `5 k^2 / 4` for a full tree [1]."""
        return jnp.asarray(nodes) * self.switch_ports(nodes) / self.radix

    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Two within a switch, four through two tiers, six through three [1]."""
        second, third = self.tiers(nodes)
        return 2.0 + 2.0 * second + 2.0 * third

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """One for every second node, `n / 2`; of a third tier `n / (2 o)` [1]."""
        _, third = self.tiers(nodes)
        return 0.5 * jnp.asarray(nodes) * (1.0 - third + third / self.oversubscription)

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """One link more than switches, none from a node to itself [1]."""
        return self.mean_switches(nodes) + 1.0 - 2.0 / jnp.asarray(nodes)

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """Its own, one up from the leaf and `1 / o` up from the pod, where there are such tiers [1]."""
        second, third = self.tiers(nodes)
        return 1.0 + second + third / self.oversubscription

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """Ports that the chips take, `G w / w_port` [1]."""
        return jnp.asarray(chips) * lanes / self.port_lanes

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """One within a leaf, three within a pod, five above: `1 + 2 s_2 (1 - k / (2 n)) + 2 s_3 (1 - pod / n)` [1]."""
        second, third = self.tiers(nodes)
        n = jnp.asarray(nodes)
        return 1.0 + 2.0 * second * (1.0 - 0.5 * self.radix / n) + 2.0 * third * (1.0 - self.pod / n)

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """Both ends of every link but the one at the node [1]."""
        return 2.0 * self.links_per_node(nodes) - 1.0

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """A pod where there are several, else all that two tiers hold [1]."""
        return jnp.where(jnp.asarray(nodes) > self.two_tiers, self.pod, self.two_tiers)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """Oversubscription of the third tier, o [1]."""
        return jnp.asarray(self.oversubscription)


class Dragonfly(AbstractTopology):
    """Fully connected groups of fully connected routers [Kim et al. 2008].

    The nodes fill `g = n / (a p)` groups, at most `a h + 1`, and all global links are spread evenly over the pairs
    of groups in use: one per pair at full size, more below.
    """

    routers_per_group: Real = real("1")
    global_links: Real = real("1", doc="per router")
    hosts_per_router: Real = real("1")

    def groups(self, nodes: Numeric) -> Float[Array, "..."]:
        """Groups in use, `g = n / (a p)` [1]."""
        return jnp.asarray(nodes) / (self.routers_per_group * self.hosts_per_router)

    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Three from router to router (local, global, local), plus the links of the two hosts [1]."""
        return jnp.full_like(jnp.asarray(nodes), 3.0)

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """Global links between the halves, `g^2 / 4 a h / (g - 1)`, which is `g^2 / 4` at full size [1].

        Below two groups a node keeps its share of the cut of two groups: balanced dragonflies (a = 2 p = 2 h) have as
        many local links across a group.
        """
        g = self.groups(nodes)
        pairs = jnp.maximum(g, 2.0)
        return 0.25 * g * pairs / (pairs - 1.0) * self.routers_per_group * self.global_links

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """Links from host to host on minimal routes, at most five [1].

        Two to and from the hosts, one within a group, one global link and a local link on either side unless the
        router owns the global one: `2 + (a-1)/(a g) + (g-1)/g (1 + 2 (a-1)/a) - 2/n`, with at least one group.
        """
        n, other = jnp.asarray(nodes), 1.0 - 1.0 / jnp.asarray(self.routers_per_group)
        g = jnp.maximum(self.groups(nodes), 1.0)
        return 2.0 + other / g + (1.0 - 1.0 / g) * (1.0 + 2.0 * other) - 2.0 / n

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """Its own and its share of the router's local and global links, `1 + (a - 1 + h) / (2 p)` [1]."""
        shared = (self.routers_per_group - 1.0 + self.global_links) / (2.0 * self.hosts_per_router)
        return jnp.full_like(jnp.asarray(nodes), 1.0) + shared

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """One for each chip [1]."""
        return jnp.asarray(chips)

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """One less than the links between two different nodes [1]."""
        return self.mean_hops(nodes) + 2.0 / jnp.asarray(nodes) - 1.0

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a node's share of its router, `(p + a - 1 + h) / p` [1]."""
        return (
            (self.hosts_per_router + self.routers_per_group - 1.0 + self.global_links)
            / self.hosts_per_router
            * jnp.ones_like(jnp.asarray(nodes))
        )

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """Any number [1]."""
        return jnp.full_like(jnp.asarray(nodes), UNLIMITED)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones(())


class FullyConnected(AbstractTopology):
    """Every node one switch away from every other, as over NVSwitch [NVIDIA 2022, H100 architecture]."""

    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Two: to the switch and on [1]."""
        return jnp.full_like(jnp.asarray(nodes), 2.0)

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """One for every second node, `n / 2` [1]."""
        return jnp.asarray(nodes) / 2.0

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """Two, except to oneself, `2 (1 - 1 / n)` [1]."""
        return 2.0 - 2.0 / jnp.asarray(nodes)

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones_like(jnp.asarray(nodes))

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """One for each chip [1]."""
        return jnp.asarray(chips)

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones_like(jnp.asarray(nodes))

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones_like(jnp.asarray(nodes))

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """Any number [1]."""
        return jnp.full_like(jnp.asarray(nodes), UNLIMITED)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """One [1]."""
        return jnp.ones(())
