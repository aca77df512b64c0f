"""Steps of a training log: how long they take, and which of them are no training.

A log mixes steps of training with those that warm up, evaluate, write a checkpoint or come after a restart. What is
told apart here, in this order:

1. A step that is written again after a restart was lost; the first step after a restart is one of its own.
2. The first steps, as long as they are slower or faster than the later median by more than `USUAL`, warm up.
3. A step much slower than the median beside an evaluation or a checkpoint belongs to that.

All others are training, slow ones too: they are what the run is like.
"""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep

TRAINING, WARM_UP, EVALUATION, CHECKPOINT, RESTART, LOST = (
    "training",
    "warm-up",
    "evaluation",
    "checkpoint",
    "restart",
    "lost",
)
PHASES = (TRAINING, WARM_UP, EVALUATION, CHECKPOINT, RESTART, LOST)
WAITING = "waiting"
"""What a run does of which its log says nothing."""
WHOLE_SECOND = 1.0
"""How far a stamp of whole seconds may be from the end of its step [s]."""
USUAL = 0.10
"""A step is usual within this share of the median, or within `DEVIATIONS` of the scatter if that is more."""
DEVIATIONS = 5.0
TO_SIGMA = 1.4826  # median of absolute deviations to the standard deviation of a normal distribution
MOST_WARM_UP = 0.5
"""Share of the steps that may count as warm-up; beyond it, steps have no usual time."""
NUMBERS = tuple(field.name for field in fields(LoggedStep))


class Segment(NamedTuple):
    """A time in which a run did one thing [s since 1970]."""

    phase: str
    start: float
    stop: float


@dataclass(frozen=True)
class LoggedRun:
    """The steps of a log as columns, and which phase each belongs to.

    - `columns`: by the names of `LoggedStep`; NaN where the log does not say it.
    - `phases`: of each step.
    - `events`: between steps.
    """

    columns: dict[str, Float[np.ndarray, " steps"]]
    phases: tuple[str, ...]
    events: tuple[LogEvent, ...]

    def __len__(self) -> int:
        return len(self.phases)

    def column(self, name: str, phase: str = TRAINING) -> Float[np.ndarray, " some"]:
        """What the steps of a phase say, without those that say nothing."""
        values = self.columns[name][self.of(phase)]
        return values[np.isfinite(values)]

    def of(self, phase: str) -> np.ndarray:
        """Which steps belong to a phase."""
        return np.array([own == phase for own in self.phases], bool)

    def median(self, name: str) -> float:
        """Of the training steps; NaN if none says it."""
        values = self.column(name)
        return float(np.median(values)) if len(values) else math.nan

    @property
    def scatter(self) -> float:
        """Standard deviation of the time of a training step over its median, from absolute deviations [1]."""
        times = self.column("step_time")
        return relative_scatter(times)

    @property
    def has_clock(self) -> bool:
        """Whether the log says when its steps were."""
        return bool(np.any(np.isfinite(self.columns["time"])))

    def left_out(self) -> dict[str, int]:
        """Number of steps of each phase that is no training."""
        return {phase: int(np.sum(self.of(phase))) for phase in PHASES[1:] if np.any(self.of(phase))}

    def segments(self) -> list[Segment]:
        """The run as a sequence of times in which it did one thing; neighbours of one phase are joined.

        A gap between two steps belongs to what the log says between them, or to "waiting".
        """
        segments: list[Segment] = []
        end, duration = self.columns["time"], self.columns["step_time"] * _steps_of(self.columns["step"])
        # Stamps of whole seconds may be one second apart from the steps.
        stamps = end[np.isfinite(end)]
        rough = WHOLE_SECOND if np.all(stamps == np.floor(stamps)) else 0.0
        events = sorted(
            ((event.time, event.kind) for event in self.events if math.isfinite(event.time) and event.kind in PHASES),
            key=lambda event: event[0],
        )
        moments = [moment for moment, _ in events]
        for at, phase in enumerate(self.phases):
            if not (math.isfinite(end[at]) and math.isfinite(duration[at])):
                continue
            start = end[at] - duration[at]
            if segments and start > segments[-1].stop:
                if start - segments[-1].stop > max(USUAL * duration[at], rough):
                    first = bisect.bisect_left(moments, segments[-1].stop - 1.0)
                    between = events[first][1] if first < len(events) and events[first][0] <= end[at] else WAITING
                    segments.append(Segment(between, segments[-1].stop, start))
                else:
                    start = segments[-1].stop  # what is written between two steps takes a moment
            start = max(start, segments[-1].stop) if segments else start
            if segments and segments[-1].phase == phase:
                segments[-1] = segments[-1]._replace(stop=max(segments[-1].stop, float(end[at])))
            elif end[at] > start:
                segments.append(Segment(phase, float(start), float(end[at])))
        return segments


