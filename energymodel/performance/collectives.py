"""How long do the collectives of a group of chips take?

All follow the latency-bandwidth model: a message of S bytes takes `alpha + S / bw` [Hockney 1994]. The number of ranks
is a float of at least 1; a single rank has nobody to talk to and takes no time.

Shared arguments: `ranks` n, `inner_ranks` g within a node and `outer_ranks` G nodes [1]; `size` S of the whole buffer
[B]; `latency` alpha of a message [s]; `bandwidth` bw per chip and direction [B/s].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, p_norm


def point_to_point_time(size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time of one message, `t = alpha + S / bw` [Hockney 1994].

    **Returns:** time [s].
    """
    return jnp.asarray(latency) + jnp.asarray(size) / bandwidth


def all_to_all_time(ranks: Numeric, size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time in which every rank sends a part to every other, `t = (n-1) alpha + (n-1)/n S/bw` [Thakur et al. 2005].

    S is what each rank sends, its own part included. Valid with full bisection; otherwise use `contended_bandwidth`.

    **Returns:** time [s], zero for one rank.
    """
    return all_gather_time(ranks, size, latency, bandwidth)


def all_gather_time(ranks: Numeric, size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time of a ring all-gather, `t = (n-1) alpha + (n-1)/n S/bw` [Thakur et al. 2005, sec. 4.1].

    **Returns:** time [s], zero for one rank.
    """
    n = jnp.asarray(ranks)
    return (n - 1.0) * (latency + jnp.asarray(size) / n / bandwidth)


def reduce_scatter_time(ranks: Numeric, size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time of a ring reduce-scatter, `t = (n-1) alpha + (n-1)/n S/bw` [Thakur et al. 2005, sec. 4.2].

    The additions are hidden behind the transfer.

    **Returns:** time [s], zero for one rank.
    """
    return all_gather_time(ranks, size, latency, bandwidth)


def all_reduce_time(ranks: Numeric, size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time of a ring all-reduce, `t = 2 (n-1) alpha + 2 (n-1)/n S/bw` [Patarasuk & Yuan 2009; Thakur et al. 2005].

    A reduce-scatter and an all-gather. No algorithm has a smaller bandwidth term.

    **Returns:** time [s], zero for one rank.
    """
    return 2.0 * all_gather_time(ranks, size, latency, bandwidth)


def tree_all_reduce_time(ranks: Numeric, size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time of an all-reduce over a pipelined tree, `t = 2 log2(n) alpha + 2 S/bw` [Sanders et al. 2009].

    Faster than the ring where latency dominates. Between one rank and two the bandwidth term rises linearly from zero.

    **Returns:** time [s], zero for one rank.
    """
    n = jnp.asarray(ranks)
    shared = jnp.minimum(n - 1.0, 1.0)
    return 2.0 * (jnp.log2(n) * latency + shared * jnp.asarray(size) / bandwidth)


def fastest_all_reduce_time(
    ranks: Numeric, size: Numeric, latency: Numeric, bandwidth: Numeric, exponent: Numeric = 8.0
) -> Float[Array, "..."]:
    """Time of the faster of ring and tree, `t = (t_ring^-p + t_tree^-p)^(-1/p)` [derivation: smoothed minimum].

    Collective libraries choose by size and ranks [Hu et al. 2025, "Demystifying NCCL"]. The soft minimum lies below
    the true one by at most `1 - 2^(-1/p)` (8 % at p = 8), where the two are equal.

    **Arguments:**

    - `exponent`: p [1]; p -> infinity is the minimum.

    **Returns:** time [s], zero for one rank.
    """
    ring = all_reduce_time(ranks, size, latency, bandwidth)
    tree = tree_all_reduce_time(ranks, size, latency, bandwidth)
    some = (ring > 0) & (tree > 0)
    joined = 1.0 / p_norm(exponent, 1.0 / jnp.where(some, ring, 1.0), 1.0 / jnp.where(some, tree, 1.0))
    return jnp.where(some, joined, ring)


def hierarchical_latency(
    inner_ranks: Numeric,
    outer_ranks: Numeric,
    inner_latency: Numeric,
    outer_latency: Numeric,
    steps: Numeric = 0.0,
    tree: bool = False,
) -> Float[Array, "..."]:
    """Latency of an all-reduce over nodes, `2 [(g - 1 + s) alpha_in + n alpha_out]`, ring `n = G - 1`, tree `log2 G`.

    Each of the two halves waits for every rank in turn on a ring [Thakur et al. 2005, sec. 4], for `log2 G` of them
    on a tree [Sanders et al. 2009]. Libraries need about `s` more latencies to start and end.

    **Arguments:**

    - `steps`: s [1].
    - `tree`: whether it takes a tree between nodes, not a ring.

    **Returns:** time [s], zero for one rank.
    """
    g, G = jnp.asarray(inner_ranks), jnp.asarray(outer_ranks)
    some = jnp.minimum(g * G - 1.0, 1.0)
    hops = jnp.log2(G) if tree else G - 1.0
    return 2.0 * ((g - 1.0 + some * steps) * inner_latency + hops * outer_latency)


def hierarchical_transfer_time(
    inner_ranks: Numeric,
    outer_ranks: Numeric,
    size: Numeric,
    inner_bandwidth: Numeric,
    outer_bandwidth: Numeric,
    tree: bool = False,
) -> Float[Array, "..."]:
    """Transfer of an all-reduce over nodes, `2 (g-1)/g S/bw_in + 2 x S/(g bw_out)`, ring `x = (G-1)/G`, tree `x = 1`.

    Rings within nodes; between nodes, a pipelined tree passes every byte up and down once
    [Thakur et al. 2005, sec. 4; Sanders et al. 2009].

    **Arguments:**

    - `tree`: whether it takes a tree between nodes, not a ring.

    **Returns:** time without latency [s], zero for one rank.
    """
    part = jnp.asarray(size) / inner_ranks
    within = all_reduce_time(inner_ranks, size, 0.0, inner_bandwidth)
    between = tree_all_reduce_time if tree else all_reduce_time
    return within + between(outer_ranks, part, 0.0, outer_bandwidth)


def hierarchical_all_reduce_time(
    inner_ranks: Numeric,
    outer_ranks: Numeric,
    size: Numeric,
    inner_latency: Numeric,
    inner_bandwidth: Numeric,
    outer_latency: Numeric,
    outer_bandwidth: Numeric,
) -> Float[Array, "..."]:
    """Time of an all-reduce over nodes of g chips, `t = t_RS(g, S) + t_AR(G, S/g) + t_AG(g, S)` [Cho et al. 2019].

    Reduce-scatter in each node, all-reduce of each part between nodes, all-gather in each node.

    **Returns:** time [s], zero for one rank.
    """
    transfer = hierarchical_transfer_time(inner_ranks, outer_ranks, size, inner_bandwidth, outer_bandwidth)
    return transfer + hierarchical_latency(inner_ranks, outer_ranks, inner_latency, outer_latency)
