"""How far apart are the nodes of a network, which switches and links does it have, and where is it narrow?

Node counts are floats, so that a design may vary them; the formulas are exact at the sizes that can be built.
A node is what a link of the network ends at: a port of a chip, or a block of chips that route among themselves.
Hops are links on the shortest path; means are over all ordered pairs of nodes, including a node with itself.

Shared argument: `radix` k, ports per switch [1].
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, SHARE

UNLIMITED = 1e12  # nodes: more than any network has; infinity would make gradients of quotients undefined
TREE_SWITCHES = 5.0  # on the path through a fat tree of three tiers, whose latency is in that of a link


def tier_share(nodes: Numeric, capacity: Numeric) -> Float[Array, "..."]:
    """Part of the next tier that n nodes need if c do without, `min(max(n / c - 1, 0), 1)` [derivation below].

    A network for c + x nodes connects the last x with the others: x links up on either side, `2 x <= n` in all. From
    2 c nodes on every node has a link up.

    **Arguments:**

    - `capacity`: c [1], positive.

    **Returns:** share [1].
    """
    return jnp.clip(jnp.asarray(nodes) / capacity - 1.0, 0.0, 1.0)


def chips_per_port(radix: Numeric, port_lanes: Numeric, switch_lanes: Numeric) -> Float[Array, "..."]:
    """Ports of switch chips behind a port of a switch, `1 + 2 s(k w / W)` with `tier_share` s [derivation below].

    A switch of more lanes than a chip has is itself a tree of chips: those at its ports have links up to others for as
    many lanes as exceed a chip, so that a port has up to three ports of chips behind it, and three chips on its way.

    **Arguments:**

    - `port_lanes`: w, lanes of a port [1].
    - `switch_lanes`: W, lanes of a switch chip [1], positive.

    **Returns:** ports of chips per port [1], 1 to 3.
    """
    return 1.0 + 2.0 * tier_share(jnp.asarray(radix) * port_lanes, switch_lanes)


def path_latency(hop_latency: Numeric, switches: Numeric) -> Float[Array, "..."]:
    """Latency of a path beyond that of a tree of three tiers, `t_hop (S - 5)`; negative if shorter [definition].

    **Arguments:**

    - `hop_latency`: of a switch on the way [s].
    - `switches`: S on the path [1].

    **Returns:** latency [s].
    """
    return jnp.asarray(hop_latency) * (jnp.asarray(switches) - TREE_SWITCHES)


class AbstractTopology(eqx.Module):
    """Shape of a network of `nodes` nodes."""

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

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """Most neighboring nodes of full bandwidth, below a tier that may be oversubscribed; here any number [1]."""
        return jnp.full_like(jnp.asarray(nodes), UNLIMITED)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """Bandwidth of the nodes of a domain over that of its links to other domains, at least 1 [1]."""
        return jnp.asarray(1.0)

    def uplink_price(self, nodes: Numeric) -> Float[Array, "..."]:
        """Price per node and lane of the cables and transceivers between switches [USD]."""
        return jnp.zeros_like(jnp.asarray(nodes))

    def added_latency(self, nodes: Numeric) -> Float[Array, "..."]:
        """Latency of a path beyond that which the latency of a link includes; negative if it is shorter [s]."""
        return jnp.zeros_like(jnp.asarray(nodes))

    def forwarded(self) -> Float[Array, "..."]:
        """Share of the traffic between chips of unlike places in their nodes that scale-up networks pass on [1]."""
        return jnp.asarray(0.0)

    def ring_share(self, group: Numeric, nodes: Numeric) -> Float[Array, "..."]:
        """Share of its bandwidth that a node has for rings over a group of nodes [1]."""
        return jnp.ones_like(jnp.asarray(group) * nodes)

    def spread_share(self, group: Numeric, nodes: Numeric) -> Float[Array, "..."]:
        """Share of its bandwidth that a node has for even traffic to all others of a group of nodes [1]."""
        return jnp.ones_like(jnp.asarray(group) * nodes)

    def neighbor_share(self) -> Float[Array, "..."]:
        """Share of its bandwidth that a node has for one other node [1]."""
        return jnp.asarray(1.0)


class Ring(AbstractTopology):
    """Every node linked to two neighbors [Dally & Towles 2004, ch. 5]; exact for an even number of nodes."""

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


class Torus(AbstractTopology):
    """Grid of d dimensions closed on itself, side `a = n^(1/d)` [Dally & Towles 2004, ch. 5]; exact for even a > 2.

    With `single_links` = 1 a node's bandwidth is divided among its 2 d links, as that of a node without switches is:
    traffic has those links alone that lead where it goes. With 0 it has all of them, wherever it goes.
    """

    dimensions: Real = real("1", within=AT_LEAST_ONE)
    single_links: Real = real(
        "1", 0.0, doc="1 if traffic is bound by single links of a node, 0 by all together", within=SHARE
    )
    hop_latency: Real = real("s", 0.0, doc="of a router on the way")

    def side(self, nodes: Numeric) -> Float[Array, "..."]:
        """Nodes along one dimension, `a = n^(1/d)` [1]."""
        return jnp.exp(jnp.log(jnp.asarray(nodes)) / self.dimensions)

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

    def added_latency(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of more routers than a tree has switches [s]."""
        return path_latency(self.hop_latency, self.mean_switches(nodes))

    def ring_share(self, group: Numeric, nodes: Numeric) -> Float[Array, "..."]:
        """Dimensions that the group spans of all, `ln g / ln n`, and one of d at least [1]."""
        g, n = jnp.maximum(jnp.asarray(group), 1.0), jnp.maximum(jnp.asarray(nodes), 2.0)
        return self._bound(jnp.clip(jnp.log(g) / jnp.log(n), 1.0 / jnp.asarray(self.dimensions), 1.0))

    def spread_share(self, group: Numeric, nodes: Numeric) -> Float[Array, "..."]:
        """Links across the middle of the group, `2 c / (d a) (1 - 1 / g)` for a group of side `a = g^(1/d)` [1].

        `c g / a` links of `1 / (2 d)` of a node's bandwidth each carry a quarter of what g nodes send; c is 1 for a
        part of the torus, which is not closed on itself, and 2 for all of it.
        """
        g = jnp.maximum(jnp.asarray(group), 2.0)
        closed = 1.0 + jnp.clip(2.0 * g / nodes - 1.0, 0.0, 1.0)
        across = 2.0 * closed / (self.dimensions * self.side(g)) * (1.0 - 1.0 / g)
        return self._bound(jnp.minimum(across, 1.0))

    def neighbor_share(self) -> Float[Array, "..."]:
        """One link of 2 d [1]."""
        return self._bound(0.5 / jnp.asarray(self.dimensions))

    def _bound(self, share: Numeric) -> Float[Array, "..."]:
        """A share where single links bind, one where they do not."""
        return 1.0 / (1.0 + self.single_links * (1.0 / jnp.asarray(share) - 1.0))


