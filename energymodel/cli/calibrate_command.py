"""`energymodel calibrate`: what do the measurements of a cluster say of its constants?"""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli import completion
from energymodel.cli.shell import (
    BAD_INPUT,
    NOT_TRUSTED,
    PAGE,
    PICTURES,
    TRUSTED,
    AsJson,
    Open,
    Progress,
    check_output,
    check_report,
    command_line,
    deliver,
    fail,
    guarded,
)
from energymodel.cli.source import OptionSource
from energymodel.cli.table_options import Constant, Ignore, Rename, SkipBadRows, Where, table_choices
from energymodel.errors import InputError

EXTENSIONS = (".toml", ".json", PAGE, *PICTURES)
TOKENS = "1 T"
"""Of a run of which nothing says them: no constant depends on them."""
NO_SOURCE = OptionSource()


Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="power, step-time, loss, batch or node; see --columns.",
        autocompletion=completion.calibrations,
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...",
        help="A table of measurements (CSV, one row each, with a header), or logs of training and of power.",
        autocompletion=completion.files,
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        metavar="PRESET",
        help="Scenario, scenario file, accelerator or cluster with what was known before.",
        autocompletion=completion.priors,
    ),
]
FormName = Annotated[
    str | None,
    typer.Option(
        metavar="FORM",
        help="Of switching power (kind power): voltage-floor or posynomial; by default what was measured decides.",
    ),
]
Columns = Annotated[bool, typer.Option("--columns", help="List the columns of this kind and stop.")]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write a scenario file (.toml), all results (.json), a page (.html) or a figure.",
    ),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw residuals (.svg, .png, .pdf).")]


@guarded
def command(
    kind: Kind,
    files: Files = None,
    source: OptionSource = NO_SOURCE,
    prior: Prior = None,
    rename: Rename = None,
    column: Constant = None,
    ignore_columns: Ignore = None,
    skip_bad_rows: SkipBadRows = False,
    where: Where = None,
    form: FormName = None,
    max_slowdown: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Time that the best setting may cost (kind power), such as 10%.")
    ] = None,
    columns: Columns = False,
    as_json: AsJson = False,
    output: OutputFile = None,
    plot: Plot = None,
    opened: Open = False,
) -> int:
    """Fit the constants of a system to measurements: values, intervals, held-out errors, what to measure next."""
    check_report(output, opened=opened, extensions=EXTENSIONS)
    check_output(plot, PICTURES)
    with Progress(lines=True) as progress:
        from energymodel.calibration.calibrate import calibrate
        from energymodel.calibration.calibrate_logs import calibrate_logs, is_training_log
        from energymodel.calibration.kinds import KINDS
        from energymodel.errors import suggest
        from energymodel.report.calibration_report import (
            calibration_json,
            calibration_report,
            calibration_toml,
            residual_figure,
        )
        from energymodel.report.page.calibration_page import calibration_chart, calibration_page
        from energymodel.units import parse_quantity

        if kind not in KINDS:
            raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
        if columns:
            return _list_columns(kind)
        if not files:
            return fail(
                f"give a CSV file or logs; `energymodel calibrate {kind} --columns` lists the columns of a table.",
                BAD_INPUT,
                "error",
            )
        choices = table_choices(rename, column, ignore_columns, skip_bad_rows, where)
        slowdown = None if max_slowdown is None else parse_quantity(max_slowdown, "1", "--max-slowdown")
        asked = {"prior": prior, "form": form, "choices": choices, "max_slowdown": slowdown, "progress": progress}
        if any(map(is_training_log, files)):
            run = source.read(tokens_otherwise=TOKENS) if source.is_given else None
            found = calibrate_logs(kind, files, run, cluster=source.cluster or "", **asked)
        elif len(files) > 1:
            raise InputError(f"calibrate {kind}: {len(files)} tables, and no training log. Give one table, or logs.")
        elif source.is_given:
            raise InputError(f"{files[0]}: it is a table, whose rows say model and layout. Leave out the scenario.")
        else:
            found = calibrate(kind, files[0], **asked)
        if plot is not None:
            plot.write_bytes(residual_figure(found, plot.suffix[1:]))
        content = calibration_toml(found).encode() if output is not None and output.suffix == ".toml" else None
    deliver(
        calibration_json(found),
        calibration_report(found),
        as_json=as_json,
        output=output,
        content=content,
        page=lambda: calibration_page(found, command_line()),
        chart=lambda: calibration_chart(found),
        opened=opened,
    )
    return TRUSTED if found.converged else fail(found.message, NOT_TRUSTED)


def _list_columns(kind: str) -> int:
    from energymodel.calibration.kinds import KINDS
    from energymodel.readers.columns import column_lines

    print(f"{kind}: {KINDS[kind].title}")
    print("\n".join(f"  {line}" for line in column_lines(KINDS[kind].columns)))
    return TRUSTED
