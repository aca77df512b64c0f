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
from energymodel.readers import metered, phase_energy
from energymodel.readers.log_records import PowerReading, is_node, reported
from energymodel.readers.logged_run import TRAINING, LoggedRun, Segment, batches, logged_run, relative_scatter
from energymodel.readers.power_log import KINDS as POWER_KINDS
from energymodel.readers.power_log import Skipped, power_kind, read_power
from energymodel.readers.step_log import KINDS as LOG_KINDS
from energymodel.readers.step_log import join_scalars, log_kind, read_steps
from energymodel.readers.text_file import is_file
from energymodel.units import counted

HOUR = 3600.0
MOST_HOURS = 14  # zones differ from UTC by at most so many hours


@dataclass(frozen=True)
class Measurement:
    """The training steps of one log at one batch. What was not measured is NaN.

    - `steps`: that count; `step_time`: their median, and `step_scatter` the standard deviation over it.
    - `sequences`, `tokens`: of a batch; `token_rate`, `flops_rate` [FLOP/s] and `memory`: of one device.
    - `loss`: of the last steps, median; `power` of a chip, `node_power` of a node while it trains.
    - `clock`, `temperature`, `power_limit` [W]: medians over devices while they train.
    """

    flops_rate: float
    source: str = reported("text", "log", aside=True)
    steps: int = reported("1", kind="count")
    sequences: float = reported("1", "batch (sequences)", kind="count")
    step_time: float = reported("s")
    step_scatter: float = reported("1", "scatter", kind="share", digits="two")
    tokens: float = reported("token", "tokens of a step")
    token_rate: float = reported("token/s", "tokens/s of a chip")
    loss: float = reported("nat/token")
    power: float = reported("W", "power of a chip", math.nan)
    energy: float = reported("J", "energy of a chip and step", math.nan)
    node_power: float = reported("W", "power of a node", math.nan)
    clock: float = reported("Hz", default=math.nan)
    temperature: float = reported("K", default=math.nan)
    memory: float = reported("B", default=math.nan)
    power_limit: float = math.nan
    devices: int = reported("1", "devices with a meter", 0, kind="count")
    how: str = reported("text", "power measured by", "")


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
    phases: tuple[phase_energy.PhaseEnergy, ...]
    devices: tuple[phase_energy.DevicePower, ...]
    notes: tuple[str, ...]
    runs: dict[str, LoggedRun]
    power: dict[str, metered.MergedPower]
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
    if scalars := [path for path, kind in kinds.items() if kind == "tensorboard"]:
        runs[", ".join(scalars)] = logged_run(join_scalars(scalars), scalars[0])
    readings: list[PowerReading] = []
    for path, kind in kinds.items():
        if kind in POWER_KINDS:
            skipped = Skipped()
            readings += read_power(path, kind, interval=interval, skipped=skipped)
            notes += [f"{path}: {count:,} x {reason}." for reason, count in skipped.items() if count]
        elif kind != "tensorboard":
            records = read_steps(path, kind)
            runs[path] = logged_run(records, path)
            notes += [f"{path}: {count} {reason}." for reason, count in records.left_out.items()]
    readings = _moved(readings, offset) if offset else readings
    devices = metered.by_device(reading for reading in readings if math.isfinite(reading.time))
    notes += filter(None, (metered.Metered(own).doubts() for own in devices.values()))
    rows: list[Measurement] = []
    phases: list[phase_energy.PhaseEnergy] = []
    power: dict[str, metered.MergedPower] = {}
    spans: dict[str, list[Segment]] = {}
    alone: list[phase_energy.DevicePower] = []

    def take(
        name: str, own: dict[str, list[PowerReading]], segments: list[Segment] | None
    ) -> dict[str, metered.Metered]:
        """Energy by phase of devices, in the segments of a run or those of their power; their meters."""
        meters: dict[str, metered.Metered] = {}
        for group, part in phase_energy.meters_of(name, own).items():
            seen = [device for device, meter in part.items() if meter.chips > 0.0] or [*part]
            power[group] = metered.merge_devices(reading for device in seen for reading in own[device])
            spans[group] = phase_energy.power_segments(list(part.values())) if segments is None else segments
            phases.extend(phase_energy.phase_energies(group, spans[group], part))
            meters |= part
        return meters

    for name, run in runs.items():
        notes += _left_out(name, run)
        segments = run.segments()
        own = metered.no_part_twice(_beside(segments, devices, name, notes)) if devices else {}
        meters = take(name, own, segments)
        measured = (_measurement(name, run, *batch, segments, meters, notes) for batch in batches(run))
        rows += [row for row in measured if row is not None]
    for group, own in {} if runs else phase_energy.groups_of(metered.by_device(readings)).items():
        alone += [phase_energy.device_power(group, name, own[name]) for name in sorted(own, key=_in_order)]
        take(group, own, None)
    if alone and all(device.readings == 1 for device in alone):
        notes.append("Each device was read once, which tells its power but no energy.")
    elif readings and not devices:
        notes.append("The readings of power have no times: say how far apart they are with --interval.")
    if not rows and not phases and not alone:
        raise InputError(" ".join(["Nothing can be measured from these files.", *notes]))
    return MeasuredLogs(tuple(rows), tuple(phases), tuple(alone), tuple(notes), runs, power, spans)


