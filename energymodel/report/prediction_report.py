"""How are predicted steps shown: with errors where steps were measured, as JSON, and beside the input's columns?"""

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.calibration.step_prediction import TablePrediction
from energymodel.calibration.step_table import PREDICTED
from energymodel.units import format_quantity

SHOWN = 40  # rows on the terminal; files hold all


def prediction_report(found: TablePrediction) -> RenderableType:
    """The first rows, and the errors over all measured ones."""
    table = steps_table(found)
    hidden = len(found.measured_time) - SHOWN
    if hidden > 0:
        table.caption = f"{hidden:,} more rows: write them with -o FILE.csv or --json"
    return Group(table, *(Text(line) for line in error_lines(found)))


def steps_table(found: TablePrediction, rows: int = SHOWN) -> Table:
    """The first rows."""
    columns, measured = found.predicted, found.measured_time
    timed = bool(np.any(np.isfinite(measured)))
    known = bool(np.any(np.isfinite(columns["step_time_low_s"])))
    table = Table(title="Predicted steps", title_justify="left", box=None)
    names = (
        "line",
        "step time",
        *(("90 % interval",) if known else ()),
        *(("measured", "error") if timed else ()),
        "MFU",
        "tokens/s",
        "memory",
        "out of memory",
    )
    for name in names:
        table.add_column(name, justify="right")
    for at in range(min(rows, len(measured))):
        time = float(columns["step_time_s"][at])
        beside = ("", "")
        if np.isfinite(measured[at]):
            beside = (format_quantity(float(measured[at]), "s"), f"{100 * (time / measured[at] - 1):+.1f} %")
        table.add_row(
            str(found.read.lines[at]),
            format_quantity(time, "s"),
            *((_interval(columns, at),) if known else ()),
            *(beside if timed else ()),
            f"{100 * columns['mfu'][at]:.1f} %",
            f"{columns['tokens_per_s'][at]:.4g}",
            format_quantity(float(columns["memory_b"][at]), "B"),
            f"{100 * columns['out_of_memory_probability'][at]:.1f} %",
        )
    return table


def _interval(columns: Mapping[str, np.ndarray], at: int) -> str:
    low, high = (float(columns[f"step_time_{end}_s"][at]) for end in ("low", "high"))
    return "" if np.isnan(low) else f"{format_quantity(low, 's')} to {format_quantity(high, 's')}"


def error_lines(found: TablePrediction) -> list[str]:
    """Errors over the rows that were measured, one line for each thing that was."""
    errors = found.errors()
    lines = []
    if "step_time" in errors:
        one = errors["step_time"]
        lines.append(
            f"Step time of {one['rows']:,} measured rows: mean error {one['mean_percent']:.1f} %, median "
            f"{one['median_percent']:.1f} %, bias {one['bias_percent']:+.1f} %."
        )
        if "inside_90" in one:
            lines[-1] += f" The 90 % interval holds {one['inside_90']:,} of them."
    if "memory" in errors:
        one = errors["memory"]
        lines.append(
            f"Memory of {one['rows']:,} measured rows: mean error {one['mean_percent']:.1f} %, median "
            f"{one['median_percent']:.1f} %, bias {one['bias_percent']:+.1f} %."
        )
    if "out_of_memory" in errors:
        one = errors["out_of_memory"]
        lines.append(
            f"Out of memory: {one['right']:,.0f} of {one['rows']:,.0f} rows classified correctly (risk above 50 %), "
            f"among them {one['right_failed']:,.0f} of {one['failed']:,.0f} out-of-memory failures."
        )
    return lines


def prediction_json(found: TablePrediction) -> dict[str, Any]:
    """Every row with the words of the input, the predictions and the errors; no value where none is known."""
    rows = []
    for at, place in enumerate(found.read.rows):
        given = dict(zip(found.read.csv.header, found.read.csv.rows[place], strict=True))
        own = {name: float(values[at]) for name, values in found.predicted.items()}
        rows.append({"line": int(found.read.lines[at]), "given": given, **own})
    return {"rows": rows, "errors": found.errors(), "notes": list(found.read.notes)}


def prediction_csv(found: TablePrediction) -> str:
    """The columns of the input as they were, and after them the predictions, whose names begin with `predicted_`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    new = [PREDICTED + name for name in found.predicted]
    header = found.read.csv.header
    kept = [place for place, name in enumerate(header) if name not in new]
    writer.writerow([*(header[place] for place in kept), *new])
    values = np.array(list(found.predicted.values())).T
    for place, numbers in zip(found.read.rows, values, strict=True):
        row = found.read.csv.rows[place]
        writer.writerow([*(row[at] for at in kept), *(repr(float(one)) for one in numbers)])
    return text.getvalue()
