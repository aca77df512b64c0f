"""How much energy did a device, or all of them, take between two times?

An energy counter is preferred to samples of power. Between two readings the counter is taken to rise evenly, and power
to change linearly. Where readings are missing nothing is assumed: `coverage` says for how much of the span there are
any.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading
from energymodel.readers.metered import ENOUGH, SHORTEST, MeasuredEnergy, Metered, Pieces, in_seconds

__all__ = ["SHORTEST", "MeasuredEnergy", "MergedPower", "by_device", "energy_between", "merge_devices", "no_part_twice"]

MOST_POINTS = 20_000_000
"""Points of a common grid, devices counted each time."""
PARTS_OF = {"node": {"gpu", "cpu", "ram"}, "psys": {"cpu", "package-0"}}
"""Meters that hold what others measure too."""
WITHIN = {"cores": "cpu", "integrated gpu": "cpu", "core": "package-0", "uncore": "package-0"}
"""Meters of a part of what another one measures."""


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
    return Metered(readings).between(start, stop, widen=widen)


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
        found = no_part_twice(found)
    pieces: dict[str, Pieces] = {}
    spacing = 0.0
    for name, rows in found.items():
        meter = Metered(rows)
        known = meter.sampled.of(~meter.sampled.gap)
        if known.length < ENOUGH * meter.counter.length:
            known = meter.counter
        if known.start.size:
            pieces[name] = known
            spacing = max(spacing, meter.spacing)
    if not pieces:
        raise InputError("No device has two readings of power or energy with a time. Is it the right file?")
    spacing = spacing if interval is None else in_seconds(interval)
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


def no_part_twice(devices: dict[str, list[PowerReading]]) -> dict[str, list[PowerReading]]:
    """Devices without those that measure the whole of others, or a part of one, which would count twice."""
    parts = {name: _part(name) for name in devices}
    there = set(parts.values())

    def counts(beside: tuple[str, str, str]) -> bool:
        place, own, run = beside
        if own in WITHIN:
            return (place, WITHIN[own], run) not in there
        return not any((place, part, run) in there for part in PARTS_OF.get(own, ()))

    return {name: rows for name, rows in devices.items() if counts(parts[name])}


def _part(device: str) -> tuple[str, str, str]:
    """Host or socket of a device, what it is, and its run if another one ran beside it."""
    place, _, own = device.rpartition(":")
    own, space, run = own.partition(" (")
    return place, own, space + run
