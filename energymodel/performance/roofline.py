"""Time of the kernels of a layer on one chip, and traffic of element-wise kernels."""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values, p_norm


def compute_time(operations: Numeric, peak_rate: Numeric, efficiency: Numeric) -> Values:
    """Time of arithmetic [s], `t = F / (eta Fdot)` [definition].

    **Arguments:**

    - `operations`: F [FLOP].
    - `peak_rate`: Fdot [FLOP/s].
    - `efficiency`: eta [1].
    """
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
    tokens: Numeric, hidden: Numeric, tensor: Numeric, sequence_parallel: Numeric, divided: Numeric = 24.0
) -> Values:
    """Memory traffic of one layer's element-wise kernels [B], `Q = 4 M h (10 / t_s + q / t)`, forward and backward.

    A layer writes and reads each of its 34 stored bytes per token and hidden unit, forward and backward. 10 of them
    (norms, dropouts, residuals) are divided over the tensor group only with sequence parallelism, q = 24 always
    [Korthikanti et al. 2022, sec. 4]. A mixture of experts has its own q, `expert_bytes`.

    **Arguments:**

    - `tokens`: tokens M of a micro-batch on a chip [token].
    - `hidden`: hidden size h [1].
    - `tensor`: tensor-parallel degree t [1].
    - `sequence_parallel`: 1 with sequence parallelism, else 0 [1].
    - `divided`: q of a token and hidden unit [B].
    """
    norm_share = sequence_parallel / jnp.asarray(tensor) + (1.0 - sequence_parallel)
    return 4.0 * jnp.asarray(tokens) * hidden * (10.0 * norm_share + divided / tensor)


def expert_bytes(gated: Numeric, ratio: Numeric, blocks: Numeric, copies: Numeric) -> Values:
    """Bytes that pass through a layer of experts per token and hidden unit [B], `q = 8 + (4 + 2 g) r n + 8 k`.

    Attention moves 8 bytes. Each of n blocks that act on a token has inner values of width `r h` before and after its
    activation, and those of a gate. Each of k copies sent to an expert is sorted, padded, sorted back and weighted
    [derivation: docs/step_time.md]. Without copies, a plain block with `r = 4`, or a gated one with `r = 8/3`, has the
    24 bytes of a dense layer.

    **Arguments:**

    - `gated`: g, 1 if gated, 0 if plain [1].
    - `ratio`: r, inner width of an expert over hidden size [1].
    - `blocks`: n, routed and shared [1].
    - `copies`: k, routed [1].
    """
    inner = (4.0 + 2.0 * jnp.asarray(gated)) * jnp.asarray(ratio) * blocks
    return 8.0 + inner + 8.0 * jnp.asarray(copies)
