"""How much energy did one device take in a span of time, by its counter or its samples of power?

Between two readings the counter is taken to rise evenly, and power to change linearly.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading

SHORTEST = 10.0
"""Shortest span over which sampled power is integrated [s]: nvidia-smi averages over up to 1 s and updates its value
every 20 to 100 ms, so that shorter ones mix in what comes before and after."""
GAP_INTERVALS = 5.0
GAP_SECONDS = 5.0
"""Readings are missing where the next one comes after more than both: so many sampling intervals, so many seconds."""
MOST_BRIDGED = 60.0
"""Samples may be missing for so long for power to be taken as linear between them [s]."""
ENOUGH = 0.95
"""A counter is preferred to samples if it covers at least this share of what they cover."""
MOST_COUNTED = 1e10
"""Mean power of a counter between two readings that no site draws [W]."""
RANGES = (2**32 * 1e-6, 65532.610987, 262143.32885, 2**32 * 1e-3)
"""Where known counters wrap around [J]: 32 bits of µJ, two of Linux powercap, 32 bits of mJ."""


@dataclass(frozen=True)
class MeasuredEnergy:
    """Energy of one device in a span of time."""

    energy: float
    """Energy of the covered part of the span [J]."""
    mean_power: float
    """Mean power of the covered part [W]."""
    how: Literal["counter", "sampled"]
    """From an energy counter, or from samples of power."""
    coverage: float
    """Share of the span between readings that are not far apart [1]."""
    samples: int
    """Readings within the span."""
    bridged: float = 0.0
    """Energy of the gaps between readings, which `energy` leaves out, if power changed linearly over them [J]."""
    note: str = ""
    """Why the span was widened, if it was."""


@dataclass(frozen=True)
class Pieces:
    """A power that is linear between times: from `first` at `start` to `last` at `stop`."""

    start: np.ndarray
    stop: np.ndarray
    first: np.ndarray
    last: np.ndarray
    gap: np.ndarray
    """Whether a piece is longer than readings usually are apart."""

    def of(self, chosen: np.ndarray) -> "Pieces":
        """Some of the pieces."""
        return Pieces(*(part[chosen] for part in (self.start, self.stop, self.first, self.last, self.gap)))

    def integral(self, start: float, stop: float) -> tuple[float, float]:
        """Energy between two times [J], and for how long pieces cover them [s]."""
        near = slice(np.searchsorted(self.stop, start, "right"), np.searchsorted(self.start, stop, "left"))
        begin, end, first, last = self.start[near], self.stop[near], self.first[near], self.last[near]
        a, b = np.maximum(begin, start), np.minimum(end, stop)
        length = np.maximum(b - a, 0.0)
        middle = first + (last - first) / (end - begin) * (0.5 * (a + b) - begin)
        return float(np.sum(np.where(length > 0, middle * length, 0.0))), float(np.sum(length))

    @property
    def length(self) -> float:
        """How long all pieces are [s]."""
        return float(np.sum(self.stop - self.start))

    def edges(self) -> np.ndarray:
        """Where a sequence of pieces without a hole begins or ends [s]."""
        if not self.start.size:
            return np.zeros(0)
        holes = self.start[1:] > self.stop[:-1]
        return np.concatenate([self.start[:1], self.stop[:-1][holes], self.start[1:][holes], self.stop[-1:]])

    def at(self, times: np.ndarray) -> np.ndarray:
        """Power at some times [W]; NaN where no piece is."""
        if not self.start.size:
            return np.full(times.shape, np.nan)
        place = np.clip(np.searchsorted(self.start, times, side="right") - 1, 0, None)
        # At the end of the last piece before a gap the power is known.
        share = (times - self.start[place]) / (self.stop - self.start)[place]
        power = self.first[place] + share * (self.last - self.first)[place]
        return np.where((share >= 0) & (share <= 1 + 1e-9), power, np.nan)


class Metered:
    """The readings of one device, in any order, ready to be integrated over any number of spans."""

    def __init__(self, readings: Sequence[PowerReading]) -> None:
        self.device = readings[0].device if readings else ""
        self.count = len(readings)
        self.sampled, self.sampled_times = _sampled(readings)
        with np.errstate(over="ignore"):  # what is damaged may be 1e300
            self.counter, self.counter_times = _counted(readings)

    @cached_property
    def how(self) -> Literal["counter", "sampled"]:
        """Which of the two tells the energy of a sequence of spans: the counter, if it covers as much."""
        known = self.sampled.of(~self.sampled.gap)
        enough = self.counter.length > 0 and self.counter.length >= ENOUGH * known.length
        return "counter" if enough else "sampled"

    @cached_property
    def pieces(self) -> Pieces:
        """Power between the readings; over gaps of samples for at most `MOST_BRIDGED`."""
        if self.how == "counter":
            return self.counter
        length = self.sampled.stop - self.sampled.start
        return self.sampled.of(~self.sampled.gap | (length <= MOST_BRIDGED))

    @cached_property
    def spacing(self) -> float:
        """Usual time between readings [s]; short where the readings are the ends of runs."""
        if self.how == "sampled":
            return _spacing(self.sampled_times)
        length = self.counter.stop - self.counter.start
        return float(np.quantile(length, 0.1)) if np.any(self.counter.edges()[1:-1]) else float(np.median(length))

    def energy(self, spans: Iterable[tuple[float, float]]) -> tuple[float, float, float]:
        """Energy of some spans [J], for how long it is known, and for how long it was measured [s].

        What is known and not measured are short gaps between samples, over which power is taken as linear.
        """
        parts = [(*self.pieces.integral(start, stop), self._gaps.integral(start, stop)[1]) for start, stop in spans]
        if not parts:
            return 0.0, 0.0, 0.0
        energy, known, gaps = (float(sum(values)) for values in zip(*parts, strict=True))
        return energy, known, known - gaps

    @cached_property
    def _gaps(self) -> Pieces:
        return self.pieces.of(self.pieces.gap & (self.how == "sampled"))

    def between(self, start: float | int, stop: float | int, *, widen: bool = False) -> MeasuredEnergy:
        """As `energy_between`."""
        start, stop = in_seconds(start), in_seconds(stop)
        if not (math.isfinite(start) and math.isfinite(stop) and start < stop):
            raise InputError(f"The span from {start!r} s to {stop!r} s is empty. Give a start before the stop.")
        sampled, counter = self.sampled, self.counter
        if not self.sampled_times.size and not self.counter_times.size:
            raise InputError(
                f'The {self.count} readings of "{self.device}" have no times. Give interval= when reading them.'
            )
        span = stop - start
        # A counter measures a gap too, but not where in it the energy was taken.
        whole = ~counter.gap | ((counter.start >= start) & (counter.stop <= stop))
        energy, covered = counter.of(whole).integral(start, stop)
        within = _count(self.counter_times, start, stop)
        power_energy, power_covered = sampled.of(~sampled.gap).integral(start, stop)
        enough = within >= min(2, _count(self.sampled_times, start, stop))
        if covered > 0 and (power_covered <= 0 or (enough and covered >= ENOUGH * power_covered)):
            return MeasuredEnergy(energy, energy / covered, "counter", min(covered / span, 1.0), within)
        if power_covered <= 0:
            times = np.concatenate([self.sampled_times, self.counter_times])
            raise InputError(
                f'No reading of "{self.device}" covers the span from {start:.10g} s to {stop:.10g} s: readings run '
                f"from {times.min():.10g} s to {times.max():.10g} s. Give times on the same clock."
            )
        within = _count(self.sampled_times, start, stop)
        if span >= SHORTEST:
            bridged, _ = sampled.of(sampled.gap).integral(start, stop)
            share = _share(power_covered, span)
            return MeasuredEnergy(power_energy, power_energy / power_covered, "sampled", share, within, bridged)
        if not widen:
            raise InputError(
                f"The span of {span:.3g} s is shorter than {SHORTEST:.0f} s: sampled power is averaged over up to 1 s"
                " and does not resolve it. Give a longer span, or widen=True."
            )
        middle = 0.5 * (start + stop)
        wide_energy, wide_covered = sampled.of(~sampled.gap).integral(middle - 0.5 * SHORTEST, middle + 0.5 * SHORTEST)
        power = wide_energy / wide_covered
        note = (
            f"The span of {span:.3g} s was widened to {wide_covered:.3g} s of readings around it: sampled power does"
            " not resolve less than 10 s."
        )
        share = _share(power_covered, span)
        return MeasuredEnergy(power * power_covered, power, "sampled", share, within, note=note)


def in_seconds(time: float | int) -> float:
    """A time as a float; infinite where it is too large for one."""
    try:
        return float(time)
    except OverflowError:
        return math.inf


def _share(covered: float, span: float) -> float:
    return min(covered / span, 1.0)


def _count(times: np.ndarray, start: float, stop: float) -> int:
    return int(np.count_nonzero((times >= start) & (times <= stop)))


def _columns(readings: Sequence[PowerReading], name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, values and fresh starts of the readings that have a value, in the order of time."""
    time = np.array([reading.time for reading in readings], dtype=np.float64)
    value = np.array([getattr(reading, name) for reading in readings], dtype=np.float64)
    fresh = np.array([reading.fresh for reading in readings], dtype=bool)
    timed = np.isfinite(time)
    order = np.argsort(time[timed], kind="stable")
    time, value, fresh = time[timed][order], value[timed][order], fresh[timed][order]
    known = np.isfinite(value)
    # A run that begins with a reading without a value begins with the next one that has it.
    begun = np.cumsum(fresh)[known]
    return time[known], value[known], np.diff(begun, prepend=0) > 0


