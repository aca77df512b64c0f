"""How long does a matrix product take by itself, by shape, number format and chip?

A product (m x k)(k x n) has edges m (rows, tokens), n (columns) and k (inner).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric

ALIGNED = 64  # elements: 128 bytes of a 16-bit format
_POWERS = tuple(2**exponent for exponent in range(1, ALIGNED.bit_length()))


def product_time(
    operations: Numeric, edges: Numeric, rate: Numeric, edge: Numeric, latency: Numeric = 0.0
) -> Float[Array, "..."]:
    """Time of matrix products, `t = t_0 + 2 (m n k + d m n) / (eta Fdot)`.

    A tile of the result needs a time to start and to be written, worth d more steps along its inner edge, so that
    the rate falls where k is short [derivation: docs/step_time.md; fitted in experiments/17_kernels]. Held out by
    shape, half of the products of 1,024 to 65,536 err by less than 3 % on A100, B200 and GB300 in bf16, 6 % on H100 and
    H200, 8 % on B300 and 12 % on GB200, whose tables scatter; by 6 to 8 % in fp4, 6 to 11 % in fp8, casts included.

    **Arguments:**

    - `operations`: 2 m n k, summed over products [FLOP].
    - `edges`: 2 m n, the same [1].
    - `rate`: eta Fdot, of large products [FLOP/s].
    - `edge`: d, in elements [1].
    - `latency`: t_0, from launch to end of an empty kernel [s].

    **Returns:** t [s].
    """
    return jnp.asarray(latency) + (jnp.asarray(operations) + edge * jnp.asarray(edges)) / rate


def training_edges(rows: Numeric, columns: Numeric, inner: Numeric, count: Numeric = 1.0) -> Float[Array, "..."]:
    """Results of a product in training, on average over its three passes, `2 (m n + m k + c n k) / 3`.

    The forward pass writes m x n, the backward pass gradients of inputs, m x k, and of weights, n x k [definition].

    **Arguments:**

    - `count`: c, equal products that share the rows (experts) [1].

    **Returns:** twice the elements of the mean result [1].
    """
    m, n, k = map(jnp.asarray, (rows, columns, inner))
    return 2.0 / 3.0 * (m * n + m * k + count * n * k)


def alignment(size: Numeric) -> Float[Array, "..."]:
    """Largest power of two up to 64 that divides an edge of a matrix [1].

    Sizes that are no integers lie between those that a search may choose and count as aligned; slopes are zero.
    """
    value = jax.lax.stop_gradient(jnp.asarray(size))
    divides = jnp.mod(value[..., None], jnp.asarray(_POWERS, value.dtype)) == 0.0
    found = 2.0 ** jnp.sum(jnp.where(divides, 1.0, 0.0), axis=-1)
    return jnp.where(value == jnp.round(value), found, float(ALIGNED))


def alignment_slowdown(columns: Numeric, inner: Numeric, exponent: Numeric) -> Float[Array, "..."]:
    """Time of a product whose edges are no multiples of 64, over that of an aligned one, `(64 / g)^x`.

    g is the smaller of the powers of two up to 64 that divide the two edges. Tensor cores load 128 bytes at a time
    [NVIDIA, Matrix Multiplication Background, sec. 2.1; Anthony et al. 2024, "The Case for Co-Designing Model
    Architectures with Hardware", sec. 6].

    **Arguments:**

    - `exponent`: x [1].

    **Returns:** factor [1], at least one.
    """
    return (ALIGNED / jnp.minimum(alignment(columns), alignment(inner))) ** jnp.asarray(exponent)
