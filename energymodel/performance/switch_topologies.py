"""Networks of switches: fat trees, rails and dragonflies.

Shared arguments [1]: `radix` k, ports per switch. Of a dragonfly, whose groups of switches are all linked to each
other: `routers_per_group` a, `global_links` h per router and `hosts_per_router` p.
"""

from abc import abstractmethod

import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.performance.topology import UNLIMITED, AbstractTopology, NetworkShape, path_latency
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE


def tier_share(nodes: Numeric, capacity: Numeric) -> Values:
    """Part of the next tier that n nodes need if c do without [1], `min(max(n / c - 1, 0), 1)` [derivation below].

    A network for c + x nodes connects the last x with the others: x links up on either side, `2 x <= n` in all. From
    2 c nodes on every node has a link up.

    **Arguments:**

    - `capacity`: c [1], positive.
    """
    return jnp.clip(jnp.asarray(nodes) / capacity - 1.0, 0.0, 1.0)


def chips_per_port(radix: Numeric, port_lanes: Numeric, switch_lanes: Numeric) -> Values:
    """Ports of switch chips behind a port of a switch, `1 + 2 s(k w / W)` with `tier_share` s [derivation below].

    A switch of more lanes than a chip has is itself a tree of chips: those at its ports have links up to others for as
    many lanes as exceed a chip, so that a port has up to three ports of chips behind it, and three chips on its way.

    **Arguments:**

    - `port_lanes`: w, lanes of a port [1].
    - `switch_lanes`: W, lanes of a switch chip [1], positive.

    **Returns:** ports of chips per port [1], 1 to 3.
    """
    return 1.0 + 2.0 * tier_share(jnp.asarray(radix) * port_lanes, switch_lanes)


class AbstractSwitchTree(AbstractTopology):
    """Tree of k-port switches in up to three tiers, with an oversubscribed top [Al-Fares et al. 2008, sec. 3].

    Up to k nodes share one switch. A leaf switch has k / 2 nodes and as many links up, and k^2 / 2 nodes (or a pod, if
    that is larger) need two tiers. Above, pods are joined by a third tier with one link for every o nodes. Between
    the sizes that fill a tier, as much of the next one is built as is needed (`tier_share`). Valid up to k pods. A
    switch with more lanes than a chip is itself of several (`chips_per_port`).
    """

    radix: Real = real("1", 64.0, doc="ports of a switch", within=AT_LEAST_ONE, integer=True)
    pod: Real = real(
        "1", 1024.0, doc="nodes of a pod, among which bandwidth is full", within=AT_LEAST_ONE, integer=True
    )
    oversubscription: Real = real(
        "1", 1.0, doc="bandwidth of the nodes of a pod over that of its links upwards", within=AT_LEAST_ONE
    )
    port_lanes: Real = real("1", 4.0, doc="lanes of a port of a switch", within=AT_LEAST_ONE, integer=True)
    switch_lanes: Real = real(
        "1", 256.0, doc="lanes of a switch chip; larger switches are made of several", within=ABOVE_ZERO, integer=True
    )
    uplink_lane_price: Real = real("USD", 0.0, doc="of cable and transceivers between switches, per lane")
    hop_latency: Real = real("s", 0.0, doc="of a switch chip on the way")

    @property
    def most_nodes(self) -> Values:
        """Most nodes of three tiers, k pods: `k^3 / 4` for pods of k^2 / 4 nodes [1]."""
        return jnp.asarray(self.radix) * self.pod

    def at(self, nodes: Numeric) -> NetworkShape:
        """Links, ports and switches of the tiers that are built, of parts s_2 and s_3 of the upper ones.

        `n / 2` links across the middle, of a third tier `n / (2 o)`; `1 + s_2 + s_3 / o` links per node: its own, one
        up from the leaf, `1 / o` up from the pod. `1 + 2 s_2 (1 - k / (2 n)) + 2 s_3 (1 - pod / n)` switches on the
        way, each of one chip or several. Ports are at both ends of every link but that at the node. A pod is the domain
        where there are several, else all that two tiers hold.
        """
        n = jnp.asarray(nodes)
        two_tiers = jnp.maximum(0.5 * jnp.asarray(self.radix) ** 2, self.pod)
        second, third = tier_share(n, self.radix), tier_share(n, two_tiers)
        chips = chips_per_port(self.radix, self.port_lanes, self.switch_lanes)
        passed = 1.0 + 2.0 * second * (1.0 - 0.5 * self.radix / n) + 2.0 * third * (1.0 - self.pod / n)
        links = 1.0 + second + third / self.oversubscription
        return NetworkShape(
            bisection_links=0.5 * n * (1.0 - third + third / self.oversubscription),
            links_per_node=links,
            mean_switches=passed * chips,
            switch_ports=(2.0 * links - 1.0) * chips,
            uplink_price=(links - 1.0) * self.uplink_lane_price,
            added_latency=path_latency(self.hop_latency, passed * chips),
            domain=jnp.where(n > two_tiers, self.pod, two_tiers),
        )

    @abstractmethod
    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Values:
        """Ports that the chips take in one tree [1]."""

    def uplink_ratio(self) -> Values:
        """Oversubscription of the third tier, o [1]."""
        return jnp.asarray(self.oversubscription)


