"""Logs of a run and readings of its meters together: a row for each batch, and energy by phase.

Steps and readings are joined by time. Power and energy of a step are those of the spans of training of ten seconds or
more; counters come before samples.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading, is_chip, is_node
from energymodel.readers.logged_run import TRAINING, LoggedRun, Segment, batches, logged_run, relative_scatter
from energymodel.readers.measured_power import (
    STATES,
    DevicePower,
    PhaseEnergy,
    apart_from_nodes,
    device_power,
    groups_of,
    metered,
    middle,
    phase_energies,
    power_segments,
)
from energymodel.readers.metered import SHORTEST, MergedPower, Metered, by_device, merge_devices, no_part_twice
from energymodel.readers.power_log import KINDS as POWER_KINDS
from energymodel.readers.power_log import Skipped, power_kind, read_power
from energymodel.readers.step_log import KINDS as LOG_KINDS
from energymodel.readers.step_log import join_scalars, log_kind, read_steps
from energymodel.readers.text_file import is_file
from energymodel.units import counted

HOUR = 3600.0
MOST_HOURS = 14
"""Zones differ from UTC by at most so many hours."""


@dataclass(frozen=True)
class Measurement:
    """The training steps of one log at one batch. What was not measured is NaN.

    - `steps`: that count; `step_time`: their median [s], `step_scatter` the standard deviation over it [1].
    - `sequences`, `tokens`: of a batch; `token_rate` [1/s], `flops_rate` [1/s] and `memory` [B] of one device.
    - `loss`: of the last steps, median [nat/token].
    - `power`: mean of a chip while it trains [W]; `energy`: of a chip in a step [J]; `how` they were measured.
    - `node_power`: mean of a node while it trains, where nodes have meters [W].
    - `clock` [Hz], `temperature` [K], `power_limit` [W]: medians over devices while they train.
    """

    source: str
    steps: int
    step_time: float
    step_scatter: float
    sequences: float
    tokens: float
    token_rate: float
    flops_rate: float
    memory: float
    loss: float
    power: float = math.nan
    energy: float = math.nan
    node_power: float = math.nan
    clock: float = math.nan
    temperature: float = math.nan
    power_limit: float = math.nan
    devices: int = 0
    how: str = ""


@dataclass(frozen=True)
class MeasuredLogs:
    """What `measure_logs` found.

    - `rows`: a `Measurement` for each batch of each log.
    - `phases`: energy by phase, of each log with readings, or of each group of devices without a log.
    - `devices`: each device, where there is no log of training.
    - `notes`: what was left out, and why.
    - `runs`, `power`, `spans`: for figures.
    """

    rows: tuple[Measurement, ...]
    phases: tuple[PhaseEnergy, ...]
    devices: tuple[DevicePower, ...]
    notes: tuple[str, ...]
    runs: dict[str, LoggedRun]
    power: dict[str, MergedPower]
    spans: dict[str, list[Segment]]


def kind_of(path: str | Path) -> str:
    """Kind of a file of either sort: one of those of training logs or of power.

    **Raises:** `InputError` that names all kinds.
    """
    try:
        return log_kind(path)
    except InputError:
        pass
    try:
        return power_kind(path)
    except InputError as error:
        if not is_file(path):
            raise
        kinds = ", ".join((*LOG_KINDS, *POWER_KINDS))
        raise InputError(f'"{path}" is no training log and no log of power. Known kinds: {kinds}.') from error


def measure_logs(
    paths: Sequence[str | Path], *, offset: float | int = 0.0, interval: float | int | None = None
) -> MeasuredLogs:
    """Training logs and logs of power, told apart by what they hold, joined by time.

    **Arguments:**

    - `offset`: what is added to the times of the meters [s]. A difference of whole hours, as between two zones, is
      found without it.
    - `interval`: between samples, where a log of power has no times [s].

    **Raises:** `InputError` for a file of no known kind, and if nothing can be measured.
    """
    kinds = {str(path): kind_of(path) for path in paths}
    notes: list[str] = []
    runs: dict[str, LoggedRun] = {}
    scalars = [path for path, kind in kinds.items() if kind == "tensorboard"]
    if scalars:
        runs[", ".join(scalars)] = logged_run(join_scalars(scalars), scalars[0])
    for path, kind in kinds.items():
        if kind in LOG_KINDS and kind != "tensorboard":
            records = read_steps(path, kind)
            runs[path] = logged_run(records, path)
            notes += [f"{path}: {count} {reason}." for reason, count in records.left_out.items()]
    readings: list[PowerReading] = []
    for path, kind in kinds.items():
        if kind in POWER_KINDS:
            skipped = Skipped()
            readings += read_power(path, kind, interval=interval, skipped=skipped)
            notes += [f"{path}: {count:,} x {reason}." for reason, count in skipped.items() if count]
    if offset:
        readings = [_moved(reading, float(offset)) for reading in readings]
    devices = by_device(reading for reading in readings if math.isfinite(reading.time))
    rows: list[Measurement] = []
    phases: list[PhaseEnergy] = []
    power: dict[str, MergedPower] = {}
    drawn: dict[str, list[Segment]] = {}
    for name, run in runs.items():
        notes += _left_out(name, run)
        spans = run.segments()
        own, moved = _beside(spans, devices, name) if devices else ({}, [])
        notes += moved
        meters = metered(no_part_twice(own))
        for group, part in apart_from_nodes(name, meters).items():
            power[group], drawn[group] = merge_devices(reading for device in part for reading in own[device]), spans
            phases += phase_energies(group, spans, part)
        for sequences, indices in batches(run):
            if row := _measurement(name, run, sequences, indices, spans, meters, own, notes):
                rows.append(row)
    alone: list[DevicePower] = []
    if not runs:
        for group, own in groups_of(by_device(readings)).items():
            alone += [device_power(group, name, own[name]) for name in sorted(own, key=_in_order)]
            for label, part in apart_from_nodes(group, metered(own)).items():
                power[label] = merge_devices(reading for device in part for reading in own[device])
                drawn[label] = power_segments(list(part.values()))
                phases += phase_energies(label, drawn[label], part)
    if alone and all(device.readings == 1 for device in alone):
        notes.append("Each device was read once, which tells its power but no energy.")
    elif readings and not devices:
        notes.append("The readings of power have no times: say how far apart they are with --interval.")
    if not rows and not phases and not alone:
        raise InputError(" ".join(["Nothing can be measured from these files.", *notes]))
    return MeasuredLogs(tuple(rows), tuple(phases), tuple(alone), tuple(notes), runs, power, drawn)


def _in_order(device: str) -> list[tuple[int, str]]:
    """Sort key in which device 10 follows device 9."""
    return [
        (int(part), "") if part.isdecimal() and len(part) < 10 else (-1, part) for part in re.split(r"(\d+)", device)
    ]


def _moved(reading: PowerReading, offset: float) -> PowerReading:
    return replace(reading, time=reading.time + offset)


def _left_out(name: str, run: LoggedRun) -> list[str]:
    """A sentence for each phase whose steps do not count."""
    why = {
        "warm-up": "slower or faster than the later median",
        "evaluation": "beside an evaluation",
        "checkpoint": "beside a checkpoint",
        "restart": "first after a restart",
        "lost": "repeated after a restart",
    }
    notes = [
        f"{name}: {counted(count, f'{phase} step')} left out: {why[phase]}." for phase, count in run.left_out().items()
    ]
    untimed = int(np.sum(run.of(TRAINING) & ~np.isfinite(run.columns["step_time"])))
    if untimed:
        notes.append(f"{name}: {counted(untimed, 'step')} without a time of its own: only the loss counts.")
    return notes


def _beside(
    spans: Sequence[Segment], devices: dict[str, list[PowerReading]], name: str
) -> tuple[dict[str, list[PowerReading]], list[str]]:
    """Readings at the time of a run, moved by whole hours where clocks are in two zones; and what was done."""
    if not spans:
        return {}, [f"{name}: its lines have no times, so power cannot be joined to its steps."]
    start, stop = spans[0].start, spans[-1].stop
    times = [reading.time for group in devices.values() for reading in group]
    first, last = min(times), max(times)

    def overlap(hours: float) -> float:
        return min(stop, last + hours * HOUR) - max(start, first + hours * HOUR)

    if overlap(0.0) > 0.0:
        return devices, []
    hours = max((0.25 * quarter for quarter in range(-4 * MOST_HOURS, 4 * MOST_HOURS + 1)), key=overlap)
    if overlap(hours) <= 0.5 * min(stop - start, last - first):
        return {}, [
            f"{name}: no reading of power is from its time ({start:.0f} s to {stop:.0f} s since 1970; readings from "
            f"{first:.0f} s to {last:.0f} s). Give the difference of the clocks with --offset."
        ]
    moved = {device: [_moved(reading, hours * HOUR) for reading in group] for device, group in devices.items()}
    return moved, [f"{name}: the meters' clock was moved by {hours:+g} h, as between two time zones."]


def _measurement(
    name: str,
    run: LoggedRun,
    sequences: float,
    indices: np.ndarray,
    spans: Sequence[Segment],
    meters: dict[str, Metered],
    devices: dict[str, list[PowerReading]],
    notes: list[str],
) -> Measurement | None:
    """The training steps of one batch; nothing where none has a time, a rate or a loss."""
    own = np.zeros(len(run), bool)
    own[indices] = True
    trained = own & run.of(TRAINING)

    def of(column: str) -> np.ndarray:
        values = run.columns[column][trained]
        return values[np.isfinite(values)]

    times, losses = of("step_time"), of("loss")
    if not len(times) and not len(of("token_rate")):
        batch = f" of a batch of {sequences:g}" if math.isfinite(sequences) else ""
        notes.append(f"{name}: no training step{batch} has a time or a rate.")
        if not len(losses):
            return None
    row = Measurement(
        source=name,
        steps=int(np.sum(trained)),
        step_time=middle(times),
        step_scatter=relative_scatter(times),
        sequences=sequences,
        tokens=_tokens_of_step(run, trained),
        token_rate=middle(of("token_rate")),
        flops_rate=middle(of("flops_rate")),
        memory=float(np.max(of("memory"))) if len(of("memory")) else math.nan,
        loss=float(np.median(losses[-max(1, len(losses) // 10) :])) if len(losses) else math.nan,
        power=middle(of("power")),
        energy=middle(of("energy")),
        how="log" if len(of("energy")) or len(of("power")) else "",
    )
    ends = run.columns["time"][indices]
    ends = ends[np.isfinite(ends)]
    if not meters or not len(ends):
        return row
    begin = ends[0] - (row.step_time if math.isfinite(row.step_time) else 0.0)
    training = [span for span in spans if span.phase == TRAINING and span.stop > begin and span.start < ends[-1]]
    return _with_power(row, training, meters, devices, name, notes)


def _tokens_of_step(run: LoggedRun, rows: np.ndarray) -> float:
    """Tokens of a step: as stated, or from the rise of those so far."""
    tokens = middle(run.columns["tokens"][rows])
    if math.isfinite(tokens):
        return tokens
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.diff(run.columns["tokens_so_far"][rows]) / np.diff(run.columns["step"][rows])
    return middle(rise[rise > 0.0])


def _with_power(
    row: Measurement,
    training: Sequence[Segment],
    meters: dict[str, Metered],
    devices: dict[str, list[PowerReading]],
    name: str,
    notes: list[str],
) -> Measurement:
    """A measurement with the power of its devices in its spans of training that are long enough."""
    long = [(span.start, span.stop) for span in training if span.stop - span.start >= SHORTEST]
    if not long:
        notes.append(
            f"{name}: it trains for less than {SHORTEST:g} s at a time, which meters do not resolve: no power is given."
        )
        return row
    powers: list[float] = []
    nodes: list[float] = []
    how: set[str] = set()
    states: dict[str, list[float]] = {state: [] for state in STATES}
    for device, meter in meters.items():
        energy, seconds, covered = meter.energy(long)
        if covered <= 0.5 * sum(stop - start for start, stop in long):
            notes.append(f"{name}: device {device} has readings for less than half of the training, and is left out.")
            continue
        if is_node(device):
            nodes.append(energy / seconds)
        elif is_chip(device):
            powers.append(energy / seconds)
        else:
            continue  # a part of the host, or all chips together: its energy is that of the phases
        how.add(meter.how)
        within = _within(devices[device], long)
        for state, values in states.items():
            values.append(middle(getattr(reading, state) for reading in within))
    if not powers and not nodes:
        return row
    measured = {state: middle(values) for state, values in states.items()}
    if nodes:
        measured["node_power"] = float(np.mean(nodes))
    if powers:
        measured["power"] = float(np.mean(powers))
        measured["energy"] = measured["power"] * row.step_time
    return replace(row, devices=len(powers) + len(nodes), how=" and ".join(sorted(how)), **measured)


def _within(readings: Sequence[PowerReading], spans: Sequence[tuple[float, float]]) -> list[PowerReading]:
    """Readings in one of the spans, which follow each other."""
    starts, stops = np.array(spans).T
    time = np.array([reading.time for reading in readings])
    at = np.searchsorted(starts, time, side="right") - 1
    inside = (at >= 0) & (time <= stops[np.maximum(at, 0)])
    return [reading for reading, within in zip(readings, inside, strict=True) if within]
