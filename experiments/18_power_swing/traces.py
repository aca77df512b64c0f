"""Power traces of a job on 8 H100 that stops for a checkpoint every few steps."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

SECONDS, TENTHS = "power_trace_8xh100_1s.csv", "power_trace_8xh100_100ms.csv"
CHIPS = 8
FITTED = (500, 1000)  # steps between checkpoints of the traces that the wave is fitted to
STARTED = 1600.0  # W, more than any second before the first step
WORKS = 1400.0  # W, between the highest second of a checkpoint and the lowest of a step
WHOLE_SHARE = 0.6  # of the upper quartile of energies of intervals
STOPPED = 1100.0  # W, less than any second of a checkpoint
WHOLE = 5  # seconds of an interval at either end that hold both levels


class Second(NamedTuple):
    """Power of the 8 chips over a second [W]."""

    mean: float
    high: float


class Wave(NamedTuple):
    """A job between two levels: power while it works and writes [W], and time of a step [s]."""

    working: float
    writing: float
    step: float

    def energy(self, steps: float) -> float:
        """Energy above the writing level of so many steps [J]."""
        return (self.working - self.writing) * self.step * steps

    def highest(self, steps: float, window: float) -> float:
        """Highest reading of a meter that averages over a window [s]."""
        return self.writing + (self.working - self.writing) * min(1.0, self.step * steps / window)


def read(folder: Path) -> dict[int, list[Second]]:
    """Seconds of each trace, by the steps between its checkpoints."""
    result: dict[int, list[Second]] = {}
    with (folder / SECONDS).open(newline="") as file:
        for row in csv.DictReader(file):
            seconds = result.setdefault(int(row["checkpoint_every_steps"]), [])
            seconds.append(Second(float(row["mean_w"]), float(row["max_w"])))
    return result


def read_tenths(folder: Path) -> np.ndarray:
    """Time [s] and power [W] of the trace that is kept in steps of 0.1 s."""
    return np.loadtxt(folder / TENTHS, delimiter=",", skiprows=1)


def training(seconds: list[Second]) -> list[Second]:
    """From the first step on."""
    return seconds[next(index for index, second in enumerate(seconds) if second.mean > STARTED) :]


def intervals(seconds: list[Second]) -> Iterator[list[Second]]:
    """Seconds with work in them and one on either side, between two checkpoints; without the last, which is cut."""
    body = training(seconds)
    works = np.array([False, *(second.mean > WORKS for second in body)])
    begins, ends = (np.flatnonzero(np.diff(works.astype(int)) == sign) for sign in (1, -1))
    yield from (body[max(begin - 1, 0) : end + 1] for begin, end in zip(begins, ends, strict=False))


def writing_level(seconds: list[Second]) -> float:
    """Median power while a checkpoint is written [W]."""
    return float(np.median([second.mean for second in training(seconds) if STOPPED < second.mean < WORKS]))


def working_level(seconds: list[Second]) -> float:
    """Mean power within long intervals [W]."""
    inner = [second.mean for run in intervals(seconds) if len(run) > 4 * WHOLE for second in run[WHOLE:-WHOLE]]
    return float(np.mean(inner))


def stopped_level(seconds: list[Second]) -> float:
    """Lowest power of the trace, without a job [W]."""
    return float(np.percentile([second.mean for second in seconds], 2.0))


def energies(seconds: list[Second]) -> np.ndarray:
    """Energy above the writing level of whole intervals [J]; those cut by the end of an epoch are left out."""
    writing = writing_level(seconds)
    result = np.array([sum(second.mean - writing for second in run) for run in intervals(seconds)])
    return result[result > WHOLE_SHARE * np.quantile(result, 0.75)]


def fit(traces: Mapping[int, list[Second]]) -> Wave:
    """The wave of the fitted traces: levels are their means, the step follows from the energy of an interval."""
    chosen = {steps: traces[steps] for steps in FITTED}
    working = float(np.mean([working_level(seconds) for seconds in chosen.values()]))
    writing = float(np.mean([writing_level(seconds) for seconds in chosen.values()]))
    per_step = [float(np.median(energies(seconds))) / steps for steps, seconds in chosen.items()]
    return Wave(working, writing, float(np.mean(per_step)) / (working - writing))


def meter_window(tenths: np.ndarray, wave: Wave) -> float:
    """Time over which the meter averages, from the steepest half-second of the one fall of the trace [s]."""
    time, power = tenths.T
    slopes = (power[5:] - power[:-5]) / (time[5:] - time[:-5])
    return (wave.working - wave.writing) / -float(slopes.min())
