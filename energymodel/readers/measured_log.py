"""What do the logs of a run and the readings of its meters say together: a row for each batch, and energy by phase?

Steps and readings are joined by time. Energy of a phase is that of its spans; counters come before samples of power,
and samples are integrated over spans of ten seconds or more, or over the whole sequence of shorter ones.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.energy_of_span import SHORTEST, MergedPower, by_device, energy_between, merge_devices
from energymodel.readers.log_records import PowerReading
from energymodel.readers.logged_run import TRAINING, LoggedRun, Segment, batches, logged_run, relative_scatter
from energymodel.readers.power_log import KINDS as POWER_KINDS
from energymodel.readers.power_log import power_kind, read_power
from energymodel.readers.step_log import KINDS as LOG_KINDS
from energymodel.readers.step_log import join_scalars, log_kind, read_steps

HOUR = 3600.0
MOST_HOURS = 14
"""Zones differ from UTC by at most so many hours."""
BUSY, WAITING, IDLE = "busy", "waiting", "idle"
BUSY_SHARE = 0.7
"""A device is busy where it draws at least this share of its high power, the 95th percentile."""
IDLE_SHARE = 1.15
"""It is idle where it draws at most this multiple of its low power, the 1st percentile."""
MOST_BRIDGED = 60.0
"""Readings may be missing for so long for power to be taken as linear between them [s]; `coverage` says how much is."""


class PhaseEnergy(NamedTuple):
    """What all devices that were read took in one phase of a run.

    - `group`: the log, or the devices, that it belongs to.
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


@dataclass(frozen=True)
class Measurement:
    """The training steps of one log at one batch. What was not measured is NaN.

    - `steps`: that count; `step_time`: their median [s], `step_scatter` the standard deviation over it [1].
    - `sequences`, `tokens`: of a batch; `token_rate` [1/s], `flops_rate` [1/s] and `memory` [B] of one device.
    - `loss`: of the last steps, median [nat/token].
    - `power`: mean of a device while it trains [W]; `energy`: of a device in a step [J]; `how` they were measured.
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
    - `notes`: what was left out, and why.
    - `runs`, `power`: for figures.
    """

    rows: tuple[Measurement, ...]
    phases: tuple[PhaseEnergy, ...]
    notes: tuple[str, ...]
    runs: dict[str, LoggedRun]
    power: dict[str, MergedPower]


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
        if not Path(path).is_file():
            raise
        known = ", ".join((*LOG_KINDS, *POWER_KINDS))
        raise InputError(f'"{path}" is no training log and no log of power. Known kinds: {known}.') from error


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
            readings += read_power(path, kind, interval=interval)
    if offset:
        readings = [_moved(one, float(offset)) for one in readings]
    devices = by_device(one for one in readings if math.isfinite(one.time))
    if readings and not devices:
        notes.append("The readings of power have no times: say how far apart they are with --interval.")
    rows: list[Measurement] = []
    phases: list[PhaseEnergy] = []
    power: dict[str, MergedPower] = {}
    for name, run in runs.items():
        notes += _left_out(name, run)
        spans = run.segments()
        own, said = _beside(spans, devices, name) if devices else ({}, [])
        notes += said
        if own:
            power[name] = merge_devices(one for group in own.values() for one in group)
            phases += phase_energies(name, spans, power[name])
        for sequences, places in batches(run):
            if found := _measurement(name, run, sequences, places, spans, own, notes):
                rows.append(found)
    if not runs:
        for group, own in _groups(devices).items():
            power[group] = merge_devices(one for readings_of in own.values() for one in readings_of)
            phases += phase_energies(group, power_segments(power[group]), power[group])
    if not rows and not phases:
        raise InputError("\n".join(("Nothing can be measured from these files.", *notes)))
    return MeasuredLogs(tuple(rows), tuple(phases), tuple(notes), runs, power)


def _moved(reading: PowerReading, offset: float) -> PowerReading:
    values = {**vars(reading), "time": reading.time + offset}
    return PowerReading(**values)


def _left_out(name: str, run: LoggedRun) -> list[str]:
    """A sentence for each phase whose steps do not count."""
    why = {
        "warm-up": "they differ from the later median",
        "evaluation": "an evaluation ran beside them",
        "checkpoint": "a checkpoint was written beside them",
        "restart": "they follow a restart",
        "lost": "a restart repeated them",
    }
    said = [f"{name}: {count} {phase} steps left out: {why[phase]}." for phase, count in run.left_out().items()]
    untimed = int(np.sum(run.of(TRAINING) & ~np.isfinite(run.columns["step_time"])))
    if untimed:
        said.append(f"{name}: {untimed} steps have no time of their own, and count for nothing but their loss.")
    return said


