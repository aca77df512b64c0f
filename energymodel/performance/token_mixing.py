"""Operations of layers that mix tokens otherwise than by full attention: with a window, a state, or chosen keys.

A layer with a state, a state-space model or linear attention, has heads H and `key_heads` G, each of which serves H / G
of them, `key_size` N and `value_size` P, so that the state of a head has N P entries; `chunk` C are the tokens that a
step of its kernels takes [1]. `sequence` is the context length s, `window` w [token].
"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values


def window_length(window: Numeric, sequence: Numeric) -> Values:
    """Context whose causal attention has as many scores as a sliding window, `w (2 - w / s)`, w at most s.

    A token attends to itself and the w - 1 before it, but the first w tokens have fewer: `s w (1 - w / (2 s))` scores
    instead of the `s^2 / 2` of all pairs [Beltagy et al. 2020; the count is elementary, to one part in w].

    **Returns:** length [token], `sequence` where the window reaches it.
    """
    w = jnp.minimum(jnp.asarray(window), sequence)
    return w * (2.0 - w / sequence)


def state_flops_per_token(
    heads: Numeric, key_heads: Numeric, key_size: Numeric, value_size: Numeric, chunk: Numeric, delta: Numeric
) -> Values:
    """Operations of a layer with a state beside its projections, both passes [FLOP/token].

    `F = 3 [2 C (G N + H P) + 4 H N P]` in chunks: scores of keys and queries, which heads of a group share, their
    products with values, and the state read and written once a chunk [Dao & Gu 2024, arXiv 2405.21060, sec. 6; of
    linear attention, Qin et al. 2024, arXiv 2401.04658, alg. 1]. The delta rule scores each head (G = H) and adds
    `3 H [2 C (2 N + P) + C^2 / 3 + 2 N P]`: keys against keys, the inverse of a triangle, its products with keys and
    values, and what the state already holds [Yang et al. 2024, arXiv 2406.06484, eqs. 8-11; 2412.06464, sec. 3.3].
    Chunks are computed whole, without the half that a mask removes.

    **Arguments:**

    - `delta`: 1 with the delta rule, else 0 [1].
    """
    H, N, P, C = map(jnp.asarray, (heads, key_size, value_size, chunk))
    plain = 2.0 * C * ((key_heads + delta * (H - key_heads)) * N + H * P) + 4.0 * H * N * P
    return 3.0 * (plain + delta * H * (2.0 * C * (2.0 * N + P) + C * C / 3.0 + 2.0 * N * P))


def index_flops_per_token(index_heads: Numeric, index_size: Numeric, sequence: Numeric) -> Values:
    """Scores by which an indexer chooses the keys of sparse attention, both passes [FLOP/token], `3 a_I d_I s`.

    Its `index_heads` a_I of size `index_size` d_I score all keys before a token, without values [DeepSeek-AI 2025,
    DeepSeek-V3.2, eq. 1].
    """
    return 3.0 * jnp.asarray(index_heads) * index_size * sequence
