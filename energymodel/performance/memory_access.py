"""How much memory bandwidth does an access pattern reach: lines, coalescing, prefetching, concurrency, sharing?"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from energymodel.numerics import Numeric, p_norm, square_root


def line_efficiency(line_size: Numeric, run_length: Numeric, overhead: Numeric) -> Float[Array, "..."]:
    """Useful share of the traffic, `eta = 1 / [(1 + L / (2 r)) (1 + o / L)]` [derivation: half a line wasted per run].

    Long lines fetch unused bytes at the ends of a run; short ones pay the overhead of a transaction more often
    [Smith 1987]. Valid for runs that start at a random place in a line.

    **Arguments:**

    - `line_size`: L [B], positive.
    - `run_length`: r, contiguous bytes per access [B], positive.
    - `overhead`: o, cost of a transaction in bytes [B].

    **Returns:** efficiency [1], in (0, 1].
    """
    L, r = map(jnp.asarray, (line_size, run_length))
    return 1.0 / ((1.0 + L / (2.0 * r)) * (1.0 + overhead / L))


def optimal_line_size(run_length: Numeric, overhead: Numeric) -> Float[Array, "..."]:
    """Line size with the highest efficiency, `L* = sqrt(2 r o)` [derivation: zero slope of line_efficiency].

    Arguments as in `line_efficiency`.

    **Returns:** line size [B].
    """
    return jnp.sqrt(2.0 * jnp.asarray(run_length) * overhead)


def coalescing_efficiency(stride: Numeric, element_size: Numeric, sector_size: Numeric) -> Float[Array, "..."]:
    """Useful bytes per byte of the sectors touched, `eta = max(1 / s, w / q)`.

    Adjacent threads read elements that lie `s` elements apart; beyond `q / w` each element has a sector of its own
    [NVIDIA 2024, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"].

    **Arguments:**

    - `stride`: s [element], at least 1.
    - `element_size`: w [B].
    - `sector_size`: q, smallest transfer [B]; 32 B on NVIDIA devices.

    **Returns:** efficiency [1].
    """
    return jnp.maximum(1.0 / jnp.asarray(stride), jnp.asarray(element_size) / sector_size)


def prefetch_latency(latency: Numeric, coverage: Numeric, timeliness: Numeric) -> Float[Array, "..."]:
    """Mean latency seen with a prefetcher, `l' = l (1 - c t)` [derivation: expectation; terms of Srinath et al. 2007].

    **Arguments:**

    - `latency`: l without prefetching [s].
    - `coverage`: c, share of misses that are prefetched [1].
    - `timeliness`: t, share of those that arrive before their use [1].

    **Returns:** latency [s].
    """
    return jnp.asarray(latency) * (1.0 - jnp.asarray(coverage) * timeliness)


def prefetch_traffic(coverage: Numeric, accuracy: Numeric) -> Float[Array, "..."]:
    """Growth of traffic by useless prefetches, `g = 1 + c (1 / a - 1)` [derivation: c / a fetched for c used].

    **Arguments:**

    - `accuracy`: a, share of prefetches that are used [1], positive [Srinath et al. 2007].
    - the others: as in `prefetch_latency`.

    **Returns:** traffic relative to no prefetching [1].
    """
    return 1.0 + jnp.asarray(coverage) * (1.0 / jnp.asarray(accuracy) - 1.0)


def balanced_prefetch_coverage(
    latency_time: Numeric, transfer_time: Numeric, accuracy: Numeric, timeliness: Numeric
) -> Float[Array, "..."]:
    """Time-optimal coverage, `c = (t_l - t_b) / (tau t_l + (1 / a - 1) t_b)` [derivation: t_l (1 - c tau) = t_b g(c)].

    Prefetching shortens the time lost to latency and lengthens the transfers; the larger of the two is smallest where
    they meet. Clipped to [0, 1]: a bandwidth-bound pattern gains nothing from prefetching.

    **Arguments:**

    - `latency_time`: t_l, time lost to latency without prefetching [s].
    - `transfer_time`: t_b, time of the transfers without prefetching [s], positive.
    - `accuracy`: a, share of prefetches that are used [1], positive.
    - `timeliness`: tau, share of prefetches that arrive before their use [1], positive.

    **Returns:** coverage [1].
    """
    latency, transfer, a, tau = map(jnp.asarray, (latency_time, transfer_time, accuracy, timeliness))
    fall, rise = tau * latency, (1.0 / a - 1.0) * transfer
    either = fall + rise > 0
    return jnp.where(either, jnp.clip((latency - transfer) / jnp.where(either, fall + rise, 1.0), 0.0, 1.0), 0.0)


def bytes_in_flight(bandwidth: Numeric, latency: Numeric) -> Float[Array, "..."]:
    """Bytes in flight that keep a path busy, `N = bw l` [Little 1961].

    **Arguments:**

    - `bandwidth`: bw [B/s].
    - `latency`: l [s].

    **Returns:** bytes in flight [B].
    """
    return jnp.asarray(bandwidth) * latency


def concurrent_bandwidth(
    bandwidth: Numeric, in_flight: Numeric, latency: Numeric, exponent: Numeric = 4.0
) -> Float[Array, "..."]:
    """Bandwidth reached with limited concurrency, `bw' = [bw^-p + (N / l)^-p]^(-1/p)` [Little 1961].

    The law itself is `min(bw, N / l)`; p = 4 (docs/physics.md E) falls below it by at most 16 % (`1 - 2^(-1/p)`).

    **Arguments:**

    - `bandwidth`: bw, peak of the path [B/s], positive.
    - `in_flight`: N, bytes in flight [B], positive.
    - `latency`: l [s].
    - `exponent`: p [1]; p -> infinity is the minimum.

    **Returns:** bandwidth [B/s].
    """
    return 1.0 / p_norm(exponent, 1.0 / jnp.asarray(bandwidth), jnp.asarray(latency) / in_flight)


def serial_stream_shares(volumes: Float[ArrayLike, "*batch streams"]) -> Float[Array, "*batch streams"]:
    """Optimal fixed shares of streams that run in turn, `x_i = sqrt(V_i) / sum_j sqrt(V_j)` [derivation: Lagrange].

    They minimize `sum_i V_i / (x_i bw)` with `sum_i x_i = 1`.

    **Arguments:**

    - `volumes`: V_i [B], last axis; not all zero.

    **Returns:** shares of the bandwidth [1], summing to 1.
    """
    return concurrent_stream_shares(square_root(volumes))


def concurrent_stream_shares(volumes: Float[ArrayLike, "*batch streams"]) -> Float[Array, "*batch streams"]:
    """Optimal shares of concurrent streams, `x_i = V_i / sum_j V_j` [derivation: all finish at the same time].

    They minimize `max_i V_i / (x_i bw)` with `sum_i x_i = 1`.

    Arguments as in `serial_stream_shares`.

    **Returns:** shares of the bandwidth [1], summing to 1.
    """
    V = jnp.asarray(volumes)
    return V / jnp.sum(V, axis=-1, keepdims=True)


def stream_times(
    volumes: Float[ArrayLike, "*batch streams"], shares: Float[ArrayLike, "*batch streams"], bandwidth: Numeric
) -> Float[Array, "*batch streams"]:
    """Time of each stream at its share of the bandwidth, `t_i = V_i / (x_i bw)` [definition].

    **Arguments:**

    - `shares`: x_i [1]; a stream without volume may have none.
    - `bandwidth`: bw [B/s].
    - the others: as in `serial_stream_shares`.

    **Returns:** times [s]; take their sum for streams in turn, their maximum for concurrent streams.
    """
    V, x = map(jnp.asarray, (volumes, shares))
    present = V > 0
    return jnp.where(present, V / (jnp.where(present, x, 1.0) * jnp.asarray(bandwidth)[..., None]), 0.0)
