"""How long do the collectives of a group of chips take?

All follow the latency-bandwidth model: a message of S bytes takes `alpha + S / bw` [Hockney 1994]. What collective
libraries add was measured (experiments/17_kernels): a start, the chip's own part, a slower protocol for small messages,
and switches that add. The number of ranks is a float of at least 1; a single rank has nobody to talk to and takes no
time.

Shared arguments: `ranks` n, `inner_ranks` g within a node and `outer_ranks` G nodes [1]; `size` S of the whole buffer
[B]; `latency` alpha of a message [s]; `bandwidth` bw per chip and direction [B/s]; `passes` k around the ring [1]: 1
for an all-gather, reduce-scatter or all-to-all, 2 for an all-reduce.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real
from energymodel.ranges import SHARE, SHARE_ABOVE_ZERO


def point_to_point_time(size: Numeric, latency: Numeric, bandwidth: Numeric) -> Float[Array, "..."]:
    """Time of one message, `t = alpha + S / bw` [Hockney 1994].

    **Returns:** time [s].
    """
    return jnp.asarray(latency) + jnp.asarray(size) / bandwidth


class CollectiveLibrary(eqx.Module):
    """What a library needs for the collectives of a node, beside bandwidth and latency of the links."""

    start_latency: Real = real("s", 0.0, doc="of a collective, once")
    protocol_latency: Real = real("s", 0.0, doc="more latency of the protocol for large messages")
    small_rate: Real = real(
        "1", 1.0, doc="share of the bandwidth that the protocol for small messages reaches", within=SHARE_ABOVE_ZERO
    )
    own_share: Real = real("1", 0.0, doc="time of a chip's own part over that of a part it sends", within=SHARE)
    reduction_rate: Real = real(
        "1", 0.0, doc="share of the bandwidth at which switches add; 0 if they cannot", within=SHARE
    )


def ring_share(ranks: Numeric, passes: Numeric, own: Numeric) -> Float[Array, "..."]:
    """Transfer of a ring over that of its whole buffer, `x = (k (n-1) + w) / n` [Thakur et al. 2005, sec. 4].

    The kernel also copies the chip's own part, at `1 / w` times the rate of the links
    [derivation: experiments/17_kernels].

    **Arguments:**

    - `own`: w, time of the own parts over that of a part sent [1].

    **Returns:** share [1], zero for one rank.
    """
    n = jnp.asarray(ranks)
    return (jnp.asarray(passes) * (n - 1.0) + jnp.asarray(own) * jnp.minimum(n - 1.0, 1.0)) / n


def in_network_gain(share: Numeric, reduction_rate: Numeric) -> Float[Array, "..."]:
    """How many times faster an all-reduce is where switches add, `max(1, s x)`.

    A chip sends its whole buffer to the switches once, at the rate `s bw`, and gets the sums from them
    [Klenk et al. 2020]; the library takes the ring where that is faster.

    **Arguments:**

    - `share`: x of the ring (`ring_share`) [1].
    - `reduction_rate`: s [1]; 0 where switches cannot add.

    **Returns:** factor [1], at least 1.
    """
    return jnp.maximum(1.0, jnp.asarray(reduction_rate) * share)


def sent_once_share(groups: Numeric, copies: Numeric) -> Float[Array, "..."]:
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


def protocol_time(transfer: Numeric, protocol_latency: Numeric, small_rate: Numeric) -> Float[Array, "..."]:
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
) -> Float[Array, "..."]:
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
) -> Float[Array, "..."]:
    """Latency of a collective over nodes, `t_0 + k [(g-1) alpha_in + n alpha_out]`, ring `n = G-1`, tree `log2 G`.

    Each pass waits for every rank in turn on a ring [Thakur et al. 2005, sec. 4], for `log2 G` of them on a tree
    [Sanders et al. 2009].

    **Arguments:**

    - `start`: t_0 of all its kernels together [s].
    - `tree`: whether it takes a tree between nodes, not a ring.

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
) -> Float[Array, "..."]:
    """Transfer of a collective over nodes, `x S/bw_in + k y S/(g bw_out)`, ring `y = (G-1)/G`, tree `y = 1`.

    Rings within nodes, or switches that add where they are faster (`ring_share`, `in_network_gain`); between nodes, a
    pipelined tree passes every byte up and down once [Thakur et al. 2005, sec. 4; Sanders et al. 2009].

    **Arguments:**

    - `own`: w of `ring_share` [1].
    - `reduction_rate`: share of the bandwidth in a node at which switches add [1]; 0 for none.
    - `tree`: whether it takes a tree between nodes, not a ring.

    **Returns:** time without latency [s], zero for one rank.
    """
    share, G = ring_share(inner_ranks, passes, own), jnp.asarray(outer_ranks)
    within = share / in_network_gain(share, reduction_rate) * jnp.asarray(size) / inner_bandwidth
    between = jnp.minimum(G - 1.0, 1.0) if tree else (G - 1.0) / G
    return within + passes * between * jnp.asarray(size) / (jnp.asarray(inner_ranks) * outer_bandwidth)
