"""Arithmetic and memory traffic of one chip: products, attention, element-wise kernels, output head."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Scalar, at_most_one, blend, is_fixed, part
from energymodel.performance.adaptation import FineTuning
from energymodel.performance.caches import gemm_traffic
from energymodel.performance.kernels import (
    alignment_slowdown,
    compute_time,
    elementwise_traffic,
    expert_bytes,
    exponential_slowdown,
    forward_attention_time,
    padded_head_size,
    training_edges,
)
from energymodel.performance.workload import LayerSizes, Transformer, feed_forward_parameters, recomputed_share
from energymodel.system.division import Division
from energymodel.system.plan import MODULES, ParallelLayout, TrainingPlan
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
    """Time of score and value products of one layer and micro-batch in bf16 at clock 1 [s]."""

    forward: Scalar
    backward: Scalar

    @property
    def total(self) -> Scalar:
        """Of both passes [s]."""
        return self.forward + self.backward


class RepeatedModules(NamedTuple):
    """What the modules that are recomputed do once more in the mean layer, layers that are recomputed whole excluded.

    `weights` that are multiplied; bytes per token and hidden unit that element-wise kernels move, `divided` over the
    tensor group or, without sequence parallelism, `undivided` [B]; all-reduces of the tensor group, `sums`; layers in
    which tokens are sent to their experts and back, `dispatched` [1].
    """

    weights: Numeric = 0.0
    divided: Numeric = 0.0
    undivided: Numeric = 0.0
    sums: Numeric = 0.0
    dispatched: Numeric = 0.0


def repeated_modules(workload: Transformer, sizes: LayerSizes, layout: ParallelLayout) -> RepeatedModules:
    """Forward passes of modules that are made again to go back [1, B] [Megatron Core, `recompute_modules`, 2026].

    Heads are made of latents, blocks and experts are passed again with all of their products; of norms and of the
    activations of experts only element-wise kernels run again. Forward, these move half of what they move in all
    (`elementwise_traffic`, `expert_bytes`).
    """
    if is_fixed(sum(getattr(layout, name) for name in MODULES), 0.0):
        return RepeatedModules()
    hidden, active, shared = workload.hidden, workload.active_experts, workload.shared_experts
    mixed = sizes.mixture * sizes.expert_share
    experts, block = layout.recompute_experts, layout.recompute_feed_forward * (1.0 - mixed)
    blocks = experts * active + (experts + (1.0 - experts) * layout.recompute_shared_experts) * shared
    activated = blocks + (1.0 - experts) * layout.recompute_expert_activations * active
    made = workload.heads * (workload.head_size - workload.rope_head_size + workload.value_head_size)
    entering = jnp.where(jnp.asarray(workload.query_rank) > 0.0, workload.query_rank, hidden)
    heads = sizes.latent * (sizes.queries * entering + workload.kv_rank * made)
    heads = part(sizes.attention_share, lambda: heads)
    dense = feed_forward_parameters(hidden, workload.dense_feed_forward, workload.gated)
    plain = (1.0 - sizes.mixture) * active * workload.expert_block * sizes.expert_share
    plain = plain + (1.0 - sizes.expert_share) * dense
    inner = (4.0 + 2.0 * workload.gated) * workload.feed_forward / hidden * activated
    repeated = RepeatedModules(
        weights=layout.recompute_latent * heads
        + layout.recompute_feed_forward * plain
        + mixed * blocks * workload.expert_block,
        divided=0.5 * (mixed * (inner + 8.0 * experts * active) + block * (DENSE_BYTES - 8.0)),
        undivided=2.0 * (layout.recompute_norms * (sizes.latent + mixed) + block),
        sums=block + mixed * experts,
        dispatched=mixed * experts,
    )
    return RepeatedModules(*((1.0 - layout.recompute_full) * amount for amount in repeated))


class LayerWork(NamedTuple):
    """Work of one layer and micro-batch on one chip, forward and backward, averaged over all layers.

    Operations of a layer and of the output head [FLOP], their products and memory traffic [B], time of attention [s],
    the activation bytes that tensor parallelism communicates [B], and what recomputed modules repeat.
    """

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
    repeated: RepeatedModules

    @property
    def head_share(self) -> Scalar:
        """Operations of the output head relative to a layer's [1]."""
        return self.head_flops / self.flops