def _beside(
    spans: Sequence[Segment], devices: dict[str, list[PowerReading]], name: str
) -> tuple[dict[str, list[PowerReading]], list[str]]:
    """Readings at the time of a run, moved by whole hours where clocks are in two zones; and what was done."""
    if not spans:
        return {}, [f"{name}: its lines have no times, so power cannot be joined to its steps."]
    start, stop = spans[0].start, spans[-1].stop
    first = min(one.time for group in devices.values() for one in group)
    last = max(one.time for group in devices.values() for one in group)

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
    moved = {device: [_moved(one, hours * HOUR) for one in group] for device, group in devices.items()}
    return moved, [f"{name}: the meters' clock was moved by {hours:+g} h, as between two time zones."]


def _measurement(
    name: str,
    run: LoggedRun,
    sequences: float,
    places: np.ndarray,
    spans: Sequence[Segment],
    devices: dict[str, list[PowerReading]],
    notes: list[str],
) -> Measurement | None:
    """The training steps of one batch; nothing where none has a time or a rate."""
    own = np.zeros(len(run), bool)
    own[places] = True
    kept = own & run.of(TRAINING)

    def of(column: str) -> np.ndarray:
        values = run.columns[column][kept]
        return values[np.isfinite(values)]

    def middle(column: str) -> float:
        return float(np.median(of(column))) if len(of(column)) else math.nan

    times, losses = of("step_time"), of("loss")
    if not len(times) and not len(of("token_rate")):
        notes.append(f"{name}: no training step of a batch of {sequences:g} has a time or a rate.")
        return None
    found = Measurement(
        source=name,
        steps=int(np.sum(kept)),
        step_time=middle("step_time"),
        step_scatter=relative_scatter(times),
        sequences=sequences,
        tokens=_tokens_of_step(run, kept),
        token_rate=middle("token_rate"),
        flops_rate=middle("flops_rate"),
        memory=float(np.max(of("memory"))) if len(of("memory")) else math.nan,
        loss=float(np.median(losses[-max(1, len(losses) // 10) :])) if len(losses) else math.nan,
        power=middle("power"),
        energy=middle("energy"),
        how="log" if len(of("energy")) or len(of("power")) else "",
    )
    ends = run.columns["time"][places]
    ends = ends[np.isfinite(ends)]
    if not devices or not len(ends):
        return found
    begin = ends[0] - (found.step_time if math.isfinite(found.step_time) else 0.0)
    training = [one for one in spans if one.phase == TRAINING and one.stop > begin and one.start < ends[-1]]
    return _with_power(found, training, devices, name, notes)


def _tokens_of_step(run: LoggedRun, kept: np.ndarray) -> float:
    """Tokens of a step: as stated, or from the rise of those so far."""
    stated = run.columns["tokens"][kept]
    stated = stated[np.isfinite(stated)]
    if len(stated):
        return float(np.median(stated))
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.diff(run.columns["tokens_so_far"][kept]) / np.diff(run.columns["step"][kept])
    rise = rise[np.isfinite(rise) & (rise > 0.0)]
    return float(np.median(rise)) if len(rise) else math.nan


def _with_power(
    found: Measurement, training: Sequence[Segment], devices: dict[str, list[PowerReading]], name: str, notes: list[str]
) -> Measurement:
    """A measurement with the power of its devices in its spans of training that are long enough."""
    long = [one for one in training if one.stop - one.start >= SHORTEST]
    if not long:
        notes.append(
            f"{name}: it trains for less than {SHORTEST:g} s at a time, which meters do not resolve: no power is given."
        )
        return found
    powers: list[float] = []
    how: set[str] = set()
    states: dict[str, list[float]] = {"clock": [], "temperature": [], "power_limit": []}
    for device, readings in devices.items():
        energy = covered = 0.0
        for span in long:
            try:
                one = energy_between(readings, span.start, span.stop)
            except InputError:
                continue
            energy, covered = energy + one.energy, covered + one.coverage * (span.stop - span.start)
            how.add(one.how)
        if covered <= 0.5 * sum(span.stop - span.start for span in long):
            notes.append(f"{name}: device {device} has readings for less than half of the training, and is left out.")
            continue
        powers.append(energy / covered)
        for state, values in states.items():
            said = [
                getattr(one, state) for one in readings if any(span.start <= one.time <= span.stop for span in long)
            ]
            said = [value for value in said if math.isfinite(value)]
            values += [float(np.median(said))] if said else []
    if not powers:
        return found
    power = float(np.mean(powers))
    middle = {state: float(np.median(values)) if values else math.nan for state, values in states.items()}
    values = {**vars(found), "power": power, "energy": power * found.step_time, **middle}
    return Measurement(**{**values, "devices": len(powers), "how": " and ".join(sorted(how))})


def _groups(devices: dict[str, list[PowerReading]]) -> dict[str, dict[str, list[PowerReading]]]:
    """Devices by what stands before the colon of their names: a host, or a run of a table."""
    found: dict[str, dict[str, list[PowerReading]]] = {}
    for device, readings in devices.items():
        found.setdefault(device.rpartition(":")[0], {})[device] = readings
    return found


def power_segments(power: MergedPower) -> list[Segment]:
    """Spans in which devices were busy, waiting or idle, by their mean power alone."""
    known = power.mean[np.isfinite(power.mean)]
    if len(known) < 2:
        return []
    low, high = np.percentile(known, (1.0, 95.0))
    mean = _bridged(power.time, power.mean)
    middle = 0.5 * (mean[:-1] + mean[1:])
    found: list[Segment] = []
    for at, value in enumerate(middle):
        phase = BUSY if value >= BUSY_SHARE * high else IDLE if value <= IDLE_SHARE * low else WAITING
        if not math.isfinite(value):
            continue
        start, stop = float(power.time[at]), float(power.time[at + 1])
        if found and found[-1].phase == phase and found[-1].stop == start:
            found[-1] = found[-1]._replace(stop=stop)
        else:
            found.append(Segment(phase, start, stop))
    return found


def phase_energies(group: str, spans: Iterable[Segment], power: MergedPower) -> list[PhaseEnergy]:
    """Energy of the spans of each phase: the trapezoid of the total power, interpolated at their ends."""
    by_phase: dict[str, list[Segment]] = {}
    for span in spans:
        by_phase.setdefault(span.phase, []).append(span)
    found = []
    bridged, measured = _bridged(power.time, power.total), np.isfinite(power.total)
    for phase, own in by_phase.items():
        parts = [_integral(power.time, bridged, measured, one) for one in own]
        energy, counted, covered = (float(sum(values)) for values in zip(*parts, strict=True))
        duration = sum(one.stop - one.start for one in own)
        if counted > 0.0:
            mean = energy / counted / max(len(power.devices), 1)
            found.append(PhaseEnergy(group, phase, len(own), duration, energy, mean, min(covered / duration, 1.0)))
    return found


def _bridged(time: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Power with a straight line where it is missing for no longer than `MOST_BRIDGED`."""
    known = np.flatnonzero(np.isfinite(power))
    if not len(known):
        return power
    after = np.searchsorted(known, np.arange(len(power)))
    next_known, last_known = known[np.minimum(after, len(known) - 1)], known[np.maximum(after - 1, 0)]
    short = (time[next_known] - time[last_known] <= MOST_BRIDGED) & (after > 0) & (after < len(known))
    return np.where(np.isfinite(power) | ~short, power, np.interp(time, time[known], power[known]))


def _integral(time: np.ndarray, power: np.ndarray, measured: np.ndarray, span: Segment) -> tuple[float, float, float]:
    """Energy of a span [J], for how long power is known or bridged, and for how long it was measured [s]."""
    start, stop = np.clip((span.start, span.stop), time[0], time[-1])
    inner = (time > start) & (time < stop)
    times = np.concatenate(([start], time[inner], [stop]))
    values = np.interp(times, time, power)
    steps, middle = np.diff(times), 0.5 * (values[:-1] + values[1:])
    counts = np.isfinite(middle) & (steps > 0.0)
    seen = np.interp(times, time, measured.astype(float))
    whole = counts & (np.minimum(seen[:-1], seen[1:]) > 0.0)
    return float(np.sum((steps * middle)[counts])), float(np.sum(steps[counts])), float(np.sum(steps[whole]))
