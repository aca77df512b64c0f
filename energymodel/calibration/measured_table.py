"""Rows of a table from measured logs, as `calibrate` and `predict` read them."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.calibration.layout_table import LAYOUT, SHAPE
from energymodel.errors import InputError
from energymodel.readers.measured_log import MeasuredLogs, Measurement
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.scenario import Scenario

NAMES = {
    "steps": "measured_steps",
    "step_time": "step_time_s",
    "step_scatter": "step_time_scatter",
    "sequences": "batch_sequences",
    "tokens": "batch_tokens",
    "token_rate": "tokens_per_s_per_chip",
    "flops_rate": "measured_flops_per_s_per_chip",
    "memory": "memory_b",
    "loss": "loss_nats",
    "power": "power_w",
    "energy": "energy_per_step_j",
    "node_power": "node_power_w",
    "clock": "clock_hz",
    "relative_clock": "clock",
    "temperature": "temperature_k",
    "power_limit": "power_limit_w",
}
"""Column of each number of a measurement."""
TIME = "time_s"
"""Time of the same work at each setting, for `calibrate power`: that of a step."""
PARTS = {"accelerator": "hardware", "framework": "software"}
"""Words of a row that name presets, and their categories."""


def measured_rows(logs: MeasuredLogs, scenario: Scenario | None = None, cluster: str = "") -> list[dict[str, Any]]:
    """A row for each measurement; with a scenario also its model, layout and machine, so that steps can be predicted.

    Numbers that nobody measured are left out. A batch that a log does not state is the scenario's.

    **Arguments:**

    - `cluster`: of the rows; else the accelerator and the framework of the scenario are named.
    """
    own = {} if scenario is None else {**_layout(scenario), **_machine(scenario, cluster)}
    return [{**own, **_row(row, scenario)} for row in logs.rows]


def _row(step: Measurement, scenario: Scenario | None) -> dict[str, Any]:
    values: dict[str, Any] = {**vars(step), "relative_clock": math.nan}
    if scenario is not None:
        sequence = float(scenario.system.workload.sequence)
        chips = float(scenario.plan.chips)
        if math.isnan(step.sequences):
            tokens = step.tokens if math.isfinite(step.tokens) else step.token_rate * step.step_time * chips
            planned = float(np.max(np.asarray(scenario.plan.batch))) / sequence
            values["sequences"] = round(tokens / sequence) if math.isfinite(tokens) else planned
        if math.isnan(step.step_time) and math.isfinite(step.token_rate):
            values["step_time"] = values["sequences"] * sequence / (step.token_rate * chips)
        values["tokens"] = values["token_rate"] = math.nan  # they say the same as the sequences and the step time
        values["relative_clock"] = step.clock / float(scenario.system.accelerator.reference_clock)
    elif math.isfinite(step.sequences):
        values["tokens"] = math.nan
    row: dict[str, Any] = {"run": Path(step.source.split(", ", maxsplit=1)[0]).stem}
    row |= {column: values[name] for name, column in NAMES.items() if math.isfinite(values[name])}
    if TIME not in row and math.isfinite(step.power) and math.isfinite(values["step_time"]):
        row[TIME] = values["step_time"]
    return row


def _layout(scenario: Scenario) -> dict[str, Any]:
    """Columns of the model, the layout and the chips."""
    workload, plan = scenario.system.workload, scenario.plan
    shape = {column.name: float(getattr(workload, column.name)) for column in SHAPE}
    layout = {column.name: float(getattr(plan.layout, column.name)) for column in LAYOUT}
    return {**shape, **layout, "chips": float(plan.chips), "trained_share": float(plan.trained_share)}


def _machine(scenario: Scenario, cluster: str) -> dict[str, str]:
    """The cluster of a scenario, or its accelerator and its framework, as far as they are presets."""
    if cluster:
        return {"cluster": cluster}
    system = scenario.tables["system"]
    titles = {"accelerator": system["accelerator"].get("title"), "framework": system["software"].get("title")}
    machine: dict[str, str] = {}
    for word, category in PARTS.items():
        same = [name for name in names(category) if read_preset(category, name).get("title") == titles[word]]
        machine |= {word: same[0]} if same else {}
    return machine


def measured_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV, one column for each name that any of them has.

    **Raises:** `InputError` if there is none.
    """
    if not rows:
        raise InputError("No training step was measured, so there is no table. Give a training log.")
    header = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[row.get(name, "") for name in header] for row in rows])
    return text.getvalue()