class FatTree(AbstractSwitchTree):
    """One tree for the ports of all chips."""

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Values:
        """Ports that the chips take, `G w / w_port` [1]."""
        return jnp.asarray(chips) * lanes / self.port_lanes


class RailOnly(AbstractSwitchTree):
    """A tree for each place that a chip has in its node, without links between them [Wang et al. 2024].

    Nodes are those of one rail: the ports of one chip of each node. Between chips of unlike places the scale-up network
    passes traffic on (`forwarded`), so that each byte of it is sent once more within the node. `pod` and
    `oversubscription` are those of a rail.
    """

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Values:
        """Ports that the chips take on one of `G / blocks` rails, `blocks w / w_port` [1]."""
        return jnp.asarray(blocks) * lanes / self.port_lanes

    def forwarded(self) -> Values:
        """All [1]."""
        return jnp.asarray(1.0)


def dragonfly_groups(routers_per_group: Numeric, global_links: Numeric) -> Values:
    """Groups of the largest dragonfly [1], one link between any two, `g = a h + 1` [Kim et al. 2008, sec. 3.1]."""
    return jnp.asarray(routers_per_group) * global_links + 1.0


def dragonfly_nodes(routers_per_group: Numeric, global_links: Numeric, hosts_per_router: Numeric) -> Values:
    """Nodes of the largest dragonfly [1], `n = a p (a h + 1)` [Kim et al. 2008, sec. 3.1]."""
    a = jnp.asarray(routers_per_group)
    return a * hosts_per_router * dragonfly_groups(a, global_links)


class Dragonfly(AbstractTopology):
    """Fully connected groups of fully connected routers [Kim et al. 2008].

    The nodes fill `g = n / (a p)` groups, at most `a h + 1`, and all global links are spread evenly over the pairs
    of groups in use: one per pair at full size, more below. A router with more lanes than a chip is of several
    (`chips_per_port`).
    """

    routers_per_group: Real = real("1", within=AT_LEAST_ONE, integer=True)
    global_links: Real = real("1", doc="per router", within=AT_LEAST_ONE, integer=True)
    hosts_per_router: Real = real("1", within=AT_LEAST_ONE, integer=True)
    port_lanes: Real = real("1", 4.0, doc="lanes of a port of a router", within=ABOVE_ZERO, integer=True)
    switch_lanes: Real = real(
        "1", 256.0, doc="lanes of a switch chip; larger routers are made of several", within=ABOVE_ZERO, integer=True
    )
    uplink_lane_price: Real = real("USD", 0.0, doc="of cable and transceivers between routers, per lane")
    hop_latency: Real = real("s", 0.0, doc="of a switch chip on the way")

    @property
    def radix(self) -> Values:
        """Ports of a router, `k = p + a - 1 + h` [1]."""
        return jnp.asarray(self.hosts_per_router) + self.routers_per_group - 1.0 + self.global_links

    @property
    def most_nodes(self) -> Values:
        """Nodes of all groups that can be linked, `a p (a h + 1)` [1]."""
        return dragonfly_nodes(self.routers_per_group, self.global_links, self.hosts_per_router)

    def groups(self, nodes: Numeric) -> Values:
        """Groups in use, `g = n / (a p)` [1]."""
        return jnp.asarray(nodes) / (self.routers_per_group * self.hosts_per_router)

    def at(self, nodes: Numeric) -> NetworkShape:
        """Links, ports and routers of the groups in use.

        `g^2 / 4 a h / (g - 1)` global links between the halves, which is `g^2 / 4` at full size; below two groups a
        node keeps its share of the cut of two: balanced dragonflies (a = 2 p = 2 h) have as many local links across a
        group. `1 + (a - 1 + h) / (2 p)` links per node, its own and its share of the router's. Paths have two links to
        and from the hosts, one within a group, one global link and a local link on either side unless the router owns
        the global one, `2 + (a-1)/(a g) + (g-1)/g (1 + 2 (a-1)/a)`, and one switch less, of one chip or several.
        """
        n, other = jnp.asarray(nodes), 1.0 - 1.0 / jnp.asarray(self.routers_per_group)
        groups = self.groups(n)
        pairs, several = jnp.maximum(groups, 2.0), jnp.maximum(groups, 1.0)
        chips = chips_per_port(self.radix, self.port_lanes, self.switch_lanes)
        links = 1.0 + (self.routers_per_group - 1.0 + self.global_links) / (2.0 * self.hosts_per_router)
        routers = (1.0 + other / several + (1.0 - 1.0 / several) * (1.0 + 2.0 * other)) * chips
        return NetworkShape(
            bisection_links=0.25 * groups * pairs / (pairs - 1.0) * self.routers_per_group * self.global_links,
            links_per_node=links * jnp.ones_like(n),
            mean_switches=routers,
            switch_ports=self.radix / self.hosts_per_router * chips * jnp.ones_like(n),
            uplink_price=(links - 1.0) * self.uplink_lane_price * jnp.ones_like(n),
            added_latency=path_latency(self.hop_latency, routers),
            domain=UNLIMITED * jnp.ones_like(n),
        )

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Values:
        """Ports that the chips take, `G w / w_port` [1]."""
        return jnp.asarray(chips) * lanes / self.port_lanes
