"""Memory of a chip: parameters, gradients, optimizer states, activations, and the traffic of states."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from energymodel.numerics import Numeric, Part, Scalar, Values, at_most_one, blend, is_fixed, part
from energymodel.performance.adaptation import FineTuning, paged_out
from energymodel.performance.memory_footprint import (
    divided_bytes_per_unit,
    largest_need,
    layer_activation_bytes,
    layer_buffer_bytes,
    logit_bytes,
    out_of_memory_probability,
    state_bytes_per_parameter,
    zero_share,
)
from energymodel.performance.workload import feed_forward_parameters
from energymodel.system.division import Division
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.shard import KeptBytes, Shard, expert_layer_share, kept_bytes, shard
from energymodel.system.training_system import TrainingSystem

FP32_PAIR = 8.0  # bytes of one logit and its gradient
ELEMENT_BYTES = 2.0  # of a weight in 16 bits
FAILING_RISK = 0.5  # probability to run out of memory above which a plan is said not to fit


class ChipMemory(NamedTuple):
    """What a chip stores, and the bytes that its states move over memory and host link.

    `activations` are those of one layer and micro-batch; a step has the `optimizer_traffic`, the same in the memory of
    the host, `host_traffic`, and what is `copied`, each micro-batch what is `fetched`; `total` is the memory of the
    fullest chip, `host` what it keeps in the memory of its host, `paged` what of that a step moves there and back as
    paged optimizer states [B].
    """

    shard: Shard
    stored: KeptBytes
    activations: Scalar
    optimizer_traffic: Scalar
    host_traffic: Scalar
    fetched: Scalar
    copied: Scalar
    total: Scalar
    host: Part
    paged: Part = 0.0


def chip_memory(system: TrainingSystem, plan: TrainingPlan, division: Division) -> ChipMemory:
    """Everything that the layout makes a chip store and move [B], the sum of the parts below [definition]."""
    layout = plan.layout
    held, stored = shard(system, plan, division), kept_bytes(system, plan)
    tuned, stays, paged = system.adaptation, stored, 0.0
    if isinstance(tuned, FineTuning):
        division = division._replace(tokens=division.tokens * tuned.longest)
        stays = stored._replace(optimizer=part(1.0 - tuned.paged, lambda: stored.optimizer))
    activations = activation_bytes(system, plan, division)
    updated = updated_bytes(layout, held, stored)
    total = memory_per_chip(system, plan, division, held, stays, activations)
    if isinstance(tuned, FineTuning):
        states = part(tuned.paged, lambda: stored.optimizer * _updated_parameters(layout, held))
        if not is_fixed(states, 0.0):
            paged = paged_out(total, states, system.accelerator.memory_capacity)
    return ChipMemory(
        shard=held,
        stored=stored,
        activations=activations,
        optimizer_traffic=part(1.0 - layout.offload_optimizer, lambda: updated),
        host_traffic=part(layout.offload_optimizer, lambda: updated),
        fetched=fetched_bytes(layout, held, stored),
        copied=copied_bytes(layout, held, stored),
        total=total,
        host=host_bytes(system, plan, division, held, stays, activations) + paged,
        paged=paged,
    )


def host_bytes(
    system: TrainingSystem, plan: TrainingPlan, division: Division, own: Shard, stored: KeptBytes, activations: Numeric
) -> Part:
    """What the fullest chip keeps in the memory of its host [B], `(o_p w z_p + o_g g z_g + o_o (o - k) z_o) n + o_a a`.

    o are the shares of parameters, gradients, optimizer states and activations on the host, z those left by sharding, n
    the parameters of the shard, a the activations in flight; of the states k bytes stay on the chip
    (`software.offload_kept_bytes`) [Rajbhandari et al. 2021, ZeRO-Infinity].
    """
    layout, on_chip = plan.layout, stored.trained * system.software.offload_kept_bytes
    on_host = (
        part(layout.offload_parameters, lambda: stored.weight),
        part(layout.offload_gradients, lambda: stored.gradient),
        part(layout.offload_optimizer, lambda: jnp.maximum(stored.optimizer - on_chip, 0.0)),
    )
    shards = layout.shard_parameters, layout.shard_gradients, layout.shard_optimizer

    def states(parameters: Numeric, ranks: Numeric) -> Part:
        return part(parameters, lambda: state_bytes_per_parameter(*on_host, *shards, ranks))

    in_flight = part(layout.offload_activations, lambda: division.held.most * activations)
    if is_fixed(sum(on_host), 0.0):
        return in_flight
    return in_flight + states(own.dense, own.dense_ranks) + states(own.routed, own.routed_ranks)


def memory_per_chip(
    system: TrainingSystem, plan: TrainingPlan, division: Division, own: Shard, stored: KeptBytes, activations: Scalar
) -> Scalar:
    """Memory of the fullest chip [B], `o (states + max(first, last) + b M h + e V h / t) + reserve`.

    States as in Rajbhandari et al. 2020.

    The first pipeline rank keeps the activations of the most micro-batches in flight; the last rank keeps fewer and
    the logits [Korthikanti et al. 2022, sec. 4.2.3]. Where tensor parallelism gathers the inputs of M tokens, the
    allocator keeps b bytes of freed buffers per token and hidden unit (`software.gather_buffers`); the gradient of the
    embedding or head is accumulated in e bytes a weight (`software.table_bytes`); o is `software.memory_overhead`. Of
    sharded gradients, what the framework does not scatter at once is kept whole (`software.sharded_gradients`); in a
    pipeline it may keep weights and gradients whole (`software.whole_in_pipelines`). The states at the chunks of one
    layer are made again to go back, one layer at a time. The reserve is that of `reserved_memory`.

    **Arguments:**

    - `activations`: of one layer and micro-batch [B].
    """
    layout, workload, software = plan.layout, system.workload, system.software
    sizes, stages, held, m = division.sizes, division.stages, division.held, division.microbatches
    on_chip = 1.0 - layout.offload_activations
    several = jnp.minimum(layout.pipeline - 1.0, 1.0)
    still_sharded = 1.0 - part(software.whole_in_pipelines, lambda: several)

    def states(ranks: Numeric) -> Scalar:
        return state_bytes_per_parameter(
            part(1.0 - layout.offload_parameters, lambda: stored.weight),
            part(1.0 - layout.offload_gradients, lambda: stored.gradient),
            blend(
                layout.offload_optimizer,
                lambda: jnp.minimum(stored.trained * software.offload_kept_bytes, stored.optimizer),
                lambda: stored.optimizer,
            ),
            layout.shard_parameters * still_sharded,
            layout.shard_gradients * (1.0 - division.gradients.held) * still_sharded,
            layout.shard_optimizer,
            ranks,
        )

    def buffers(layer: Numeric, ranks: Numeric) -> Scalar:
        shards = layout.shard_parameters, layout.shard_gradients
        per_parameter = layer_buffer_bytes(stored.weight, stored.sent, *shards, ranks)
        return layer / (sizes.layers * layout.tensor) * per_parameter

    per_layer, of_dense = part(on_chip, lambda: activations), states(own.dense_ranks)
    # From the second micro-batch on, the logits of the previous one are still in memory.
    again = part(software.kept_logit_bytes, lambda: jnp.clip(m - 1.0, 0.0, 1.0))
    logits = logit_bytes(division.tokens, workload.vocabulary, layout.tensor)
    logits = logits * (software.logit_bytes + again) / FP32_PAIR
    # GPipe has the logits of all micro-batches before it starts to go back.
    logits = logits * (1.0 + part(layout.gpipe, lambda: m - 1.0))
    tuned, working, table_bytes = system.adaptation, 0.0, plan.trained_share * software.table_bytes
    if isinstance(tuned, FineTuning):
        working = _working_bytes(system, plan, division, tuned)
        logits, table_bytes = jnp.maximum(logits - working, 0.0), stored.tables

    # With balanced stages the first rank has the embedding and the most layers, the last one the output head.
    tables = 1.0 + (1.0 - several) * (1.0 - workload.tied)
    (opening, final), cut = stages.balanced, stages.cut

    def rank(layers: Numeric, flying: Numeric, tables: Numeric, head: Numeric) -> Scalar:
        occupied = (layers * (sizes.replicated / sizes.layers) + tables * sizes.table) / layout.tensor * of_dense
        return occupied + flying * layers * per_layer + head * logits

    def even() -> Scalar:
        last = held.last * per_layer + part(on_chip, lambda: logits)
        return own.dense * of_dense + jnp.maximum(held.most * per_layer, last)

    def balanced() -> Scalar:
        return jnp.maximum(rank(opening, held.opening, tables, 1.0 - several), rank(final, held.final, tables, 1.0))

    def by_hand() -> Scalar:
        ends = jnp.maximum(rank(cut.first, held.opening, 1.0, 0.0), rank(cut.last, held.final, 1.0, 1.0))
        return jnp.maximum(ends, rank(cut.middle, held.second, 0.0, 0.0))

    occupied = blend(stages.by_hand, by_hand, lambda: blend(software.balanced_stages, balanced, even))
    occupied = occupied + buffers(sizes.replicated, own.dense_ranks)
    if not is_fixed(sizes.routed, 0.0):
        occupied = occupied + own.routed * states(own.routed_ranks)
        occupied = occupied + buffers(sizes.routed / layout.expert, own.routed_ranks)
    if not is_fixed(software.gather_buffers, 0.0):
        gathered = jnp.clip(layout.tensor - 1.0, 0.0, 1.0) * division.tokens * workload.hidden
        occupied = occupied + software.gather_buffers * gathered
    if not is_fixed(working, 0.0):
        occupied = occupied + working
    if not is_fixed(table_bytes, 0.0):
        occupied = occupied + table_bytes * sizes.table / layout.tensor
    if not is_fixed(sizes.state_share, 0.0):
        occupied = occupied + division.tokens * workload.chunk_state_bytes / layout.tensor
    return occupied * software.memory_overhead + reserved_memory(system, plan)


def _working_bytes(system: TrainingSystem, plan: TrainingPlan, division: Division, tuned: FineTuning) -> Part:
    """Memory of the layer that is at work [B] [definition]: activations that it makes again to go back, and the largest
    of its matrices in 16 bits where weights are kept in fewer. Before it goes back, the logits are there in its place.
    """

    def again() -> Scalar:
        keeping = eqx.tree_at(lambda decisions: decisions.layout.recompute_full, plan, np.asarray(0.0))
        return activation_bytes(system, keeping, division)

    matrix = ELEMENT_BYTES * jnp.asarray(system.workload.hidden) * system.workload.feed_forward / plan.layout.tensor
    return part(plan.layout.recompute_full, again) + part(at_most_one(tuned.dequantized_bytes), lambda: matrix)


def reserved_memory(system: TrainingSystem, plan: TrainingPlan) -> Scalar:
    """Memory of driver, context and allocator, and of the buffers of collectives where there are several chips [B]
    [definition].
    """
    several = jnp.clip(plan.chips - 1.0, 0.0, 1.0)
    return system.software.reserved_memory + part(system.software.collective_memory, lambda: several)


def memory_limit(system: TrainingSystem, plan: TrainingPlan) -> Scalar:
    """Memory that may be predicted for the fullest chip [B], `(C - r) (P / (1 - P))^s + r`.

    C is what the device reports, r the reserve, s the spread of the rest about its prediction
    (`software.memory_spread`), P the probability to run out of memory that is accepted (`out_of_memory_risk`)
    [derivation: docs/physics.md B3].
    """
    reserve = reserved_memory(system, plan)
    usable = _usable_memory(system, reserve)
    return largest_need(usable, system.software.memory_spread, system.out_of_memory_risk) + reserve


def out_of_memory_risk(system: TrainingSystem, plan: TrainingPlan, memory: Numeric) -> Values:
    """Probability that a run whose fullest chip is predicted to need so much memory [B] runs out of it [1].

    [derivation: docs/physics.md B3], as `memory_limit`.
    """
    reserve = reserved_memory(system, plan)
    needed = jnp.maximum(memory - reserve, 1.0)
    return out_of_memory_probability(needed, _usable_memory(system, reserve), system.software.memory_spread)


def _usable_memory(system: TrainingSystem, reserve: Numeric) -> Scalar:
    """What a device has beside the reserve, a thousandth of its memory at least [B]."""
    capacity = system.accelerator.memory_capacity
    return jnp.maximum(capacity - reserve, 1e-3 * capacity)


def activation_bytes(system: TrainingSystem, plan: TrainingPlan, division: Division) -> Scalar:
    """Activations of one layer and micro-batch on a chip [B], `M h [c (p + q/t + 5 a s k / (h t))]` for c copies.

    `layer_activation_bytes` [Korthikanti et al. 2022, eqs. 1-6], averaged over the dense and mixture-of-experts layers
    of the fullest rank. Models of before fused attention have dropout masks, 2 bytes. What enters the last projection
    of a gated block, `2 r`, may be made again (`software.kept_products`). Where products run on 8 or 4 bits, what
    enters those with weights is kept in 8 (`software.narrow_inputs`), but for the attention output, which the backward
    pass of attention needs as it is. A routed expert also keeps what enters its products, in their number format: a
    sorted copy of a token, two bytes in 16 bits, and if gated what enters its last projection
    (`software.kept_expert_inputs`).

    Modules that are recomputed keep what enters them: outputs of norms, 2, of those before latent attention and
    experts, which are kernels of their own; queries, keys and values made of latents; `2 r` of each routed expert; or
    all of a feed-forward block, its norm included, of the shared experts, of all experts [Megatron Core,
    `recompute_modules`, 2026].
    """
    layout, workload, software, sizes = plan.layout, system.workload, system.software, division.sizes
    routed = workload.routed_blocks * workload.expert_imbalance
    with_experts = expert_layer_share(workload, sizes, division.stages.most)
    ratio = workload.feed_forward / workload.hidden
    # Blocks of the size of an expert that act on a token: of layers without experts, shared, routed.
    plain = part((1.0 - sizes.mixture) * with_experts, lambda: routed)
    if not is_fixed(workload.dense_layers, 0.0):
        dense = feed_forward_parameters(workload.hidden, workload.dense_feed_forward, workload.gated)
        plain = plain + (1.0 - with_experts) * dense / workload.expert_block
    experts_kept = 1.0 - layout.recompute_experts
    own = part(1.0 - layout.recompute_feed_forward, lambda: plain)
    if not is_fixed(workload.shared_experts, 0.0):
        own = own + experts_kept * (1.0 - layout.recompute_shared_experts) * with_experts * workload.shared_experts
    mixed = part(sizes.mixture, lambda: with_experts)
    routed = part(mixed, lambda: experts_kept * routed)
    blocks = own if is_fixed(routed, 0.0) else own + routed
    attention = sizes.kept_attention
    made_again = sizes.latent * (1.0 - software.kept_latent_heads * (1.0 - layout.recompute_latent))
    if not is_fixed(made_again, 0.0):
        attention = attention - part(sizes.attention_share, lambda: made_again * (sizes.queries + sizes.kv))
    narrow_inputs = software.narrow_inputs * jnp.maximum(layout.fp8, layout.fp4)
    kept_gated = workload.gated * software.kept_products
    undivided = 8.0 + 2.0 * (1.0 - workload.gated) * (1.0 - workload.flash) - 2.0 * narrow_inputs
    last_inputs = kept_gated - 0.5 * narrow_inputs * (kept_gated + 1.0 - workload.gated)
    norms = part(layout.recompute_norms, lambda: sizes.latent + mixed)
    norms = norms + part(layout.recompute_feed_forward, lambda: 1.0 - mixed)
    if not is_fixed(norms, 0.0):
        undivided = undivided - norms * (2.0 - narrow_inputs)
    stored = divided_bytes_per_unit(ratio, attention / workload.hidden, blocks) + 2.0 * ratio * own * last_inputs
    if not is_fixed(sizes.mixture, 0.0):
        narrow = 1.0 - 0.5 * layout.fp8 - 0.75 * layout.fp4
        behind_gate = workload.gated - layout.recompute_expert_activations
        copy = part(workload.expert_latent**2.0, lambda: 2.0)  # of an expert of a latent: narrower, beside wider blocks
        stored = stored + software.kept_expert_inputs * routed * (copy + 2.0 * ratio * behind_gate) * narrow
    keep_scores = (1.0 - workload.flash) * (1.0 - layout.recompute_attention)
    copies = software.activation_copies
    held = layer_activation_bytes(
        division.tokens,
        workload.hidden,
        workload.heads,
        workload.sequence,
        layout.tensor,
        copies * undivided,
        copies * stored,
        layout.sequence_parallel,
        copies * keep_scores,
        jnp.minimum(1.0, layout.recompute_full / software.repeated_work),
    )
    return jnp.asarray(layout.width * held)


def updated_bytes(layout: ParallelLayout, own: Shard, stored: KeptBytes) -> Scalar:
    """Memory traffic of the optimizer step [B], `(2 o + g + w) n` [Rajbhandari et al. 2020, sec. 3.1; 2021].

    States of o bytes are read and written, gradients are read and weights written for the n parameters that the chip
    or its host updates: its whole shard, or its part of it if the optimizer is sharded.
    """
    touched = 2.0 * stored.optimizer + stored.gradient + stored.trained * stored.weight
    return jnp.asarray(touched) * _updated_parameters(layout, own)


def _updated_parameters(layout: ParallelLayout, own: Shard) -> Scalar:
    """Parameters that a chip or its host updates [1]: its shard, or its part of it if the optimizer is sharded."""
    dense = own.dense * zero_share(layout.shard_optimizer, own.dense_ranks)
    return dense + part(own.routed, lambda: zero_share(layout.shard_optimizer, own.routed_ranks))


def fetched_bytes(layout: ParallelLayout, own: Shard, stored: KeptBytes) -> Part:
    """State bytes that a micro-batch moves over the host link [B], `(2 o_p w z_p + o_g c z_g) n` [definition].

    Parameters are fetched for the forward and the backward pass; gradients are sent as they are computed and summed on
    the host [Rajbhandari et al. 2021, ZeRO-Infinity]. o are the shares kept on the host, z those left by sharding.
    """
    fetched = part(layout.offload_parameters, lambda: 2.0 * stored.weight)
    sent = part(layout.offload_gradients, lambda: stored.sent)

    def moved(ranks: Numeric) -> Part:
        of_parameters = part(fetched, lambda: zero_share(layout.shard_parameters, ranks))
        return of_parameters + part(sent, lambda: zero_share(layout.shard_gradients, ranks))

    dense = part(moved(own.dense_ranks), lambda: own.dense)
    return dense + part(own.routed, lambda: moved(own.routed_ranks))


def copied_bytes(layout: ParallelLayout, own: Shard, stored: KeptBytes) -> Part:
    """State bytes copied over the host link once a step [B], `(g |o_o - o_g| + w |o_o - o_p|) n` for shares of 0 or 1.

    Gradients go to the optimizer and new weights come back where they are kept on different sides of the link
    [definition].
    """
    gradients = part(_apart(layout.offload_optimizer, layout.offload_gradients), lambda: stored.gradient)
    weights = part(_apart(layout.offload_optimizer, layout.offload_parameters), lambda: stored.trained * stored.weight)
    return part(gradients + weights, lambda: own.dense + own.routed)


def _apart(first: Numeric, second: Numeric) -> Part:
    """Share of two states that lies on different sides of the host link, from their shares on the host [1]."""
    return first + second - 2.0 * first * second
