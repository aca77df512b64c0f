"""Arithmetic and memory traffic of one chip: products, attention, element-wise kernels, output head."""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.attention import exponential_slowdown, forward_attention_time, padded_head_size
from energymodel.performance.hierarchy import gemm_traffic
from energymodel.performance.products import alignment_slowdown, training_edges
from energymodel.performance.roofline import compute_time, elementwise_traffic, expert_bytes
from energymodel.performance.workload import recomputed_share
from energymodel.system.division import Division
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

DENSE_BYTES = 24.0  # per token and hidden unit, moved by the element-wise kernels of a dense layer, norms excluded
ELEMENT_BYTES = 2.0  # of an activation or weight in bf16


class Products(NamedTuple):
    """Matrix products of a layer, forward and backward: operations [FLOP] and twice the elements of their results [1],
    both times the slowdown of edges that are not aligned, and how many there are.
    """

    operations: Scalar
    edges: Scalar
    number: Scalar

    def scaled(self, factor: Numeric) -> "Products":
        """So many times the same."""
        return Products(*(jnp.asarray(factor) * part for part in self))


class AttentionPasses(NamedTuple):
    """Time of score and value products of one layer and micro-batch in bf16 at clock 1."""

    forward: Scalar
    backward: Scalar

    @property
    def total(self) -> Scalar:
        """Of both passes [s]."""
        return self.forward + self.backward


class LayerWork(NamedTuple):
    """Work of one layer and micro-batch on one chip, forward and backward, averaged over all layers."""

    flops: Scalar
    attention_flops: Scalar
    products: "Products"
    attention: AttentionPasses
    gemm_bytes: Scalar
    elementwise_bytes: Scalar
    communicated: Scalar
    head_flops: Scalar
    head_products: "Products"
    head_bytes: Scalar

    @property
    def head_share(self) -> Scalar:
        """Operations of the output head relative to a layer's [1]."""
        return self.head_flops / self.flops


