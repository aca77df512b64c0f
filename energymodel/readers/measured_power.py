"""Readings of meters: energy by phase, each device, and when devices were busy.

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
    groups: dict[str, dict[str, list[PowerReading]]] = {}
    for device, readings in devices.items():
        groups.setdefault(readings[0].group, {})[device] = readings
    return {group: no_part_twice(own) for group, own in groups.items()}


def metered(devices: dict[str, list[PowerReading]]) -> dict[str, Metered]:
    """Devices whose energy is known for some time."""
    meters = {name: Metered(readings) for name, readings in devices.items()}
    return {name: meter for name, meter in meters.items() if meter.pieces.start.size}


def apart_from_nodes(group: str, meters: dict[str, Metered]) -> dict[str, dict[str, Metered]]:
    """Meters of chips and hosts, and as a group of their own those of nodes, which measure them too."""
    nodes = {name: meter for name, meter in meters.items() if is_node(name)}
    others = {name: meter for name, meter in meters.items() if name not in nodes}
    if nodes and others:
        return {group: others, f"{group} (nodes)".strip(): nodes}
    return {group: meters} if meters else {}


def device_power(group: str, device: str, readings: Sequence[PowerReading]) -> DevicePower:
    """What one device took in all of its log."""
    meter = Metered(readings)
    energy, seconds, _ = meter.energy([(-math.inf, math.inf)])
    power, how = math.nan, ""
    if seconds > 0.0:
        power, how = energy / seconds, meter.how
    elif powers := [reading.power for reading in readings if math.isfinite(reading.power)]:
        power, how = float(np.mean(powers)), "single readings"
    states = (middle(getattr(reading, state) for reading in readings) for state in STATES)
    return DevicePower(
        group, device, len(readings), seconds, energy if seconds > 0.0 else math.nan, power, *states, how=how
    )


def middle(values: Iterable[float]) -> float:
    """Median of finite values; NaN of none."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else math.nan


def phase_energies(group: str, spans: Iterable[Segment], meters: dict[str, Metered]) -> list[PhaseEnergy]:
    """Energy of the spans of each phase, of all devices."""
    by_phase: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        by_phase.setdefault(span.phase, []).append((span.start, span.stop))
    phases = []
    for phase, own in by_phase.items():
        energy, seconds, covered = map(float, np.sum([meter.energy(own) for meter in meters.values()], axis=0))
        duration = sum(stop - start for start, stop in own)
        if seconds > 0.0:
            coverage = min(covered / (duration * len(meters)), 1.0)
            phases.append(PhaseEnergy(group, phase, len(own), duration, energy, energy / seconds, coverage))
    return phases


def whole_energy(phases: Sequence[PhaseEnergy]) -> PhaseEnergy:
    """All phases of one group together."""
    duration = sum(phase.duration for phase in phases)
    energy = sum(phase.energy for phase in phases)
    device_seconds = sum(phase.energy / phase.power for phase in phases if phase.power > 0.0)
    covered = sum(phase.coverage * phase.duration for phase in phases) / duration
    power = energy / device_seconds if device_seconds > 0.0 else 0.0
    return PhaseEnergy(phases[0].group, "all", sum(phase.spans for phase in phases), duration, energy, power, covered)


def power_segments(meters: Sequence[Metered]) -> list[Segment]:
    """Spans in which devices were busy, waiting or idle, by their mean power alone."""
    if not meters:
        return []
    begin = min(float(meter.pieces.start[0]) for meter in meters)
    end = max(float(meter.pieces.stop[-1]) for meter in meters)
    spacing = max(*(meter.spacing for meter in meters), (end - begin) * len(meters) / MOST_POINTS)
    grid = begin + spacing * np.arange(int((end - begin) / spacing) + 1)
    times = np.unique(np.concatenate([grid, *(meter.pieces.edges() for meter in meters)]))
    at = 0.5 * (times[:-1] + times[1:])
    total, count = np.zeros(at.shape), np.zeros(at.shape)
    for meter in meters:
        power = meter.pieces.at(at)
        total += np.where(np.isfinite(power), power, 0.0)
        count += np.isfinite(power)
    if not np.any(count):
        return []
    mean = total / np.maximum(count, 1)
    low, high = np.percentile(mean[count > 0], (1.0, 95.0))
    level = np.where(mean >= BUSY_SHARE * high, 0, np.where(mean <= IDLE_SHARE * low, 2, 1))
    level = np.where(count > 0, level, -1)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(level)) + 1))
    stops = np.concatenate((starts[1:], [len(level)]))
    names = (BUSY, WAITING, IDLE)
    return [
        Segment(names[level[first]], float(times[first]), float(times[last]))
        for first, last in zip(starts, stops, strict=True)
        if level[first] >= 0
    ]
