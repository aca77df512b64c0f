"""How much memory do parameters, gradients, optimizer states and activations take on a chip?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.memory_footprint import (
    layer_activation_bytes,
    layer_buffer_bytes,
    logit_bytes,
    state_bytes_per_parameter,
    stored_bytes_per_unit,
)
from energymodel.performance.parallelism import (
    StageLayers,
    balanced_stage_layers,
    fullest_stage_layers,
    uneven_stage_layers,
    zero_share,
)
from energymodel.performance.pipeline_bubble import group_size, held_chunks
from energymodel.performance.workload import feed_forward_parameters
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.system.work import Division

FP32_PAIR = 8.0  # bytes of one logit and its gradient
MASTER_BYTES = 4.0  # of the copy of a weight that is updated


class Shard(NamedTuple):
    """Parameters on the fullest chip, dense and routed (divided by expert parallelism), and the ranks sharing each."""

    dense: Scalar
    dense_ranks: Scalar
    routed: Scalar
    routed_ranks: Scalar


def _stage_cut(system: TrainingSystem, plan: TrainingPlan) -> StageLayers:
    """Layers of the first, a middle and the last pipeline rank where the plan cuts the ends by hand [1]."""
    layout = plan.layout
    given = layout.first_stage_layers, layout.last_stage_layers
    return uneven_stage_layers(system.workload.layers, layout.pipeline, *given)


def _fullest_rank_layers(system: TrainingSystem, plan: TrainingPlan) -> Scalar:
    """Layers of the pipeline rank that has the most, divided evenly or cut by hand [1]."""
    layout, by_hand = plan.layout, plan.layout.cut_by_hand
    even = fullest_stage_layers(system.workload.layers, layout.pipeline, layout.virtual_stages)
    return (1.0 - by_hand) * even + by_hand * _stage_cut(system, plan).fullest


def shard(system: TrainingSystem, plan: TrainingPlan, division: Division) -> Shard:
    """Parameters on the fullest chip, `(N_blocks l / L + V h) / t`, `N_routed min(l, L - d) / ((L - d) t e)`.

    With l layers on the fullest pipeline rank. The first rank adds the embedding, the last the output head
    [derivation: docs/physics.md B3]; the first has a layer less where the embedding takes its slot
    (`embedding_balanced`). The d dense layers of a
    mixture come first, so that other ranks hold only layers with experts, unless they alternate (`alternating_dense`).
    DualPipe keeps two stages on each rank, so that twice as many ranks share each [DeepSeek-AI 2024, table 2]; there
    and in ZB-V the first rank has embedding and output head.

    **Returns:** dense and routed parameters [1], each with the number of ranks that hold a copy [1].
    """
    layout, workload = plan.layout, system.workload
    layers, fullest = workload.layers, _fullest_rank_layers(system, plan)
    copies = 1.0 + jnp.asarray(layout.dual_pipe)
    share = fullest * copies / layers
    # The embedding is on the first rank and the output head on the last; a single rank holds both.
    one_rank = jnp.maximum(jnp.maximum(0.0, 2.0 - layout.pipeline), layout.zero_bubble_v + layout.dual_pipe)
    own_head = (1.0 - workload.tied) * one_rank
    spare = layout.pipeline * fullest - layers
    missing = layout.embedding_balanced * (1.0 - one_rank) * jnp.clip(spare - 1.0, 0.0, 1.0)
    embeddings = workload.vocabulary * workload.hidden * (1.0 + own_head)
    more = jnp.maximum(0.0, embeddings - missing * workload.replicated_parameters / layers)
    with_experts = _expert_layer_share(system, plan, share * layers) * share * layers
    of_routed = with_experts / jnp.maximum(1.0, layers - workload.dense_layers)
    return Shard(
        dense=(workload.replicated_parameters * share + more) / layout.tensor,
        dense_ranks=division.ranks * copies,
        routed=workload.routed_parameters * of_routed / (layout.tensor * layout.expert),
        routed_ranks=division.ranks * copies / layout.expert,
    )


def _expert_layer_share(system: TrainingSystem, plan: TrainingPlan, held: Numeric) -> Scalar:
    """Share of the layers of the fullest rank that have experts, `min(l, L - d) / l` of l held [1]; 1 if dense."""
    workload = system.workload
    with_experts = workload.layers - workload.dense_layers
    mean, fullest = with_experts / workload.layers, jnp.minimum(held, with_experts) / held
    return workload.alternating_dense * mean + (1.0 - workload.alternating_dense) * fullest


class KeptBytes(NamedTuple):
    """Bytes per parameter of weight, gradient and optimizer states, and of the gradient as communicated.

    On the mean of all parameters, of which a share is `trained`: the others are frozen and have only weights.
    """

    weight: Numeric
    gradient: Numeric
    optimizer: Numeric
    sent: Numeric
    trained: Numeric = 1.0


def kept_bytes(system: TrainingSystem, plan: TrainingPlan) -> KeptBytes:
    """Bytes per parameter at the width x of the products, `w x`, `u g`, `u (o - 4 (x - 1))`, `u c x` [definition].

    For 32-bit products x = 2: their weights are the master copy, which the optimizer then does not store. A share u of
    the parameters is trained.

    **Returns:** bytes of each [B].
    """
    software, width, trained = system.software, plan.layout.width, plan.trained_share
    return KeptBytes(
        weight=software.weight_bytes * width,
        gradient=trained * software.gradient_bytes,
        optimizer=trained * (software.optimizer_bytes - MASTER_BYTES * (width - 1.0)),
        sent=trained * software.communicated_bytes * width,
        trained=trained,
    )


class ChipMemory(NamedTuple):
    """What a chip stores, and the bytes that its states move over memory and host link.

    `activations` are those of one layer and micro-batch; a step has the `optimizer_traffic`, the same in the memory of
    the host, `host_traffic`, and what is `copied`, each micro-batch what is `fetched`; `total` is the memory of the
    fullest chip [B].
    """

    shard: Shard
    kept: KeptBytes
    activations: Scalar
    optimizer_traffic: Scalar
    host_traffic: Scalar
    fetched: Scalar
    copied: Scalar
    total: Scalar


def chip_memory(system: TrainingSystem, plan: TrainingPlan, division: Division) -> ChipMemory:
    """Everything that the layout makes a chip store and move, the sum of the parts below [definition].

    **Returns:** bytes [B] and parameters [1].
    """
    layout = plan.layout
    part, kept = shard(system, plan, division), kept_bytes(system, plan)
    activations = activation_bytes(system, plan, division)
    return ChipMemory(
        shard=part,
        kept=kept,
        activations=activations,
        optimizer_traffic=optimizer_traffic(layout, part, kept),
        host_traffic=host_traffic(layout, part, kept),
        fetched=fetched_bytes(layout, part, kept),
        copied=copied_bytes(layout, part, kept),
        total=memory_per_chip(system, plan, division, part, kept, activations),
    )


def memory_per_chip(
    system: TrainingSystem, plan: TrainingPlan, division: Division, part: Shard, kept: KeptBytes, activations: Scalar
) -> Scalar:
    """Memory of the fullest chip, `(states + max(first, last) + b M h) x overhead + reserve` [Rajbhandari et al. 2020].

    The first pipeline rank keeps the activations of the most micro-batches in flight; the last rank keeps fewer and
    the logits [Korthikanti et al. 2022, sec. 4.2.3]. Where tensor parallelism gathers the inputs of M
    tokens, the allocator keeps b bytes of freed buffers per token and hidden unit (`software.gather_buffers`). Of
    sharded gradients, what the framework does not scatter at once is kept whole (`software.sharded_gradients`).

    **Arguments:**

    - `activations`: of one layer and micro-batch [B].

    **Returns:** memory [B].
    """
    layout, workload, software = plan.layout, system.workload, system.software
    whole = software.sharded_gradients.kept(division.microbatches, layout.pipeline, layout.virtual_stages)

    def states(ranks: Numeric) -> Scalar:
        return state_bytes_per_parameter(
            kept.weight * (1.0 - layout.offload_parameters),
            kept.gradient * (1.0 - layout.offload_gradients),
            kept.optimizer * (1.0 - layout.offload_optimizer)
            + layout.offload_optimizer * jnp.minimum(kept.trained * software.offload_kept_bytes, kept.optimizer),
            layout.shard_parameters,
            layout.shard_gradients * (1.0 - whole),
            layout.shard_optimizer,
            ranks,
        )

    per_layer = activations * (1.0 - layout.offload_activations)
    # From the second micro-batch on, the logits of the previous one are still in memory.
    again = jnp.clip(division.microbatches - 1.0, 0.0, 1.0) * software.kept_logit_bytes
    logits = logit_bytes(division.tokens, workload.vocabulary, layout.tensor)
    logits = logits * (software.logit_bytes + again) / FP32_PAIR
    # GPipe has the logits of all micro-batches before it starts to go back.
    logits = logits * (1.0 + layout.gpipe * (division.microbatches - 1.0))
    held = _held_layers(system, plan, division.microbatches)
    first, last = held.most * per_layer, held.last * per_layer + logits * (1.0 - layout.offload_activations)
    routed = part.routed * states(part.routed_ranks)
    even = part.dense * states(part.dense_ranks) + jnp.maximum(first, last)

    # With balanced stages the first rank has the embedding and the most layers, the last one the output head.
    weights, embedding = workload.replicated_parameters / workload.layers, workload.vocabulary * workload.hidden
    several = jnp.minimum(layout.pipeline - 1.0, 1.0)
    in_weights = embedding * workload.layers / workload.active_layer_parameters
    opening, final = balanced_stage_layers(workload.layers, layout.pipeline, in_weights)
    tables = 1.0 + (1.0 - several) * (1.0 - workload.tied)

    def rank(layers: Numeric, flying: Numeric, tables: Numeric, head: Numeric) -> Scalar:
        stored = (layers * weights + tables * embedding) / layout.tensor * states(part.dense_ranks)
        return stored + flying * layers * per_layer + head * logits

    ranks = jnp.maximum(rank(opening, held.opening, tables, 1.0 - several), rank(final, held.final, tables, 1.0))
    cut, by_hand = _stage_cut(system, plan), layout.cut_by_hand
    ends = jnp.maximum(rank(cut.first, held.opening, 1.0, 0.0), rank(cut.last, held.final, 1.0, 1.0))
    by_hands = jnp.maximum(ends, rank(cut.middle, held.second, 0.0, 0.0))
    divided = (1.0 - software.balanced_stages) * even + software.balanced_stages * ranks
    stored = routed + (1.0 - by_hand) * divided + by_hand * by_hands

    def buffers(layer: Numeric, ranks: Numeric) -> Scalar:
        per_parameter = layer_buffer_bytes(
            kept.weight, kept.sent, layout.shard_parameters, layout.shard_gradients, ranks
        )
        return jnp.asarray(layer) / (workload.layers * layout.tensor) * per_parameter

    stored = stored + buffers(workload.replicated_parameters, part.dense_ranks)
    stored = stored + buffers(workload.routed_parameters / layout.expert, part.routed_ranks)
    gathered = jnp.clip(layout.tensor - 1.0, 0.0, 1.0) * division.tokens * workload.hidden
    return (stored + software.gather_buffers * gathered) * software.memory_overhead + software.reserved_memory


class _HeldLayers(NamedTuple):
    """Activations of a layer and micro-batch that ranks hold at once [1].

    On the rank that holds `most` and on the `last` one, which has the output head; `opening`, `second` and `final` are
    the micro-batches of the first, the second and the last rank.
    """

    most: Scalar
    last: Scalar
    opening: Scalar
    second: Scalar
    final: Scalar


def _held_layers(system: TrainingSystem, plan: TrainingPlan, microbatches: Numeric) -> _HeldLayers:
    """What `pipeline_simulator` finds that ranks hold, by the schedule of the layout.

    Ranks of GPipe and zero-bubble schedules hold as much as the first one: all m micro-batches, p in ZB-H1 and ZB-V,
    2 p - 1 in ZB-H2 [Qi et al. 2024, table 1], p + 1 in DualPipe [DeepSeek-AI 2024, table 2].
    """
    layers, layout, m = system.workload.layers, plan.layout, jnp.asarray(microbatches)
    p, v, whole = layout.pipeline, layout.virtual_stages, system.software.whole_groups
    group = whole * jnp.minimum(m, p) + (1.0 - whole) * group_size(m, p)
    fullest = fullest_stage_layers(layers, p, v)
    chunk, spare = fullest / v, p * fullest - layers
    # The last virtual stage lacks the first spare layer, the first one the second: then the second rank holds most.
    opening, final = held_chunks(m, v, p - 1.0, group), held_chunks(m, v, 0.0, group)
    after = held_chunks(m, v, jnp.maximum(p - 2.0, 0.0), group)
    of_first_chunk = jnp.minimum(m, group + jnp.clip(2.0 * p - 1.0 - group, 0.0, group) * jnp.minimum(v - 1.0, 1.0))
    first = opening * chunk - jnp.clip(spare - 1.0, 0.0, 1.0) * of_first_chunk
    last = final * chunk - jnp.minimum(spare, 1.0)
    deepest = layout.gpipe * m + layout.zero_bubble_h2 * (2.0 * p - 1.0) + layout.dual_pipe * (p + 1.0)
    even = jnp.asarray(layout.gpipe) + layout.zero_bubble + layout.zero_bubble_h2
    even = even + layout.zero_bubble_v + layout.dual_pipe
    flying = jnp.minimum(m, deepest + (jnp.asarray(layout.zero_bubble) + layout.zero_bubble_v) * p)
    # The first rank of ZB-V, which is also the last, starts backward passes before the others are full.
    at_head = flying - layout.zero_bubble_v * jnp.maximum(jnp.minimum(m, p) - 0.5 * (m + 1.0), 0.0)
    return _HeldLayers(
        most=(1.0 - even) * jnp.maximum(first, after * chunk) + flying * fullest,
        last=(1.0 - even) * last + at_head * fullest,
        opening=(1.0 - even) * opening / v + flying,
        second=after / v,
        final=(1.0 - even) * final / v + flying,
    )


def activation_bytes(system: TrainingSystem, plan: TrainingPlan, division: Division) -> Scalar:
    """Activations of one layer and micro-batch on a chip, `M h [q/t + 5 a s k / (h t)]`, times the copies kept.

    `layer_activation_bytes` [Korthikanti et al. 2022, eqs. 1-6], averaged over the dense and mixture-of-experts layers
    of the fullest rank. A routed expert also keeps what enters its products, in their number format: a sorted copy of a
    token, two bytes in 16 bits, and if gated what enters its last projection, `2 r` (`software.kept_expert_inputs`).

    **Returns:** memory [B].
    """
    layout, workload, software = plan.layout, system.workload, system.software
    routed = workload.active_experts * workload.expert_imbalance
    copies = routed + workload.shared_experts
    feed_forward = feed_forward_parameters(workload.hidden, workload.dense_feed_forward, workload.gated)
    with_experts = _expert_layer_share(system, plan, _fullest_rank_layers(system, plan))
    ratio = workload.feed_forward / workload.hidden
    effective = with_experts * copies + (1.0 - with_experts) * feed_forward / workload.expert_block
    made_again = workload.latent * (1.0 - software.kept_latent_heads) * (workload.query_width + workload.kv_width)
    attention = (workload.kept_attention_width - made_again) / workload.hidden
    stored = stored_bytes_per_unit(workload.gated, ratio, attention, effective)
    narrow = 1.0 - 0.5 * jnp.asarray(layout.fp8) - 0.75 * layout.fp4
    inputs = workload.mixture * with_experts * routed * (2.0 + 2.0 * ratio * workload.gated) * narrow
    stored = stored + software.kept_expert_inputs * inputs
    keep_scores = (1.0 - workload.flash) * (1.0 - layout.recompute_attention)
    per_copy = layer_activation_bytes(
        division.tokens,
        workload.hidden,
        workload.heads,
        workload.sequence,
        layout.tensor,
        stored,
        layout.sequence_parallel,
        keep_scores,
        layout.recompute_full,
    )
    return layout.width * software.activation_copies * per_copy


def optimizer_traffic(layout: ParallelLayout, part: Shard, kept: KeptBytes) -> Scalar:
    """Memory traffic of the optimizer step on a chip, `(2 o + g + w) n` [Rajbhandari et al. 2020, sec. 3.1].

    States of o bytes are read and written, gradients are read and weights written for the n parameters that the chip
    updates: its whole shard, its part of it if the optimizer is sharded, or none if the host updates them.

    **Returns:** traffic [B].
    """
    return (1.0 - jnp.asarray(layout.offload_optimizer)) * _updated_bytes(layout, part, kept)


def host_traffic(layout: ParallelLayout, part: Shard, kept: KeptBytes) -> Scalar:
    """Memory traffic of the optimizer step in the host, `(2 o + g + w) n` of a chip's n [Rajbhandari et al. 2021].

    **Returns:** traffic [B]; zero unless the optimizer is offloaded.
    """
    return jnp.asarray(layout.offload_optimizer) * _updated_bytes(layout, part, kept)


def _updated_bytes(layout: ParallelLayout, part: Shard, kept: KeptBytes) -> Scalar:
    touched = 2.0 * kept.optimizer + kept.gradient + kept.trained * kept.weight
    dense = part.dense * zero_share(layout.shard_optimizer, part.dense_ranks)
    routed = part.routed * zero_share(layout.shard_optimizer, part.routed_ranks)
    return jnp.asarray(touched) * (dense + routed)


def fetched_bytes(layout: ParallelLayout, part: Shard, kept: KeptBytes) -> Scalar:
    """State bytes that a micro-batch moves over the host link, `(2 o_p w z_p + o_g c z_g) n` [definition].

    Parameters are fetched for the forward and the backward pass; gradients are sent as they are computed and summed on
    the host [Rajbhandari et al. 2021, ZeRO-Infinity]. o are the shares kept on the host, z those left by sharding.

    **Returns:** traffic [B].
    """
    fetched, sent = 2.0 * layout.offload_parameters * kept.weight, layout.offload_gradients * kept.sent

    def moved(ranks: Numeric) -> Scalar:
        return fetched * zero_share(layout.shard_parameters, ranks) + sent * zero_share(layout.shard_gradients, ranks)

    return part.dense * moved(part.dense_ranks) + part.routed * moved(part.routed_ranks)


def copied_bytes(layout: ParallelLayout, part: Shard, kept: KeptBytes) -> Scalar:
    """State bytes copied over the host link once a step, `(g |o_o - o_g| + w |o_o - o_p|) n` for shares of 0 or 1.

    Gradients go to the optimizer and new weights come back where they are kept on different sides of the link
    [definition].

    **Returns:** traffic [B].
    """
    gradients = kept.gradient * _apart(layout.offload_optimizer, layout.offload_gradients)
    weights = kept.trained * kept.weight * _apart(layout.offload_optimizer, layout.offload_parameters)
    return jnp.asarray(gradients + weights) * (part.dense + part.routed)


def _apart(one: Numeric, other: Numeric) -> Scalar:
    """Share of two states that lies on different sides of the host link, from their shares on the host [1]."""
    return jnp.asarray(one) + other - 2.0 * jnp.asarray(one) * other