def layer_work(system: TrainingSystem, plan: TrainingPlan, division: Division) -> LayerWork:
    """Work of the mean layer on a chip, `F = M (6 w + 6 a d s) (1 + r) / t`, `Q = (3 + r_f) 2 Q_gemm`.

    A micro-batch has M tokens; r is the recomputed share [Narayanan et al. 2021]; of `6 w`, `2 w (1 - u)` is not there
    with a share u of the parameters trained. The matrix products of a layer with w parameters count as one product,
    M by `w / (h t)` by h, whose memory traffic the cache bounds [Hong & Kung 1981]. Element-wise kernels add theirs,
    and unfused attention adds `5 n a s M / t` bytes for scores moved n times. The output head has `6 M h V / t`
    operations and moves `16 M V / t` bytes of logits. `products` are those that kernels run, with padding and slowdown;
    attention has kernels of its own.

    **Returns:** operations [FLOP] and memory traffic [B] of a layer and of the output head, time of attention [s], and
    the activation bytes that tensor parallelism communicates [B].
    """
    layout, workload, software, chip = plan.layout, system.workload, system.software, system.accelerator
    tokens, sizes = division.tokens, division.sizes
    weights, attention = sizes.weights, sizes.attention_flops
    # Frozen weights are multiplied forward and backward, but have no gradient; the forward pass may be repeated.
    head_passes = 2.0 + plan.trained_share
    passes = head_passes + layout.recompute_full
    trained_flops, model_flops = 6.0 * weights + attention, 2.0 * head_passes * weights + attention
    repeated = recomputed_share(layout.recompute_full, layout.recompute_attention, attention / trained_flops)
    repeated = repeated * trained_flops / model_flops

    # The products of a layer count as one of equal depth. Resident experts are read even if no token uses them.
    width = weights / (workload.hidden * layout.tensor)
    element = ELEMENT_BYTES * layout.width
    product_traffic = gemm_traffic(tokens, width, workload.hidden, chip.cache_size / element) * element
    resident = sizes.routed / (workload.layers * layout.tensor * layout.expert)
    active_routed = resident * layout.expert * workload.active_experts / workload.experts
    idle_experts = jnp.maximum(0.0, resident - active_routed) * element

    # Recomputing attention or the whole layer repeats attention's forward products.
    scored = tokens * attention / layout.tensor
    selective = (1.0 - jnp.asarray(layout.recompute_full)) * layout.recompute_attention
    again = layout.recompute_full + selective

    scores = (1.0 - workload.flash) * 5.0 * workload.heads * workload.sequence * tokens / layout.tensor
    blocks = workload.active_experts + workload.shared_experts
    of_experts = expert_bytes(workload.gated, workload.feed_forward / workload.hidden, blocks, workload.active_experts)
    divided = DENSE_BYTES + sizes.mixture * sizes.expert_share * (of_experts - DENSE_BYTES)
    moved = 0.25 * elementwise_traffic(tokens, workload.hidden, layout.tensor, layout.sequence_parallel, divided)
    full = 1.0 + 0.5 * jnp.asarray(layout.recompute_full)
    elementwise = software.elementwise_passes * moved * full
    elementwise = elementwise + software.score_passes * scores * (full + 0.5 * selective)
    head_width = workload.vocabulary / layout.tensor
    forward = 2.0 * tokens * workload.hidden * head_width
    # Frameworks pad the vocabulary, so that its side is aligned.
    slow = alignment_slowdown(workload.hidden, workload.hidden, chip.alignment_exponent)
    head = Products(forward, training_edges(tokens, head_width, workload.hidden), jnp.asarray(1.0))
    return LayerWork(
        flops=tokens * model_flops * (1.0 + repeated) / layout.tensor,
        attention_flops=scored * (1.0 + again / 3.0),
        products=layer_products(system, plan, division).scaled(passes),
        attention=attention_passes(system, plan, division, scored, again),
        gemm_bytes=passes * (product_traffic + idle_experts),
        elementwise_bytes=elementwise * layout.width,
        communicated=tokens * workload.hidden * element,
        head_flops=head_passes * forward,
        head_products=head.scaled(head_passes * slow),
        head_bytes=16.0 * tokens * head_width,
    )


