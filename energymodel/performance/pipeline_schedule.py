"""Ends of the operations of a pipelined step, by its critical path.

Every rank runs its operations in a fixed order and waits for what its neighbors send. The end of an operation is then
the larger of two earlier ends plus its duration: a recursion in max-plus algebra [Baccelli et al. 1992, sec. 2.5],
exact for any durations, whose gradient is the critical path.
Virtual stage k = c p + r is chunk c of rank r; durations have the axes (forward and backward, virtual stage,
micro-batch).

Shared arguments: `durations` d [s] on these axes (or one for all micro-batches); `schedule` from `pipeline_schedule`;
`hop`, the exposed time t_hop from rank to rank [s].
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from energymodel.numerics import Numeric, Scalar
from energymodel.performance.pipeline_simulator import (
    Operation,
    PassTimes,
    needed,
    one_forward_one_backward,
    run_orders,
)

Durations = Float[Array | np.ndarray, "2 stages microbatches"]
Table = Int[Array | np.ndarray, "levels ranks"]
Mask = Bool[Array | np.ndarray, "levels ranks"]
FORWARD, BACKWARD = 0, 1


class Schedule(eqx.Module):
    """Operations of all ranks in levels, such that each operation needs only earlier levels.

    - `operation`: index into the flattened durations of what a rank does at a level.
    - `works`: whether the rank does anything at that level.
    - `waits`: whether the operation needs a result of another rank, `source`, from `lag` levels before.
    """

    operation: Table
    works: Mask
    waits: Mask
    source: Table
    lag: Table
    ranks: int = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    microbatches: int = eqx.field(static=True)
    reach: int = eqx.field(static=True)

    @property
    def stages(self) -> int:
        """Virtual stages [1]."""
        return self.ranks * self.chunks

    @property
    def levels(self) -> int:
        """Length of the longest chain of operations [1]."""
        return self.operation.shape[0]


def pipeline_schedule(ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """One forward, one backward (1F1B), interleaved if a rank has several chunks [Narayanan et al. 2021, sec. 2.2].

    Rank r starts with `min(m, p - r - 1)` forward passes, or `min(v m, 2 (p - r - 1) + (v - 1) p)` if interleaved, then
    alternates forward and backward passes, and ends with the remaining backward passes. An interleaved rank takes p
    micro-batches through a chunk before it turns to the next chunk.

    **Arguments:**

    - `ranks`: pipeline ranks p [1].
    - `microbatches`: micro-batches m in a step [1]; a multiple of p if interleaved.
    - `chunks`: virtual stages v of each rank [1].

    **Returns:** `Schedule`, with counts of `levels`, `stages` and micro-batches [1].

    **Raises:** `ValueError` for counts below one, and for micro-batches that an interleaved schedule cannot group.
    """
    if min(ranks, microbatches, chunks) < 1:
        raise ValueError(
            f"{ranks} pipeline ranks, {microbatches} micro-batches, {chunks} chunks. Give at least one of each."
        )
    if chunks > 1 and microbatches % ranks:
        raise ValueError(
            f"pipeline_schedule: {microbatches} micro-batches do not divide into groups of {ranks} ranks, which an "
            "interleaved schedule needs. Change the batch, or set chunks to 1."
        )
    order = one_forward_one_backward(ranks, microbatches, chunks)
    # The level of an operation is when it starts if each takes as long.
    passes = run_orders(order, PassTimes(weight_gradient=0.0)).passes
    level = {(kind == "F", stage, number): int(start) for _, (kind, stage, number), start, _ in passes}
    shape = (1 + max(level.values()), ranks)
    operation, source, lag = (np.zeros(shape, np.int32) for _ in range(3))
    works = np.zeros(shape, bool)
    for rank, (kind, stage, number), start, _ in passes:
        at, need = (int(start), rank), needed(Operation(kind, stage, number), order.stages)
        works[at] = True
        operation[at] = ((FORWARD if kind == "F" else BACKWARD) * order.stages + stage) * microbatches + number
        source[at] = rank if need is None else need[1] % ranks
        if need is not None and source[at] != rank:  # a rank never waits for its own earlier operations
            lag[at] = int(start) - level[need]
    return Schedule(
        operation, works, lag > 0, source, np.maximum(lag, 1), ranks, chunks, microbatches, max(1, int(lag.max()))
    )


def operation_ends(durations: Durations, schedule: Schedule, hop: Numeric = 0.0) -> Float[Array, "2 stages all"]:
    """End of every operation, `t_end = d + max(t_before, t_needed + t_hop)` [Baccelli et al. 1992, sec. 2.5].

    t_before is the previous operation of the same rank, t_needed that of the neighbor whose result it uses.

    **Returns:** ends, counted from the start of the step [s], like `durations`.
    """
    d = jnp.broadcast_to(jnp.asarray(durations), (2, schedule.stages, schedule.microbatches))
    start = jnp.zeros((schedule.reach, schedule.ranks), d.dtype)  # ends of each rank at the latest levels, newest first

    def advance(window: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        duration, works, waits, source, lag = row
        own, other = window[0], window[lag - 1, source] + hop
        # Not a maximum, whose gradient would be shared between paths of equal length.
        begin = jnp.where(waits & (other > own), other, own)
        end = jnp.where(works, begin + duration, own)
        return jnp.concatenate([end[None], window[:-1]]), end

    tables = (schedule.works, schedule.waits, schedule.source, schedule.lag)
    rows = (jnp.ravel(d)[schedule.operation], *map(jnp.asarray, tables))
    _, ends = jax.lax.scan(advance, start, rows)
    operations = jnp.where(schedule.works, schedule.operation, d.size)  # what does not exist is dropped
    flat = jnp.zeros(d.size, d.dtype).at[operations].set(ends, mode="drop")
    return jnp.reshape(flat, d.shape)


def pipeline_makespan(durations: Durations, schedule: Schedule, hop: Numeric = 0.0) -> Scalar:
    """Time from the first to the last operation [s], `t = max t_end` over all of them [Baccelli et al. 1992, sec. 2.5].

    The length of the longest path, a convex, piecewise linear function of the durations. Equal stages give
    `(m + (p - 1) / v) (t_f + t_b)`, as in [Narayanan et al. 2021].
    """
    ends = jnp.ravel(operation_ends(durations, schedule, hop))
    return ends[jnp.argmax(ends)]
