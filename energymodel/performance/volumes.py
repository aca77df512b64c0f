"""How many bytes does a chip send for each kind of parallelism?

Shared arguments: `ranks` of the group (d, t or e) [1], at least 1; `parameters` N of the model divided by t p [1];
`hidden` h [1]; `element_size` w of a gradient, parameter or activation [B].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric


def data_parallel_volume(ranks: Numeric, parameters: Numeric, element_size: Numeric) -> Float[Array, "..."]:
    """Gradients all-reduced in a step, `V = 2 (d-1)/d w N` [Rajbhandari et al. 2020, sec. 7.1].

    **Returns:** bytes sent per chip and step [B].
    """
    d = jnp.asarray(ranks)
    return 2.0 * (d - 1.0) / d * parameters * element_size


def fully_sharded_volume(ranks: Numeric, parameters: Numeric, element_size: Numeric) -> Float[Array, "..."]:
    """Parameters gathered twice and gradients scattered once, `V = 3 (d-1)/d w N` [Rajbhandari et al. 2020, sec. 7.2].

    ZeRO stage 3, also called FSDP: one and a half times the volume of plain data parallelism.

    **Returns:** bytes sent per chip and micro-batch pass [B].
    """
    return 1.5 * data_parallel_volume(ranks, parameters, element_size)


def fully_sharded_token_threshold(
    compute_rate: Numeric, efficiency: Numeric, bandwidth: Numeric, element_size: Numeric = 2.0
) -> Float[Array, "..."]:
    """Tokens per chip and step that hide fully sharded communication, `T = F eta / bw w / 2`.

    With fewer tokens, communication takes longer than the arithmetic [derivation: 6 N T / (F eta) = 3 w N / bw].

    **Arguments:**

    - `compute_rate`: F [FLOP/s].
    - `efficiency`: eta [1].
    - `bandwidth`: bw, between the sharded ranks [B/s].

    **Returns:** tokens [token].
    """
    return jnp.asarray(compute_rate) * efficiency / bandwidth * (jnp.asarray(element_size) / 2.0)


def tensor_parallel_volume(
    ranks: Numeric, tokens: Numeric, hidden: Numeric, all_reduces: Numeric, element_size: Numeric
) -> Float[Array, "..."]:
    """Activations all-reduced in a layer, `V = n_ar 2 (t-1)/t M h w` [Shoeybi et al. 2019; Korthikanti et al. 2022].

    **Arguments:**

    - `tokens`: M, tokens of the micro-batch [token].
    - `all_reduces`: n_ar, 4 per layer forward and backward, 6 with full recomputation [1].

    **Returns:** bytes sent per chip, layer and micro-batch [B].
    """
    t = jnp.asarray(ranks)
    return jnp.asarray(all_reduces) * (2.0 * (t - 1.0) / t) * (jnp.asarray(tokens) * hidden * element_size)


def expert_parallel_volume(
    ranks: Numeric, experts_per_token: Numeric, hidden: Numeric, element_size: Numeric
) -> Float[Array, "..."]:
    """Activations sent to experts and back, `V = 2 k h w (1 - 1/e)` [Lepikhin et al. 2021, sec. 3].

    Forward pass only; the backward pass sends as much again.

    **Arguments:**

    - `experts_per_token`: k [1].

    **Returns:** bytes per token and layer [B].
    """
    return 2.0 * jnp.asarray(experts_per_token) * hidden * element_size * (1.0 - 1.0 / jnp.asarray(ranks))


def pipeline_volume(
    microbatch: Numeric, sequence: Numeric, hidden: Numeric, element_size: Numeric
) -> Float[Array, "..."]:
    """Activations sent to the next stage, `V = b s h w` [Narayanan et al. 2021, sec. 3.2].

    **Arguments:**

    - `microbatch`: b, sequences [1].
    - `sequence`: s, tokens per sequence [token].

    **Returns:** bytes per micro-batch and boundary, in each direction [B].
    """
    return jnp.asarray(microbatch) * sequence * hidden * element_size


def context_parallel_volume(
    local_sequence: Numeric, key_value_width: Numeric, element_size: Numeric
) -> Float[Array, "..."]:
    """Keys and values passed around the ring, `V = 2 s_local h_kv w` [Liu et al. 2023, sec. 3].

    **Arguments:**

    - `local_sequence`: s_local, tokens that a chip holds [token].
    - `key_value_width`: h_kv, width of the keys (equal to that of the values) [1].

    **Returns:** bytes per layer and hop, forward [B].
    """
    return 2.0 * jnp.asarray(local_sequence) * key_value_width * element_size
