"""Time and traffic of the kernels of a layer on one chip: matrix products, fused attention, element-wise kernels.

Shared arguments: `operations` F [FLOP] at a `rate` or `peak_rate` Fdot, with or without its `efficiency` eta [FLOP/s];
overlap `exponent` p of times, at least 1 [1]; `tokens` M of a micro-batch on a chip [token].

A product (m x k)(k x n) has edges m (`rows`, tokens), n (`columns`) and k (`inner`), in elements below 2^31 [1];
`operations` are 2 m n k and `edges` 2 m n, summed over products; `edge` d, in elements, and `latency` t_0, from launch
to end of an empty kernel [s]; `count` c, equal products that share the rows (experts) [1].

Of attention: `keys` n, the keys that a query attends to, on average over queries and layers: half the context with a
causal mask; `head_size` d of the score and value products, `half_head` d_0; `rows` r, queries times heads in one
kernel, `tail` r_0, and `half_keys` n_0 [1].

Of element-wise kernels: `hidden` size h, `tensor`-parallel degree t and `sequence_parallel`, 1 with sequence
parallelism, else 0 [1]; bytes of a token and hidden unit, `divided` q [B]; of experts, `gated` g, 1 if gated, 0 if
plain, `ratio` r, inner width over hidden size, `blocks` n, routed and shared, and `copies` k, routed [1].
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Numeric, Values, p_norm, square_root

ALIGNED = 64  # elements: 128 bytes of a 16-bit format
VECTOR = 8  # elements that are loaded at once
ALIGNMENT = 8.0  # entries: 16 bytes of a 16-bit number, the width of a load from memory


def compute_time(operations: Numeric, peak_rate: Numeric, efficiency: Numeric) -> Values:
    """Time of arithmetic [s], `t = F / (eta Fdot)` [definition]."""
    return jnp.asarray(operations) / (jnp.asarray(peak_rate) * efficiency)


def roofline_time(compute: Numeric, memory: Numeric, communication: Numeric, exponent: Numeric) -> Values:
    """Time of work that overlaps on several resources [s], `t = (sum_i t_i^p)^(1/p)`.

    p = 1 is serial execution, p -> infinity the classical roofline [Williams et al. 2009]. Measurements lie in between
    (p = 2.7 to 7.7 for host and GPU, docs/physics.md A2.19).

    **Arguments:**

    - `compute`, `memory`, `communication`: times on each resource [s]; zero is legal.
    - `exponent`: overlap exponent p >= 1 [1].
    """
    return p_norm(exponent, compute, memory, communication)


def token_rate(
    compute: Numeric,
    memory: Numeric,
    network: Numeric,
    flops_per_token: Numeric,
    bytes_per_token: Numeric,
    network_bytes_per_token: Numeric,
    exponent: Numeric,
) -> Values:
    """Throughput limited by three resources [token/s], `R = [sum_i (demand_i / capacity_i)^p]^(-1/p)`.

    For p -> infinity this is `min(Fdot/F_tok, bw_m/Q_tok, bw_n/V_tok)`, the dimensionally sound form of
    `T_est = min(T_compute, T_memory, T_comm)` [derivation: docs/physics.md A2.19; Williams et al. 2009].

    **Arguments:**

    - `compute`: achievable rate [FLOP/s].
    - `memory`, `network`: achievable bandwidths [B/s].
    - `flops_per_token` [FLOP/token], `bytes_per_token`, `network_bytes_per_token` [B/token]: demands.
    - `exponent`: overlap exponent p [1].
    """
    seconds = roofline_time(
        jnp.asarray(flops_per_token) / compute,
        jnp.asarray(bytes_per_token) / memory,
        jnp.asarray(network_bytes_per_token) / network,
        exponent,
    )
    return 1.0 / seconds


def elementwise_traffic(
    tokens: Numeric,
    hidden: Numeric,
    tensor: Numeric,
    sequence_parallel: Numeric,
    divided: Numeric = 24.0,
    undivided: Numeric = 10.0,
) -> Values:
    """Memory traffic of one layer's element-wise kernels [B], `Q = 4 M h (u / t_s + q / t)`, forward and backward.

    A layer writes and reads each of its 34 stored bytes per token and hidden unit, forward and backward. u = 10 of them
    (norms, dropouts, residuals) are divided over the tensor group only with sequence parallelism, q = 24 always
    [Korthikanti et al. 2022, sec. 4]. A mixture of experts has its own q, `expert_bytes`.
    """
    norm_share = sequence_parallel / jnp.asarray(tensor) + (1.0 - sequence_parallel)
    return 4.0 * jnp.asarray(tokens) * hidden * (undivided * norm_share + divided / tensor)


def expert_bytes(gated: Numeric, ratio: Numeric, blocks: Numeric, copies: Numeric) -> Values:
    """Bytes that pass through a layer of experts per token and hidden unit [B], `q = 8 + (4 + 2 g) r n + 8 k`.

    Attention moves 8 bytes. Each of n blocks that act on a token has inner values of width `r h` before and after its
    activation, and those of a gate. Each of k copies sent to an expert is sorted, padded, sorted back and weighted
    [derivation: docs/step_time.md]. Without copies, a plain block with `r = 4`, or a gated one with `r = 8/3`, has the
    24 bytes of a dense layer.
    """
    inner = (4.0 + 2.0 * jnp.asarray(gated)) * jnp.asarray(ratio) * blocks
    return 8.0 + inner + 8.0 * jnp.asarray(copies)


def product_time(operations: Numeric, edges: Numeric, rate: Numeric, edge: Numeric, latency: Numeric = 0.0) -> Values:
    """Time of matrix products [s], `t = t_0 + 2 (m n k + d m n) / (eta Fdot)`.

    A tile of the result needs a time to start and to be written, worth d more steps along its inner edge, so that
    the rate falls where k is short [derivation: docs/step_time.md; fitted in experiments/17_kernels]. Held out by
    shape, the median error of products of 1,024 to 65,536 is below 3 % on A100, B200 and GB300 in bf16, 6 % on H100 and
    H200, 8 % on B300 and 12 % on GB200, whose tables scatter; 6 to 8 % in fp4, 6 to 11 % in fp8, casts included.
    """
    return jnp.asarray(latency) + (jnp.asarray(operations) + edge * jnp.asarray(edges)) / rate


def training_edges(rows: Numeric, columns: Numeric, inner: Numeric, count: Numeric = 1.0) -> Values:
    """Results of a product in training [1], on average over its three passes, `2 (m n + m k + c n k) / 3`.

    The forward pass writes m x n, the backward pass gradients of inputs, m x k, and of weights, n x k [definition].
    """
    m, n, k = map(jnp.asarray, (rows, columns, inner))
    return 2.0 / 3.0 * (m * n + m * k + count * n * k)


def alignment(columns: Numeric, inner: Numeric = 0.0) -> Values:
    """Largest power of two up to 64 that divides two edges of a matrix, `g = lowest bit of (n | k | 64)` [definition].

    Sizes that are no integers lie between those that a search may choose and count as aligned; slopes are zero.

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


def padded_head_size(head_size: Numeric) -> Values:
    """Head size that a kernel computes [1], the next multiple of 8 [Dao 2023, FlashAttention-2].

    The padding is a constant to slopes: between two whole numbers, where searches move, the size is its own.
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

    **Returns:** time [s], increasing in n and r.
    """
    ideal = jnp.asarray(operations) / rate
    return ideal * (1.0 + jnp.asarray(half_keys) / keys) * (1.0 + jnp.asarray(tail) / rows)
