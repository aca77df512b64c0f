"""The answer of `measure`: steps, energy by phase and devices of logs, and rows that `calibrate` reads."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.readers.logged_run import Segment
from energymodel.readers.measured_log import MeasuredLogs, Measurement
from energymodel.readers.metered import PhaseEnergy, whole_energy
from energymodel.report.answer import DATA, Answer, Cell, Chart, Column, Quantity, Sentence, Table

MOST_DEVICES = 16
"""Devices that the short form shows."""
MOST_POINTS = 500
"""Steps and times of each log that are drawn."""
_STEPS = (
    Column("source", "log", kind="words", level=DATA),
    Column("steps", "steps", kind="count"),
    Column("sequences", "batch (sequences)", kind="count"),
    Column("step_time", "step time", "s"),
    Column("step_scatter", "scatter", kind="share", digits="two"),
    Column("tokens", "tokens of a step", "token"),
    Column("token_rate", "tokens/s of a chip", "token/s"),
    Column("loss", "loss", "nat/token"),
    Column("power", "power of a chip", "W"),
    Column("energy", "energy of a chip and step", "J"),
    Column("node_power", "power of a node", "W"),
    Column("clock", "clock", "Hz"),
    Column("temperature", "temperature", "K", "temperature"),
    Column("memory", "memory", "B"),
    Column("devices", "devices with a meter", kind="count"),
    Column("how", "power measured by", kind="words"),
)
_PHASES = (
    Column("phase", "phase", kind="words"),
    Column("group", "of", kind="words"),
    Column("spans", "spans", kind="count"),
    Column("duration", "duration", "s"),
    Column("energy", "energy", "J"),
    Column("power", "power of a device", "W"),
    Column("coverage", "measured", kind="share"),
)
_DEVICES = (
    Column("device", "device", kind="words"),
    Column("group", "of", kind="words", level=DATA),
    Column("readings", "readings", kind="count"),
    Column("duration", "duration", "s", level=DATA),
    Column("energy", "energy", "J"),
    Column("power", "power", "W"),
    Column("clock", "clock", "Hz"),
    Column("temperature", "temperature", "K", "temperature"),
    Column("power_limit", "power limit", "W"),
    Column("how", "by", kind="words"),
)
_STEP_TIMES = (
    Column("series", "", kind="words"),
    Column("step", "step", kind="count"),
    Column("step_time", "step time", "s"),
)
_POWER = (Column("series", "", kind="words"), Column("time", "time", "s"), Column("power", "power", "W"))


def measure_answer(logs: MeasuredLogs, rows: Sequence[Mapping[str, Any]]) -> Answer:
    """Measured logs in numbers.

    - `rows`: as `calibrate` reads them, from `measured_rows`.
    """
    tables, charts = [], []
    if logs.rows:
        tables.append(steps_table(logs.rows))
    if logs.devices:
        cells = [[_cell(getattr(device, column.name)) for column in _DEVICES] for device in logs.devices]
        tables.append(Table("devices", "Devices", _DEVICES, cells, short=range(min(len(cells), MOST_DEVICES))))
    if logs.phases:
        phases = [[_cell(getattr(phase, column.name)) for column in _PHASES] for phase in _with_sums(logs.phases)]
        tables.append(Table("phases", "Energy by phase", _PHASES, phases))
    drawn = (
        (Table("step_times", "Step times", _STEP_TIMES, _step_times(logs), level=DATA), "Time of a step"),
        (Table("power", "Power over time", _POWER, _power(logs), level=DATA), "Mean power of a device"),
    )
    for table, title in drawn:
        if table.rows:
            _, x, y = table.names
            charts.append(Chart("plane", Sentence(title), table.name, x, [y], series="series"))
            tables.append(table)
    if rows:
        tables.append(rows_table(rows))
    names = dict.fromkeys(_short(row.source) for row in logs.rows) or dict.fromkeys(
        _short(phase.group) for phase in logs.phases
    )
    return Answer(
        "measure",
        f"Measured from {', '.join(filter(None, names)) or 'meters'}",
        _headline(tables[0], logs),
        [Sentence(note) for note in logs.notes],
        tables,
        charts,
    )


def _headline(table: Table, logs: MeasuredLogs) -> Sentence:
    """Time and power of the first batch, or the energy of all phases, as far as they were measured."""
    if not logs.rows:
        total = Quantity(sum(phase.energy for phase in logs.phases))
        words = "{energy} in all" if logs.phases else f"{len(logs.devices):,} devices"
        return Sentence(words, {"energy": (Column("energy", "energy", "J"), total)})
    known = {
        name: (table.column(name)[0], cell)
        for name in ("step_time", "power")
        if isinstance(cell := table.column(name)[1][0], Quantity)
    }
    words = {"step_time": "a step takes {step_time}", "power": "a chip draws {power}"}
    return Sentence(", ".join(words[name] for name in known) or "no step has a time", known)


def _cell(value: float | str) -> Cell:
    """A cell, empty where nothing was measured."""
    if isinstance(value, str):
        return value
    return Quantity(float(value)) if math.isfinite(value) else None


def _short(source: str) -> str:
    return source.rsplit("/", 1)[-1]


def steps_table(rows: Sequence[Measurement]) -> Table:
    """A row for each batch of each log."""
    labels = [_short(row.source) for row in rows]
    if len(set(labels)) < len(labels):
        labels = [f"{label}, batch {row.sequences:g}" for label, row in zip(labels, rows, strict=True)]
    cells = [[_cell(getattr(row, column.name)) for column in _STEPS] for row in rows]
    return Table("steps", "Training steps", _STEPS, cells, tall=True, labels=labels)


def _with_sums(phases: Sequence[PhaseEnergy]) -> list[PhaseEnergy]:
    """The phases, and behind those of a group their sum, if there are several."""
    rows: list[PhaseEnergy] = []
    for group in dict.fromkeys(phase.group for phase in phases):
        own = [phase for phase in phases if phase.group == group]
        rows += [*own, whole_energy(own)] if len(own) > 1 else own
    return rows


def rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of `calibrate`, under its names, which hold the units."""
    words = {name: isinstance(value, str) for row in rows for name, value in row.items()}
    columns = [
        Column(name, name, "" if not word else "1", "words" if word else "amount") for name, word in words.items()
    ]
    cells = [[_cell(row[name]) if name in row else None for name in words] for row in rows]
    return Table("rows", "Rows for `calibrate`", columns, cells, level=DATA)


