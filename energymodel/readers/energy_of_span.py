"""How much energy did a device, or all of them, take between two times?

An energy counter is preferred to samples of power. Between two readings the counter is taken to rise evenly, and power
to change linearly. Where readings are missing nothing is assumed: `coverage` says for how much of the span there are
any.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading

__all__ = ["MeasuredEnergy", "MergedPower", "by_device", "energy_between", "merge_devices"]

SHORTEST = 10.0
"""Shortest span over which sampled power is integrated [s]: nvidia-smi averages over up to 1 s and updates its value
every 20 to 100 ms, so that shorter ones mix in what comes before and after."""
GAP_INTERVALS = 5.0
GAP_SECONDS = 5.0
"""Readings are missing where the next one comes after more than both: so many sampling intervals, so many seconds."""
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
class MergedPower:
    """Power of several devices on a common grid of times."""

    time: np.ndarray
    """When [s], evenly spaced."""
    mean: np.ndarray
    """Mean over the devices that have readings [W]; NaN where none has."""
    total: np.ndarray
    """Sum over all devices [W]; NaN where one has no reading."""
    devices: tuple[str, ...]


@dataclass(frozen=True)
class _Pieces:
    """A power that is linear between times: from `first` at `start` to `last` at `stop`."""

    start: np.ndarray
    stop: np.ndarray
    first: np.ndarray
    last: np.ndarray
    gap: np.ndarray
    """Whether a piece is longer than readings usually are apart."""

    def of(self, chosen: np.ndarray) -> "_Pieces":
        """Some of the pieces."""
        return _Pieces(*(part[chosen] for part in (self.start, self.stop, self.first, self.last, self.gap)))

    def integral(self, start: float, stop: float) -> tuple[float, float]:
        """Energy between two times [J], and for how long pieces cover them [s]."""
        a, b = np.maximum(self.start, start), np.minimum(self.stop, stop)
        length = np.maximum(b - a, 0.0)
        slope = (self.last - self.first) / (self.stop - self.start)
        middle = self.first + slope * (0.5 * (a + b) - self.start)
        return float(np.sum(np.where(length > 0, middle * length, 0.0))), float(np.sum(length))

    def at(self, times: np.ndarray) -> np.ndarray:
        """Power at some times [W]; NaN where no piece is."""
        if not self.start.size:
            return np.full(times.shape, np.nan)
        place = np.clip(np.searchsorted(self.start, times, side="right") - 1, 0, None)
        # At the end of the last piece before a gap the power is known.
        share = (times - self.start[place]) / (self.stop - self.start)[place]
        power = self.first[place] + share * (self.last - self.first)[place]
        return np.where((share >= 0) & (share <= 1 + 1e-9), power, np.nan)


def by_device(readings: Iterable[PowerReading]) -> dict[str, list[PowerReading]]:
    """Readings of each device, in the order in which devices appear."""
    found: dict[str, list[PowerReading]] = {}
    for reading in readings:
        found.setdefault(reading.device, []).append(reading)
    return found


def energy_between(
    readings: Sequence[PowerReading], start: float | int, stop: float | int, *, widen: bool = False
) -> MeasuredEnergy:
    """Energy of one device between two times.

    A counter is used where it has two readings in the span, or where there are no samples of power. Sampled power of a
    span of less than ten seconds is refused; with `widen` its mean over ten seconds around the span is taken.

    **Arguments:**

    - `readings`: of one device, in any order.
    - `start`, `stop`: in the time of the readings [s].

    **Returns:** the energy of what is covered [J], with the share that is.

    **Raises:** `InputError` for several devices, no usable times, a span that is empty, short or not covered.
    """
    devices = {reading.device for reading in readings}
    if len(devices) != 1:
        raise InputError(
            f"Energy between two times is that of one device, and the readings are of {len(devices)}. Use by_device."
        )
    device = devices.pop()
    start, stop = _seconds(start), _seconds(stop)
    if not (math.isfinite(start) and math.isfinite(stop) and start < stop):
        raise InputError(f"The span from {start!r} s to {stop!r} s is empty. Give a start before the stop.")
    sampled, sampled_times = _sampled(readings)
    counter, counter_times = _counted(readings)
    if not sampled_times.size and not counter_times.size:
        raise InputError(f'The {len(readings)} readings of "{device}" have no times. Give interval= when reading them.')
    span = stop - start
    # A counter measures a gap too, but not where in it the energy was taken.
    whole = ~counter.gap | ((counter.start >= start) & (counter.stop <= stop))
    energy, covered = counter.of(whole).integral(start, stop)
    within = _count(counter_times, start, stop)
    power_energy, power_covered = sampled.of(~sampled.gap).integral(start, stop)
    enough = within >= min(2, _count(sampled_times, start, stop))
    if covered > 0 and (power_covered <= 0 or (enough and covered >= 0.95 * power_covered)):
        return MeasuredEnergy(energy, energy / covered, "counter", min(covered / span, 1.0), within)
    if power_covered <= 0:
        times = np.concatenate([sampled_times, counter_times])
        raise InputError(
            f'No reading of "{device}" covers the span from {start:.10g} s to {stop:.10g} s: readings run from '
            f"{times.min():.10g} s to {times.max():.10g} s. Give times on the same clock."
        )
    within = _count(sampled_times, start, stop)
    if span >= SHORTEST:
        bridged, _ = sampled.of(sampled.gap).integral(start, stop)
        share = _share(power_covered, span)
        return MeasuredEnergy(power_energy, power_energy / power_covered, "sampled", share, within, bridged)
    if not widen:
        raise InputError(
            f"The span of {span:.3g} s is shorter than {SHORTEST:.0f} s: sampled power is averaged over up to 1 s and"
            " does not resolve it. Give a longer span, or widen=True."
        )
    middle = 0.5 * (start + stop)
    wide_energy, wide_covered = sampled.of(~sampled.gap).integral(middle - 0.5 * SHORTEST, middle + 0.5 * SHORTEST)
    power = wide_energy / wide_covered
    note = (
        f"The span of {span:.3g} s was widened to {wide_covered:.3g} s of readings around it: sampled power does not"
        " resolve less than 10 s."
    )
    share = _share(power_covered, span)
    return MeasuredEnergy(power * power_covered, power, "sampled", share, within, note=note)


def merge_devices(
    readings: Iterable[PowerReading], interval: float | int | None = None, devices: Sequence[str] | None = None
) -> MergedPower:
    """Mean and total power over devices on a common grid of times.

    Power is interpolated linearly between readings; a device with a counter alone has its mean power between them.
    Meters of a whole ("node", "psys"), and of parts of a part ("cores"), are left out where the parts are there.

    **Arguments:**

    - `interval`: spacing of the grid [s]; the longest of the devices' sampling intervals where it is left out.
    - `devices`: which ones count; all others are left out.

    **Raises:** `InputError` if no device has two readings with a time, or for an interval that is not positive or makes
    the grid too large.
    """
    found = by_device(readings)
    if devices is not None:
        if missing := [name for name in devices if name not in found]:
            raise InputError(f'No reading is of device "{missing[0]}". There are: {", ".join(sorted(found)[:20])}.')
        found = {name: found[name] for name in devices}
    else:
        names = set(found)
        twice = {whole for whole, parts in PARTS_OF.items() if parts & names}
        twice |= {part for part, whole in WITHIN.items() if whole in names}
        found = {name: rows for name, rows in found.items() if name not in twice}
    pieces: dict[str, _Pieces] = {}
    spacing = 0.0
    for name, rows in found.items():
        sampled, times = _sampled(rows)
        if not sampled.start.size:
            sampled, times = _counted(rows)
        sampled = sampled.of(~sampled.gap)
        if sampled.start.size:
            pieces[name] = sampled
            spacing = max(spacing, _spacing(times))
    if not pieces:
        raise InputError("No device has two readings of power or energy with a time. Is it the right file?")
    spacing = spacing if interval is None else _seconds(interval)
    begin = min(float(one.start[0]) for one in pieces.values())
    end = max(float(one.stop[-1]) for one in pieces.values())
    if not 0 < spacing < math.inf or (end - begin) / spacing * len(pieces) > MOST_POINTS:
        raise InputError(
            f"A grid every {spacing!r} s over {end - begin:.6g} s and {len(pieces)} devices is empty or has more than"
            f" {MOST_POINTS} points. Give another interval."
        )
    grid = begin + spacing * np.arange(int((end - begin) / spacing * (1 + 1e-12)) + 1)
    total = np.zeros(grid.shape)
    sums = np.zeros(grid.shape)
    count = np.zeros(grid.shape)
    for one in pieces.values():
        power = one.at(grid)
        total += power
        known = np.isfinite(power)
        sums += np.where(known, power, 0.0)
        count += known
    mean = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
    return MergedPower(grid, mean, total, tuple(pieces))


def _seconds(time: float | int) -> float:
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
    known = np.isfinite(time) & np.isfinite(value)
    time, value, fresh = time[known], value[known], fresh[known]
    order = np.argsort(time, kind="stable")
    return time[order], value[order], fresh[order]


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


def _sampled(readings: Sequence[PowerReading]) -> tuple[_Pieces, np.ndarray]:
    """Power between the samples, and their times."""
    time, power, fresh = _columns(readings, "power")
    linked, gap = _linked(time, fresh)
    return _Pieces(time[:-1], time[1:], power[:-1], power[1:], gap).of(linked), time


def _counted(readings: Sequence[PowerReading]) -> tuple[_Pieces, np.ndarray]:
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
    return _Pieces(time[:-1], time[1:], power, power, gap).of(known), time
