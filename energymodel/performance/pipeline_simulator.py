"""Simulation of a pipelined step: orders of its ranks, its time, waits, and activations held.

An order is a list of slots, each with one operation, or two that overlap, by the schedule as it was published. A
simulation of discrete events does them: every rank does its slots in order, and starts one as soon as the previous one
has ended and what it needs has arrived. No formula of a bubble is in here, which makes it the reference for those of
`energymodel.performance.pipeline_bubble`.

Shared arguments, all counts [1]: `ranks` p; `microbatches` m in a step; `chunks` v, virtual stages of each rank.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Kind = Literal["F", "B", "I", "W"]
"""Forward; whole backward; backward for the input alone; backward for the weights alone."""


class Operation(NamedTuple):
    """What a rank does: the kind of pass, the virtual stage and the micro-batch."""

    kind: Kind
    stage: int
    microbatch: int


Slot = tuple[Operation, ...]
Need = tuple[bool, int, int]
"""A pass that others wait for: whether it is a forward one, its virtual stage and its micro-batch."""
RankOrder = list[Slot]


class PipelineOrder(NamedTuple):
    """The slots of every rank in turn, and the number of virtual stages that a micro-batch passes."""

    slots: list[RankOrder]
    stages: int


def gpipe(ranks: int, microbatches: int) -> PipelineOrder:
    """All forward passes, then all backward passes [Huang et al. 2019, fig. 2c]."""
    slots = [
        [(Operation(kind, rank, number),) for kind in ("F", "B") for number in range(microbatches)]
        for rank in range(ranks)
    ]
    return PipelineOrder(slots, ranks)


def one_forward_one_backward(ranks: int, microbatches: int, chunks: int = 1) -> PipelineOrder:
    """1F1B, interleaved if a rank has several chunks [Narayanan et al. 2021, sec. 2.2, figs. 3 and 4].

    As Megatron-LM runs it: rank r starts with `p - r - 1` forward passes, or `2 (p - r - 1) + (v - 1) n` if
    interleaved, and takes micro-batches in groups of n through a chunk before the next chunk. A group is p
    micro-batches, or slightly more where p does not divide m: the rounds of PyTorch's `ScheduleInterleaved1F1B`.
    """
    groups = _groups(ranks, microbatches)
    orders: list[RankOrder] = []
    for rank in range(ranks):
        queue = [(chunk, number) for group in groups for chunk in range(chunks) for number in group]
        queue = queue if chunks > 1 else [(0, number) for number in range(microbatches)]
        forward = [Operation("F", chunk * ranks + rank, number) for chunk, number in queue]
        backward = [Operation("B", (chunks - 1 - chunk) * ranks + rank, number) for chunk, number in queue]
        behind = ranks - rank - 1
        warm_up = min(len(queue), behind if chunks == 1 else 2 * behind + (chunks - 1) * len(groups[0]))
        order = forward[:warm_up]
        for late, early in zip(forward[warm_up:], backward, strict=False):
            order += [late, early]
        order += backward[len(queue) - warm_up :]
        orders.append([(operation,) for operation in order])
    return PipelineOrder(orders, ranks * chunks)


def _groups(ranks: int, microbatches: int) -> list[range]:
    """Micro-batches that pass a chunk together: as many groups as have p members, the first ones the larger."""
    count = max(1, microbatches // ranks)
    size, more = divmod(microbatches, count)
    first = [number * size + min(number, more) for number in range(count + 1)]
    return [range(*pair) for pair in pairwise(first)]


def zero_bubble(ranks: int, microbatches: int, depth: int = 1) -> PipelineOrder:
    """ZB-H1 (`depth` 1) and ZB-H2 (`depth` 2) [Qi et al. 2024, figs. 2 and 3].

    Rank r starts with `d (p - r - 1) + 1` forward passes, as 1F1B does at d = 1, then alternates backward passes for
    the input with forward passes. Its backward passes for the weights follow d r micro-batches later, so that every
    rank holds as many activations as the first one; the last of them fill the end of the step.
    """
    orders: list[RankOrder] = []
    for rank in range(ranks):
        order = [Operation("F", rank, n) for n in range(min(microbatches, depth * (ranks - rank - 1)))]
        ahead, late = len(order), depth * rank
        for number in range(microbatches):
            if number + ahead < microbatches:
                order.append(Operation("F", rank, number + ahead))
            order.append(Operation("I", rank, number))
            if number >= late:
                order.append(Operation("W", rank, number - late))
        order += [Operation("W", rank, number) for number in range(max(0, microbatches - late), microbatches)]
        orders.append([(operation,) for operation in order])
    return PipelineOrder(orders, ranks)


def zero_bubble_v(ranks: int, microbatches: int) -> PipelineOrder:
    """ZB-V: two chunks, from the first rank to the last and back again [Qi et al. 2024, sec. 6 and fig. 5].

    In the order in which PyTorch writes it down (`ScheduleZBVZeroBubble`): for at least 2 p - 1 micro-batches, of which
    those that do not exist are left out.
    """
    count = max(2 * ranks - 1, microbatches)
    orders: list[RankOrder] = []
    for rank in range(ranks):
        done: dict[str, int] = {f"{kind}{chunk}": 0 for kind in "FIW" for chunk in (0, 1)}
        order: list[Operation] = []

        def take(*names: str, rank: int = rank, done: dict[str, int] = done, order: list[Operation] = order) -> None:
            for name in names:
                stage = rank if name[1] == "0" else 2 * ranks - 1 - rank
                kind: Kind = "F" if name[0] == "F" else "I" if name[0] == "I" else "W"
                order.append(Operation(kind, stage, done[name]))
                done[name] += 1

        for _ in range(2 * (ranks - rank) - 1):
            take("F0")
        for _ in range(rank):
            take("F1", "F0")
        for _ in range(ranks - rank):
            take("F1", "I1", "W1")
        while done["F1"] < done["F0"] or done["F0"] < count:
            if done["F0"] < count:
                take("F0")
            take("I0", "W0", "F1", "I1", "W1")
        for _ in range(rank):
            take("I0", "I1")
        for _ in range(ranks - rank):
            take("I0", "W0")
        take(*["W1"] * (done["I1"] - done["W1"]))
        take(*["W0"] * (done["I0"] - done["W0"]))
        orders.append([(operation,) for operation in order if operation.microbatch < microbatches])
    return PipelineOrder(orders, 2 * ranks)


def dual_pipe(ranks: int, microbatches: int) -> PipelineOrder:
    """DualPipe: half of the micro-batches enter at each end [DeepSeek-AI 2024, sec. 3.2.1, fig. 5].

    The eight steps of its published program. Micro-batches of the second half run from the last rank to the first, so
    that rank r has stage r of one half and stage p - 1 - r of the other. A forward and a backward pass of opposite
    halves share a slot.

    **Raises:** `ValueError` for an odd number of ranks or micro-batches, and for fewer than 2 p micro-batches.
    """
    if ranks % 2 or microbatches % 2 or microbatches < 2 * ranks:
        raise ValueError(
            f"dual_pipe: {ranks} ranks and {microbatches} micro-batches. Give even numbers of both, and at least two "
            "micro-batches for each rank."
        )
    return PipelineOrder([_DualPipeRank(rank, ranks, microbatches).order for rank in range(ranks)], ranks)


class _DualPipeRank:
    """Writes down the order of one rank; direction 0 enters at the nearer end of the pipeline."""

    def __init__(self, rank: int, ranks: int, microbatches: int) -> None:
        self.rank, self.ranks, self.half = rank, ranks, microbatches // 2
        self.second = rank >= ranks // 2
        self.done = {(kind, direction): 0 for kind in "FB" for direction in (0, 1)}
        self.postponed: list[Operation] = []
        self.order: RankOrder = []
        middle = ranks // 2
        inner = min(rank, ranks - 1 - rank)
        before, after = middle - inner - 1, inner + 1
        for _ in range(2 * before):
            self._slot(self._forward(0))
        for _ in range(after):
            self._slot(self._forward(0))
            self._slot(self._forward(1))
        for _ in range(before):
            self._slot(self._backward(1, split=True))
            self._weights()
            self._slot(self._forward(1))
        for turn in range(self.half - ranks + after):
            if turn == 0 and inner == middle - 1:
                self._slot(self._forward(0))
                self._slot(self._backward(1))
            else:
                self._slot(self._forward(0), self._backward(1))
            self._slot(self._forward(1), self._backward(0))
        for _ in range(before):
            self._slot(self._backward(1))
            self._slot(self._forward(1), self._backward(0))
        split = False
        for turn in range(after):
            split = split or (turn == after // 2 and inner % 2 == 1)
            self._slot(self._backward(1, split=split))
            split = split or (turn == after // 2 and inner % 2 == 0)
            self._slot(self._backward(0, split=split))
        for _ in range(before):
            self._weights()
            self._slot(self._backward(0, split=True))
        while self.postponed:
            self._weights()

    def _slot(self, *operations: Operation) -> None:
        self.order.append(operations)

    def _place(self, kind: str, direction: int) -> tuple[int, int]:
        """Stage and micro-batch of the next pass in a direction."""
        number = self.done[kind, direction]
        self.done[kind, direction] += 1
        reverse = self.second != bool(direction)  # enters at the last rank
        return (self.ranks - 1 - self.rank if reverse else self.rank), number + reverse * self.half

    def _forward(self, direction: int) -> Operation:
        return Operation("F", *self._place("F", direction))

    def _backward(self, direction: int, *, split: bool = False) -> Operation:
        stage, number = self._place("B", direction)
        if split:
            self.postponed.append(Operation("W", stage, number))
        return Operation("I" if split else "B", stage, number)

    def _weights(self) -> None:
        self._slot(self.postponed.pop(0))


ORDERS: dict[str, Callable[[int, int, int], PipelineOrder]] = {
    "gpipe": lambda ranks, microbatches, chunks: gpipe(ranks, microbatches),
    "1f1b": one_forward_one_backward,
    "zb-h1": lambda ranks, microbatches, chunks: zero_bubble(ranks, microbatches, 1),
    "zb-h2": lambda ranks, microbatches, chunks: zero_bubble(ranks, microbatches, 2),
    "zb-v": lambda ranks, microbatches, chunks: zero_bubble_v(ranks, microbatches),
    "dualpipe": lambda ranks, microbatches, chunks: dual_pipe(ranks, microbatches),
}
"""Orders by name of the schedule."""


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
    `"dualpipe"`.

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


def needed(operation: Operation, stages: int) -> Need | None:
    """What an operation needs, unless it is the first of its micro-batch."""
    kind, stage, microbatch = operation
    if kind == "F":
        return (True, stage - 1, microbatch) if stage else None
    if kind == "W":
        return False, stage, microbatch
    return (False, stage + 1, microbatch) if stage < stages - 1 else (True, stage, microbatch)


def run_orders(order: PipelineOrder, times: PassTimes, sizes: PerStage = 1.0) -> SimulatedStep:
    """Run any order of operations.

    **Raises:** `ValueError` if the ranks wait for each other.
    """
    stages, ranks = order.stages, len(order.slots)
    forward, gradient, weight, size = (
        np.broadcast_to(np.asarray(of_stage, np.float64), (stages,))
        for of_stage in (times.forward, times.input_gradient, times.weight_gradient, sizes)
    )
    duration = {"F": forward, "B": gradient + weight, "I": gradient, "W": weight}
    ends: dict[Need, tuple[float, int]] = {}  # with the rank
    clock, busy, first = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    held, most = np.zeros(ranks), np.zeros(ranks)
    done = [0] * ranks
    passes: list[SimulatedPass] = []

    def arrival(operation: Operation, rank: int) -> float | None:
        """When what an operation needs is there, or None if that has not been computed."""
        need = needed(operation, stages)
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
                if any(arrival is None for arrival in arrivals):
                    break
                start = max(clock[rank], *(arrival for arrival in arrivals if arrival is not None))
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