def layer_work(system: TrainingSystem, plan: TrainingPlan, division: Division) -> LayerWork:
    """Work of the mean layer on a chip [FLOP, B, s], `F = M (6 w + 6 a d s) (1 + r) / t`, `Q = (3 + r_f) 2 Q_gemm`.

    A micro-batch has M tokens; r is the recomputed share [Narayanan et al. 2021]; of `6 w`, `2 w (1 - u)` is not there
    with a share u of the parameters trained. The matrix products of a layer with w parameters count as one product,
    M by `w / (h t)` by h, whose memory traffic the cache bounds [Hong & Kung 1981]. Element-wise kernels add theirs,
    and unfused attention adds `5 n a s M / t` bytes for scores moved n times. The output head has `6 M h V / t`
    operations and moves `16 M V / t` bytes of logits. `products` are those that kernels run, with padding and slowdown;
    attention has kernels of its own.
    """
    layout, workload, software, chip = plan.layout, system.workload, system.software, system.accelerator
    tokens, sizes = division.tokens, division.sizes
    weights, attention = sizes.weights, sizes.attention_flops
    # Frozen weights are multiplied forward and backward, but have no gradient; the forward pass may be repeated.
    layer_passes, head_passes = system.adaptation.passes(plan.trained_share)
    passes = layer_passes + layout.recompute_full
    trained_flops, model_flops = 6.0 * weights + attention, 2.0 * layer_passes * weights + attention

    # The products of a layer count as one of equal depth. Resident experts are read even if no token uses them.
    width = weights / (workload.hidden * layout.tensor)
    element = ELEMENT_BYTES * layout.width
    product_traffic = gemm_traffic(tokens, width, workload.hidden, chip.cache_size / element) * element
    resident = part(sizes.mixture, lambda: sizes.routed / (workload.layers * layout.tensor * layout.expert))
    idle = part(resident, lambda: jnp.maximum(0.0, 1.0 - layout.expert * workload.active_experts / workload.experts))

    # Recomputing attention or the whole layer repeats attention's forward products.
    scored = tokens * attention / layout.tensor
    scanned = part(sizes.state_flops, lambda: tokens / layout.tensor)
    selective = (1.0 - layout.recompute_full) * layout.recompute_attention
    again = layout.recompute_full + selective
    shares = layout.recompute_full, layout.recompute_attention, attention / trained_flops
    repeated = 0.0 if is_fixed(again, 0.0) else recomputed_share(*shares) * trained_flops / model_flops
    modules = repeated_modules(workload, sizes, layout)
    passes = passes + part(modules.weights, lambda: 1.0 / weights)
    repeated = repeated + part(modules.weights, lambda: 2.0 / model_flops)

    scores = part(
        1.0 - workload.flash,
        lambda: 5.0 * workload.heads * workload.sequence * tokens / layout.tensor * software.score_passes,
    )
    blocks = workload.routed_blocks + workload.shared_experts
    copies = part(workload.expert_latent, lambda: workload.active_experts)
    inner = workload.feed_forward / workload.hidden
    plain = DENSE_BYTES + part(
        sizes.mixture, lambda: sizes.expert_share * (expert_bytes(workload.gated, inner, blocks, copies) - DENSE_BYTES)
    )
    stateful = at_most_one(workload.state_layers)
    divided = blend(stateful, lambda: state_layer_bytes(workload, sizes), lambda: plain)
    of_layer = tokens, workload.hidden, layout.tensor, layout.sequence_parallel
    moved = 0.25 * elementwise_traffic(*of_layer, divided)
    full = 1.0 + 0.5 * layout.recompute_full
    elementwise = software.elementwise_passes * moved * full + part(scores, lambda: full + 0.5 * selective)
    if not (is_fixed(modules.divided, 0.0) and is_fixed(modules.undivided, 0.0)):
        moved_again = 0.25 * elementwise_traffic(*of_layer, modules.divided, modules.undivided)
        elementwise = elementwise + software.elementwise_passes * moved_again
    if isinstance(system.adaptation, FineTuning):
        elementwise = elementwise + _adaptation_bytes(system.adaptation, workload, tokens, passes, layout)
    head_width = workload.vocabulary / layout.tensor
    forward = 2.0 * tokens * workload.hidden * head_width
    # Frameworks pad the vocabulary, so that its side is aligned.
    slow = alignment_slowdown(workload.hidden, workload.hidden, chip.alignment_exponent)
    head = Products(forward, training_edges(tokens, head_width, workload.hidden), jnp.asarray(1.0))
    return LayerWork(
        flops=tokens * model_flops * (1.0 + repeated) / layout.tensor,
        attention_flops=scored * (1.0 + again / 3.0),
        products=layer_products(system, plan, division).scaled(passes),
        attention=attention_passes(
            system, plan, division, scored if is_fixed(scanned, 0.0) else scored - scanned, again, scanned
        ),
        gemm_bytes=passes * (product_traffic + idle * element),
        elementwise_bytes=elementwise * layout.width,
        communicated=tokens * workload.hidden * element,
        head_flops=head_passes * forward,
        head_products=head.scaled(head_passes * slow),
        head_bytes=16.0 * tokens * head_width,
        repeated=modules,
    )


