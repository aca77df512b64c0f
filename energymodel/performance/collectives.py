"""Time of collectives on the networks within and between nodes.

All follow the latency-bandwidth model: a message of S bytes takes `alpha + S / bw` [Hockney 1994]. What collective
libraries add was measured (experiments/17_kernels): a start, the chip's own part, a slower protocol for small messages,
and switches that add. The number of ranks is a float of at least 1; a single rank has nobody to talk to and takes no
time.

Shared arguments: `ranks` n, `inner_ranks` g within a node and `outer_ranks` G nodes [1]; `size` S of the whole buffer
[B]; `latency` alpha of a message and `start` t_0 of all kernels of a collective together [s]; `bandwidth` bw per chip
and direction [B/s]; `passes` k around the ring [1]: 1 for an all-gather, reduce-scatter or all-to-all, 2 for an
all-reduce; `own` w, time of the own parts over that of a part sent, and `reduction_rate` s, share of the bandwidth in a
node at which switches add, 0 where they cannot [1]; `tree`, whether a collective takes a tree between nodes, not a
ring.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Scalar, Values, is_fixed, part, real, share
from energymodel.performance.topology import AbstractTopology, FullyConnected
from energymodel.ranges import SHARE_ABOVE_ZERO


def point_to_point_time(size: Numeric, latency: Numeric, bandwidth: Numeric) -> Values:
    """Time of one message [s], `t = alpha + S / bw` [Hockney 1994]."""
    return jnp.asarray(latency) + jnp.asarray(size) / bandwidth


class CollectiveLibrary(eqx.Module):
    """What a library needs for the collectives of a node, beside bandwidth and latency of the links."""

    start_latency: Real = real("s", 0.0, doc="of a collective, once")
    protocol_latency: Real = real("s", 0.0, doc="more latency of the protocol for large messages")
    small_rate: Real = real(
        "1", 1.0, doc="share of the bandwidth that the protocol for small messages reaches", within=SHARE_ABOVE_ZERO
    )
    own_share: Real = share(0.0, doc="time of a chip's own part over that of a part it sends")
    reduction_rate: Real = share(0.0, doc="share of the bandwidth at which switches add; 0 if they cannot")


def ring_share(ranks: Numeric, passes: Numeric, own: Numeric) -> Values:
    """Transfer of a ring over that of its whole buffer, `x = (k (n-1) + w) / n` [Thakur et al. 2005, sec. 4].

    The kernel also copies the chip's own part, at `1 / w` times the rate of the links
    [derivation: experiments/17_kernels].

    **Returns:** share [1], zero for one rank.
    """
    n = jnp.asarray(ranks)
    return (jnp.asarray(passes) * (n - 1.0) + jnp.asarray(own) * jnp.minimum(n - 1.0, 1.0)) / n


def in_network_gain(share: Numeric, reduction_rate: Numeric) -> Values:
    """How many times faster an all-reduce is where switches add, `max(1, s x)` with the share x of `ring_share`.

    A chip sends its whole buffer to the switches once, at the rate `s bw`, and gets the sums from them
    [Klenk et al. 2020]; the library takes the ring where that is faster.

    **Returns:** factor [1], at least 1.
    """
    return jnp.maximum(1.0, jnp.asarray(reduction_rate) * share)


def sent_once_share(groups: Numeric, copies: Numeric) -> Values:
    """Bytes sent between nodes where a token goes to each node once, over those of all copies.

    `s = N (1 - (1 - 1/N)^k) / k`: nodes that have one of k experts drawn evenly, over copies
    [derivation: coupon collection].

    **Arguments:**

    - `groups`: nodes N, at least 1 [1].
    - `copies`: experts of a token k, at least 1 [1].

    **Returns:** share [1], between 1/k and 1.
    """
    N, k = jnp.asarray(groups), jnp.asarray(copies)
    several = N > 1.0
    missed = jnp.where(several, jnp.power(1.0 - 1.0 / jnp.where(several, N, 2.0), k), 0.0)
    return N * (1.0 - missed) / k


def protocol_time(transfer: Numeric, protocol_latency: Numeric, small_rate: Numeric) -> Values:
    """What the protocols of a library add to a transfer u, `1 / (1/tau + 1/(u (1/r - 1)))`.

    Small messages carry flags beside their data, at a share r of the rate; large ones wait tau for buffers to be
    exchanged [Hu et al. 2025, "Demystifying NCCL"]. The law joins the two limits smoothly
    [derivation: experiments/17_kernels].

    **Arguments:**

    - `transfer`: u at the full rate [s].
    - `protocol_latency`: tau, of all kernels together [s].
    - `small_rate`: r, above 0 and at most 1 [1].

    **Returns:** time [s], at most tau; zero for tau = 0 or r = 1.
    """
    slower = jnp.asarray(transfer) * (1.0 / jnp.asarray(small_rate) - 1.0)
    both = slower + protocol_latency
    none = both <= 0.0
    return jnp.where(none, 0.0, slower * protocol_latency / jnp.where(none, 1.0, both))


def node_collective_time(
    ranks: Numeric,
    size: Numeric,
    latency: Numeric,
    bandwidth: Numeric,
    library: CollectiveLibrary,
    passes: Numeric = 1.0,
    fused: Numeric = 1.0,
) -> Values:
    """Time of a collective within a node, `t = c t_0 + k (n-1) alpha + u + u_p`.

    With the transfer `u = x S / bw` (`ring_share`, `in_network_gain`) and `u_p` of `protocol_time`. Fitted to NCCL 2.27
    to 2.29 on 2, 4 and 8 of A100 to GB300, 512 B to 512 MiB: half of the held-out times of 1 MiB and more are
    predicted within 7 % [derivation: experiments/17_kernels].

    **Arguments:**

    - `fused`: 1 if two passes are one all-reduce, 0 if they are a reduce-scatter and an all-gather [1].

    **Returns:** time [s], zero for one rank.
    """
    kernels = passes - jnp.asarray(fused) * (passes - 1.0)
    own, adding = kernels * library.own_share, fused * jnp.asarray(library.reduction_rate)
    transfer = hierarchical_transfer_time(ranks, 1.0, size, bandwidth, 1.0, passes, own, adding)
    start = hierarchical_latency(ranks, 1.0, latency, 0.0, passes, kernels * library.start_latency)
    return start + transfer + protocol_time(transfer, kernels * library.protocol_latency, library.small_rate)


def hierarchical_latency(
    inner_ranks: Numeric,
    outer_ranks: Numeric,
    inner_latency: Numeric,
    outer_latency: Numeric,
    passes: Numeric = 2.0,
    start: Numeric = 0.0,
    tree: bool = False,
) -> Values:
    """Latency of a collective over nodes, `t_0 + k [(g-1) alpha_in + n alpha_out]`, ring `n = G-1`, tree `log2 G`.

    Each pass waits for every rank in turn on a ring [Thakur et al. 2005, sec. 4], for `log2 G` of them on a tree
    [Sanders et al. 2009].

    **Returns:** time [s], zero for one rank.
    """
    g, G = jnp.asarray(inner_ranks), jnp.asarray(outer_ranks)
    hops = jnp.log2(G) if tree else G - 1.0
    return jnp.minimum(g * G - 1.0, 1.0) * start + passes * ((g - 1.0) * inner_latency + hops * outer_latency)


def hierarchical_transfer_time(
    inner_ranks: Numeric,
    outer_ranks: Numeric,
    size: Numeric,
    inner_bandwidth: Numeric,
    outer_bandwidth: Numeric,
    passes: Numeric = 2.0,
    own: Numeric = 0.0,
    reduction_rate: Numeric = 0.0,
    tree: bool = False,
) -> Values:
    """Transfer of a collective over nodes, `x S/bw_in + k y S/(g bw_out)`, ring `y = (G-1)/G`, tree `y = 1`.

    Rings within nodes, or switches that add where they are faster (`ring_share`, `in_network_gain`); between nodes, a
    pipelined tree passes every byte up and down once [Thakur et al. 2005, sec. 4; Sanders et al. 2009].

    **Returns:** time without latency [s], zero for one rank.
    """
    share, G = ring_share(inner_ranks, passes, own), jnp.asarray(outer_ranks)
    within = share / in_network_gain(share, reduction_rate) * jnp.asarray(size) / inner_bandwidth
    between = jnp.minimum(G - 1.0, 1.0) if tree else (G - 1.0) / G
    return within + passes * between * jnp.asarray(size) / (jnp.asarray(inner_ranks) * outer_bandwidth)


def inner_ranks(ranks: Numeric, stride: Numeric, node: Numeric) -> Values:
    """Ranks of a group that share a node [1], `min(n, max(1, g / stride))` [definition].

    Chips are numbered with tensor parallelism innermost, then context, data and pipeline. The remaining factor
    `n / inner_ranks` of the group crosses the scale-out network.

    **Arguments:**

    - `stride`: chips between neighbors of the group [1].
    - `node`: chips g that share the scale-up network [1].
    """
    n, most = jnp.asarray(ranks), jnp.asarray(node) / stride
    # At one rank where one fits, minimum and maximum would give slopes along the most, which does not matter there.
    alone = jnp.where(most > 1.0, n, 0.5 * (n + jnp.minimum(n, 1.0)))
    return jnp.where(n > 1.0, jnp.minimum(n, jnp.maximum(1.0, most)), alone)


class Communication(NamedTuple):
    """Time of a collective, bytes one chip sends within and beyond its node, and the latency part of the time."""

    time: Scalar
    inner_bytes: Scalar
    outer_bytes: Scalar
    latency: Numeric = 0.0

    def plus(self, other: "Communication") -> "Communication":
        """One collective, then another."""
        return Communication(*(jnp.asarray(mine) + theirs for mine, theirs in zip(self, other, strict=True)))

    def scaled(self, count: Numeric) -> "Communication":
        """The same collective, `count` times in a row."""
        return Communication(*(part(mine, lambda: count) for mine in self))


NO_COMMUNICATION = Communication._make((0.0, 0.0, 0.0, 0.0))
"""Of a single rank."""


class Fabric(NamedTuple):
    """Bandwidth per chip and direction, latency, chips per node, and what library and framework add to a collective.

    Bandwidth between nodes is full within a `domain` of chips; links between domains have `ratio` times less than the
    chips below them. Nodes of one pipeline are neighbors, so that replicas of the model, not their pipelines, lie in
    different domains [Llama team 2024, sec. 3.3.2]. The topology, of so many nodes, says what share of the bandwidth
    between nodes rings, even traffic and a single neighbor have, and what the network within nodes passes on.
    All-to-alls that send a token once to each node have `dispatch` times the bandwidth between nodes.
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
    dispatch: Numeric = 1.0

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
        pipeline: Numeric = 1.0,
        tree: Numeric | None = None,
    ) -> Communication:
        """Hierarchical all-reduce of `size` bytes in `count` parts, each with its own latency.

        A ring within the node, then a ring over the shards between nodes, which lie `pipeline` times as far apart. One
        collective each, where `fused` = 1; else a reduce-scatter and an all-gather. With a `tree` given, messages are
        buckets of gradients: all take the protocol of large ones, and where it is 1 those between many nodes a tree
        that is faster than the ring; no latency of theirs is told apart.
        """
        if is_fixed(ranks, 1.0):
            return NO_COMMUNICATION
        ranks, size, inner = jnp.asarray(ranks), jnp.asarray(size), inner_ranks(ranks, stride, self.node)
        outer, library, kernels = ranks / inner, self.library, count * (2.0 - fused)
        far = self.beyond_node(ranks, stride, inner, pipeline) * self.topology.ring_share(outer, self.nodes)
        waits = 0.0 if tree is None else library.protocol_latency
        start = kernels * (library.start_latency + self.framework_latency + waits)
        own, adding = (2.0 - fused) * library.own_share, fused * library.reduction_rate
        latencies = (inner, outer, self.inner_latency, self.outer_latency, 2.0 * jnp.asarray(count), start)
        sizes = (inner, outer, size, self.inner_bandwidth, far, 2.0, own, adding)
        latency, transfer = hierarchical_latency(*latencies), hierarchical_transfer_time(*sizes)
        bytes_sent = 2.0 * (1.0 - 1.0 / inner) * size, 2.0 * (1.0 - 1.0 / outer) * size / inner
        if tree is not None and is_fixed(tree, 0.0):
            return Communication(transfer + latency, *bytes_sent)
        if tree is None:
            transfer += protocol_time(transfer, kernels * library.protocol_latency, library.small_rate)
            return Communication(transfer + latency, *bytes_sent, latency)
        ring = transfer + latency
        on_tree = hierarchical_transfer_time(*sizes, tree=True) + hierarchical_latency(*latencies, tree=True)
        return Communication(ring - tree * jnp.maximum(ring - on_tree, 0.0), *bytes_sent)

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
        if is_fixed(ranks, 1.0):
            return NO_COMMUNICATION
        inner, library, n = inner_ranks(ranks, stride, self.node), self.library, jnp.asarray(ranks)
        sent = 1.0 - once * (1.0 - sent_once_share(n / inner, copies))
        near = (inner - 1.0) / n * (1.0 + once * (n / inner - 1.0)) * size
        far = (1.0 - inner / n) * sent * size
        brought = self.topology.forwarded() * (1.0 - once) * (1.0 - 1.0 / inner)
        near += brought * far
        start = jnp.minimum(n - 1.0, 1.0) * (library.start_latency + self.framework_latency)
        messages = n / inner - 1.0
        latency = start + (inner - 1.0 + brought * messages) * self.inner_latency + messages * self.outer_latency
        leaving = (1.0 - self.ranks_in_domain(ranks, stride, pipeline) / n) * sent * size
        bandwidth = self.outer_bandwidth * (1.0 + once * (self.dispatch - 1.0))
        spread = self.topology.spread_share(n / inner, self.nodes)
        slowest = jnp.maximum(far / spread, self.ratio * leaving) / bandwidth
        own = library.own_share * jnp.minimum(inner - 1.0, 1.0) * size / n
        within = (near + own) / self.inner_bandwidth
        transfer = within + slowest - once * jnp.minimum(within, slowest)
        transfer += protocol_time(transfer, library.protocol_latency, library.small_rate)
        return Communication(latency + transfer, near, far, latency)

    def ring_pass(self, ranks: Numeric, stride: Numeric, size: Numeric) -> Communication:
        """`ranks - 1` point-to-point hops of `size` bytes around a ring, paced by the slowest hop."""
        if is_fixed(ranks, 1.0):
            return NO_COMMUNICATION
        hops, size = jnp.asarray(ranks) - 1.0, jnp.asarray(size)
        crosses = jnp.clip(ranks / inner_ranks(ranks, stride, self.node) - 1.0, 0.0, 1.0)
        near = point_to_point_time(size, self.message_latency, self.inner_bandwidth)
        bandwidth = self.beyond_node(ranks, stride) * self.topology.neighbor_share()
        far = point_to_point_time(size, self.outer_latency + self.framework_latency, bandwidth)
        time = hops * ((1.0 - crosses) * near + crosses * jnp.maximum(near, far))
        return Communication(time, hops * size * (1.0 - crosses), hops * size * crosses)