def _step_times(logs: MeasuredLogs) -> list[list[Cell]]:
    """Times of the steps of each log, by phase, or by log where there are several."""
    rows: list[list[Cell]] = []
    for name, run in logs.runs.items():
        step, times = run.columns["step"], run.columns["step_time"]
        timed = np.flatnonzero(np.isfinite(times))
        for index in timed[:: _stride(len(timed))]:
            series = str(run.phases[index]) if len(logs.runs) == 1 else _short(name)
            rows.append([series, Quantity(float(step[index])), Quantity(float(times[index]))])
    return rows


def _power(logs: MeasuredLogs) -> list[list[Cell]]:
    """Mean power of a device over time, by phase, or by log where there are several."""
    rows: list[list[Cell]] = []
    for name, power in logs.power.items():
        measured = np.flatnonzero(np.isfinite(power.mean))
        measured = measured[:: _stride(len(measured))]
        phases = _phases_at(power.time[measured], logs.spans[name])
        for index, phase in zip(measured, phases, strict=True):
            series = phase if len(logs.power) == 1 else _short(name) or "all devices"
            time = float(power.time[index] - power.time[0])
            rows.append([series, Quantity(time), Quantity(float(power.mean[index]))])
    return rows


def _phases_at(times: np.ndarray, spans: Sequence[Segment]) -> Iterator[str]:
    """Phase of the run at each time."""
    for time in times:
        yield next((span.phase for span in spans if span.start <= time <= span.stop), "outside the run")


def _stride(count: int) -> int:
    return max(1, -(-count // MOST_POINTS))
