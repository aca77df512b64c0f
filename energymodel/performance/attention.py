"""Time of a fused attention kernel.

Shared arguments: `keys` n, the keys that a query attends to, on average over queries and layers: half the context with
a causal mask; `head_size` d of the score and value products; `rows`, queries times heads in one kernel [1].
"""

import jax
import jax.numpy as jnp

from energymodel.numerics import Numeric, Values, square_root

ALIGNMENT = 8.0  # entries: 16 bytes of a 16-bit number, the width of a load from memory


def padded_head_size(head_size: Numeric) -> Values:
    """Head size that a kernel computes [1], the next multiple of 8 [Dao 2023, FlashAttention-2].

    The padding is a constant to slopes: between two whole numbers, where searches move, the size is its own.

    **Arguments:**

    - `head_size`: d [1].
    """
    size = jax.lax.stop_gradient(jnp.asarray(head_size))
    padding = jnp.where(size == jnp.floor(size), ALIGNMENT * jnp.ceil(size / ALIGNMENT) - size, 0.0)
    return jnp.asarray(head_size) + padding


def exponential_slowdown(head_size: Numeric, half_head: Numeric) -> Values:
    """Time of attention over that of its matrix products alone, `sqrt(1 + (d_0 / d)^2)`.

    Each score costs `4 d` operations of matrix units, forward, and one exponential. Special-function units take as long
    for it as matrix units for a head of `d_0 = F / (4 E)`, E exponentials per second: on H100 989e12 / (4 x 3.9e12) =
    63 [Shah et al. 2024, FlashAttention-3, sec. 3.2]. A kernel overlaps both, but not fully: the root of the sum of
    squares lies between the larger and the sum. Heads of 64 are 0.77 times as fast as heads of 128 on H100 (ibid.,
    fig. 5) and 0.66 times on GB200; this says 0.79 and 0.63.

    **Arguments:**

    - `head_size`: d [1].
    - `half_head`: d_0 [1].

    **Returns:** ratio [1], at least 1, decreasing in d.
    """
    return square_root(1.0 + (jnp.asarray(half_head) / head_size) ** 2)


def forward_attention_time(
    operations: Numeric, rate: Numeric, keys: Numeric, rows: Numeric, half_keys: Numeric, tail: Numeric
) -> Values:
    """Time of a forward pass of fused attention, `t = F / Fdot (1 + n_0 / n) (1 + r_0 / r)`.

    A query costs as much as n_0 keys before it sees the first: its block is loaded, its mask applied, its output
    scaled and written. The last wave of blocks leaves chips partly idle, as if r_0 more rows were computed: about
    128 for each multiprocessor, 256 on Blackwell.

    Fitted to kernels of A100, H100, H200, B200, GB200 and B300 with heads of 128, contexts of 1,024 to 16,384 and
    8 to 512 heads in a batch; held out by shape, the median error is 3 % [derivation: experiments/17_kernels].

    **Arguments:**

    - `operations`: F of the scores that the mask leaves [FLOP].
    - `rate`: Fdot with many keys and rows [FLOP/s].
    - `half_keys`, `tail`: n_0 and r_0 [1].

    **Returns:** time [s], increasing in n and r.
    """
    ideal = jnp.asarray(operations) / rate
    return ideal * (1.0 + jnp.asarray(half_keys) / keys) * (1.0 + jnp.asarray(tail) / rows)
