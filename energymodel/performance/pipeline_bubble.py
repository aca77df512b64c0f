"""Waiting of pipeline ranks in a step, and the activations that they hold, by schedule.

The closed forms of what `pipeline_simulator` runs. A micro-batch takes X on the slowest rank and `idle` less on the
mean one, so that it takes `S = p (X - idle)` on all of them; C is the slowest virtual stage. Of its time, a share w are
backward passes for the weights, as much are forward passes, and the rest are backward passes for the input:
`F = W = w X` and `I = (1 - 2 w) X`, with w = 1/3 and 1/4 with full recomputation.

Shared arguments: `pipeline` p, `virtual_stages` v, `microbatches` m [1], at least one each; `rank`, the time X [s] of a
micro-batch on the slowest rank; `idle` [s]; `chunk`, its time C in the slowest virtual stage [s] or, of
`slowest_chunk_layers`, the layers k of a full one [1]; `weight_share` w, at most 1/3, `spare`, layers that the ranks
lack beside full ones, and `head` r, time of the output head over a layer's [1].
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Numeric, Values, ceil_count

GROUP_TOLERANCE = 1e-6  # relative rounding error allowed where micro-batches divide into groups without remainder


def idle_stage_layers(
    spare: Numeric, pipeline: Numeric, head: Numeric, ends: Numeric = 1.0, share: Numeric = 1.0
) -> Values:
    """Layers' worth of idle time of the mean rank, `spare/p + max(-r/p, (a - 1/p) r - a min(e, spare))`.

    The slowest rank of an even division minus the mean `(L + r) / p`, without cancellation: exactly zero for a single
    rank. Spare slots are at the output head first, then at the embedding [derivation: docs/physics.md B3].

    **Arguments:**

    - `spare`: layers that the ranks lack beside full ones, `p v ceil(L / (p v)) - L` [1].
    - `head`: r, time of the output head over a layer's [1].
    - `ends`: ends e of the pipeline on the rank with the output head; 2 where it also has the embedding [1].
    - `share`: of the micro-batches, a, whose head that rank computes; 1/2 where two ranks do [1].

    **Returns:** layer equivalents [1], not negative.
    """
    p, r = jnp.asarray(pipeline), jnp.asarray(head)
    return jnp.divide(spare, p) + jnp.maximum(-r / p, (share - 1.0 / p) * r - share * jnp.minimum(ends, spare))


def slowest_chunk_layers(chunk: Numeric, spare: Numeric, head: Numeric) -> Values:
    """Work of the slowest virtual stage in layers [1], `max(k, k - min(1, spare) + r)` with `k = ceil(L / (p v))`.

    The last one has the output head and lacks the first spare layer [derivation: docs/physics.md B3].
    """
    return jnp.asarray(chunk) + jnp.maximum(0.0, head - jnp.minimum(1.0, spare))


def interleaved_bubble(
    rank: Numeric, idle: Numeric, chunk: Numeric, microbatches: Numeric, pipeline: Numeric
) -> Values:
    """Waiting of the mean rank in 1F1B [s], `(X - idle) (p - m)+ + (min(m, p) - 1) C + idle (m - p)+`.

    The first micro-batch takes S; up to p others follow in steps of C, as in a flow shop, and the others in steps of X.
    Less the work `m S / p`. One stage a rank has C = X; equal stages give the `(p - 1) / v` of
    [Narayanan et al. 2021, sec. 2.2] for m >= p, and `p - m + (m - 1) / v` where at most m of p ranks work
    [derivation: docs/step_time.md]. GPipe takes as long as 1F1B.
    """
    m, p = jnp.asarray(microbatches), jnp.asarray(pipeline)
    missing, more = jnp.maximum(p - m, 0.0), jnp.maximum(m - p, 0.0)
    return (jnp.asarray(rank) - idle) * missing + (jnp.minimum(m, p) - 1.0) * chunk + idle * more


def zero_bubble_h1_wait(
    rank: Numeric, idle: Numeric, microbatches: Numeric, pipeline: Numeric, weight_share: Numeric
) -> Values:
    """Waiting of the mean rank in ZB-H1 [s], the larger of two times less `m S / p`.

    `m X + w O` and `(1 - w) (S + (min(m, p) - 1) X) + w l + (m - p)+ X`.

    The slowest rank, last of all, starts after the forward passes of the others, `O = S - X`; or the first p
    micro-batches pass without backward passes for the weights, but for the last on the first rank, which takes
    `l = O / (p - 1)`. Equal stages leave `(p - 1) (F + I - W)` for m >= p [Qi et al. 2024, table 1]; the rest is
    [derivation: docs/step_time.md].
    """
    m, p, w = jnp.asarray(microbatches), jnp.asarray(pipeline), jnp.asarray(weight_share)
    others, mean = _other_ranks(rank, idle, p), jnp.asarray(rank) - idle
    returning = (1.0 - w) * (p * mean + (jnp.minimum(m, p) - 1.0) * rank)
    returning = returning + w * others.mean + jnp.maximum(m - p, 0.0) * rank - m * mean
    return jnp.maximum(m * idle + w * others.total, returning)


def zero_bubble_h2_wait(
    rank: Numeric, idle: Numeric, microbatches: Numeric, pipeline: Numeric, weight_share: Numeric
) -> Values:
    """Waiting of the mean rank in ZB-H2 from step to step [s], `max((1 - w) (S + (m - 1) X) + w l, m X + b) - m S / p`.

    The first micro-batches and their return, as in ZB-H1; or the slowest rank is never without work, but for
    `b = ((1 - 3 w) O - 2 p w (X - l))+`, in equal stages `(p - 1) (F + I - 2 W)` [Qi et al. 2024, table 1]; the rest is
    [derivation: docs/step_time.md]. Ranks start the next step without waiting for each other, with an optimizer that
    validates afterwards [Qi et al. 2024, sec. 4].
    """
    m, p, w = jnp.asarray(microbatches), jnp.asarray(pipeline), jnp.asarray(weight_share)
    others, mean = _other_ranks(rank, idle, p), jnp.asarray(rank) - idle
    returning = (1.0 - w) * (p * mean + (m - 1.0) * rank) + w * others.mean - m * mean
    filling = (1.0 - 3.0 * w) * others.total - 2.0 * p * w * (rank - others.mean)
    return jnp.maximum(returning, m * idle + jnp.maximum(filling, 0.0))


def zero_bubble_v_wait(
    rank: Numeric, idle: Numeric, chunk: Numeric, microbatches: Numeric, pipeline: Numeric, weight_share: Numeric
) -> Values:
    """Waiting of the mean rank in ZB-V from step to step [s], the largest of three times less `m S / p`.

    `(1 - w) S + (m - 1) max((1 - w) l, C) + w l` for the first micro-batches and their return,
    `(m + (p - 1) (1 - 3 w)) l + (1 - w) (X - l)` for the pace of the others, with `l = O / (p - 1)`, and
    `m X + (2 p - 1 - m)+ w l / 2 + (p / 2 - 1)+ (1 - 3 w) l` for that of the slowest rank, first and last of all. Equal
    stages as in ZB-H2 [Qi et al. 2024, sec. 6]; the rest is [derivation: docs/step_time.md], within 1.3 % of the step,
    or 2 % where all layers are recomputed and the output head takes as long as a stage.
    """
    m, p, w = jnp.asarray(microbatches), jnp.asarray(pipeline), jnp.asarray(weight_share)
    mean, other = jnp.asarray(rank) - idle, _other_ranks(rank, idle, p).mean
    returning = (1.0 - w) * p * mean + (m - 1.0) * jnp.maximum((1.0 - w) * other, chunk) + w * other
    pace = (m + (p - 1.0) * (1.0 - 3.0 * w)) * other + (1.0 - w) * (rank - other)
    filling = 0.5 * w * jnp.maximum(2.0 * p - 1.0 - m, 0.0) + (1.0 - 3.0 * w) * jnp.maximum(0.5 * p - 1.0, 0.0)
    return jnp.maximum(jnp.maximum(returning, pace) - m * mean, m * idle + filling * other)


class _OtherRanks(NamedTuple):
    """Time of a micro-batch on all ranks but the slowest: in all, and on their mean; none beside a single rank."""

    total: Array
    mean: Array


def _other_ranks(rank: Numeric, idle: Numeric, pipeline: Array) -> _OtherRanks:
    total = (pipeline - 1.0) * rank - pipeline * idle
    return _OtherRanks(total, total / jnp.maximum(pipeline - 1.0, 1.0))


def dual_pipe_wait(
    rank: Numeric, idle: Numeric, excess: Numeric, microbatches: Numeric, pipeline: Numeric, weight_share: Numeric
) -> Values:
    """Waiting of the mean rank in DualPipe [s], `m idle + max(q (1 - 3 w) l, b l - (2 p - 8 + 18 w) x)`.

    With `q = p / 2 - 1`, `l = X - x` and `b = 2 q (1 - 2 w) - min(q (1 - 3 w), w)`. Equal stages leave
    `q (F&B + B - 3 W)` at F = W, where two passes in a slot take as long as in turn [DeepSeek-AI 2024, table 2], less
    the last term where recomputation makes passes for the input longer. An output head of two ranks fills their
    bubbles [derivation: docs/step_time.md], within 1 % of the step. For an even p and an even m of at least 2 p.

    **Arguments:**

    - `excess`: time x of a micro-batch that the ranks with the output head need more than the others [s].
    """
    p, w = jnp.asarray(pipeline), jnp.asarray(weight_share)
    half, other = jnp.maximum(0.5 * p - 1.0, 0.0), jnp.asarray(rank) - excess
    filling = 2.0 * half * (1.0 - 2.0 * w) - jnp.minimum(half * (1.0 - 3.0 * w), w)
    filled = filling * other - (2.0 * p - 8.0 + 18.0 * w) * excess
    return jnp.asarray(microbatches) * idle + jnp.maximum(half * (1.0 - 3.0 * w) * other, filled)


def group_size(microbatches: Numeric, pipeline: Numeric) -> Values:
    """Micro-batches that an interleaved rank takes through a chunk before the next [1], `n = ceil(m / floor(m / p))`.

    p of them where p divides m, the groups of Megatron-LM; all of them where m < p [Narayanan et al. 2021, sec. 2.2].
    Between whole m it is not rounded up, so that it has a slope there.
    """
    m = jnp.asarray(microbatches)
    raised = m * (1.0 + GROUP_TOLERANCE)
    groups = jnp.maximum(1.0, jnp.floor(raised / pipeline))
    is_whole = jnp.floor(raised) >= m * (1.0 - GROUP_TOLERANCE)
    return jnp.where(is_whole, ceil_count(m / groups), m / groups)


def held_chunks(microbatches: Numeric, virtual_stages: Numeric, behind: Numeric, group: Numeric) -> Values:
    """Virtual-stage activations that a rank of 1F1B holds, `min(v m, k)`.

    `k = b + 1` for one stage a rank, `k = 2 b + (v - 1) n + 1` if interleaved, with b ranks behind it: its warm-up and
    one more. The first rank holds p, or `p v + p - 1` [Korthikanti et al. 2022, sec. 4.2.3].

    **Arguments:**

    - `behind`: ranks b between this one and the end of the pipeline [1].
    - `group`: micro-batches n that pass a chunk together [1].

    **Returns:** chunks, each of `ceil(L / (p v))` layers [1].
    """
    v, behind = jnp.asarray(virtual_stages), jnp.asarray(behind)
    interleaved = jnp.clip(v - 1.0, 0.0, 1.0)
    deepest = (1.0 + interleaved) * behind + (v - 1.0) * group + 1.0
    return jnp.minimum(jnp.asarray(microbatches) * v, deepest)


def fewest_microbatches(pipeline: Numeric, interleaved: Numeric, dual: Numeric) -> Values:
    """Micro-batches that a schedule needs [1]: 1; p if interleaved; 2 p in DualPipe, `1 + i (p - 1) + u (2 p - 1)`.

    Fewer would leave an interleaved rank without work between its chunks, and frameworks refuse them
    [Narayanan et al. 2021, sec. 2.2; DeepSeek-AI 2024, sec. 3.2.1].

    **Arguments:**

    - `interleaved`, `dual`: switches i and u, 1 for an interleaved schedule and for DualPipe [1].
    """
    p = jnp.asarray(pipeline)
    return 1.0 + jnp.asarray(interleaved) * (p - 1.0) + jnp.asarray(dual) * (2.0 * p - 1.0)


def microbatch_multiple(pipeline: Numeric, interleaved: Numeric, dual: Numeric, whole_groups: Numeric) -> Values:
    """Whole number that the micro-batches of a step are a multiple of [1], `1 + i g (p - 1) + u`.

    1 in most schedules; p if interleaved in whole groups, as in Megatron-LM; 2 in DualPipe, with half of them at each
    end [Narayanan et al. 2021, sec. 2.2; DeepSeek-AI 2024, sec. 3.2.1].

    **Arguments:**

    - `interleaved`, `dual`: switches i and u, 1 for an interleaved schedule and for DualPipe [1].
    - `whole_groups`: g, 1 where the framework interleaves in groups of p only [1].
    """
    groups = jnp.asarray(interleaved) * whole_groups
    return 1.0 + groups * (jnp.asarray(pipeline) - 1.0) + jnp.asarray(dual)
