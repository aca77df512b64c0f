"""Energy of devices over spans of time, by phase of a run, and their power on a common grid.

A counter is preferred to samples of power. Between two readings the counter is taken to rise evenly, and power to
change linearly; energy of a span is interpolated at its ends. Where readings are missing for long nothing is assumed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading, is_chip

SHORTEST = 10.0
"""Shortest span over which sampled power is integrated [s]: nvidia-smi averages over up to 1 s and updates its value
every 20 to 100 ms, so that shorter ones mix in what comes before and after."""
GAP_INTERVALS = 5.0
GAP_SECONDS = 5.0
"""Readings are missing where the next one comes after more than both: so many sampling intervals, so many seconds."""
MOST_BRIDGED = 60.0  # samples may be missing for so long for power to be taken as linear between them [s]
ENOUGH = 0.95  # a counter is preferred to samples if it covers at least this share of what they cover
MOST_COUNTED = 1e10  # mean power of a counter between two readings that no site draws [W]
RANGES = (2**32 * 1e-6, 65532.610987, 262143.32885, 2**32 * 1e-3)
"""Where known counters wrap around [J]: 32 bits of µJ, two of Linux powercap, 32 bits of mJ."""
MOST_POINTS, MOST_LEVELS = 20_000_000, 5_000_000
"""Points of a common grid, and times at which the level of power is looked at, devices counted each time."""
PARTS_OF = {"node": {"gpu", "cpu", "ram"}, "psys": {"cpu", "package-0"}}  # meters that hold what others measure too
WITHIN = {"cores": "cpu", "integrated gpu": "cpu", "core": "package-0", "uncore": "package-0"}
"""Meters of a part of what another one measures."""
BUSY, IDLE = "busy", "idle"
BUSY_SHARE = 0.7  # a device is busy where it draws at least this share of its high power, the 95th percentile
IDLE_SHARE = 1.15  # it is idle where it draws at most this multiple of its low power, the 1st percentile
STATES = ("clock", "temperature", "power_limit")
UNLIKE = 2.0  # a counter and samples of power that differ by more contradict each other


@dataclass(frozen=True)
class Pieces:
    """A power that is linear between times: from `first` at `start` to `last` at `stop`.

    - `gap`: whether a piece is longer than readings usually are apart.
    """

    start: np.ndarray
    stop: np.ndarray
    first: np.ndarray
    last: np.ndarray
    gap: np.ndarray

    def of(self, chosen: np.ndarray) -> "Pieces":
        """Some of the pieces."""
        return Pieces(*(part[chosen] for part in vars(self).values()))

    def integral(self, start: float, stop: float) -> tuple[float, float]:
        """Energy between two times [J], and for how long pieces cover them [s]."""
        near = slice(np.searchsorted(self.stop, start, "right"), np.searchsorted(self.start, stop, "left"))
        begin, end, first, last = self.start[near], self.stop[near], self.first[near], self.last[near]
        a, b = np.maximum(begin, start), np.minimum(end, stop)
        length = np.maximum(b - a, 0.0)
        power = first + (last - first) / (end - begin) * (0.5 * (a + b) - begin)
        return float(np.sum(np.where(length > 0, power * length, 0.0))), float(np.sum(length))

    @property
    def length(self) -> float:
        """How long all pieces are [s]."""
        return float(np.sum(self.stop - self.start))

    def edges(self) -> np.ndarray:
        """Where a sequence of pieces without a hole begins or ends [s]."""
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
        self.readings = readings
        time, power, linked, gap, self._sampled_every = _columns(readings, "power")
        self.sampled = Pieces(time[:-1], time[1:], power[:-1], power[1:], gap).of(linked)
        with np.errstate(over="ignore"):  # what is damaged may be 1e300
            self.counter = _counted(readings)

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
            return self._sampled_every
        length = self.counter.stop - self.counter.start
        return float(np.quantile(length, 0.1)) if np.any(self.counter.edges()[1:-1]) else float(np.median(length))

    def energy(self, spans: Iterable[tuple[float, float]]) -> tuple[float, float, float]:
        """Energy of some spans [J], for how long it is known, and for how long it was measured [s].

        What is known and not measured are short gaps between samples, over which power is taken as linear.
        """
        gaps = self.pieces.of(self.pieces.gap & (self.how == "sampled"))
        parts = [(*self.pieces.integral(*span), gaps.integral(*span)[1]) for span in spans]
        energy, seconds, bridged = (float(sum(values)) for values in zip(*parts, strict=True)) if parts else (0.0,) * 3
        return energy, seconds, seconds - bridged

    @cached_property
    def chips(self) -> float:
        """Number of chips that it sees; 0 where it sees a part of a host."""
        said = median(reading.chips for reading in self.readings)
        return said if said > 0.0 else float(is_chip(self.readings[0].device))

    @property
    def is_silent(self) -> bool:
        """Whether it reads no power at all, as a meter that does not count."""
        return bool(self.pieces.start.size) and self.energy([(-math.inf, math.inf)])[0] == 0.0

    def doubts(self) -> str:
        """Why its readings are not to be believed as they are; "" where nothing speaks against them."""
        device, (energy, seconds, _) = self.readings[0].device, self.energy([(-math.inf, math.inf)])
        samples = [reading.power for reading in self.readings if math.isfinite(reading.power)]
        if self.is_silent:
            of = f" of {self.chips:g} chips" if self.chips > 1.0 else ""
            return (
                f"{device}: the meter{of} reads 0 W all the time, which nothing at work draws: it does not count, and "
                "its energy is missing here. Meter it by nvidia-smi, DCGM or the supply."
            )
        if self.how == "counter" and samples and seconds > 0.0 and energy > 0.0:
            ratio = float(np.mean(samples)) / (energy / seconds)
            if not 1.0 / UNLIKE <= ratio <= UNLIKE:
                return (
                    f"{device}: samples of its power have a mean of {np.mean(samples):.4g} W, its counter of energy "
                    f"has {energy / seconds:.4g} W. The counter is taken; a single sample is no mean."
                )
        return ""

    def states(self, spans: Sequence[tuple[float, float]] | None = None) -> dict[str, float]:
        """Median clock [Hz], temperature [K] and power limit [W] of all readings, or of those in spans in order."""
        readings = self.readings
        if spans is not None:
            starts, stops = np.array(spans).T
            time = np.array([reading.time for reading in readings])
            span = np.searchsorted(starts, time, side="right") - 1
            readings = [readings[int(i)] for i in np.flatnonzero((span >= 0) & (time <= stops[np.maximum(span, 0)]))]
        return {state: median(getattr(reading, state) for reading in readings) for state in STATES}


def _columns(
    readings: Sequence[PowerReading], name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Times and values in the order of time, whether a reading and the next one belong together and lack one between
    them, and the usual time between readings [s].
    """
    time, value = (np.array([getattr(reading, key) for reading in readings], np.float64) for key in ("time", name))
    order = np.argsort(time, kind="stable")
    order = order[np.isfinite(time[order])]
    finite = np.isfinite(value[order])
    # A run that begins with a reading without a value begins with the next one that has it.
    begun = np.cumsum(np.array([reading.fresh for reading in readings], bool)[order])[finite]
    time, value = time[order][finite], value[order][finite]
    steps = np.diff(time)
    usual = float(np.median(steps[steps > 0])) if np.any(steps > 0) else 0.0
    return time, value, (steps > 0) & (np.diff(begun) == 0), (steps > max(GAP_SECONDS, GAP_INTERVALS * usual)), usual


