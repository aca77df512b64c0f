"""Work of pipeline ranks on a micro-batch, and their waits for each other in a step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Part, Scalar, Values, blend, is_fixed, part
from energymodel.performance.pipeline_bubble import (
    dual_pipe_wait,
    idle_stage_layers,
    interleaved_bubble,
    slowest_chunk_layers,
    zero_bubble_h1_wait,
    zero_bubble_h2_wait,
    zero_bubble_v_wait,
)
from energymodel.system.division import Division
from energymodel.system.plan import ParallelLayout

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


def even_wait(layout: ParallelLayout, division: Division, passes: PassTimes) -> Values:
    """Time of a step in which the mean pipeline rank waits for the others [s], all at one clock.

    By the schedule of the layout [derivation: docs/step_time.md].

    **Arguments:**

    - `passes`: times of a micro-batch [s].
    """
    passes = jax.tree.map(jnp.asarray, passes)
    stages, layers, layer = division.stages, division.sizes.layers, jnp.asarray(passes.layer)
    head = passes.head / layer
    idle = layer * _idle_layers(layout, division, head)
    rank = (layers * layer + passes.head) / layout.pipeline + passes.hop + idle
    slowest = slowest_chunk_layers(stages.chunk, stages.spare, head) * layer
    # In DualPipe two ranks have half of the output head each, beyond a full one.
    excess: Part = 0.0
    if not is_fixed(layout.dual_pipe, 0.0):
        excess = layer * (0.5 * jnp.maximum(0.0, head - jnp.minimum(2.0, stages.spare)))
    return _schedule_wait(layout, division, rank, idle, slowest, passes.hop, excess)


def staged_wait(layout: ParallelLayout, division: Division, stages: RankStages, passes: PassTimes) -> Scalar:
    """`even_wait` where the first, the middle and the last ranks have clocks of their own [s].

    Equal clocks give `even_wait`. An interleaved rank that is slower for its clock delays the first p
    micro-batches as well, by `min(m, p) (1 - 1/v) (idle - idle_even)`; within 2 % of the simulation, but too long
    by up to 19 % if the first rank is the slowest and m is no more than p [derivation: docs/step_time.md].

    **Arguments:**

    - `passes`: of the three kinds of ranks [s].

    **Returns:** time [s].
    """
    passes = jax.tree.map(jnp.asarray, passes)
    exists, head = stages.ranks > 0.0, stages.heads * passes.head
    work = stages.fullest * passes.layer + head
    slowest = jnp.max(jnp.where(exists, work, 0.0))
    mean = jnp.sum(stages.ranks * (stages.layers * passes.layer + head)) / layout.pipeline
    hop = passes.hop[2]
    longest = jnp.max(jnp.where(exists, stages.chunk * passes.layer, 0.0))
    longest = jnp.maximum(longest, stages.ending * passes.layer[2] + passes.head[2])
    excess = jnp.maximum(0.0, work[2] - stages.fullest[1] * passes.layer[1])
    rank, idle = slowest + hop, slowest - mean
    shares = stages.ranks * stages.layers / jnp.sum(stages.ranks * stages.layers)
    layer, last = jnp.sum(shares * passes.layer), passes.head[2]
    slower = jnp.maximum(0.0, idle - layer * _idle_layers(layout, division, last / layer))
    first = jnp.minimum(division.microbatches, layout.pipeline) * (1.0 - 1.0 / jnp.asarray(layout.virtual_stages))
    wait = _schedule_wait(layout, division, rank, idle, longest, hop, excess)
    return wait + (1.0 - layout.other_schedules) * first * slower


def _schedule_wait(
    layout: ParallelLayout, division: Division, rank: Scalar, idle: Scalar, slowest: Scalar, hop: Scalar, excess: Part
) -> Part:
    """Time of a step in which the mean pipeline rank waits for the others [s], by the schedule of the layout.

    A micro-batch takes the slowest `rank` so long, with its `hop`, and the mean one `idle` less; `slowest` is its time
    in the slowest virtual stage of ranks that are not balanced by their work, `excess` what the ranks with the output
    head take beyond a full one in DualPipe [s].
    """
    chunk = blend(division.stages.weighed, lambda: (rank - hop) / layout.virtual_stages, lambda: slowest)
    chunk = chunk + hop / layout.virtual_stages
    weights = 1.0 / (3.0 + layout.recompute_full)  # of the passes: one product for each forward and each input gradient
    counts = (division.microbatches, layout.pipeline)
    waits = (
        part(1.0 - layout.other_schedules, lambda: interleaved_bubble(rank, idle, chunk, *counts)),
        part(layout.zero_bubble, lambda: zero_bubble_h1_wait(rank, idle, *counts, weights)),
        part(layout.zero_bubble_h2, lambda: zero_bubble_h2_wait(rank, idle, *counts, weights)),
        part(layout.zero_bubble_v, lambda: zero_bubble_v_wait(rank, idle, chunk, *counts, weights)),
        part(layout.dual_pipe, lambda: dual_pipe_wait(rank, idle, excess, *counts, weights)),
    )
    return sum(wait for wait in waits if not is_fixed(wait, 0.0))


def rank_stages(layout: ParallelLayout, division: Division) -> RankStages:
    """Layers of the ranks [1] by how stages are balanced: evenly, by the weights of the head, or by hand [definition].

    Spare slots of an even division are at the output head first, then at the embedding; further ones are spread over
    the ranks between.
    """
    layers, pipeline, dual = division.sizes.layers, jnp.asarray(layout.pipeline), layout.dual_pipe
    stages = division.stages
    full, spare, ends, share, cut = stages.full, stages.spare, stages.ends, stages.head_share, stages.cut
    several, between = jnp.clip(pipeline - 1.0, 0.0, 1.0), jnp.maximum(pipeline - 2.0, 0.0)
    at_last = share * jnp.minimum(ends, spare)
    at_first = (1.0 - share) * jnp.minimum(ends, spare) + (1.0 - dual) * jnp.clip(spare - ends, 0.0, 1.0)
    filled, lasting = stages.balanced

    def blend(even: Numeric, balanced: Numeric, hand: Numeric) -> Scalar:
        own = (1.0 - stages.by_hand) * balanced + stages.by_hand * hand
        return (1.0 - stages.weighed) * even + stages.weighed * own

    last = blend(full - at_last, lasting, cut.last)
    first = blend(full - at_first, filled, cut.first)
    first = jnp.where(between > 0.0, first, layers - last)
    middle = (layers - several * first - last) / jnp.where(between > 0.0, between, 1.0)
    most = blend(full, filled, cut.middle)
    single, chunk = layout.virtual_stages <= 1.0, stages.chunk
    return RankStages(
        ranks=jnp.stack([several, between, jnp.ones_like(several)]),
        layers=jnp.stack([first, jnp.where(between > 0.0, middle, most), last]),
        heads=jnp.stack([1.0 - share, jnp.zeros_like(share), share]),
        fullest=jnp.stack([jnp.where(between > 0.0, first, most), most, last]),
        chunk=jnp.stack([jnp.where(single, first, chunk), chunk, jnp.where(single, last, chunk)]),
        ending=chunk - jnp.minimum(1.0, spare),
    )


def _idle_layers(layout: ParallelLayout, division: Division, head: Numeric) -> Scalar:
    """Layers' worth of time that the mean pipeline rank idles beside the slowest [1], by how stages are balanced."""
    stages = division.stages

    def own() -> Scalar:
        (fullest, last), cut, by_hand = stages.balanced, stages.cut, stages.by_hand
        before = (1.0 - by_hand) * fullest + by_hand * jnp.maximum(cut.first, cut.middle)
        slowest = jnp.maximum(before, (1.0 - by_hand) * last + by_hand * cut.last + head)
        return slowest - (division.sizes.layers + head) / layout.pipeline

    even = stages.spare, layout.pipeline, head, stages.ends, stages.head_share
    return blend(stages.weighed, own, lambda: idle_stage_layers(*even))