def _adaptation_bytes(
    tuned: FineTuning, workload: Transformer, tokens: Numeric, passes: Numeric, layout: ParallelLayout
) -> Scalar:
    """Bytes that kernels of fine-tuning move in the mean layer of a chip [B], `(b M s (1 + r/2) + q d w) / t`.

    Adapters of a low rank are bound by memory: they read and write the s inputs and outputs of the matrices that they
    stand beside, b bytes for each. Frozen weights in few bits are made 16-bit numbers for each of q passes, d bytes for
    each of w weights [derivation: docs/physics.md B3].
    """
    beside = tuned.moved_bytes * (1.0 + 0.5 * layout.recompute_full) * tokens * tuned.adapters(workload).sides
    weights = (workload.parameters - workload.embeddings) / workload.layers
    made = part(tuned.dequantized_bytes, lambda: (1.0 - tuned.trained_layers) * passes * weights)
    return jnp.asarray((beside + made) / layout.tensor)


def state_layer_bytes(workload: Transformer, sizes: LayerSizes) -> Scalar:
    """Bytes that pass through a layer of a model some of whose layers keep a state, per token and hidden unit [B].

    `q = q_b + s (2 (W_i + W_c + 2 H P) + 4 H N P / C) / h + 8 (1 - s)`: a share s of the layers moves what their W_i
    columns of projections give, what W_c of them are after convolution or activation, the values before and after the
    gated norm, and the states at chunks in 32 bits; attention moves 8 bytes. q_b is of feed-forward blocks and experts,
    which some layers lack (`expert_bytes`) [derivation: docs/step_time.md].
    """
    h, mixed = workload.hidden, sizes.expert_share
    routed = part(sizes.mixture, lambda: part(workload.expert_latent, lambda: workload.active_experts))
    blocks = workload.routed_blocks + workload.shared_experts
    experts = expert_bytes(workload.gated, workload.feed_forward / h, blocks, routed) - 8.0
    dense = part(1.0 - mixed, lambda: expert_bytes(workload.gated, workload.dense_feed_forward / h, 1.0, 0.0) - 8.0)
    passing = 2.0 * (sizes.state_inputs + workload.convolved + 2.0 * sizes.state_values) + workload.chunk_state_bytes
    return mixed * experts + dense + 8.0 * sizes.attention_share + sizes.state_share * passing / h


def layer_products(system: TrainingSystem, plan: TrainingPlan, division: Division) -> Products:
    """Products of a forward pass in the mean layer of a chip [FLOP], `a (2 M w / t + F_e)`, `sum_i a_i 2 m_i n_i`.

    They are query-key-value (with latent attention, latents and the heads made of them), attention output, up (and
    gate) and down projection, each divided by the tensor degree along the side that is not the hidden size, w weights
    in all; a_i is the slowdown of unaligned edges, a its mean.
    F_e are the rows that each resident expert is padded to whole tiles with, half a tile on average, and those that the
    fullest expert, which paces the others, has beyond the mean [derivation: docs/step_time.md]. A layer with a state
    has two: all that enters its mixer, and what leaves it.
    """
    layout, workload, chip, sizes = plan.layout, system.workload, system.accelerator, division.sizes
    h, t, M = jnp.asarray(workload.hidden), layout.tensor, division.tokens
    gate, expert, latent = 1.0 + workload.gated, sizes.expert_share, sizes.latent
    attends, state = sizes.attention_share, sizes.state_share
    held = 1.0 + part(sizes.mixture, lambda: workload.experts / layout.expert - 1.0)
    even = M * workload.active_experts
    extra = part(workload.expert_imbalance - 1.0, lambda: even) + part(sizes.mixture, lambda: held * chip.expert_tile)
    inner, dense_inner = workload.feed_forward / t, workload.dense_feed_forward / t
    # Every tensor rank makes the latents from the hidden state, and its own heads from the latents.
    query_rank, kv_rank = workload.query_rank, workload.kv_rank
    compressed = part(latent, lambda: at_most_one(query_rank))
    inputs = part(1.0 - compressed, lambda: sizes.queries / t) + part(1.0 - latent, lambda: sizes.kv / t)
    inputs += part(latent, lambda: query_rank + kv_rank + workload.rope_head_size)
    queries, out = sizes.queries / t, sizes.values / t
    made = workload.heads * (workload.head_size - workload.rope_head_size + workload.value_head_size) / t
    rows, shared = even + extra, part(workload.shared_experts, lambda: expert)
    total, slowed, edges = 0.0, 0.0, 0.0

    def block(width: Numeric) -> tuple[tuple[Numeric, Numeric], ...]:
        return (gate * width, h), (h, width)

    # Share of the layers that have the products, rows, columns and inner edges, their number that shares the rows, and
    # the edges that may be unaligned.
    for share, m, sides, count, aligned in (
        (attends, M, ((inputs, h),), 1.0, (inputs, h)),
        (part(compressed, lambda: attends), M, ((queries, query_rank),), 1.0, (queries, query_rank)),
        (part(latent, lambda: attends), M, ((made, kv_rank),), 1.0, (made, kv_rank)),
        (attends, M, ((h, out),), 1.0, (out, h)),
        (state, M, ((sizes.state_inputs / t, h), (h, sizes.state_values / t)), 1.0, (sizes.state_values / t, h)),
        (expert, rows, block(inner), held, (inner, h)),
        (shared, M, block(inner), 1.0, (inner, h)),
        (1.0 - expert, M, block(dense_inner), 1.0, (dense_inner, h)),
    ):
        if is_fixed(share, 0.0):
            continue
        a = alignment_slowdown(*aligned, chip.alignment_exponent, chip.unaligned_slowdown)
        weight = share * m * (sum(n * k for n, k in sides) / h)
        total, slowed = total + weight, slowed + a * weight
        edges += a * share * sum(training_edges(m, n, k, count) for n, k in sides)
    operations = 2.0 * M * sizes.weights / t
    operations += part(extra, lambda: 2.0 * expert * (gate + 1.0) * inner * h)
    return Products(
        operations=operations * slowed / total,
        edges=edges,
        number=4.0 + latent + compressed + 2.0 * at_most_one(workload.shared_experts),
    )


