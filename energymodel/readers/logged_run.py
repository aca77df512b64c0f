"""Steps of a training log: how long they take, and which of them are no training.

Told apart in the order of docs/readers_logs.md: lost and restarted steps, warm-up, what lies beside an evaluation or a
checkpoint. All others are training, slow ones too: they are what the run is like.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep

PHASES = (TRAINING, WARM_UP, EVALUATION, CHECKPOINT, RESTART, LOST) = (
    "training", "warm-up", "evaluation", "checkpoint", "restart", "lost",
)  # fmt: skip
WAITING = "waiting"  # what a run does of which its log says nothing
WHOLE_SECOND = 1.0  # how far a stamp of whole seconds may be from the end of its step [s]
USUAL = 0.10  # a step is usual within this share of the median, or within `DEVIATIONS` of the scatter if that is more
DEVIATIONS = 5.0
TO_SIGMA = 1.4826  # median of absolute deviations to the standard deviation of a normal distribution
COMPILES = 2.0  # of two steps, the first is warm-up if it takes so many times the second
MOST_WARM_UP = 0.5  # share of the steps that may count as warm-up; beyond it, steps have no usual time
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
    - `refused`: steps whose loss is below zero, which no cross-entropy is; they have none here.
    """

    columns: dict[str, Float[np.ndarray, " steps"]]
    phases: tuple[str, ...]
    events: tuple[LogEvent, ...]
    refused: int = 0

    def __len__(self) -> int:
        return len(self.phases)

    def column(self, name: str, phase: str = TRAINING) -> Float[np.ndarray, " some"]:
        """What the steps of a phase say, without those that say nothing."""
        values = self.columns[name][self.of(phase)]
        return values[np.isfinite(values)]

    def of(self, phase: str) -> np.ndarray:
        """Which steps belong to a phase."""
        return np.array([own == phase for own in self.phases], bool)

    def segments(self) -> list[Segment]:
        """The run as a sequence of times in which it did one thing; neighbors of one phase are joined.

        A gap between two steps belongs to what the log says between them, or to "waiting".
        """
        segments: list[Segment] = []
        rise = np.diff(self.columns["step"], prepend=np.nan)
        usual = max(np.median(rise[1:]), 1.0) if len(rise) > 1 else 1.0
        # Steps that a line stands for: the difference to the line before; the usual one where that jumps.
        steps = np.where((rise > 0) & (rise <= usual), rise, usual)
        ends, durations = self.columns["time"], self.columns["step_time"] * steps
        # Stamps of whole seconds may be one second apart from the steps.
        stamps = ends[np.isfinite(ends)]
        rough = WHOLE_SECOND if np.all(stamps == np.floor(stamps)) else 0.0
        timed = (event for event in self.events if math.isfinite(event.time) and event.kind in PHASES)
        events = sorted(timed, key=lambda event: event.time)
        moments = [event.time for event in events]
        for phase, end, duration in zip(self.phases, ends.tolist(), durations.tolist(), strict=True):
            if not (math.isfinite(end) and math.isfinite(duration)):
                continue
            start, last = end - duration, segments[-1].stop if segments else -math.inf
            if segments and start - last > max(USUAL * duration, rough):
                first = bisect.bisect_left(moments, last - 1.0)
                between = events[first].kind if first < len(events) and moments[first] <= end else WAITING
                segments.append(Segment(between, last, start))
            elif segments:
                start = last  # what is written between two steps takes a moment
            if segments and segments[-1].phase == phase:
                segments[-1] = segments[-1]._replace(stop=max(segments[-1].stop, end))
            elif end > start:
                segments.append(Segment(phase, start, end))
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
    before: list[set[str]] = [set()]  # kinds of events before each step
    for record in records:
        if isinstance(record, LogEvent):
            events.append(record)
            before[-1].add(record.kind)
        else:
            steps.append(record)
            before.append(set())
    if not steps:
        raise InputError(f"{name}: no training step is in it. Give the log of a training run.")
    columns = {key: np.array([float(getattr(step, key)) for step in steps]) for key in NUMBERS}
    negative = columns["loss"] < 0.0
    columns["loss"] = np.where(negative, np.nan, columns["loss"])
    restarted = [at for at in range(1, len(steps)) if "restart" in before[at] or steps[at].step <= steps[at - 1].step]
    # Step times as stated, else from the difference of two times, but not over a restart.
    logged, step, time = columns["step_time"], columns["step"], columns["time"]
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.diff(time, prepend=np.nan) / np.diff(step, prepend=np.nan)
    differences[restarted] = np.nan
    differences[~(differences > 0.0)] = np.nan
    columns["step_time"] = np.where(np.isfinite(logged) & (logged > 0.0), logged, differences)
    # A step without a time is as slow as its rate says, over that of the steps that have both.
    rates = columns["token_rate"]
    both = np.isfinite(columns["step_time"]) & (rates > 0.0)
    tokens = np.median((columns["step_time"] * rates)[both]) if np.any(both) else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        pace = np.where(np.isfinite(columns["step_time"]), columns["step_time"], tokens / rates)
    phases = _phases(step, pace, before, restarted)
    return LoggedRun(columns, phases, tuple(events), int(np.sum(negative)))


def _phases(
    step: Float[np.ndarray, " n"], times: Float[np.ndarray, " n"], before: Sequence[set[str]], restarted: Sequence[int]
) -> tuple[str, ...]:
    """The phase of each step."""
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
    for begin, end in itertools.pairwise([0, *restarted, len(step)]):
        most = min(end, begin + max(1, int(MOST_WARM_UP * (end - begin))))
        for at in range(begin, most):
            if low <= times[at] <= high:
                break
            is_slow = end - begin > 2 or (end - begin == 2 and times[at] > COMPILES * high)
            if phases[at] == TRAINING and is_slow and math.isfinite(times[at]):
                phases[at] = WARM_UP
    for at, phase in enumerate(phases):
        if phase == TRAINING and times[at] > high:
            phases[at] = next((kind for kind in (CHECKPOINT, EVALUATION) if kind in before[at]), TRAINING)
    return tuple(phases)


def usual_range(times: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Between which times a step is usual: the median of the later half, and `USUAL` or the scatter about it [s]."""
    later = times[len(times) // 2 :]
    middle, scatter = float(np.median(later)), relative_scatter(later)
    width = middle * max(USUAL, DEVIATIONS * scatter if math.isfinite(scatter) else 0.0)
    return middle - width, middle + width


def batches(run: LoggedRun) -> list[tuple[float, Int[np.ndarray, " n"]]]:
    """Sequences of a batch, and the steps that had it, in the order in which they ran; NaN where no line says it."""
    sizes = run.columns["sequences"]
    if not np.any(np.isfinite(sizes)):
        return [(math.nan, np.arange(len(run)))]
    return [(float(size), np.flatnonzero(sizes == size)) for size in dict.fromkeys(sizes[np.isfinite(sizes)])]
