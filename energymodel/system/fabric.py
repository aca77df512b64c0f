"""How long does a collective take on the networks within and between nodes, and what does each of them carry?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.collectives import (
    CollectiveLibrary,
    hierarchical_latency,
    hierarchical_transfer_time,
    point_to_point_time,
    protocol_time,
    sent_once_share,
)
from energymodel.performance.parallelism import inner_ranks
from energymodel.performance.topology import AbstractTopology, FullyConnected
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem


class Communication(NamedTuple):
    """Time of a collective, bytes one chip sends within and beyond its node, and the latency part of the time."""

    time: Scalar
    inner_bytes: Scalar
    outer_bytes: Scalar
    latency: Numeric = 0.0

    def plus(self, other: "Communication") -> "Communication":
        """One collective, then another."""
        return Communication(*(jnp.asarray(one) + two for one, two in zip(self, other, strict=True)))

    def scaled(self, count: Numeric) -> "Communication":
        """The same collective, `count` times in a row."""
        return Communication(*(jnp.asarray(part) * count for part in self))


class Fabric(NamedTuple):
    """Bandwidth per chip and direction, latency, chips per node, and what library and framework add to a collective.

    Bandwidth between nodes is full within a `domain` of chips; links between domains have `ratio` times less than the
    chips below them. Nodes of one pipeline are neighbors, so that replicas of the model, not their pipelines, lie in
    different domains [Llama team 2024, sec. 3.3.2]. The topology, of so many nodes, says what share of the bandwidth
    between nodes rings, even traffic and a single neighbor have, and what the network within nodes passes on.
    """

    inner_bandwidth: Scalar
    inner_latency: Scalar
    outer_bandwidth: Scalar
    outer_latency: Scalar
    node: Scalar
    domain: Scalar
    ratio: Scalar
    library: CollectiveLibrary
    framework_latency: Scalar
    topology: AbstractTopology = FullyConnected()
    nodes: Numeric = 1.0

    @property
    def message_latency(self) -> Scalar:
        """Latency of a message within a node, which is a collective of two [s]."""
        return self.inner_latency + self.library.start_latency + self.framework_latency

    def ranks_in_domain(self, ranks: Numeric, stride: Numeric, pipeline: Numeric = 1.0) -> Scalar:
        """Ranks of a group in one domain, those of a node at least [1].

        Neighbors in a node are `stride` chips apart; in different nodes, p pipeline ranks lie between them.
        """
        most = jnp.maximum(self.domain / (jnp.asarray(stride) * pipeline), self.node / stride)
        return inner_ranks(ranks, 1.0, most)

    def beyond_node(self, ranks: Numeric, stride: Numeric, rings: Numeric = 1.0, pipeline: Numeric = 1.0) -> Scalar:
        """Bandwidth of a chip on the rings of a group, `bw / max(1, o r / n_d)` where the group spans domains [B/s].

        Of the n_d ranks of a group in a domain, r send to the next one: a ring leaves a domain once, however many
        ranks it has there [derivation: load of the links upwards].
        """
        within = self.ranks_in_domain(ranks, stride, pipeline)
        leaves = jnp.clip(ranks / within - 1.0, 0.0, 1.0)
        return self.outer_bandwidth / jnp.maximum(1.0, self.ratio * leaves * rings / within)

    def all_reduce(
        self,
        ranks: Numeric,
        stride: Numeric,
        size: Numeric,
        *,
        fused: Numeric,
        count: Numeric = 1.0,
        tree: bool = False,
        large: bool = False,
        pipeline: Numeric = 1.0,
    ) -> Communication:
        """Hierarchical all-reduce of `size` bytes in `count` parts, each with its own latency.

        A ring within the node, then a ring or a tree over the shards between nodes, which lie `pipeline` times as far
        apart. One collective each, where `fused` = 1; else a reduce-scatter and an all-gather. All messages take the
        protocol of large ones, where they are `large`.
        """
        ranks, size, inner = jnp.asarray(ranks), jnp.asarray(size), inner_ranks(ranks, stride, self.node)
        outer, library, kernels = ranks / inner, self.library, count * (2.0 - fused)
        far = self.beyond_node(ranks, stride, inner, pipeline) * self.topology.ring_share(outer, self.nodes)
        waits = library.protocol_latency if large else 0.0
        start = kernels * (library.start_latency + self.framework_latency + waits)
        latency = hierarchical_latency(
            inner, outer, self.inner_latency, self.outer_latency, 2.0 * jnp.asarray(count), start, tree
        )
        own, adding = (2.0 - fused) * library.own_share, fused * library.reduction_rate
        transfer = hierarchical_transfer_time(inner, outer, size, self.inner_bandwidth, far, 2.0, own, adding, tree)
        if not large:
            transfer += protocol_time(transfer, kernels * library.protocol_latency, library.small_rate)
        inner_bytes, outer_bytes = 2.0 * (1.0 - 1.0 / inner) * size, 2.0 * (1.0 - 1.0 / outer) * size / inner
        return Communication(transfer + latency, inner_bytes, outer_bytes, latency)

    def faster_all_reduce(
        self,
        ranks: Numeric,
        stride: Numeric,
        size: Numeric,
        *,
        fused: Numeric,
        count: Numeric,
        tree: Numeric,
        pipeline: Numeric,
    ) -> Communication:
        """All-reduce of large buckets on a ring, or on a tree where `tree` = 1 and it is faster: many nodes."""
        ring = self.all_reduce(ranks, stride, size, fused=fused, count=count, large=True, pipeline=pipeline)
        other = self.all_reduce(ranks, stride, size, fused=fused, count=count, large=True, pipeline=pipeline, tree=True)
        gained = jnp.maximum(ring.time - other.time, 0.0)
        return Communication(ring.time - tree * gained, ring.inner_bytes, ring.outer_bytes)

    def all_to_all(
        self,
        ranks: Numeric,
        stride: Numeric,
        size: Numeric,
        pipeline: Numeric = 1.0,
        copies: Numeric = 1.0,
        once: Numeric = 0.0,
    ) -> Communication:
        """All-to-all in which a chip sends `size / ranks` bytes to each rank, over the two networks in turn.

        What goes to another node is sent there at once, so that latency between nodes counts per node. Links between
        domains carry what leaves a domain, at their share of a chip. With `once` = 1, of `copies` of a token one goes
        to each node, where others are made of it while more arrive. Where the topology links only chips of the same
        place in their nodes, the network within the node first brings what is for others to such a chip: a share
        `1 - 1 / inner` of what leaves the node [Wang et al. 2024], unless what arrives is passed on anyway.
        """
        inner, library, n = inner_ranks(ranks, stride, self.node), self.library, jnp.asarray(ranks)
        kept = 1.0 - once * (1.0 - sent_once_share(n / inner, copies))
        near = (inner - 1.0) / n * (1.0 + once * (n / inner - 1.0)) * size
        far = (1.0 - inner / n) * kept * size
        brought = self.topology.forwarded() * (1.0 - once) * (1.0 - 1.0 / inner)
        near += brought * far
        start = jnp.minimum(n - 1.0, 1.0) * (library.start_latency + self.framework_latency)
        messages = n / inner - 1.0
        latency = start + (inner - 1.0 + brought * messages) * self.inner_latency + messages * self.outer_latency
        leaving = (1.0 - self.ranks_in_domain(ranks, stride, pipeline) / n) * kept * size
        spread = self.outer_bandwidth * self.topology.spread_share(n / inner, self.nodes)
        slowest = jnp.maximum(far / spread, self.ratio * leaving / self.outer_bandwidth)
        own = library.own_share * jnp.minimum(inner - 1.0, 1.0) * size / n
        within = (near + own) / self.inner_bandwidth
        transfer = within + slowest - once * jnp.minimum(within, slowest)
        transfer += protocol_time(transfer, library.protocol_latency, library.small_rate)
        return Communication(latency + transfer, near, far, latency)

    def ring_pass(self, ranks: Numeric, stride: Numeric, size: Numeric) -> Communication:
        """`ranks - 1` point-to-point hops of `size` bytes around a ring, paced by the slowest hop."""
        hops, size = jnp.asarray(ranks) - 1.0, jnp.asarray(size)
        crosses = jnp.clip(ranks / inner_ranks(ranks, stride, self.node) - 1.0, 0.0, 1.0)
        near = point_to_point_time(size, self.message_latency, self.inner_bandwidth)
        bandwidth = self.beyond_node(ranks, stride) * self.topology.neighbor_share()
        far = point_to_point_time(size, self.outer_latency + self.framework_latency, bandwidth)
        time = hops * ((1.0 - crosses) * near + crosses * jnp.maximum(near, far))
        return Communication(time, hops * size * (1.0 - crosses), hops * size * crosses)


def fabric_of(system: TrainingSystem, plan: TrainingPlan) -> Fabric:
    """Bandwidth and latency that the networks offer one of G chips [definition].

    **Returns:** bandwidth [B/s] and latency [s] within and between nodes, chips per node and per domain of full
    bandwidth [1], and the oversubscription between domains [1].
    """
    network, blocks = system.network, system.node.count(plan.chips)
    nodes = network.nodes_of(plan.chips, blocks)
    return Fabric(
        inner_bandwidth=system.accelerator.link_rate(system.node.scale_up.bandwidth()),
        inner_latency=jnp.asarray(system.node.scale_up.latency),
        outer_bandwidth=system.accelerator.link_rate(network.bandwidth(nodes, system.node.host_bandwidth)),
        outer_latency=network.latency(nodes),
        node=jnp.asarray(system.node.chips),
        domain=network.topology.domain(nodes) / nodes * plan.chips,
        ratio=network.uplink_ratio(system.node.host_bandwidth),
        library=system.node.collectives,
        framework_latency=jnp.asarray(system.software.collective_latency),
        topology=network.topology,
        nodes=nodes,
    )