def _spacing(times: np.ndarray) -> float:
    """Usual time between readings [s]."""
    steps = np.diff(times)
    steps = steps[steps > 0]
    return float(np.median(steps)) if steps.size else 0.0


def _linked(times: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether a reading and the next one belong together, and whether readings are missing between them."""
    steps = np.diff(times)
    gap = (steps > GAP_SECONDS) & (steps > GAP_INTERVALS * _spacing(times))
    return (steps > 0) & ~fresh[1:], gap


def _sampled(readings: Sequence[PowerReading]) -> tuple[Pieces, np.ndarray]:
    """Power between the samples, and their times."""
    time, power, fresh = _columns(readings, "power")
    linked, gap = _linked(time, fresh)
    return Pieces(time[:-1], time[1:], power[:-1], power[1:], gap).of(linked), time


def _counted(readings: Sequence[PowerReading]) -> tuple[Pieces, np.ndarray]:
    """Mean power between readings of a counter, and their times."""
    time, energy, fresh = _columns(readings, "energy")
    linked, gap = _linked(time, fresh)
    last = energy[:-1]
    steps = np.where(linked, np.diff(time), 1.0)
    rise = np.diff(energy)
    usual = rise[linked & (rise > 0)] / steps[linked & (rise > 0)]
    usual_power = float(np.median(usual)) if usual.size else math.inf
    carried = np.where(rise >= 0, rise, np.nan)
    # A counter that falls has wrapped around, or has started anew at zero: whichever gives a power as usual.
    for end in RANGES:
        wrapped = rise + end
        fits = np.isnan(carried) & (last <= end * (1 + 1e-9)) & (wrapped >= 0) & (wrapped <= 3 * usual_power * steps)
        carried = np.where(fits, wrapped, carried)
    anew = np.isnan(carried) & (energy[1:] <= 10 * usual_power * steps)
    carried = np.where(anew, energy[1:], carried)
    power = carried / steps
    known = linked & np.isfinite(power) & (power <= MOST_COUNTED)
    return Pieces(time[:-1], time[1:], power, power, gap).of(known), time
