"""The answer of `measure`: steps, energy by phase and devices of logs, and rows that `calibrate` reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.readers.measured_log import MeasuredLogs, Measurement
from energymodel.readers.phase_energy import PhaseEnergy, whole_energy
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Column, Quantity, finite, number, words

MOST_DEVICES = 16
"""Devices that the short form shows."""
MOST_POINTS = 500
"""Steps and times of each log that are drawn."""


def measure_answer(logs: MeasuredLogs, rows: Sequence[Mapping[str, Any]]) -> Answer:
    """Measured logs in numbers.

    - `rows`: as `calibrate` reads them, from `measured_rows`.
    """
    tables, charts = [], []
    if logs.rows:
        tables.append(steps_table(logs.rows))
    if logs.devices:
        tables.append(Table.records("devices", "Devices", logs.devices, MOST_DEVICES))
    if logs.phases:
        tables.append(Table.records("phases", "Energy by phase", _with_sums(logs.phases)))
    for table, title in ((step_times_table(logs), "Time of a step"), (power_table(logs), "Mean power of a device")):
        if table.rows:
            _, x, y = table.names
            charts.append(Chart("plane", Sentence(title), table.name, x, [y], series="series"))
            tables.append(table)
    if rows:
        tables.append(rows_table(rows))
    names = [row.source for row in logs.rows] or [phase.group for phase in logs.phases]
    listed = ", ".join(filter(None, dict.fromkeys(map(_short, names))))
    return Answer(
        "measure",
        f"Measured from {listed or 'meters'}",
        _headline(tables[0], logs),
        [Sentence(note) for note in logs.notes],
        tables,
        charts,
        rows="rows" if rows else "",
    )


def _headline(table: Table, logs: MeasuredLogs) -> Sentence:
    """Time and power of the first batch, or the energy of all phases, as far as they were measured."""
    if not logs.rows:
        silent = [device.device for device in logs.devices if device.energy == 0.0]
        without = f", without {', '.join(silent)}" if silent else ""
        text = f"{{energy}} in all{without}" if logs.phases else f"{len(logs.devices):,} devices"
        return Sentence(text, {"energy": number(sum(phase.energy for phase in logs.phases), "J")})
    parts = {"step_time": "a step takes {step_time}", "power": "a chip draws {power}"}
    numbers = {
        name: (table.column(name)[0], cell) for name in parts if isinstance(cell := table.column(name)[1][0], Quantity)
    }
    return Sentence(", ".join(parts[name] for name in numbers) or "no step has a time", numbers)


def _short(source: str) -> str:
    return source.rsplit("/", 1)[-1]


def steps_table(rows: Sequence[Measurement]) -> Table:
    """A row for each batch of each log."""
    labels = [_short(row.source) for row in rows]
    if len(set(labels)) < len(labels):
        labels = [f"{label}, batch {row.sequences:g}" for label, row in zip(labels, rows, strict=True)]
    return Table.records("steps", "Training steps", rows, tall=True, labels=labels)


def _with_sums(phases: Sequence[PhaseEnergy]) -> list[PhaseEnergy]:
    """The phases, and behind those of a group their sum, if there are several."""
    rows: list[PhaseEnergy] = []
    for group in dict.fromkeys(phase.group for phase in phases):
        own = [phase for phase in phases if phase.group == group]
        rows += [*own, whole_energy(own)] if len(own) > 1 else own
    return rows


def rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of `calibrate`, under its names, which hold the units."""
    is_word = {name: isinstance(value, str) for row in rows for name, value in row.items()}
    columns = [words(name, name) if of else Column(name, name, "") for name, of in is_word.items()]
    cells = [[finite(row.get(name)) for name in is_word] for row in rows]
    return Table("rows", "Rows for `calibrate`", columns, cells, level="data")


def step_times_table(logs: MeasuredLogs) -> Table:
    """Times of the steps of each log, by phase, or by log where there are several."""
    rows: list[list[Any]] = []
    for name, run in logs.runs.items():
        times = run.columns["step_time"]
        for index in _thinned(times):
            series = str(run.phases[index]) if len(logs.runs) == 1 else _short(name)
            rows.append([series, run.columns["step"][index], times[index]])
    columns = [words("series", ""), Column("step", kind="count"), Column("step_time", unit="s")]
    return Table("step_times", "Step times", columns, rows, level="data")


def power_table(logs: MeasuredLogs) -> Table:
    """Mean power of a device over time, by phase, or by log where there are several."""
    rows: list[list[Any]] = []
    for name, power in logs.power.items():
        for index in _thinned(power.mean):
            time, spans = power.time[index], logs.spans[name]
            phase = next((span.phase for span in spans if span.start <= time <= span.stop), "outside the run")
            series = phase if len(logs.power) == 1 else _short(name) or "all devices"
            rows.append([series, time - power.time[0], power.mean[index]])
    columns = [words("series", ""), Column("time", unit="s"), Column("power", unit="W")]
    return Table("power", "Power over time", columns, rows, level="data")


def _thinned(values: np.ndarray) -> np.ndarray:
    """Indices of the finite values, as many as can be drawn."""
    finite = np.flatnonzero(np.isfinite(values))
    return finite[:: max(1, -(-len(finite) // MOST_POINTS))]
