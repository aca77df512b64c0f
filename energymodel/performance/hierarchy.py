"""Traffic of matrix products with a given cache, and the cache that balances the arithmetic.

Sizes are counted in elements [element], because a product of given shape moves the same number of elements in
every precision; the element size turns them into bytes. Each level (registers, local memory, last cache) bounds the
traffic to the next one by its own capacity.

Shared arguments: `rows`, `columns`, `inner` are m, n, k of the product (m x k)(k x n) [1]; `cache` is the capacity S
[element]; `element_size` is w [B/element].
"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values, p_norm


def compulsory_traffic(rows: Numeric, columns: Numeric, inner: Numeric) -> Values:
    """Every element moves at least once, `Q_0 = m k + k n + m n` [derivation: two factors read, one product written].


    **Returns:** traffic [element]. A lower bound for any cache.
    """
    m, n, k = map(jnp.asarray, (rows, columns, inner))
    return m * k + k * n + m * n


def capacity_traffic(rows: Numeric, columns: Numeric, inner: Numeric, cache: Numeric) -> Values:
    """Traffic forced by a finite cache [element], `Q_S = 2 m n k / sqrt(S)` [Hong & Kung 1981].

    The constant 2 is tight for large products, reached by square tiles of side `sqrt(S)` [Kwasniewski et al. 2019].
    """
    m, n, k, S = map(jnp.asarray, (rows, columns, inner, cache))
    return 2.0 * m * n * (k / jnp.sqrt(S))


def gemm_traffic(rows: Numeric, columns: Numeric, inner: Numeric, cache: Numeric, exponent: Numeric = 4.0) -> Values:
    """Traffic of a matrix product, `Q = (Q_0^p + Q_S^p)^(1/p)` [Hong & Kung 1981; p-norm: docs/physics.md B4].

    The bound itself is `max(Q_0, Q_S)`. The p-norm joins the two regimes and exceeds it by at most `2^(1/p) - 1` (19 %
    at p = 4), where they meet.

    **Arguments:**

    - `exponent`: p [1], at least 1; p -> infinity is the maximum.

    **Returns:** traffic to the next level [element]. Decreasing in `cache`, at least the compulsory traffic.
    """
    return p_norm(exponent, compulsory_traffic(rows, columns, inner), capacity_traffic(rows, columns, inner, cache))


def cache_limited_intensity(cache: Numeric, element_size: Numeric) -> Values:
    """Highest arithmetic intensity that a cache permits [FLOP/B], `I = sqrt(S) / w` [Hong & Kung 1981].

    `2 m n k` FLOP over `w 2 m n k / sqrt(S)` B, for products much larger than the cache.
    """
    return jnp.sqrt(jnp.asarray(cache)) / element_size


def attention_limited_intensity(cache: Numeric, head_size: Numeric, element_size: Numeric) -> Values:
    """Arithmetic intensity of fused attention with a cache, `I = S / (2 d w)` [Dao et al. 2022, alg. 1, thm. 2].

    A block of `S / (4 d)` queries stays while all n keys and values pass by: `8 n^2 d^2 / S` elements for `4 n^2 d`
    FLOP forward.

    **Arguments:**

    - `head_size`: d [1].

    **Returns:** arithmetic intensity [FLOP/B], in proportion to the cache.
    """
    return jnp.asarray(cache) / (2.0 * jnp.asarray(head_size) * element_size)


def balance_cache_size(compute_rate: Numeric, bandwidth: Numeric, element_size: Numeric) -> Values:
    """Cache at which arithmetic and memory take equally long [element], `S = (F w / bw)^2` [Kung 1986].

    A smaller cache leaves large products memory-bound. Twice the arithmetic at the same bandwidth needs four times the
    cache.

    **Arguments:**

    - `compute_rate`: F [FLOP/s].
    - `bandwidth`: bw to the next level [B/s].
    """
    return (jnp.asarray(compute_rate) / bandwidth * element_size) ** 2
