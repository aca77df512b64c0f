"""How much data must a matrix product move with a given cache, and which cache size balances the arithmetic?

Sizes are counted in elements [element], because a product of given shape moves the same number of elements in
every precision; the element size turns them into bytes. A level of the hierarchy (registers, L1, L2, DRAM) is one entry
of the last axis.

Shared arguments: `rows`, `columns`, `inner` are m, n, k of the product (m x k)(k x n) [1]; `cache` is the capacity S,
`caches` the capacities S_l, one per level [element]; `element_size` is w [B/element].
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from energymodel.numerics import Numeric, p_norm


def compulsory_traffic(rows: Numeric, columns: Numeric, inner: Numeric) -> Float[Array, "..."]:
    """Every element moves at least once, `Q_0 = m k + k n + m n` [derivation: two factors read, one product written].


    **Returns:** traffic [element]. A lower bound for any cache.
    """
    m, n, k = map(jnp.asarray, (rows, columns, inner))
    return m * k + k * n + m * n


def capacity_traffic(rows: Numeric, columns: Numeric, inner: Numeric, cache: Numeric) -> Float[Array, "..."]:
    """Traffic forced by a finite cache, `Q_S = 2 m n k / sqrt(S)` [Hong & Kung 1981].

    The constant 2 is tight for large products, reached by square tiles of side `sqrt(S)` [Kwasniewski et al. 2019].

    **Returns:** traffic [element].
    """
    m, n, k, S = map(jnp.asarray, (rows, columns, inner, cache))
    return 2.0 * m * n * (k / jnp.sqrt(S))


def gemm_traffic(
    rows: Numeric, columns: Numeric, inner: Numeric, cache: Numeric, exponent: Numeric = 4.0
) -> Float[Array, "..."]:
    """Traffic of a matrix product, `Q = (Q_0^p + Q_S^p)^(1/p)` [Hong & Kung 1981; p-norm: docs/physics.md B4].

    The bound itself is `max(Q_0, Q_S)`. The p-norm joins the two regimes and exceeds it by at most `2^(1/p) - 1` (19 %
    at p = 4), where they meet.

    **Arguments:**

    - `exponent`: p [1], at least 1; p -> infinity is the maximum.

    **Returns:** traffic to the next level [element]. Decreasing in `cache`, at least the compulsory traffic.
    """
    return p_norm(exponent, compulsory_traffic(rows, columns, inner), capacity_traffic(rows, columns, inner, cache))


def arithmetic_intensity(operations: Numeric, traffic: Numeric) -> Float[Array, "..."]:
    """Operations per byte moved, `I = F / Q` [Williams et al. 2009, sec. 3].

    **Arguments:**

    - `operations`: F [FLOP].
    - `traffic`: Q [B], positive.

    **Returns:** arithmetic intensity [FLOP/B].
    """
    return jnp.asarray(operations) / traffic


def cache_limited_intensity(cache: Numeric, element_size: Numeric) -> Float[Array, "..."]:
    """Highest arithmetic intensity that a cache permits, `I = sqrt(S) / w` [Hong & Kung 1981].

    `2 m n k` FLOP over `w 2 m n k / sqrt(S)` B, for products much larger than the cache.

    **Returns:** arithmetic intensity [FLOP/B].
    """
    return jnp.sqrt(jnp.asarray(cache)) / element_size


def balance_cache_size(compute_rate: Numeric, bandwidth: Numeric, element_size: Numeric) -> Float[Array, "..."]:
    """Cache at which arithmetic and memory take equally long, `S = (F w / bw)^2` [Kung 1986].

    A smaller cache leaves large products memory-bound. Twice the arithmetic at the same bandwidth needs four times the
    cache.

    **Arguments:**

    - `compute_rate`: F [FLOP/s].
    - `bandwidth`: bw to the next level [B/s].

    **Returns:** capacity [element].
    """
    return (jnp.asarray(compute_rate) / bandwidth * element_size) ** 2


def gemm_movement_time(
    rows: Numeric,
    columns: Numeric,
    inner: Numeric,
    caches: Float[ArrayLike, "*batch levels"],
    bandwidths: Float[ArrayLike, "*batch levels"],
    element_size: Numeric,
    exponent: Numeric = 4.0,
) -> Float[Array, "..."]:
    """Time of the slowest level, `t = (sum_l (w Q(S_l) / bw_l)^p)^(1/p)` [derivation: levels stream concurrently].

    Each level moves what its cache cannot hold: `gemm_traffic` with its own capacity and bandwidth.

    **Arguments:**

    - `bandwidths`: bw_l of the path behind each cache [B/s].
    - `exponent`: p [1], at least 1.

    **Returns:** time [s], between the slowest level and the sum of all.
    """
    m, n, k = (jnp.asarray(size)[..., None] for size in (rows, columns, inner))
    times = gemm_traffic(m, n, k, caches) * element_size / jnp.asarray(bandwidths)
    return p_norm(exponent, *jnp.moveaxis(times, -1, 0))


def gemm_movement_energy(
    rows: Numeric,
    columns: Numeric,
    inner: Numeric,
    caches: Float[ArrayLike, "*batch levels"],
    energies: Float[ArrayLike, "*batch levels"],
    element_size: Numeric,
) -> Float[Array, "..."]:
    """Energy of moving the operands, `E = w sum_l e_l Q(S_l)` [derivation: sum over levels].

    **Arguments:**

    - `energies`: e_l of the path behind each cache [J/B].

    **Returns:** energy [J].
    """
    m, n, k = (jnp.asarray(size)[..., None] for size in (rows, columns, inner))
    return jnp.sum(gemm_traffic(m, n, k, caches) * element_size * jnp.asarray(energies), axis=-1)