def attention_passes(
    system: TrainingSystem, plan: TrainingPlan, division: Division, scored: Numeric, again: Numeric, scanned: Part = 0.0
) -> AttentionPasses:
    """Time of attention in a layer [s], `(1 + b + r) t_forward`, r passes repeated [derivation: docs/step_time.md].

    A fused kernel takes b = `attention_backward` forward passes to go back. Each of the c steps of a ring of context
    parallelism is a kernel of its own, which sees one c-th of the keys. Without a fused kernel score and value products
    run like other matrix products, slower where the head size is no multiple of 64, forward once and backward twice,
    and may include what the mask removes: the whole square of the sequence. Chunks of layers with a state run
    at a share of the rate of fused attention (`workload.state_rate`), once forward and twice backward.

    **Arguments:**

    - `scored`: operations that masks and windows leave, `scanned` those of chunks, both forward and backward [FLOP].
    - `again`: r, share of the forward pass that is repeated to go back [1].
    """
    chip, workload, layout, software = system.accelerator, system.workload, plan.layout, system.software
    forward, attended = scored / 3.0, division.sizes.attended
    head = workload.mean_head_size
    padded = padded_head_size(head)

    def fused() -> AttentionPasses:
        time = forward_attention_time(
            forward * padded / head,
            chip.peak_flops * chip.attention_efficiency / exponential_slowdown(padded, chip.attention_half_head),
            0.5 * attended / (1.0 + part(layout.context - 1.0, lambda: 1.0 - layout.context_all_to_all)),
            division.tokens * workload.heads / layout.tensor,
            chip.attention_half_keys,
            chip.attention_tail,
        )
        return AttentionPasses(time, (chip.attention_backward + again) * time)

    def unfused() -> AttentionPasses:
        square = 1.0 + part(software.unmasked, lambda: 2.0 * workload.sequence / attended - 1.0)
        slow = alignment_slowdown(workload.sequence, head, chip.alignment_exponent, chip.unaligned_slowdown)
        efficiency = chip.gemm_efficiency * software.product_efficiency
        time = compute_time(forward * square * slow, chip.peak_flops, efficiency)
        return AttentionPasses(time, jnp.asarray(2.0 + again) * time)

    passes = AttentionPasses(*(t / software.attention_efficiency for t in blend(workload.flash, fused, unfused)))
    if is_fixed(scanned, 0.0):
        return passes
    efficiency = chip.attention_efficiency * software.attention_efficiency * workload.state_rate
    chunks = compute_time(scanned / 3.0, chip.peak_flops, efficiency)
    repeated = layout.recompute_full
    return AttentionPasses(passes.forward + chunks, passes.backward + (2.0 + repeated) * chunks)