def relative_scatter(values: Float[np.ndarray, " n"]) -> float:
    """`1.4826 median|x - median x| / median x` [1]: robust against a few far ones; NaN without two values."""
    if len(values) < 2:
        return math.nan
    middle = float(np.median(values))
    return TO_SIGMA * float(np.median(np.abs(values - middle))) / abs(middle) if middle else math.nan


def logged_run(records: Iterable[LoggedStep | LogEvent], name: str = "log") -> LoggedRun:
    """The steps of a log as columns, with the phase of each.

    Step times that a log does not state are differences of its times. Steps that appear twice after a restart
    count once; the earlier ones are lost.

    **Raises:** `InputError` if there is no step at all.
    """
    steps: list[LoggedStep] = []
    events: list[LogEvent] = []
    before: list[set[str]] = []
    waiting: set[str] = set()
    for record in records:
        if isinstance(record, LogEvent):
            events.append(record)
            waiting.add(record.kind)
        else:
            steps.append(record)
            before.append(waiting)
            waiting = set()
    if not steps:
        raise InputError(f"{name}: no training step is in it. Give the log of a training run.")
    columns = {key: np.array([float(getattr(step, key)) for step in steps]) for key in NUMBERS}
    restarted = [at for at in range(1, len(steps)) if "restart" in before[at] or steps[at].step <= steps[at - 1].step]
    columns["step_time"] = _times_from_clock(columns, restarted)
    return LoggedRun(columns, _phases(columns, before, restarted), tuple(events))


def _steps_of(step: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Optimizer steps that each line stands for: the difference to the line before; the usual one where that jumps."""
    difference = np.diff(step, prepend=np.nan)
    usual = np.median(difference[1:]) if len(step) > 1 else 1.0
    return np.where((difference > 0) & (difference <= max(usual, 1.0)), difference, max(usual, 1.0))


def _times_from_clock(columns: dict[str, np.ndarray], restarted: Sequence[int]) -> Float[np.ndarray, " n"]:
    """Step times as stated, else from the difference of two times, but not over a restart."""
    logged, step, time = columns["step_time"], columns["step"], columns["time"]
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = np.diff(time, prepend=np.nan) / np.diff(step, prepend=np.nan)
    seen[list(restarted)] = np.nan
    seen[~(seen > 0.0)] = np.nan
    return np.where(np.isfinite(logged) & (logged > 0.0), logged, seen)


def _phases(columns: dict[str, np.ndarray], before: Sequence[set[str]], restarted: Sequence[int]) -> tuple[str, ...]:
    """The phase of each step."""
    step, times = columns["step"], columns["step_time"]
    phases = [TRAINING] * len(step)
    last: dict[float, int] = {}
    for at, number in enumerate(step):
        if number in last:
            phases[last[number]] = LOST
        last[number] = at
    for at in restarted:
        phases[at] = RESTART
    timed = np.array([phase == TRAINING for phase in phases]) & np.isfinite(times)
    if not np.any(timed):
        return tuple(phases)
    low, high = usual_range(times[timed])
    begins = [0, *restarted]
    for begin, end in zip(begins, [*restarted, len(step)], strict=True):
        _mark_warm_up(phases, times, begin, end, low, high)
    for at, kinds in enumerate(before):
        if phases[at] == TRAINING and times[at] > high:
            phases[at] = next((kind for kind in (CHECKPOINT, EVALUATION) if kind in kinds), TRAINING)
    return tuple(phases)


def usual_range(times: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Between which times a step is usual: the median of the later half, and `USUAL` or the scatter about it [s]."""
    later = times[len(times) // 2 :]
    middle, scatter = float(np.median(later)), relative_scatter(later)
    width = middle * max(USUAL, DEVIATIONS * scatter if math.isfinite(scatter) else 0.0)
    return middle - width, middle + width


def _mark_warm_up(
    phases: list[str], times: Float[np.ndarray, " n"], begin: int, end: int, low: float, high: float
) -> None:
    """Mark the first steps of a stretch as warm-up, as long as they are not usual."""
    for at in range(begin, min(end, begin + max(1, int(MOST_WARM_UP * (end - begin))))):
        if math.isfinite(times[at]) and low <= times[at] <= high:
            return
        if phases[at] == TRAINING and end - begin > 2 and math.isfinite(times[at]):
            phases[at] = WARM_UP


def batches(run: LoggedRun) -> list[tuple[float, Int[np.ndarray, " n"]]]:
    """Sequences of a batch, and the steps that had it, in the order in which they ran; NaN where no line says it."""
    sizes = run.columns["sequences"]
    if not np.any(np.isfinite(sizes)):
        return [(math.nan, np.arange(len(run)))]
    return [(float(size), np.flatnonzero(sizes == size)) for size in dict.fromkeys(sizes[np.isfinite(sizes)])]
