"""Calibration from the logs of a run, without a table between."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from energymodel.calibration.calibrate import Calibration, calibrate
from energymodel.calibration.measured_table import measured_csv, measured_rows
from energymodel.errors import InputError
from energymodel.readers.measured_log import measure_logs
from energymodel.readers.step_log import log_kind
from energymodel.readers.text_file import is_file
from energymodel.scenarios.scenario import Scenario

TABLE = ".csv"
OF_EXPORTS = ("wall time", "_step", " - ", "__max")
"""Parts of the header of an exported log, which no table of measurements has."""


def is_training_log(path: str | Path) -> bool:
    """Whether a file is a training log and no table of measurements.

    **Raises:** `InputError` if it cannot be read.
    """
    path = Path(path)
    if not is_file(path):
        return False
    if path.suffix == TABLE:
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

    **Arguments:**

    - `scenario`: the run whose logs they are; kind `step-time` needs its model and layout.
    - `cluster`: as in `measured_rows`.
    - `options`: as in `calibrate`.

    **Raises:** `InputError` as `measure_logs` and `calibrate`, and where a layout is needed and none is given.
    """
    if kind == "step-time" and scenario is None:
        raise InputError(
            "calibrate step-time: a log does not say model and layout. Give --training, --model or --scenario."
        )
    progress(f"measuring {len(paths)} log{'s' * (len(paths) > 1)} ...")
    measured = measure_logs(paths)
    rows = measured_rows(measured, scenario, cluster)
    text = measured_csv(_of_nodes(rows, scenario) if kind == "node" else rows)
    names = ", ".join(Path(path).name for path in paths)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / f"{Path(paths[0]).stem}{TABLE}"
        table.write_text(text, encoding="utf-8")
        try:
            fitted = calibrate(kind, table, source=names, progress=progress, **options)
        except InputError as error:
            raise InputError(str(error).replace(str(table), names)) from None
    return dataclasses.replace(fitted, notes=(*measured.notes, *fitted.notes))


def _of_nodes(rows: Sequence[Mapping[str, Any]], scenario: Scenario | None) -> list[dict[str, Any]]:
    """The rows as kind `node` reads them, in which chips are those of a node.

    **Raises:** `InputError` if no meter is one of a node.
    """
    if not any("node_power_w" in row for row in rows):
        raise InputError(
            "calibrate node: no meter of a node is among the logs. Give a table of its power (time_s, power_w)."
        )
    columns = {"run": "run", "node_power_w": "node_power_w", "power_w": "chip_power_w", "accelerator": "accelerator"}
    own = {} if scenario is None else {"chips": float(scenario.system.node.chips)}
    return [{**own, **{name: row[key] for key, name in columns.items() if key in row}} for row in rows]