def layer_products(system: TrainingSystem, plan: TrainingPlan, division: Division) -> Products:
    """Products of a forward pass through the mean layer on a chip, `a (2 M w / t + F_e)`, `sum_i a_i 2 m_i n_i`.

    They are query-key-value (with latent attention, latents and the heads made of them), attention output, up (and
    gate) and down projection, each divided by the tensor degree along the side that is not the hidden size, w weights
    in all; a_i is the slowdown of unaligned edges, a its mean.
    F_e are the rows that each resident expert is padded to whole tiles with, half a tile on average, and those that the
    fullest expert, which paces the others, has beyond the mean [derivation: docs/step_time.md].

    **Returns:** operations [FLOP] and edges [1] of the products of one forward pass.
    """
    layout, workload, chip, sizes = plan.layout, system.workload, system.accelerator, division.sizes
    h, t, M = jnp.asarray(workload.hidden), layout.tensor, division.tokens
    gate, expert, latent = 1.0 + workload.gated, sizes.expert_share, sizes.latent
    held = 1.0 + sizes.mixture * (workload.experts / layout.expert - 1.0)
    even = M * workload.active_experts
    extra = even * (workload.expert_imbalance - 1.0) + sizes.mixture * held * chip.expert_tile
    inner, dense_inner = workload.feed_forward / t, workload.dense_feed_forward / t
    # Every tensor rank makes the latents from the hidden state, and its own heads from the latents.
    compressed, query_rank, kv_rank = (
        latent * jnp.minimum(1.0, workload.query_rank),
        workload.query_rank,
        workload.kv_rank,
    )
    inputs = ((1.0 - compressed) * sizes.queries + (1.0 - latent) * sizes.kv) / t
    inputs += latent * (query_rank + kv_rank + workload.rope_head_size)
    queries, out = sizes.queries / t, sizes.values / t
    made = workload.heads * (workload.head_size - workload.rope_head_size + workload.value_head_size) / t
    slowdown = partial(alignment_slowdown, exponent=chip.alignment_exponent, unaligned=chip.unaligned_slowdown)
    slow, dense_slow = slowdown(inner, h), slowdown(dense_inner, h)
    rows, shared = even + extra, expert * workload.shared_experts
    total = slowed = edges = jnp.zeros_like(h)
    # Share of the layers that have the product, rows, columns, inner edge, slowdown, products that share the rows.
    for share, m, n, k, a, count in (
        (1.0, M, inputs, h, slowdown(inputs, h), 1.0),
        (compressed, M, queries, query_rank, slowdown(queries, query_rank), 1.0),
        (latent, M, made, kv_rank, slowdown(made, kv_rank), 1.0),
        (1.0, M, h, out, slowdown(out, h), 1.0),
        (expert, rows, gate * inner, h, slow, held),
        (expert, rows, h, inner, slow, held),
        (shared, M, gate * inner, h, slow, 1.0),
        (shared, M, h, inner, slow, 1.0),
        (1.0 - expert, M, gate * dense_inner, h, dense_slow, 1.0),
        (1.0 - expert, M, h, dense_inner, dense_slow, 1.0),
    ):
        weight = share * m * (n * k / h)
        total, slowed = total + weight, slowed + a * weight
        edges += a * share * training_edges(m, n, k, count)
    operations = 2.0 * M * sizes.weights / t
    operations += 2.0 * expert * extra * (gate + 1.0) * inner * h
    return Products(
        operations=operations * slowed / total,
        edges=edges,
        number=4.0 + latent + compressed + 2.0 * jnp.minimum(1.0, workload.shared_experts),
    )


def attention_passes(
    system: TrainingSystem, plan: TrainingPlan, division: Division, scored: Numeric, again: Numeric
) -> AttentionPasses:
    """Time of attention in a layer, `(1 + b + r) t_forward`, r forward passes repeated [derivation: docs/step_time.md].

    A fused kernel takes b = `attention_backward` forward passes to go back. Each of the c steps of a ring of context
    parallelism is a kernel of its own, which sees one c-th of the keys. Without a fused kernel score and value products
    run like other matrix products, slower where the head size is no multiple of 64, forward once and backward twice,
    and may include what the mask removes: the whole square of the sequence.

    **Arguments:**

    - `scored`: operations that masks and windows leave, forward and backward [FLOP].
    - `again`: r, share of the forward pass that is repeated to go back [1].

    **Returns:** times of the forward pass and of all that follows it [s].
    """
    chip, workload, layout, software = system.accelerator, system.workload, plan.layout, system.software
    forward, attended = scored / 3.0, division.sizes.attended
    head = workload.mean_head_size
    padded = padded_head_size(head)
    fused = forward_attention_time(
        forward * padded / head,
        chip.peak_flops * chip.attention_efficiency / exponential_slowdown(padded, chip.attention_half_head),
        0.5 * attended / (1.0 + (layout.context - 1.0) * (1.0 - layout.context_all_to_all)),
        division.tokens * workload.heads / layout.tensor,
        chip.attention_half_keys,
        chip.attention_tail,
    )
    square = 1.0 + software.unmasked * (2.0 * workload.sequence / attended - 1.0)
    slow = alignment_slowdown(workload.sequence, head, chip.alignment_exponent, chip.unaligned_slowdown)
    unfused = compute_time(forward * square * slow, chip.peak_flops, chip.gemm_efficiency * software.product_efficiency)
    share = workload.flash / software.attention_efficiency
    rest = (1.0 - workload.flash) / software.attention_efficiency
    return AttentionPasses(
        forward=share * fused + rest * unfused,
        backward=share * (chip.attention_backward + again) * fused + rest * (2.0 + again) * unfused,
    )
