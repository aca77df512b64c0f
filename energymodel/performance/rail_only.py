"""What do rails cost and carry: one network for the chips of each place in a node, and none between them?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real
from energymodel.performance.topology import AbstractTopology, FatTree
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE


class RailOnly(AbstractTopology):
    """A fat tree for each place that a chip has in its node, without links between them [Wang et al. 2024].

    Nodes are those of one rail: the ports of one chip of each node. Between chips of unlike places the scale-up network
    passes traffic on (`forwarded`), so that each byte of it is sent once more within the node. `pod` and
    `oversubscription` are those of a rail.
    """

    radix: Real = real("1", 64.0, doc="ports of a switch", within=AT_LEAST_ONE)
    pod: Real = real("1", 1024.0, doc="nodes of a pod of a rail, among which bandwidth is full", within=AT_LEAST_ONE)
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
    def rail(self) -> FatTree:
        """The fat tree of one rail."""
        return FatTree(
            radix=self.radix,
            pod=self.pod,
            oversubscription=self.oversubscription,
            port_lanes=self.port_lanes,
            switch_lanes=self.switch_lanes,
            uplink_lane_price=self.uplink_lane_price,
            hop_latency=self.hop_latency,
        )

    @property
    def most_nodes(self) -> Float[Array, "..."]:
        """Most nodes of a rail [1]."""
        return self.rail.most_nodes

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Float[Array, "..."]:
        """Ports that the chips take on one of `G / blocks` rails, `blocks w / w_port` [1]."""
        return jnp.asarray(blocks) * lanes / self.port_lanes

    def bisection_links(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a rail [1]."""
        return self.rail.bisection_links(nodes)

    def mean_hops(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a rail [1]."""
        return self.rail.mean_hops(nodes)

    def links_per_node(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a rail [1]."""
        return self.rail.links_per_node(nodes)

    def mean_switches(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a rail [1]."""
        return self.rail.mean_switches(nodes)

    def switch_ports(self, nodes: Numeric) -> Float[Array, "..."]:
        """Those of a rail [1]."""
        return self.rail.switch_ports(nodes)

    def domain(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of a rail [1]."""
        return self.rail.domain(nodes)

    def uplink_ratio(self) -> Float[Array, "..."]:
        """That of a rail [1]."""
        return self.rail.uplink_ratio()

    def uplink_price(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of a rail [USD]."""
        return self.rail.uplink_price(nodes)

    def added_latency(self, nodes: Numeric) -> Float[Array, "..."]:
        """That of more or fewer switch chips than five [s]."""
        return self.rail.added_latency(nodes)

    def forwarded(self) -> Float[Array, "..."]:
        """All [1]."""
        return jnp.asarray(1.0)