def _in_order(device: str) -> list[tuple[int, str]]:
    """Sort key in which device 10 follows device 9."""
    parts = re.split(r"(\d+)", device)
    return [(int(part), "") if part.isdecimal() and len(part) < 10 else (-1, part) for part in parts]


def _moved(readings: Sequence[PowerReading], seconds: float) -> list[PowerReading]:
    return [replace(reading, time=reading.time + seconds) for reading in readings]


def _left_out(name: str, run: LoggedRun) -> list[str]:
    """A sentence for each phase whose steps do not count."""
    why = {
        "warm-up": "slower or faster than the later median",
        "evaluation": "beside an evaluation",
        "checkpoint": "beside a checkpoint",
        "restart": "first after a restart",
        "lost": "repeated after a restart",
    }
    counts = ((phase, int(np.sum(run.of(phase)))) for phase in why)
    notes = [f"{name}: {counted(n, f'{phase} step')} left out: {why[phase]}." for phase, n in counts if n]
    if run.refused:
        notes.append(
            f"{name}: loss below zero in {counted(run.refused, 'step')} is refused: cross-entropy is above it. Of "
            "another objective, times and rates count."
        )
    if len(run) == 1 and run.columns["step"][0] <= 1.0:
        notes.append(f"{name}: its only step is the first, which compiles: no usual one is timed.")
    untimed = int(np.sum(run.of(TRAINING) & ~np.isfinite(run.columns["step_time"])))
    if untimed:
        notes.append(f"{name}: {counted(untimed, 'step')} without a time of its own: only the loss counts.")
    return notes


def _beside(
    spans: Sequence[Segment], devices: dict[str, list[PowerReading]], name: str, notes: list[str]
) -> dict[str, list[PowerReading]]:
    """Readings at the time of a run, moved by whole hours where clocks are in two zones, which is noted."""
    if not spans:
        notes.append(f"{name}: its lines have no times, so power cannot be joined to its steps.")
        return {}
    start, stop = spans[0].start, spans[-1].stop
    times = [reading.time for group in devices.values() for reading in group]
    first, last = min(times), max(times)

    def overlap(hours: float) -> float:
        return min(stop, last + hours * HOUR) - max(start, first + hours * HOUR)

    if overlap(0.0) > 0.0:
        return devices
    hours = max((0.25 * quarter for quarter in range(-4 * MOST_HOURS, 4 * MOST_HOURS + 1)), key=overlap)
    if overlap(hours) <= 0.5 * min(stop - start, last - first):
        notes.append(
            f"{name}: no reading of power is from its time ({start:.0f} s to {stop:.0f} s since 1970; readings from "
            f"{first:.0f} s to {last:.0f} s). Give the difference of the clocks with --offset."
        )
        return {}
    notes.append(f"{name}: the meters' clock was moved by {hours:+g} h, as between two time zones.")
    return {device: _moved(group, hours * HOUR) for device, group in devices.items()}


