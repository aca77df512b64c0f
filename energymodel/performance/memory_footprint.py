"""Memory of states and activations on a chip, and the out-of-memory risk.

Shared arguments: bytes per parameter of weight, `weight_bytes` w, gradient, `gradient_bytes` g, and optimizer states,
`optimizer_bytes` o, and of a gradient as communicated, `sent_bytes` c [B]; `sharded` z, and `shard_parameters` s_p,
`shard_gradients` s_g and `shard_optimizer` s_o, ZeRO stages 3, 2 and 1, 1 if sharded over the data-parallel ranks, else
0 [1]; `ranks` n that share a copy [1]; `tokens` M of a micro-batch on a chip [token]; `hidden` h, `heads` a, `tensor` t
and `vocabulary` V [1]; `sequence` s [token].
"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values, sigmoid


def zero_share(sharded: Numeric, ranks: Numeric) -> Values:
    """Share of a state held by one of n ranks [1], `1 - z + z / n`: all of it or one n-th [Rajbhandari et al. 2020]."""
    return 1.0 - jnp.asarray(sharded) + sharded / jnp.asarray(ranks)


def state_bytes_per_parameter(
    weight_bytes: Numeric,
    gradient_bytes: Numeric,
    optimizer_bytes: Numeric,
    shard_parameters: Numeric,
    shard_gradients: Numeric,
    shard_optimizer: Numeric,
    ranks: Numeric,
) -> Values:
    """Bytes of weights, gradients and optimizer per parameter of a shard [B], `w z_p + g z_g + o z_o`.

    With `z = 1 - s + s / n` over n data-parallel ranks; mixed-precision Adam needs 2 + 2 + 12 = 16 bytes
    unsharded, 18 with fp32 gradients [Rajbhandari et al. 2020, sec. 3.1].
    """
    return (
        jnp.asarray(weight_bytes) * zero_share(shard_parameters, ranks)
        + jnp.asarray(gradient_bytes) * zero_share(shard_gradients, ranks)
        + jnp.asarray(optimizer_bytes) * zero_share(shard_optimizer, ranks)
    )


def layer_buffer_bytes(
    weight_bytes: Numeric, sent_bytes: Numeric, shard_parameters: Numeric, shard_gradients: Numeric, ranks: Numeric
) -> Values:
    """Bytes per parameter of a layer that sharding gathers or scatters [B], `(1 - 1/n) (2 w s_p + c s_g)` [definition].

    Sharded parameters are gathered for the layer at work and for the next one; the gradients of the layer at work are
    scattered when they are complete.
    """
    others = 1.0 - 1.0 / jnp.asarray(ranks)
    return others * (2.0 * jnp.asarray(weight_bytes) * shard_parameters + jnp.asarray(sent_bytes) * shard_gradients)


def divided_bytes_per_unit(feed_forward_ratio: Numeric, attention_ratio: Numeric, copies: Numeric) -> Values:
    """Bytes that one layer stores per token and hidden unit divided over the tensor group [B], `2 w + 4 r c`.

    Query, keys, values and attention output at 2 bytes each; gate and up projection, or what enters and leaves the
    activation of a plain block (24 at w = 4, r = 4) [Korthikanti et al. 2022, sec. 4.1].

    **Arguments:**

    - `feed_forward_ratio`: r, inner width over hidden size [1].
    - `attention_ratio`: w, width of query, keys, values, output and latents together over hidden size [1].
    - `copies`: c, feed-forward blocks that act on a token [1].
    """
    return 2.0 * jnp.asarray(attention_ratio) + 4.0 * jnp.asarray(feed_forward_ratio) * copies


def layer_activation_bytes(
    tokens: Numeric,
    hidden: Numeric,
    heads: Numeric,
    sequence: Numeric,
    tensor: Numeric,
    undivided: Numeric,
    divided: Numeric,
    sequence_parallel: Numeric,
    keep_scores: Numeric,
    recompute_full: Numeric,
) -> Values:
    """Activations that one layer keeps for one micro-batch [B], `M h [p (1 - s + s/t) + q/t + 5 a s k / (h t)]`.

    `p = undivided` are inputs and outputs of the norms, and dropout masks, 10 bytes in all, divided only with sequence
    parallelism; `q = divided`. The last term, the attention scores, is absent with flash attention or selective
    recomputation. Full recomputation keeps only the layer's input, 2 bytes [Korthikanti et al. 2022, eqs. 1-6].

    **Arguments:**

    - `tokens`: M of a micro-batch on a chip [token].
    - `hidden`, `heads`, `tensor`: h, a, t [1].
    - `sequence`: s [token].
    - `undivided`, `divided`: bytes per token and hidden unit, the latter from `divided_bytes_per_unit` [B].
    - `sequence_parallel`, `keep_scores`, `recompute_full`: shares from 0 to 1 [1].
    """
    norm_share = sequence_parallel / jnp.asarray(tensor) + (1.0 - sequence_parallel)
    unit = jnp.asarray(tokens) * hidden
    held = unit * (undivided * norm_share + jnp.asarray(divided) / tensor)
    scores = unit * keep_scores * 5.0 * heads * sequence / (jnp.asarray(hidden) * tensor)
    full = jnp.asarray(recompute_full)
    return (1.0 - full) * (held + scores) + full * unit * 2.0 * norm_share


def logit_bytes(tokens: Numeric, vocabulary: Numeric, tensor: Numeric) -> Values:
    """Logits and their gradient on the last stage [B], `8 M V / t` in fp32 [definition]."""
    return 8.0 * jnp.asarray(tokens) * vocabulary / tensor


def out_of_memory_probability(needed: Numeric, usable: Numeric, spread: Numeric) -> Values:
    """Out-of-memory risk of a run [1], `P = 1 / (1 + (u / n)^(1 / s))` [derivation: logistic in the logarithm].

    Actual memory use scatters about the prediction; s is about 0.55 standard deviations of its logarithm.

    **Arguments:**

    - `needed`: predicted memory n of tensors [B], positive.
    - `usable`: memory u that the device has for them [B], positive.
    - `spread`: s of the logarithm [1], positive.
    """
    return sigmoid(jnp.log(jnp.asarray(needed) / usable) / spread)


def largest_need(usable: Numeric, spread: Numeric, risk: Numeric) -> Values:
    """Memory that may be predicted if a run is to fail with a risk P at most [B], `n = u (P / (1 - P))^s`.

    [derivation: `out_of_memory_probability` solved for n]. **Arguments** as there; `risk` between 0 and 1.
    """
    risk = jnp.asarray(risk)
    return jnp.asarray(usable) * (risk / (1.0 - risk)) ** spread
