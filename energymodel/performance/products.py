"""Time of a matrix product by itself, by shape, number format and chip.

A product (m x k)(k x n) has edges m (rows, tokens), n (columns) and k (inner).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Numeric, Values

ALIGNED = 64  # elements: 128 bytes of a 16-bit format
VECTOR = 8  # elements that are loaded at once


def product_time(operations: Numeric, edges: Numeric, rate: Numeric, edge: Numeric, latency: Numeric = 0.0) -> Values:
    """Time of matrix products [s], `t = t_0 + 2 (m n k + d m n) / (eta Fdot)`.

    A tile of the result needs a time to start and to be written, worth d more steps along its inner edge, so that
    the rate falls where k is short [derivation: docs/step_time.md; fitted in experiments/17_kernels]. Held out by
    shape, the median error of products of 1,024 to 65,536 is below 3 % on A100, B200 and GB300 in bf16, 6 % on H100 and
    H200, 8 % on B300 and 12 % on GB200, whose tables scatter; 6 to 8 % in fp4, 6 to 11 % in fp8, casts included.

    **Arguments:**

    - `operations`: 2 m n k, summed over products [FLOP].
    - `edges`: 2 m n, the same [1].
    - `rate`: eta Fdot, of large products [FLOP/s].
    - `edge`: d, in elements [1].
    - `latency`: t_0, from launch to end of an empty kernel [s].
    """
    return jnp.asarray(latency) + (jnp.asarray(operations) + edge * jnp.asarray(edges)) / rate


def training_edges(rows: Numeric, columns: Numeric, inner: Numeric, count: Numeric = 1.0) -> Values:
    """Results of a product in training [1], on average over its three passes, `2 (m n + m k + c n k) / 3`.

    The forward pass writes m x n, the backward pass gradients of inputs, m x k, and of weights, n x k [definition].

    **Arguments:**

    - `count`: c, equal products that share the rows (experts) [1].
    """
    m, n, k = map(jnp.asarray, (rows, columns, inner))
    return 2.0 / 3.0 * (m * n + m * k + count * n * k)


def alignment(columns: Numeric, inner: Numeric = 0.0) -> Values:
    """Largest power of two up to 64 that divides two edges of a matrix, `g = lowest bit of (n | k | 64)` [definition].

    Sizes that are no integers lie between those that a search may choose and count as aligned; slopes are zero.

    **Arguments:**

    - `columns`, `inner`: n and k, in elements, below 2^31 [1].

    **Returns:** g, a power of two from 1 to 64 [1].
    """

    def whole(size: Numeric) -> Array:
        value = jax.lax.stop_gradient(jnp.asarray(size))
        floor = value.astype(jnp.int32)
        return jnp.where(floor.astype(value.dtype) == value, floor, 0)

    bits = whole(columns) | whole(inner) | ALIGNED
    return (bits & -bits).astype(jnp.result_type(columns, inner, 0.0))


def alignment_slowdown(columns: Numeric, inner: Numeric, exponent: Numeric, unaligned: Numeric = 1.0) -> Values:
    """Time of a product whose edges are no multiples of 64, over that of an aligned one, `(64 / g)^x u^[g < 8]`.

    Tensor cores are fastest where edges are multiples of 128 bytes (A100 and later; NVIDIA, "Matrix Multiplication
    Background"), and slow down with every power of two that is missing [Anthony et al. 2024, arXiv 2401.14489]. Rows
    that are no multiples of 16 bytes, 8 elements, are not loaded as vectors.

    **Arguments:**

    - `exponent`: x [1].
    - `unaligned`: u, for edges that are no multiples of 8 [1].

    **Returns:** factor [1], at least one.
    """
    shared = alignment(columns, inner)
    return (ALIGNED / shared) ** jnp.asarray(exponent) * jnp.where(shared < VECTOR, unaligned, 1.0)
