"""`energymodel predict`: how long does a step of each layout of a table take, and does it fit in memory?"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli.shell import (
    BAD_INPUT,
    TRUSTED,
    AsJson,
    Changes,
    Output,
    Progress,
    check_output,
    deliver,
    fail,
    guarded,
)
from energymodel.cli.table_options import Constant, Ignore, Rename, SkipBadRows, Where, table_choices

TableFile = Annotated[Path | None, typer.Argument(metavar="CSV", help="Table of layouts; --columns lists its columns.")]
Columns = Annotated[bool, typer.Option("--columns", help="List the columns of the table and stop.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Cluster of all rows, before the table's: a preset, or a file that `calibrate step-time -o` wrote.",
    ),
]


@guarded
def command(
    table: TableFile = None,
    columns: Columns = False,
    cluster: Cluster = None,
    rename: Rename = None,
    column: Constant = None,
    ignore_columns: Ignore = None,
    skip_bad_rows: SkipBadRows = False,
    where: Where = None,
    changes: Changes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> int:
    """Predict step time with its terms, MFU, memory and out-of-memory risk, for a table of layouts."""
    if columns:
        from energymodel.calibration.table_columns import column_lines

        print("\n".join(column_lines()))
        return TRUSTED
    if table is None:
        return fail(
            "give a CSV file of layouts; `energymodel predict --columns` lists its columns.", BAD_INPUT, "error"
        )
    check_output(output)
    with Progress() as progress:
        progress("loading JAX ...")
        from energymodel.calibration.step_prediction import predict_table
        from energymodel.calibration.step_table import read_step_table
        from energymodel.report.prediction_report import prediction_csv, prediction_json, prediction_report

        choices = table_choices(rename, column, ignore_columns, skip_bad_rows, where, cluster)
        read = read_step_table(table, choices)
        progress(f"predicting {len(read.layouts):,} rows of {table} ...")
        found = predict_table(read, changes or ())
    for note in read.notes:
        print(f"note: {note}", file=sys.stderr)
    content = prediction_csv(found).encode() if output is not None and output.suffix == ".csv" else None
    deliver(prediction_json(found), prediction_report(found), as_json=as_json, output=output, content=content)
    return TRUSTED
