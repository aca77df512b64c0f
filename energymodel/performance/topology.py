"""How far apart are the nodes of a network, and how many links cross its bisection?

Node counts are floats, so that a design may vary them; the formulas are exact at the sizes that can be built.
Hops are links on the shortest path; means are over all ordered pairs of nodes, including a node with itself.

Shared arguments [1]: `radix` k, ports per switch; `routers_per_group` a, `global_links` h per router and
`hosts_per_router` p.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real


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


class FatTree(AbstractTopology):
    """Full three-level tree of k-port switches without oversubscription [Al-Fares et al. 2008]; from two nodes on."""

    def radix(self, nodes: Numeric) -> Float[Array, "..."]:
        """Ports of a switch, `k = (4 n)^(1/3)` [1]."""
        return jnp.exp(jnp.log(4.0 * jnp.asarray(nodes)) / 3.0)

    def switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """Switches, `5 k^2 / 4` [1]."""
        return fat_tree_switches(self.radix(nodes))

    def diameter(self, nodes: Numeric) -> Float[Array, "..."]:
        """Six: up to the core and down again, through five switches [1]."""
        return jnp.full_like(jnp.asarray(nodes), 6.0)

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """One for every second node, `n / 2` [1]."""
        return jnp.asarray(nodes) / 2.0

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """Six minus the neighborhood, `6 - (k^2 / 2 + k + 2) / n` [1].

        Two hops within an edge switch (k/2 nodes), four within a pod (k^2/4), none from a node to itself.
        """
        k = self.radix(nodes)
        return 6.0 - (k**2 / 2.0 + k + 2.0) / jnp.asarray(nodes)

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """One on each level, `3` [1]."""
        return jnp.full_like(jnp.asarray(nodes), 3.0)


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
