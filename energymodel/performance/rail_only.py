"""What do rails cost and carry: one network for the chips of each place in a node, and none between them?"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric
from energymodel.performance.topology import AbstractSwitchTree, FatTree


class RailOnly(AbstractSwitchTree):
    """A fat tree for each place that a chip has in its node, without links between them [Wang et al. 2024].

    Nodes are those of one rail: the ports of one chip of each node. Between chips of unlike places the scale-up network
    passes traffic on (`forwarded`), so that each byte of it is sent once more within the node. `pod` and
    `oversubscription` are those of a rail.
    """

    @property
    def rail(self) -> FatTree:
        """The fat tree of one rail."""
        return FatTree(**{field.name: getattr(self, field.name) for field in dataclasses.fields(FatTree)})

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
