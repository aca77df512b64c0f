"""What do the readings of meters say: energy by phase, each device, and when devices were busy?

Energy of a phase is that of its spans, device by device: by its counter if it has one, else by the trapezoid of its
samples, interpolated at the ends of each span. Over short gaps between samples power is taken as linear; `coverage`
says for how much of the time there are readings.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from energymodel.readers.log_records import PowerReading, is_node
from energymodel.readers.logged_run import WAITING, Segment
from energymodel.readers.metered import Metered, no_part_twice

BUSY, IDLE = "busy", "idle"
BUSY_SHARE = 0.7
"""A device is busy where it draws at least this share of its high power, the 95th percentile."""
IDLE_SHARE = 1.15
"""It is idle where it draws at most this multiple of its low power, the 1st percentile."""
MOST_POINTS = 5_000_000
"""Times at which the level of power is looked at, devices counted each time."""
STATES = ("clock", "temperature", "power_limit")


class PhaseEnergy(NamedTuple):
    """What all devices that were read took in one phase of a run.

    - `group`: the log, or the run of a table, that it belongs to.
    - `duration`: of all its spans [s]; `spans`: their number.
    - `energy`: of all devices [J]; `power`: its mean of one device [W].
    - `coverage`: share of the time with readings [1].
    """

    group: str
    phase: str
    spans: int
    duration: float
    energy: float
    power: float
    coverage: float


class DevicePower(NamedTuple):
    """What one device took in all of its log. What was not measured is NaN.

    - `readings`: their number; `duration`: for how long its energy is known [s].
    - `energy` [J] and `power`: its mean [W], or that of a single reading; `how` they were measured.
    - `clock` [Hz], `temperature` [K], `power_limit` [W]: medians.
    """

    group: str
    device: str
    readings: int
    duration: float
    energy: float
    power: float
    clock: float
    temperature: float
    power_limit: float
    how: str


def groups_of(devices: dict[str, list[PowerReading]]) -> dict[str, dict[str, list[PowerReading]]]:
    """Devices by the group of their readings; those that measure what others do are left out."""
    found: dict[str, dict[str, list[PowerReading]]] = {}
    for device, readings in devices.items():
        found.setdefault(readings[0].group, {})[device] = readings
    return {group: no_part_twice(own) for group, own in found.items()}


def metered(devices: dict[str, list[PowerReading]]) -> dict[str, Metered]:
    """Devices whose energy is known for some time."""
    found = {name: Metered(readings) for name, readings in devices.items()}
    return {name: one for name, one in found.items() if one.pieces.start.size}


def apart_from_nodes(group: str, meters: dict[str, Metered]) -> dict[str, dict[str, Metered]]:
    """Meters of chips and hosts, and as a group of their own those of nodes, which measure them too."""
    nodes = {name: one for name, one in meters.items() if is_node(name)}
    others = {name: one for name, one in meters.items() if name not in nodes}
    if nodes and others:
        return {group: others, f"{group} (nodes)".strip(): nodes}
    return {group: meters} if meters else {}


def device_power(group: str, device: str, readings: Sequence[PowerReading]) -> DevicePower:
    """What one device took in all of its log."""
    meter = Metered(readings)
    energy, known, _ = meter.energy([(-math.inf, math.inf)])
    powers = [one.power for one in readings if math.isfinite(one.power)]
    mean = energy / known if known > 0.0 else float(np.mean(powers)) if powers else math.nan
    how = meter.how if known > 0.0 else "single readings" if powers else ""
    clock, temperature, limit = (middle(getattr(one, state) for one in readings) for state in STATES)
    known_energy = energy if known > 0.0 else math.nan
    return DevicePower(group, device, len(readings), known, known_energy, mean, clock, temperature, limit, how)


def middle(values: Iterable[float]) -> float:
    """Median of what is said; NaN of nothing."""
    said = [value for value in values if math.isfinite(value)]
    return float(np.median(said)) if said else math.nan


def phase_energies(group: str, spans: Iterable[Segment], meters: dict[str, Metered]) -> list[PhaseEnergy]:
    """Energy of the spans of each phase, of all devices."""
    by_phase: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        by_phase.setdefault(span.phase, []).append((span.start, span.stop))
    found = []
    for phase, own in by_phase.items():
        energy, known, covered = np.sum([one.energy(own) for one in meters.values()], axis=0)
        duration = sum(stop - start for start, stop in own)
        if known > 0.0:
            share = min(float(covered) / (duration * len(meters)), 1.0)
            power = float(energy / known)
            found.append(PhaseEnergy(group, phase, len(own), duration, float(energy), power, share))
    return found


def whole_energy(phases: Sequence[PhaseEnergy]) -> PhaseEnergy:
    """All phases of one group together."""
    duration = sum(one.duration for one in phases)
    energy = sum(one.energy for one in phases)
    device_seconds = sum(one.energy / one.power for one in phases if one.power > 0.0)
    covered = sum(one.coverage * one.duration for one in phases) / duration
    power = energy / device_seconds if device_seconds > 0.0 else 0.0
    return PhaseEnergy(phases[0].group, "all", sum(one.spans for one in phases), duration, energy, power, covered)


def power_segments(meters: Sequence[Metered]) -> list[Segment]:
    """Spans in which devices were busy, waiting or idle, by their mean power alone."""
    if not meters:
        return []
    begin = min(float(one.pieces.start[0]) for one in meters)
    end = max(float(one.pieces.stop[-1]) for one in meters)
    spacing = max(*(one.spacing for one in meters), (end - begin) * len(meters) / MOST_POINTS)
    grid = begin + spacing * np.arange(int((end - begin) / spacing) + 1)
    times = np.unique(np.concatenate([grid, *(one.pieces.edges() for one in meters)]))
    at = 0.5 * (times[:-1] + times[1:])
    total, count = np.zeros(at.shape), np.zeros(at.shape)
    for one in meters:
        power = one.pieces.at(at)
        known = np.isfinite(power)
        total += np.where(known, power, 0.0)
        count += known
    known = count > 0
    if not np.any(known):
        return []
    mean = total / np.maximum(count, 1)
    low, high = np.percentile(mean[known], (1.0, 95.0))
    level = np.where(mean >= BUSY_SHARE * high, 0, np.where(mean <= IDLE_SHARE * low, 2, 1))
    level = np.where(known, level, -1)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(level)) + 1))
    stops = np.concatenate((starts[1:], [len(level)]))
    names = (BUSY, WAITING, IDLE)
    return [
        Segment(names[level[first]], float(times[first]), float(times[last]))
        for first, last in zip(starts, stops, strict=True)
        if level[first] >= 0
    ]
