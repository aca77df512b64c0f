"""How long do the ranks of a pipeline work on a micro-batch, and how long do they wait for each other in a step?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.parallelism import (
    balanced_stage_layers,
    fullest_stage_layers,
    idle_stage_layers,
    slowest_chunk_layers,
    uneven_stage_layers,
)
from energymodel.performance.pipeline_bubble import (
    dual_pipe_wait,
    interleaved_bubble,
    zero_bubble_h1_wait,
    zero_bubble_h2_wait,
    zero_bubble_v_wait,
)
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem

Stages = Float[Array, "3"]
"""Of the first rank of a pipeline, of each one between, and of the last one."""


class PassTimes(NamedTuple):
    """Time of a micro-batch, forward and backward [s].

    In a layer, working and communicating (`on_chip`) and waiting for launches or for the host (`stall`); in the output
    head; and in the communication of a rank with its neighbors (`hop`).
    """

    on_chip: Scalar
    stall: Scalar
    head: Scalar
    hop: Scalar

    @property
    def layer(self) -> Float[Array | np.ndarray, "..."]:
        """Time in a layer [s]."""
        return self.on_chip + self.stall


class RankTimes(NamedTuple):
    """What the wait of a pipeline follows from, of a micro-batch [s].

    Time of the slowest rank with its hop, how long the mean one waits for it, time of the slowest virtual stage, and by
    how much the ranks with the output head exceed a full one in DualPipe.
    """

    rank: Scalar
    idle: Scalar
    chunk: Scalar
    excess: Scalar


class RankStages(NamedTuple):
    """Ranks of each kind, and the layers and the share of the output head on the mean and on the fullest one [1].

    `chunk` counts the layers of a full virtual stage, `ending` those of the one beside the output head.
    """

    ranks: Stages
    layers: Stages
    heads: Stages
    fullest: Stages
    chunk: Stages
    ending: Scalar

    def work(self, passes: PassTimes) -> Stages:
        """Time of a micro-batch on a rank of each kind, with its hop [s]."""
        return self.layers * passes.layer + self.heads * passes.head + passes.hop


def _schedule_wait(layout: ParallelLayout, microbatches: Numeric, times: RankTimes) -> Scalar:
    """Time of a step in which the mean pipeline rank waits for the others [s], by the schedule of the layout."""
    rank, idle, chunk, excess = times
    weights = 1.0 / (3.0 + layout.recompute_full)  # of the passes: one product for each forward and each input gradient
    counts = (microbatches, layout.pipeline)
    return (
        (1.0 - _other_schedules(layout)) * interleaved_bubble(rank, idle, chunk, *counts)
        + layout.zero_bubble * zero_bubble_h1_wait(rank, idle, *counts, weights)
        + layout.zero_bubble_h2 * zero_bubble_h2_wait(rank, idle, *counts, weights)
        + layout.zero_bubble_v * zero_bubble_v_wait(rank, idle, chunk, *counts, weights)
        + layout.dual_pipe * dual_pipe_wait(rank, idle, excess, *counts, weights)
    )


def _other_schedules(layout: ParallelLayout) -> Scalar:
    """1 for a schedule other than 1F1B, interleaved or not, else 0 [1]."""
    return jnp.asarray(layout.zero_bubble) + layout.zero_bubble_h2 + layout.zero_bubble_v + layout.dual_pipe


def even_wait(
    system: TrainingSystem, plan: TrainingPlan, microbatches: Numeric, passes: PassTimes
) -> Float[Array, "..."]:
    """Time of a step in which the mean pipeline rank waits for the others, all at one clock.

    By the schedule of the layout [derivation: docs/step_time.md].

    **Arguments:**

    - `microbatches`: of a step on a replica [1].
    - `passes`: times of a micro-batch [s].

    **Returns:** time [s].
    """
    passes = jax.tree.map(jnp.asarray, passes)
    return _schedule_wait(plan.layout, microbatches, _even_ranks(system, plan, passes))


def _even_ranks(system: TrainingSystem, plan: TrainingPlan, passes: PassTimes) -> RankTimes:
    workload, layout, layer = system.workload, plan.layout, jnp.asarray(passes.layer)
    head = passes.head / layer
    idle = layer * _idle_layers(system, plan, head)
    rank = (workload.layers * layer + passes.head) / layout.pipeline + passes.hop + idle
    slowest = slowest_chunk_layers(workload.layers, layout.pipeline, layout.virtual_stages, head) * layer
    chunk = _chunk(system, plan, slowest, rank, passes.hop)
    return RankTimes(rank, idle, chunk, layer * _head_excess(system, plan, head))


def staged_wait(
    system: TrainingSystem, plan: TrainingPlan, microbatches: Numeric, stages: RankStages, passes: PassTimes
) -> Scalar:
    """`even_wait` where the first, the middle and the last ranks have clocks of their own [s].

    Equal clocks give `even_wait`. An interleaved rank that is slower for its clock delays the first p
    micro-batches as well, by `min(m, p) (1 - 1/v) (idle - idle_even)`; within 2 % of the simulation, but too long
    by up to 19 % if the first rank is the slowest and m is no more than p [derivation: docs/step_time.md].

    **Arguments:**

    - `passes`: of the three kinds of ranks [s].

    **Returns:** time [s].
    """
    passes = jax.tree.map(jnp.asarray, passes)
    layout, exists, head = plan.layout, stages.ranks > 0.0, stages.heads * passes.head
    work = stages.fullest * passes.layer + head
    slowest = jnp.max(jnp.where(exists, work, 0.0))
    mean = jnp.sum(stages.ranks * (stages.layers * passes.layer + head)) / layout.pipeline
    hop = passes.hop[2]
    longest = jnp.max(jnp.where(exists, stages.chunk * passes.layer, 0.0))
    longest = jnp.maximum(longest, stages.ending * passes.layer[2] + passes.head[2])
    chunk = _chunk(system, plan, longest, slowest + hop, hop)
    excess = jnp.maximum(0.0, work[2] - stages.fullest[1] * passes.layer[1])
    times = RankTimes(slowest + hop, slowest - mean, chunk, excess)
    shares = stages.ranks * stages.layers / jnp.sum(stages.ranks * stages.layers)
    layer, last = jnp.sum(shares * passes.layer), passes.head[2]
    slower = jnp.maximum(0.0, times.idle - layer * _idle_layers(system, plan, last / layer))
    first = jnp.minimum(microbatches, layout.pipeline) * (1.0 - 1.0 / jnp.asarray(layout.virtual_stages))
    return _schedule_wait(layout, microbatches, times) + (1.0 - _other_schedules(layout)) * first * slower


def rank_stages(system: TrainingSystem, plan: TrainingPlan) -> RankStages:
    """Layers of the ranks by how stages are balanced: evenly, by the weights of the head, or by hand [definition].

    Spare slots of an even division are at the output head first, then at the embedding; further ones are spread over
    the ranks between.

    **Returns:** ranks, layers and shares of the head by kind of rank [1].
    """
    layers, layout = jnp.asarray(system.workload.layers), plan.layout
    pipeline, dual = jnp.asarray(layout.pipeline), layout.dual_pipe
    several, between = jnp.clip(pipeline - 1.0, 0.0, 1.0), jnp.maximum(pipeline - 2.0, 0.0)
    full = fullest_stage_layers(layers, pipeline, layout.virtual_stages)
    spare = pipeline * full - layers
    ends, share = 1.0 + jnp.asarray(layout.zero_bubble_v) + dual, 1.0 - 0.5 * dual
    at_last = share * jnp.minimum(ends, spare)
    at_first = (1.0 - share) * jnp.minimum(ends, spare) + (1.0 - dual) * jnp.clip(spare - ends, 0.0, 1.0)
    filled, lasting = balanced_stage_layers(layers, pipeline, _head_weight(system))
    cut = uneven_stage_layers(layers, pipeline, layout.first_stage_layers, layout.last_stage_layers)
    by_hand, own = layout.cut_by_hand, _divided_by_weight(system, plan)

    def blend(even: Numeric, balanced: Numeric, hand: Numeric) -> Scalar:
        return (1.0 - own) * even + own * ((1.0 - by_hand) * balanced + by_hand * hand)

    last = blend(full - at_last, lasting, cut.last)
    first = blend(full - at_first, filled, cut.first)
    first = jnp.where(between > 0.0, first, layers - last)
    middle = (layers - several * first - last) / jnp.where(between > 0.0, between, 1.0)
    most = blend(full, filled, cut.middle)
    single, chunk = layout.virtual_stages <= 1.0, full / layout.virtual_stages
    return RankStages(
        ranks=jnp.stack([several, between, jnp.ones_like(several)]),
        layers=jnp.stack([first, jnp.where(between > 0.0, middle, most), last]),
        heads=jnp.stack([1.0 - share, jnp.zeros_like(share), share]),
        fullest=jnp.stack([jnp.where(between > 0.0, first, most), most, last]),
        chunk=jnp.stack([jnp.where(single, first, chunk), chunk, jnp.where(single, last, chunk)]),
        ending=chunk - jnp.minimum(1.0, spare),
    )


def _chunk(system: TrainingSystem, plan: TrainingPlan, slowest: Scalar, rank: Scalar, hop: Scalar) -> Scalar:
    """Time of the slowest virtual stage [s]; where ranks are balanced by their work, of an equal part of the rank."""
    balanced = _divided_by_weight(system, plan)
    return (1.0 - balanced) * slowest + (balanced * (rank - hop) + hop) / plan.layout.virtual_stages


def _divided_by_weight(system: TrainingSystem, plan: TrainingPlan) -> Scalar:
    """1 where ranks are cut by their work or by hand, 0 where they have as many layers as others [1]."""
    return jnp.maximum(system.software.balanced_stages, plan.layout.cut_by_hand)


def _head_weight(system: TrainingSystem) -> Scalar:
    """Weights of the output head in layers [1]."""
    workload = system.workload
    return workload.vocabulary * workload.hidden * workload.layers / workload.active_layer_parameters


def _head_excess(system: TrainingSystem, plan: TrainingPlan, head: Numeric) -> Scalar:
    """Layers' worth of time that the two ranks with the output head in DualPipe need beyond a full one [1]."""
    layers, layout = system.workload.layers, plan.layout
    spare = layout.pipeline * fullest_stage_layers(layers, layout.pipeline, layout.virtual_stages) - layers
    return 0.5 * jnp.maximum(0.0, head - jnp.minimum(2.0, spare))


def _idle_layers(system: TrainingSystem, plan: TrainingPlan, head: Numeric) -> Scalar:
    """Layers' worth of time that the mean pipeline rank idles beside the slowest [1], by how stages are balanced."""
    workload, layout = system.workload, plan.layout
    layers, ranks, by_hand = workload.layers, layout.pipeline, layout.cut_by_hand
    ends, share = 1.0 + jnp.asarray(layout.zero_bubble_v) + layout.dual_pipe, 1.0 - 0.5 * layout.dual_pipe
    even = idle_stage_layers(layers, ranks, layout.virtual_stages, head, ends, share)
    fullest, last = balanced_stage_layers(layers, ranks, _head_weight(system))
    cut = uneven_stage_layers(layers, ranks, layout.first_stage_layers, layout.last_stage_layers)
    before = (1.0 - by_hand) * fullest + by_hand * jnp.maximum(cut.first, cut.middle)
    slowest = jnp.maximum(before, (1.0 - by_hand) * last + by_hand * cut.last + head)
    own = _divided_by_weight(system, plan)
    return (1.0 - own) * even + own * (slowest - (layers + head) / ranks)
