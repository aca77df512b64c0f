"""What links, routers and bandwidth does a dragonfly have: groups of switches, all linked to each other?

Shared arguments [1]: `routers_per_group` a, `global_links` h per router and `hosts_per_router` p.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real
from energymodel.performance.topology import AbstractTopology, chips_per_port, path_latency
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE


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


class Dragonfly(AbstractTopology):
    """Fully connected groups of fully connected routers [Kim et al. 2008].

    The nodes fill `g = n / (a p)` groups, at most `a h + 1`, and all global links are spread evenly over the pairs
    of groups in use: one per pair at full size, more below. A router with more lanes than a chip is of several
    (`performance.topology.chips_per_port`).
    """

    routers_per_group: Real = real("1", within=AT_LEAST_ONE)
    global_links: Real = real("1", doc="per router", within=AT_LEAST_ONE)
    hosts_per_router: Real = real("1", within=AT_LEAST_ONE)
    port_lanes: Real = real("1", 4.0, doc="lanes of a port of a router", within=ABOVE_ZERO)
    switch_lanes: Real = real(
        "1", 256.0, doc="lanes of a switch chip; larger routers are made of several", within=ABOVE_ZERO
    )
    uplink_lane_price: Real = real("USD", 0.0, doc="of cable and transceivers between routers, per lane")
    hop_latency: Real = real("s", 0.0, doc="of a switch chip on the way")

    @property
    def radix(self) -> Float[Array, "..."]:
        """Ports of a router, `k = p + a - 1 + h` [1]."""
        return jnp.asarray(self.hosts_per_router) + self.routers_per_group - 1.0 + self.global_links

    @property
    def most_nodes(self) -> Float[Array, "..."]:
        """Nodes of all groups that can be linked, `a p (a h + 1)` [1]."""
        return dragonfly_nodes(self.routers_per_group, self.global_links, self.hosts_per_router)

    @property
    def chips_per_switch(self) -> Float[Array, "..."]:
        """Switch chips on the way through a router, and ports of chips per port [1]."""
        return chips_per_port(self.radix, self.port_lanes, self.switch_lanes)

    def groups(self, nodes: Numeric) -> Float[Array, "..."]:
        """Groups in use, `g = n / (a p)` [1]."""
        return jnp.asarray(nodes) / (self.routers_per_group * self.hosts_per_router)

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
        """Ports that the chips take, `G w / w_port` [1]."""
        return jnp.asarray(chips) * lanes / self.port_lanes

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """One less than the links between two different nodes, each of one chip or several [1]."""
        return (self.mean_hops(nodes) + 2.0 / jnp.asarray(nodes) - 1.0) * self.chips_per_switch

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a node's share of its router, `k / p`, of one chip or several [1]."""
        return self.radix / self.hosts_per_router * self.chips_per_switch * jnp.ones_like(jnp.asarray(nodes))

    def uplink_price(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of all links but the one at the node [USD]."""
        return (self.links_per_node(nodes) - 1.0) * self.uplink_lane_price

    def added_latency(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of more or fewer switch chips than five [s]."""
        return path_latency(self.hop_latency, self.mean_switches(nodes))
