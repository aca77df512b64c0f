"""Distance between the nodes of a network, its switches and links, and where it is narrow; rings and tori.

Node counts are floats, so that a design may vary them; the formulas are exact at the sizes that can be built.
A node is what a link of the network ends at: a port of a chip, or a block of chips that route among themselves.
Hops are links on the shortest path; means are over all ordered pairs of nodes, including a node with itself.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Numeric, Real, Values, real, share
from energymodel.ranges import AT_LEAST_ONE

UNLIMITED = 1e12  # nodes: more than any network has; infinity would make gradients of quotients undefined
TREE_SWITCHES = 5.0  # on the path through a fat tree of three tiers, whose latency is in that of a link


def path_latency(hop_latency: Numeric, switches: Numeric) -> Values:
    """Latency of a path beyond that of a tree of three tiers [s], `t_hop (S - 5)`; negative if shorter [definition].

    **Arguments:**

    - `hop_latency`: of a switch on the way [s].
    - `switches`: S on the path [1].
    """
    return jnp.asarray(hop_latency) * (jnp.asarray(switches) - TREE_SWITCHES)


class NetworkShape(NamedTuple):
    """A topology at a number of nodes.

    - `bisection_links`: links of the smallest cut that divides the nodes into halves [1].
    - `links_per_node`: links to buy per node [1]; `uplink_price`: of cables and transceivers between switches, per node
      and lane [USD].
    - `mean_switches`: switches, or routers on chips, on the path between two different nodes on average [1];
      `switch_ports`: ports of switches in use per node, of which routers on chips have none [1].
    - `added_latency`: of a path beyond that which the latency of a link includes, negative if it is shorter [s].
    - `domain`: most neighboring nodes of full bandwidth, below a tier that may be oversubscribed [1].
    """

    bisection_links: Values
    links_per_node: Values
    mean_switches: Values
    switch_ports: Values
    uplink_price: Values
    added_latency: Values
    domain: Values


def _shape(
    nodes: Array,
    bisection_links: Numeric,
    links_per_node: Numeric,
    mean_switches: Numeric,
    switch_ports: Numeric = 0.0,
    uplink_price: Numeric = 0.0,
    added_latency: Numeric = 0.0,
    domain: Numeric = UNLIMITED,
) -> NetworkShape:
    """A shape whose numbers all have the shape of `nodes`."""
    parts = (bisection_links, links_per_node, mean_switches, switch_ports, uplink_price, added_latency, domain)
    return NetworkShape(*(jnp.ones_like(nodes) * part for part in parts))


class AbstractTopology(eqx.Module):
    """Topology of a network of nodes."""

    @abstractmethod
    def at(self, nodes: Numeric) -> NetworkShape:
        """Switches, links and narrow places of so many nodes."""

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Values:
        """Nodes of so many chips in so many blocks, with so many lanes per chip: one for each block [1]."""
        return jnp.asarray(blocks)

    def uplink_ratio(self) -> Values:
        """Bandwidth of the nodes of a domain over that of its links to other domains, at least 1 [1]."""
        return jnp.asarray(1.0)

    def forwarded(self) -> Values:
        """Share of the traffic between chips of unlike places in their nodes that scale-up networks pass on [1]."""
        return jnp.asarray(0.0)

    def ring_share(self, group: Numeric, nodes: Numeric) -> Values:
        """Share of its bandwidth that a node has for rings over a group of nodes [1]."""
        return jnp.ones_like(jnp.asarray(group) * nodes)

    def spread_share(self, group: Numeric, nodes: Numeric) -> Values:
        """Share of its bandwidth that a node has for even traffic to all others of a group of nodes [1]."""
        return jnp.ones_like(jnp.asarray(group) * nodes)

    def neighbor_share(self) -> Values:
        """Share of its bandwidth that a node has for one other node [1]."""
        return jnp.asarray(1.0)


class FullyConnected(AbstractTopology):
    """Every node one switch away from every other, as over NVSwitch [NVIDIA 2022, H100 architecture]."""

    def at(self, nodes: Numeric) -> NetworkShape:
        """One link across the middle for every second node; one link, switch and port per node."""
        n = jnp.asarray(nodes)
        return _shape(n, n / 2.0, 1.0, 1.0, 1.0)

    def node_count(self, chips: Numeric, blocks: Numeric, lanes: Numeric) -> Values:
        """One for each chip [1]."""
        return jnp.asarray(chips)


class Torus(AbstractTopology):
    """Grid of d dimensions closed on itself, side `a = n^(1/d)` [Dally & Towles 2004, ch. 5]; exact for even a > 2.

    With `single_links` = 1 a node's bandwidth is divided among its 2 d links, as that of a node without switches is:
    traffic has those links alone that lead where it goes. With 0 it has all of them, wherever it goes.
    """

    dimensions: Real = real("1", within=AT_LEAST_ONE, integer=True)
    single_links: Real = share(0.0, doc="1 if traffic is bound by single links of a node, 0 by all together")
    hop_latency: Real = real("s", 0.0, doc="of a router on the way")

    def side(self, nodes: Numeric) -> Values:
        """Nodes along one dimension, `a = n^(1/d)` [1]."""
        return jnp.exp(jnp.log(jnp.asarray(nodes)) / self.dimensions)

    def at(self, nodes: Numeric) -> NetworkShape:
        """`2 n / a` links across the middle, two per ring, d links per node, `d a / 4` routers on the way."""
        n, side = jnp.asarray(nodes), self.side(nodes)
        routers = side * self.dimensions / 4.0
        return _shape(
            n, 2.0 * n / side, self.dimensions, routers, added_latency=path_latency(self.hop_latency, routers)
        )

    def ring_share(self, group: Numeric, nodes: Numeric) -> Values:
        """Dimensions that the group spans of all, `ln g / ln n`, and one of d at least [1]."""
        g, n = jnp.maximum(jnp.asarray(group), 1.0), jnp.maximum(jnp.asarray(nodes), 2.0)
        return self._bound(jnp.clip(jnp.log(g) / jnp.log(n), 1.0 / jnp.asarray(self.dimensions), 1.0))

    def spread_share(self, group: Numeric, nodes: Numeric) -> Values:
        """Links across the middle of the group, `2 c / (d a) (1 - 1 / g)` for a group of side `a = g^(1/d)` [1].

        `c g / a` links of `1 / (2 d)` of a node's bandwidth each carry a quarter of what g nodes send; c is 1 for a
        part of the torus, which is not closed on itself, and 2 for all of it.
        """
        g = jnp.maximum(jnp.asarray(group), 2.0)
        closed = 1.0 + jnp.clip(2.0 * g / nodes - 1.0, 0.0, 1.0)
        across = 2.0 * closed / (self.dimensions * self.side(g)) * (1.0 - 1.0 / g)
        return self._bound(jnp.minimum(across, 1.0))

    def neighbor_share(self) -> Values:
        """One link of 2 d [1]."""
        return self._bound(0.5 / jnp.asarray(self.dimensions))

    def _bound(self, share: Numeric) -> Values:
        """A share where single links bind, one where they do not."""
        return 1.0 / (1.0 + self.single_links * (1.0 / jnp.asarray(share) - 1.0))