class AbstractSwitchTree(AbstractTopology):
    """Switches in tiers, with an oversubscribed top: what a tree is made of."""

    radix: Real = real("1", 64.0, doc="ports of a switch", within=AT_LEAST_ONE)
    pod: Real = real("1", 1024.0, doc="nodes of a pod, among which bandwidth is full", within=AT_LEAST_ONE)
    oversubscription: Real = real(
        "1", 1.0, doc="bandwidth of the nodes of a pod over that of its links upwards", within=AT_LEAST_ONE
    )
    port_lanes: Real = real("1", 4.0, doc="lanes of a port of a switch", within=AT_LEAST_ONE)
    switch_lanes: Real = real(
        "1", 256.0, doc="lanes of a switch chip; larger switches are made of several", within=ABOVE_ZERO
    )
    uplink_lane_price: Real = real("USD", 0.0, doc="of cable and transceivers between switches, per lane")
    hop_latency: Real = real("s", 0.0, doc="of a switch chip on the way")

    @property
    @abstractmethod
    def most_nodes(self) -> Float[Array, "..."]:
        """Most nodes that the switches join [1]."""


class FatTree(AbstractSwitchTree):
    """Tree of k-port switches in up to three tiers, with an oversubscribed top [Al-Fares et al. 2008, sec. 3].

    Up to k nodes share one switch. A leaf switch has k / 2 nodes and as many links up, and k^2 / 2 nodes (or a pod, if
    that is larger) need two tiers. Above, pods are joined by a third tier with one link for every o nodes. Between
    the sizes that fill a tier, as much of the next one is built as is needed (`tier_share`). Valid up to k pods. A
    switch with more lanes than a chip is itself of several (`chips_per_port`).
    """

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

    @property
    def chips_per_switch(self) -> Float[Array, "..."]:
        """Switch chips on the way through a switch, and ports of chips per port [1]."""
        return chips_per_port(self.radix, self.port_lanes, self.switch_lanes)

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """One for every second node, `n / 2`; of a third tier `n / (2 o)` [1]."""
        _, third = self.tiers(nodes)
        return 0.5 * jnp.asarray(nodes) * (1.0 - third + third / self.oversubscription)

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """One link more than switches, none from a node to itself [1]."""
        return self._switches_passed(nodes) + 1.0 - 2.0 / jnp.asarray(nodes)

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """Its own, one up from the leaf and `1 / o` up from the pod, where there are such tiers [1]."""
        second, third = self.tiers(nodes)
        return 1.0 + second + third / self.oversubscription

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """Ports that the chips take, `G w / w_port` [1]."""
        return jnp.asarray(chips) * lanes / self.port_lanes

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """One within a leaf, three within a pod, five above, each of one chip or several [1]."""
        return self._switches_passed(nodes) * self.chips_per_switch

    def _switches_passed(self, nodes: Numeric) -> Float[Array, "..."]:
        """`1 + 2 s_2 (1 - k / (2 n)) + 2 s_3 (1 - pod / n)`."""
        second, third = self.tiers(nodes)
        n = jnp.asarray(nodes)
        return 1.0 + 2.0 * second * (1.0 - 0.5 * self.radix / n) + 2.0 * third * (1.0 - self.pod / n)

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """Both ends of every link but the one at the node, of one chip or several [1]."""
        return (2.0 * self.links_per_node(nodes) - 1.0) * self.chips_per_switch

    def uplink_price(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of all links but the one at the node [USD]."""
        return (self.links_per_node(nodes) - 1.0) * self.uplink_lane_price

    def added_latency(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of more or fewer switch chips than five [s]."""
        return path_latency(self.hop_latency, self.mean_switches(nodes))

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """A pod where there are several, else all that two tiers hold [1]."""
        return jnp.where(jnp.asarray(nodes) > self.two_tiers, self.pod, self.two_tiers)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """Oversubscription of the third tier, o [1]."""
        return jnp.asarray(self.oversubscription)


class FullyConnected(AbstractTopology):
    """Every node one switch away from every other, as over NVSwitch [NVIDIA 2022, H100 architecture]."""

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
