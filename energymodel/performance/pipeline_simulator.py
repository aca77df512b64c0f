"""How long does a step of a pipeline take, how long does each rank wait, and how many activations does it hold?

A simulation of discrete events: every rank does its slots in order, and starts one as soon as the previous one has
ended and what it needs has arrived. No formula of a bubble is in here, which makes it the reference for those of
`energymodel.performance.pipeline_bubble`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.performance.pipeline_orders import ORDERS, Operation, PipelineOrder

PerStage = float | Sequence[float] | Float[np.ndarray, " stages"]


class PassTimes(NamedTuple):
    """Time of each pass of a micro-batch through a virtual stage, and of the hop to another rank [s].

    One number for all virtual stages, or one for each. A whole backward pass takes both of its parts together;
    `overlap` is the time of a forward and a backward pass in one slot over their sum [1].
    """

    forward: PerStage = 1.0
    input_gradient: PerStage = 1.0
    weight_gradient: PerStage = 1.0
    hop: float = 0.0
    overlap: float = 1.0


class SimulatedPass(NamedTuple):
    """A pass on a rank, from `start` to `end` [s]; passes that overlap in a slot share both."""

    rank: int
    operation: Operation
    start: float
    end: float


class SimulatedStep(NamedTuple):
    """What the simulation gives.

    - `time`: from the start of the first pass to the end of the last [s].
    - `busy`, `first`, `last`: of each rank, time spent working, start of its first and end of its last pass [s].
    - `held`: the most activations that each rank holds at once, of a virtual stage and micro-batch [1], or in the unit
      of `sizes`.
    - `passes`: all of them, each rank's in order.
    """

    time: float
    busy: Float[np.ndarray, " ranks"]
    first: Float[np.ndarray, " ranks"]
    last: Float[np.ndarray, " ranks"]
    held: Float[np.ndarray, " ranks"]
    passes: list[SimulatedPass]

    @property
    def idle(self) -> Float[np.ndarray, " ranks"]:
        """Time of the step in which each rank waits [s]."""
        return self.time - self.busy

    @property
    def period(self) -> float:
        """Time from step to step where a rank starts the next one without waiting for the others [s]."""
        return float(np.max(self.last - self.first))


def simulate_pipeline(
    schedule: str, ranks: int, microbatches: int, chunks: int = 1, times: PassTimes | None = None, sizes: PerStage = 1.0
) -> SimulatedStep:
    """Run a step of a schedule: `"gpipe"`, `"1f1b"` (interleaved if `chunks` > 1), `"zb-h1"`, `"zb-h2"`, `"zb-v"` or
    `"dualpipe"`, in the orders of `pipeline_orders`.

    **Arguments:**

    - `ranks`, `microbatches`, `chunks`: p, m and v [1].
    - `times`: of the passes; by default each takes 1 s.
    - `sizes`: activations of a micro-batch in a virtual stage, in any unit.

    **Raises:** `ValueError` for an unknown schedule, and for counts that it cannot run.
    """
    if schedule not in ORDERS:
        raise ValueError(f'simulate_pipeline: unknown schedule "{schedule}". Choose one of {", ".join(ORDERS)}.')
    if min(ranks, microbatches, chunks) < 1:
        raise ValueError(f"simulate_pipeline: {ranks} ranks, {microbatches} micro-batches, {chunks} chunks. Give 1.")
    return run_orders(ORDERS[schedule](ranks, microbatches, chunks), times or PassTimes(), sizes)


def run_orders(order: PipelineOrder, times: PassTimes, sizes: PerStage = 1.0) -> SimulatedStep:
    """Run any order of operations.

    **Raises:** `ValueError` if the ranks wait for each other.
    """
    stages, ranks = order.stages, len(order.slots)
    forward, gradient, weight, size = (
        np.broadcast_to(np.asarray(one, np.float64), (stages,))
        for one in (times.forward, times.input_gradient, times.weight_gradient, sizes)
    )
    duration = {"F": forward, "B": gradient + weight, "I": gradient, "W": weight}
    ends: dict[tuple[bool, int, int], tuple[float, int]] = {}  # of forward and backward passes, with the rank
    clock, busy, first = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    held, most = np.zeros(ranks), np.zeros(ranks)
    done = [0] * ranks
    passes: list[SimulatedPass] = []

    def arrival(operation: Operation, rank: int) -> float | None:
        """When what an operation needs is there, or None if that has not been computed."""
        kind, stage, microbatch = operation
        if kind == "F":
            need = (True, stage - 1, microbatch) if stage else None
        elif kind == "W":
            need = (False, stage, microbatch)
        else:
            need = (False, stage + 1, microbatch) if stage < stages - 1 else (True, stage, microbatch)
        if need is None:
            return 0.0
        if need not in ends:
            return None
        end, source = ends[need]
        return end + times.hop * (source != rank)

    while any(done[rank] < len(order.slots[rank]) for rank in range(ranks)):
        before = sum(done)
        for rank in range(ranks):
            while done[rank] < len(order.slots[rank]):
                slot = order.slots[rank][done[rank]]
                arrivals = [arrival(operation, rank) for operation in slot]
                if any(one is None for one in arrivals):
                    break
                start = max(clock[rank], *(one for one in arrivals if one is not None))
                spent = sum(float(duration[kind][stage]) for kind, stage, _ in slot)
                spent *= times.overlap if len(slot) > 1 else 1.0
                first[rank] = start if done[rank] == 0 else first[rank]
                clock[rank] = start + spent
                busy[rank] += spent
                for kind, stage, microbatch in slot:
                    if kind != "W":
                        ends[kind == "F", stage, microbatch] = clock[rank], rank
                    if kind == "F":
                        held[rank] += size[stage]
                        most[rank] = max(most[rank], held[rank])
                held[rank] -= sum(float(size[stage]) for kind, stage, _ in slot if kind in ("B", "W"))
                passes += [SimulatedPass(rank, operation, start, start + spent) for operation in slot]
                done[rank] += 1
        if sum(done) == before:
            raise ValueError("run_orders: the ranks wait for each other. Correct the order of their operations.")
    return SimulatedStep(float(clock.max()), busy, first, clock, most, passes)
