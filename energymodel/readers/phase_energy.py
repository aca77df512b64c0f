"""Energy of all devices in the phases of a run, and power of each device."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from energymodel.readers.log_records import PowerReading, is_node, part_of, reported
from energymodel.readers.logged_run import WAITING, Segment
from energymodel.readers.metered import BUSY, BUSY_SHARE, IDLE, IDLE_SHARE, MOST_LEVELS, Metered, no_part_twice


@dataclass(frozen=True)
class PhaseEnergy:
    """What all devices that were read took in one phase of a run.

    - `group`: the log, or the run of a table, that it belongs to; `spans`: number of its spans, of `duration` together.
    - `energy`: of all devices; `power`: mean of one chip, or of one of other devices that are all alike.
    - `coverage`: share of the time with readings.
    """

    phase: str = reported("text")
    group: str = reported("text", "of")
    spans: int = reported("1", kind="count")
    duration: float = reported("s")
    energy: float = reported("J")
    power: float = reported("W", "power of a device")
    coverage: float = reported("1", "measured", kind="share")


@dataclass(frozen=True)
class DevicePower:
    """What one device took in all of its log. What was not measured is NaN.

    - `readings`: their number; `duration`: for how long its energy is known; `how`: by which meter.
    - `power`: its mean, or that of a single reading, and of each of several chips whose sum it is; clock, temperature
      and limit are medians.
    """

    device: str = reported("text")
    group: str = reported("text", "of", aside=True)
    readings: int = reported("1", kind="count")
    duration: float = reported("s", aside=True)
    energy: float = reported("J")
    power: float = reported("W")
    chip_power: float = reported("W", "of each chip")
    clock: float = reported("Hz")
    temperature: float = reported("K")
    power_limit: float = reported("W")
    how: str = reported("text", "by")


def groups_of(devices: Mapping[str, list[PowerReading]]) -> dict[str, dict[str, list[PowerReading]]]:
    """Devices by the group of their readings; those that measure what others do are left out."""
    groups: dict[str, dict[str, list[PowerReading]]] = {}
    for device, readings in devices.items():
        groups.setdefault(readings[0].group, {})[device] = readings
    return {group: no_part_twice(own) for group, own in groups.items()}


def meters_of(group: str, devices: Mapping[str, list[PowerReading]]) -> dict[str, dict[str, Metered]]:
    """Meters of chips and hosts whose energy is known for some time, and apart those of nodes, which hold them too."""
    meters = {name: Metered(readings) for name, readings in devices.items()}
    meters = {name: meter for name, meter in meters.items() if meter.pieces.start.size and not meter.is_silent}
    nodes = {name: meter for name, meter in meters.items() if is_node(name)}
    if nodes and len(nodes) < len(meters):
        others = {name: meter for name, meter in meters.items() if name not in nodes}
        return {group: others, f"{group} (nodes)".strip(): nodes}
    return {group: meters} if meters else {}


def device_power(group: str, device: str, readings: Sequence[PowerReading]) -> DevicePower:
    """What one device took in all of its log."""
    meter = Metered(readings)
    energy, seconds, _ = meter.energy([(-math.inf, math.inf)])
    powers = [reading.power for reading in readings if math.isfinite(reading.power)]
    power, how = (float(np.mean(powers)), "single readings") if powers else (math.nan, "")
    if seconds > 0.0:
        power, how = energy / seconds, meter.how
    energy = energy if seconds > 0.0 else math.nan
    each = power / meter.chips if meter.chips > 1.0 else math.nan
    return DevicePower(device, group, len(readings), seconds, energy, power, each, **meter.states(), how=how)


def phase_energies(group: str, spans: Iterable[Segment], meters: Mapping[str, Metered]) -> list[PhaseEnergy]:
    """Energy of the spans of each phase, of all devices."""
    by_phase: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        by_phase.setdefault(span.phase, []).append((span.start, span.stop))
    chips = {name: meter.chips for name, meter in meters.items() if meter.chips > 0.0}
    if not chips and len({part_of(name) for name in meters}) == 1:
        chips = dict.fromkeys(meters, 1.0)
    phases = []
    for phase, own in by_phase.items():
        measured = {name: meter.energy(own) for name, meter in meters.items()}
        energy, seconds, covered = map(float, np.sum([*measured.values()], axis=0))
        duration = sum(stop - start for start, stop in own)
        of_chips = sum(measured[name][0] for name in chips)
        chip_seconds = sum(measured[name][1] * count for name, count in chips.items())
        if seconds > 0.0:
            coverage = min(covered / (duration * len(meters)), 1.0)
            power = of_chips / chip_seconds if chip_seconds > 0.0 else math.nan
            phases.append(PhaseEnergy(phase, group, len(own), duration, energy, power, coverage))
    return phases


def whole_energy(phases: Sequence[PhaseEnergy]) -> PhaseEnergy:
    """All phases of one group together."""
    duration, energy = sum(phase.duration for phase in phases), sum(phase.energy for phase in phases)
    seconds = [phase.coverage * phase.duration for phase in phases]
    covered = sum(seconds) / duration
    power = sum(phase.power * time for phase, time in zip(phases, seconds, strict=True)) / max(sum(seconds), 1e-9)
    return PhaseEnergy("all", phases[0].group, sum(phase.spans for phase in phases), duration, energy, power, covered)


def power_segments(meters: Sequence[Metered]) -> list[Segment]:
    """Spans in which devices were busy, waiting or idle, by their mean power alone."""
    begin = min(float(meter.pieces.start[0]) for meter in meters)
    end = max(float(meter.pieces.stop[-1]) for meter in meters)
    spacing = max(*(meter.spacing for meter in meters), (end - begin) * len(meters) / MOST_LEVELS)
    grid = begin + spacing * np.arange(int((end - begin) / spacing) + 1)
    times = np.unique(np.concatenate([grid, *(meter.pieces.edges() for meter in meters)]))
    total, count = np.zeros(len(times) - 1), np.zeros(len(times) - 1)
    for meter in meters:
        power = meter.pieces.at(0.5 * (times[:-1] + times[1:]))
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
    return [
        Segment((BUSY, WAITING, IDLE)[level[first]], float(times[first]), float(times[last]))
        for first, last in zip(starts, stops, strict=True)
        if level[first] >= 0
    ]
