"""Calibration from the logs of a run: rows of a table from measured logs, and the fit to them."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.calibration.calibrate import Calibration, calibrate
from energymodel.calibration.calibration_case import COLUMNS
from energymodel.calibration.layout_table import LAYOUT, SHAPE
from energymodel.errors import InputError
from energymodel.readers.columns import AS_WRITTEN
from energymodel.readers.measured_log import MeasuredLogs, measure_logs
from energymodel.readers.step_log import log_kind
from energymodel.readers.text_file import is_file
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.scenario import Scenario
from energymodel.units import counted

COLUMN_OF: Mapping[str, str] = COLUMNS["of_logs"]  # column of each number of a measurement
TIME = "time_s"  # time of the same work at each setting, for `calibrate power`: that of a step
PARTS = (("accelerator", "accelerator", "hardware"), ("framework", "software", "software"))
"""Words of a row that name presets, the parts of a system that they describe, and the categories of the presets."""
NODE_COLUMNS = {"run": "run", "node_power_w": "node_power_w", "power_w": "chip_power_w", "accelerator": "accelerator"}
"""Names of columns, and those of kind `node`, whose chips are those of a node."""
OF_EXPORTS = ("wall time", "_step", " - ", "__max")
"""Parts of the header of an exported log, which no table of measurements has."""


def measured_rows(logs: MeasuredLogs, scenario: Scenario | None = None, cluster: str = "") -> list[dict[str, Any]]:
    """A row for each measurement; with a scenario also its model, layout and machine, so that steps can be predicted.

    Numbers that nobody measured are left out. A batch that a log does not state is the scenario's.

    **Arguments:**

    - `cluster`: of the rows; else the accelerator and the framework of the scenario are named.
    """
    shared: dict[str, Any] = {}
    if scenario is not None:
        workload, plan, system = scenario.system.workload, scenario.plan, scenario.tables["system"]
        shared |= {column.name: float(getattr(workload, column.name)) for column in SHAPE}
        shared |= {column.name: float(getattr(plan.layout, column.name)) for column in LAYOUT}
        shared |= {"chips": float(plan.chips), "trained_share": float(plan.trained_share)}
        shared |= {"cluster": cluster} if cluster else {}
        for word, part, category in () if cluster else PARTS:
            title = system[part].get("title")
            same = next((name for name in names(category) if read_preset(category, name).get("title") == title), "")
            shared |= {word: same} if same else {}
    rows = []
    for step in logs.rows:
        values: dict[str, Any] = {**vars(step), "relative_clock": math.nan}
        if scenario is not None:
            sequence, chips = float(scenario.system.workload.sequence), float(scenario.plan.chips)
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
        row: dict[str, Any] = {**shared, "run": Path(step.source.split(", ", maxsplit=1)[0]).stem}
        row |= {column: values[name] for name, column in COLUMN_OF.items() if math.isfinite(values[name])}
        if TIME not in row and math.isfinite(step.power) and math.isfinite(values["step_time"]):
            row[TIME] = values["step_time"]
        rows.append(row)
    return rows


def is_training_log(path: str | Path) -> bool:
    """Whether a file is a training log and no table of measurements.

    **Raises:** `InputError` if it cannot be read.
    """
    path = Path(path)
    if not is_file(path):
        return False
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            header = file.readline(10_000).lower()
        if not any(sign in header for sign in OF_EXPORTS):
            return False
    try:
        return log_kind(path) is not None
    except InputError:
        return False


def calibrate_logs(
    kind: str,
    paths: Sequence[str | Path],
    scenario: Scenario | None = None,
    *,
    cluster: str = "",
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Calibration:
    """Measure training logs and logs of power, and fit the constants of a kind to them, as `calibrate` does to a table.

    The scenario is the run whose logs they are; kind `step-time` needs its model and layout. `cluster` is that of
    `measured_rows`, and options are those of `calibrate`.

    **Raises:** `InputError` as `measure_logs` and `calibrate`, where a layout is needed and none is given, and for kind
    `node` where no meter is one of a node.
    """
    if kind == "step-time" and scenario is None:
        raise InputError(
            "calibrate step-time: a log does not say model and layout. Give --training, --model or --scenario."
        )
    progress(f"measuring {counted(len(paths), 'log')} ...")
    measured, sources = measure_logs(paths), ", ".join(Path(path).name for path in paths)
    rows = measured_rows(measured, scenario, cluster)
    if kind == "node":
        if not any("node_power_w" in row for row in rows):
            raise InputError(
                "calibrate node: no meter of a node is among the logs. Give a table of its power (time_s, power_w)."
            )
        own = {} if scenario is None else {"chips": float(scenario.system.node.chips)}
        rows = [{**own, **{name: row[key] for key, name in NODE_COLUMNS.items() if key in row}} for row in rows]
    if not rows:
        raise InputError("No training step was measured, so there is no table. Give a training log.")
    choices = options.pop("choices", AS_WRITTEN)._replace(name=sources)
    fitted = calibrate(kind, rows, source=sources, choices=choices, progress=progress, **options)
    return dataclasses.replace(fitted, notes=(*measured.notes, *fitted.notes))
