"""Energy of devices over spans of time, and their power on a common grid, from counters or samples.

A counter is preferred to samples of power. Between two readings the counter is taken to rise evenly, and power to
change linearly. Where readings are missing for long nothing is assumed.
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
MOST_POINTS = 20_000_000
"""Points of a common grid, devices counted each time."""
PARTS_OF = {"node": {"gpu", "cpu", "ram"}, "psys": {"cpu", "package-0"}}
"""Meters that hold what others measure too."""
WITHIN = {"cores": "cpu", "integrated gpu": "cpu", "core": "package-0", "uncore": "package-0"}
"""Meters of a part of what another one measures."""


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
        index = np.clip(np.searchsorted(self.start, times, side="right") - 1, 0, None)
        # At the end of the last piece before a gap the power is known.
        share = (times - self.start[index]) / (self.stop - self.start)[index]
        power = self.first[index] + share * (self.last - self.first)[index]
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
        sampled = self.sampled.of(~self.sampled.gap)
        enough = self.counter.length > 0 and self.counter.length >= ENOUGH * sampled.length
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
        energy, seconds, gaps = (float(sum(values)) for values in zip(*parts, strict=True))
        return energy, seconds, seconds - gaps

    @cached_property
    def _gaps(self) -> Pieces:
        return self.pieces.of(self.pieces.gap & (self.how == "sampled"))


def _columns(readings: Sequence[PowerReading], name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, values and fresh starts of the readings that have a value, in the order of time."""
    time = np.array([reading.time for reading in readings], dtype=np.float64)
    value = np.array([getattr(reading, name) for reading in readings], dtype=np.float64)
    fresh = np.array([reading.fresh for reading in readings], dtype=bool)
    timed = np.isfinite(time)
    order = np.argsort(time[timed], kind="stable")
    time, value, fresh = time[timed][order], value[timed][order], fresh[timed][order]
    finite = np.isfinite(value)
    # A run that begins with a reading without a value begins with the next one that has it.
    begun = np.cumsum(fresh)[finite]
    return time[finite], value[finite], np.diff(begun, prepend=0) > 0


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
    possible = linked & np.isfinite(power) & (power <= MOST_COUNTED)
    return Pieces(time[:-1], time[1:], power, power, gap).of(possible), time


@dataclass(frozen=True)
class MergedPower:
    """Power of several devices on a common grid of times.

    - `time`: evenly spaced [s].
    - `mean`: over the devices that have readings [W]; NaN where none has.
    - `total`: over all devices [W]; NaN where one has no reading.
    """

    time: np.ndarray
    mean: np.ndarray
    total: np.ndarray
    devices: tuple[str, ...]


def by_device(readings: Iterable[PowerReading]) -> dict[str, list[PowerReading]]:
    """Readings of each device, in the order in which devices appear."""
    devices: dict[str, list[PowerReading]] = {}
    for reading in readings:
        devices.setdefault(reading.device, []).append(reading)
    return devices


def merge_devices(readings: Iterable[PowerReading], interval: float | None = None) -> MergedPower:
    """Mean and total power over devices on a common grid of times.

    Power is interpolated linearly between readings; a device with a counter alone has its mean power between them.
    Meters of a whole ("node", "psys"), and of parts of a part ("cores"), are left out where the parts are there.

    **Arguments:**

    - `interval`: spacing of the grid [s]; the longest of the devices' sampling intervals where it is left out.

    **Raises:** `InputError` if no device has two readings with a time, or for an interval that is not positive or makes
    the grid too large.
    """
    pieces: dict[str, Pieces] = {}
    usual = 0.0
    for name, rows in no_part_twice(by_device(readings)).items():
        meter = Metered(rows)
        own = meter.sampled.of(~meter.sampled.gap)
        if own.length < ENOUGH * meter.counter.length:
            own = meter.counter
        if own.start.size:
            pieces[name] = own
            usual = max(usual, meter.spacing)
    if not pieces:
        raise InputError("No device has two readings of power or energy with a time. Is it the right file?")
    spacing = usual if interval is None else interval
    begin = min(float(own.start[0]) for own in pieces.values())
    end = max(float(own.stop[-1]) for own in pieces.values())
    if not 0 < spacing < math.inf or (end - begin) / spacing * len(pieces) > MOST_POINTS:
        raise InputError(
            f"A grid every {spacing!r} s over {end - begin:.6g} s and {len(pieces)} devices is empty or has more than"
            f" {MOST_POINTS} points. Give another interval."
        )
    grid = begin + spacing * np.arange(int((end - begin) / spacing * (1 + 1e-12)) + 1)
    power = np.array([own.at(grid) for own in pieces.values()])
    count = np.sum(np.isfinite(power), axis=0)
    mean = np.where(count > 0, np.nansum(power, axis=0) / np.maximum(count, 1), np.nan)
    return MergedPower(grid, mean, np.sum(power, axis=0), tuple(pieces))


def no_part_twice(devices: dict[str, list[PowerReading]]) -> dict[str, list[PowerReading]]:
    """Devices without those that measure the whole of others, or a part of one, which would count twice."""
    parts = {name: _part(name) for name in devices}
    present = set(parts.values())

    def counts(host: str, part: str, run: str) -> bool:
        if part in WITHIN:
            return (host, WITHIN[part], run) not in present
        return not any((host, other, run) in present for other in PARTS_OF.get(part, ()))

    return {name: rows for name, rows in devices.items() if counts(*parts[name])}


def _part(device: str) -> tuple[str, str, str]:
    """Host or socket of a device, what it is, and its run if another one ran beside it."""
    host, _, part = device.rpartition(":")
    part, space, run = part.partition(" (")
    return host, part, space + run
