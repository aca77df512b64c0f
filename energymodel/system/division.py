"""Division of a model over chips: replicas, micro-batches, layers of pipeline ranks, and what ranks hold."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar, blend, is_fixed
from energymodel.performance.parallelism import (
    GradientRounds,
    StageLayers,
    balanced_stage_layers,
    bubble_fraction,
    data_parallel_degree,
    fullest_stage_layers,
    microbatch_count,
    uneven_stage_layers,
)
from energymodel.performance.pipeline_bubble import group_size, held_chunks
from energymodel.performance.workload import LayerSizes
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem


class StageCut(NamedTuple):
    """Layers of pipeline ranks, whose stages are cut evenly, by the weights of the output head, or by hand [1].

    - `full`: layers of a full rank of an even cut, `chunk` of one of its virtual stages; all ranks together lack
      `spare` layers beside full ones. `most`: of the fullest rank, cut evenly or by hand.
    - `ends`: ends of the pipeline on the rank with the output head; `head_share` of its micro-batches whose head that
      rank computes.
    - `balanced`: the first and the last rank, cut by weights. `cut`: all ranks, cut by hand.
    - `by_hand`: 1 where ends are cut by hand; `weighed`: 1 where ranks are cut by hand or by weights.
    """

    full: Scalar
    chunk: Scalar
    spare: Scalar
    most: Scalar
    ends: Scalar
    head_share: Scalar
    balanced: tuple[Scalar, Scalar]
    cut: StageLayers
    by_hand: Scalar
    weighed: Scalar


class HeldActivations(NamedTuple):
    """Activations of a layer and micro-batch that ranks hold at once [1].

    On the rank that holds `most` and on the `last` one, which has the output head; `opening`, `second` and `final` are
    the micro-batches of the first, the second and the last rank.
    """

    most: Scalar
    last: Scalar
    opening: Scalar
    second: Scalar
    final: Scalar


class Division(NamedTuple):
    """All that follows from a layout and a batch before anything takes time.

    - `data`: replicas; `ranks` that share a copy of the dense parameters [1].
    - `microbatches` of a replica [1], `tokens` of one on a chip [token].
    - `layer_passes`, `head_passes`: per step on the mean chip [1].
    - `fill`: pipeline bubble of equal stages over their work [1].
    - `sizes` of the model; `stages`: layers of ranks; `held`: activations; `gradients`: their rounds.
    """

    data: Scalar
    ranks: Scalar
    microbatches: Scalar
    tokens: Scalar
    layer_passes: Scalar
    head_passes: Scalar
    fill: Scalar
    sizes: LayerSizes
    stages: StageCut
    held: HeldActivations
    gradients: GradientRounds

    @property
    def idle_periods(self) -> Scalar:
        """Waits of the mean chip in a step, in each layer and micro-batch, and between steps, `m l + m + 1` [1].

        Gated units wake after each of them.
        """
        return self.layer_passes + self.microbatches + 1.0


def divide(system: TrainingSystem, plan: TrainingPlan, batch: Numeric) -> Division:
    """Counts of a layout [1], `d = G / (t p c)`, `m = B / (d b s)`, `M = b s / c` [Narayanan et al. 2021, sec. 2].

    B is the global batch [token]. `d c` ranks share a copy of the dense parameters. The mean chip passes `m L / p`
    layers per step.
    """
    layout, workload, software = plan.layout, system.workload, system.software
    data = data_parallel_degree(plan.chips, layout.tensor, layout.pipeline, layout.context)
    microbatches = microbatch_count(batch, data, layout.microbatch, workload.sequence)
    sizes = workload.sizes()
    stages = _stage_cut(system, layout, sizes)
    counts = (microbatches, layout.pipeline, layout.virtual_stages)
    return Division(
        data=data,
        ranks=data * layout.context,
        microbatches=microbatches,
        tokens=layout.microbatch * workload.sequence / layout.context,
        layer_passes=microbatches * workload.layers / layout.pipeline,
        head_passes=microbatches / layout.pipeline,
        fill=bubble_fraction(layout.pipeline, layout.virtual_stages, microbatches),
        sizes=sizes,
        stages=stages,
        held=_held_activations(system, layout, stages, microbatches),
        gradients=software.sharded_gradients.rounds(*counts),
    )


def _stage_cut(system: TrainingSystem, layout: ParallelLayout, sizes: LayerSizes) -> StageCut:
    full = fullest_stage_layers(sizes.layers, layout.pipeline, layout.virtual_stages)
    by_hand, balanced = layout.cut_by_hand, system.software.balanced_stages
    cut, filled = StageLayers(full, full, full), (full, full)  # where no rank is cut in this way
    if not is_fixed(by_hand, 0.0):
        cut = uneven_stage_layers(sizes.layers, layout.pipeline, layout.first_stage_layers, layout.last_stage_layers)
    if not is_fixed(balanced, 0.0):
        filled = balanced_stage_layers(sizes.layers, layout.pipeline, sizes.head_layers)
    return StageCut(
        full=full,
        chunk=full / layout.virtual_stages,
        spare=layout.pipeline * full - sizes.layers,
        most=blend(by_hand, lambda: cut.fullest, lambda: full),
        ends=1.0 + layout.zero_bubble_v + layout.dual_pipe,
        head_share=1.0 - 0.5 * layout.dual_pipe,
        balanced=filled,
        cut=cut,
        by_hand=by_hand,
        weighed=by_hand if is_fixed(balanced, 0.0) else jnp.maximum(balanced, by_hand),
    )


def _held_activations(
    system: TrainingSystem, layout: ParallelLayout, stages: StageCut, microbatches: Scalar
) -> HeldActivations:
    """What `pipeline_simulator` finds that ranks hold, by the schedule of the layout.

    Ranks of GPipe and zero-bubble schedules hold as much as the first one: all m micro-batches, p in ZB-H1 and ZB-V,
    2 p - 1 in ZB-H2 [Qi et al. 2024, table 1], p + 1 in DualPipe [DeepSeek-AI 2024, table 2].
    """
    m, p, v = jnp.asarray(microbatches), layout.pipeline, layout.virtual_stages
    in_groups, full, chunk, spare = system.software.whole_groups, stages.full, stages.chunk, stages.spare
    group = blend(in_groups, lambda: jnp.minimum(m, p), lambda: group_size(m, p))
    # The last virtual stage lacks the first spare layer, the first one the second: then the second rank holds most.
    opening, final = held_chunks(m, v, p - 1.0, group), held_chunks(m, v, 0.0, group)
    after = held_chunks(m, v, jnp.maximum(p - 2.0, 0.0), group)
    of_first_chunk = jnp.minimum(m, group + jnp.clip(2.0 * p - 1.0 - group, 0.0, group) * jnp.minimum(v - 1.0, 1.0))
    first = opening * chunk - jnp.clip(spare - 1.0, 0.0, 1.0) * of_first_chunk
    last = final * chunk - jnp.minimum(spare, 1.0)
    even = layout.gpipe + layout.other_schedules
    in_turn = HeldActivations(jnp.maximum(first, after * chunk), last, opening / v, after / v, final / v)
    if is_fixed(even, 0.0):
        return in_turn
    deepest = layout.gpipe * m + layout.zero_bubble_h2 * (2.0 * p - 1.0) + layout.dual_pipe * (p + 1.0)
    flying = jnp.minimum(m, deepest + (layout.zero_bubble + layout.zero_bubble_v) * p)
    # The first rank of ZB-V, which is also the last, starts backward passes before the others are full.
    at_head = flying - layout.zero_bubble_v * jnp.maximum(jnp.minimum(m, p) - 0.5 * (m + 1.0), 0.0)
    return HeldActivations(
        most=(1.0 - even) * in_turn.most + flying * full,
        last=(1.0 - even) * last + at_head * full,
        opening=(1.0 - even) * in_turn.opening + flying,
        second=in_turn.second,
        final=(1.0 - even) * in_turn.final + flying,
    )
