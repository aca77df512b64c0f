"""`energymodel predict`: how long does a step of each layout of a table take, and does it fit in memory?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli.shell import BAD_INPUT, TRUSTED, AsJson, Output, Progress, check_output, deliver, fail, guarded

if TYPE_CHECKING:
    import numpy as np
    from rich.console import RenderableType

SHOWN = 40  # rows on the terminal; files hold all
TableFile = Annotated[Path | None, typer.Argument(metavar="CSV", help="Table of layouts; --columns lists its columns.")]
Columns = Annotated[bool, typer.Option("--columns", help="List the columns of the table and stop.")]


@guarded
def command(table: TableFile = None, columns: Columns = False, as_json: AsJson = False, output: Output = None) -> int:
    """Predict step time with its terms, MFU, memory and out-of-memory risk, for a table of layouts."""
    if columns:
        return _list_columns()
    if table is None:
        return fail(
            "give a CSV file of layouts; `energymodel predict --columns` lists its columns.", BAD_INPUT, "error"
        )
    check_output(output)
    with Progress() as progress:
        progress("loading JAX ...")
        from energymodel.calibration.step_prediction import predict

        progress(f"predicting {table} ...")
        found = predict(table).table()
    rows = [{name: float(values[at]) for name, values in found.items()} for at in range(len(found["mfu"]))]
    deliver({"rows": rows}, _report(found), as_json=as_json, output=output, content=_csv(rows, output))
    return TRUSTED


def _csv(rows: list[dict[str, float]], output: Path | None) -> bytes | None:
    """The whole table where a CSV file is asked for; JSON is written from the tree."""
    if output is None or output.suffix != ".csv":
        return None
    lines = [",".join(rows[0])] + [",".join(repr(value) for value in row.values()) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _report(found: "dict[str, np.ndarray]") -> "RenderableType":
    from rich.table import Table

    from energymodel.units import format_quantity

    table = Table(title="Predicted steps", title_justify="left", box=None)
    for name in ("row", "step time", "MFU", "tokens/s", "memory", "out of memory"):
        table.add_column(name, justify="right")
    for at in range(min(SHOWN, len(found["mfu"]))):
        table.add_row(
            str(at + 1),
            format_quantity(float(found["step_time_s"][at]), "s"),
            f"{100 * found['mfu'][at]:.1f} %",
            f"{found['tokens_per_s'][at]:.4g}",
            format_quantity(float(found["memory_b"][at]), "B"),
            f"{100 * found['out_of_memory_probability'][at]:.1f} %",
        )
    hidden = len(found["mfu"]) - SHOWN
    if hidden > 0:
        table.caption = f"{hidden} more rows: write them with -o FILE.csv or --json"
    return table


def _list_columns() -> int:
    from energymodel.calibration.layout_table import INPUTS, MEASURED, WORDS

    print(f"text: {', '.join(WORDS)} (cluster is needed; model fills the shape)")
    for column in (*INPUTS, *MEASURED):
        default: Any = "" if column.default != column.default else f", default {column.default:g}"
        print(f"{column.name} [{column.unit}{default}]: {column.meaning}")
    return TRUSTED