def _measurement(
    name: str,
    run: LoggedRun,
    sequences: float,
    indices: np.ndarray,
    spans: Sequence[Segment],
    meters: dict[str, metered.Metered],
    notes: list[str],
) -> Measurement | None:
    """The training steps of one batch; nothing where none has a time, a rate or a loss."""
    trained = run.of(TRAINING) & np.isin(np.arange(len(run)), indices)
    columns = {column: values[trained] for column, values in run.columns.items()}
    columns = {column: values[np.isfinite(values)] for column, values in columns.items()}
    times, losses, memory = columns["step_time"], columns["loss"], columns["memory"]
    if not len(times) and not len(columns["token_rate"]):
        batch = f" of a batch of {sequences:g}" if math.isfinite(sequences) else ""
        notes.append(f"{name}: no training step{batch} has a time or a rate.")
        if not len(losses):
            return None
    # Tokens of a step as stated, or from the rise of those so far.
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.diff(run.columns["tokens_so_far"][trained]) / np.diff(run.columns["step"][trained])
    row = Measurement(
        source=name,
        steps=int(np.sum(trained)),
        step_time=metered.median(times),
        step_scatter=relative_scatter(times),
        sequences=sequences,
        tokens=metered.median(columns["tokens"] if len(columns["tokens"]) else rise[rise > 0.0]),
        token_rate=metered.median(columns["token_rate"]),
        flops_rate=metered.median(columns["flops_rate"]),
        memory=float(np.max(memory)) if len(memory) else math.nan,
        loss=float(np.median(losses[-max(1, len(losses) // 10) :])) if len(losses) else math.nan,
        power=metered.median(columns["power"]),
        energy=metered.median(columns["energy"]),
        how="log" if len(columns["energy"]) or len(columns["power"]) else "",
    )
    ends = run.columns["time"][indices]
    ends = ends[np.isfinite(ends)]
    if not meters or not len(ends):
        return row
    begin = ends[0] - (row.step_time if math.isfinite(row.step_time) else 0.0)
    training = [span for span in spans if span.phase == TRAINING and span.stop > begin and span.start < ends[-1]]
    long = [(span.start, span.stop) for span in training if span.stop - span.start >= metered.SHORTEST]
    if long:
        return _with_power(row, long, meters, notes)
    notes.append(
        f"{name}: it trains for less than {metered.SHORTEST:g} s at a time, which meters do not resolve: no power is "
        "given."
    )
    return row


def _with_power(
    row: Measurement, spans: Sequence[tuple[float, float]], meters: dict[str, metered.Metered], notes: list[str]
) -> Measurement:
    """A measurement with the power of its devices in its spans of training, which follow each other."""
    chips: list[float] = []
    nodes: list[float] = []
    states: list[dict[str, float]] = []
    how: set[str] = set()
    for device, meter in meters.items():
        energy, seconds, covered = meter.energy(spans)
        if covered <= 0.5 * sum(stop - start for start, stop in spans):
            notes.append(
                f"{row.source}: device {device} has readings for less than half of the training, and is left out."
            )
            continue
        if is_node(device):
            nodes.append(energy / seconds)
        elif meter.chips > 0.0:
            chips += [energy / seconds / meter.chips] * round(meter.chips)
        else:
            continue  # a part of the host: its energy is that of the phases
        how.add(meter.how)
        states.append(meter.states(spans))
    if not chips and not nodes:
        return row
    measured = {state: metered.median(values[state] for values in states) for state in metered.STATES}
    if nodes:
        measured["node_power"] = float(np.mean(nodes))
    if chips:
        measured["power"] = float(np.mean(chips))
        measured["energy"] = measured["power"] * row.step_time
    return replace(row, devices=len(chips) + len(nodes), how=" and ".join(sorted(how)), **measured)