def _counted(readings: Sequence[PowerReading]) -> Pieces:
    """Mean power between readings of a counter."""
    time, energy, linked, gap, _ = _columns(readings, "energy")
    last, rise, steps = energy[:-1], np.diff(energy), np.where(linked, np.diff(time), 1.0)
    rising = linked & (rise > 0)
    usual = float(np.median(rise[rising] / steps[rising])) if np.any(rising) else math.inf
    carried = np.where(rise >= 0, rise, np.nan)
    # A counter that falls has wrapped around, or has started anew at zero: whichever gives a power as usual.
    for end in RANGES:
        wrapped = rise + end
        fits = np.isnan(carried) & (last <= end * (1 + 1e-9)) & (wrapped >= 0) & (wrapped <= 3 * usual * steps)
        carried = np.where(fits, wrapped, carried)
    carried = np.where(np.isnan(carried) & (energy[1:] <= 10 * usual * steps), energy[1:], carried)
    power = carried / steps
    possible = linked & np.isfinite(power) & (power <= MOST_COUNTED)
    return Pieces(time[:-1], time[1:], power, power, gap).of(possible)


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
        own = meter.counter if own.length < ENOUGH * meter.counter.length else own
        if own.start.size:
            pieces[name], usual = own, max(usual, meter.spacing)
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


def no_part_twice(devices: Mapping[str, list[PowerReading]]) -> dict[str, list[PowerReading]]:
    """Devices without those that measure the whole of others, or a part of one, which would count twice."""

    def parts_of(device: str) -> tuple[str, str, str]:
        """Host or socket of a device, what it is, and its run if another one ran beside it."""
        host, _, part = device.rpartition(":")
        part, space, run = part.partition(" (")
        return host, part, space + run

    present = set(map(parts_of, devices))

    def counts(host: str, part: str, run: str) -> bool:
        if part in WITHIN:
            return (host, WITHIN[part], run) not in present
        return not any((host, other, run) in present for other in PARTS_OF.get(part, ()))

    return {name: rows for name, rows in devices.items() if counts(*parts_of(name))}


def median(values: Iterable[float]) -> float:
    """Median of finite values; NaN of none."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else math.nan
