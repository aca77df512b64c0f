"""`energymodel calibrate`: the constants of a system from measurements."""

from typing import Annotated

import typer

from energymodel.cli import completion
from energymodel.cli.delivery import Delivery
from energymodel.cli.shell import BAD_INPUT, TRUSTED, Progress, fail, guarded
from energymodel.cli.source import OptionSource
from energymodel.cli.table_options import Constant, Ignore, Rename, SkipBadRows, Where, table_choices
from energymodel.errors import InputError

TOKENS = "1 T"
"""Of a run of which nothing says them: no constant depends on them."""
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


@guarded
def command(
    kind: Kind,
    source: OptionSource,
    show: Delivery,
    files: Files = None,
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
) -> int:
    """Fit the constants of a system to measurements: values, intervals, held-out errors, what to measure next.

    -o constants.toml writes a scenario with them, which evaluate, optimize, sweep and calibrate --prior read.
    """
    show.check(".toml")
    with Progress(lines=True) as progress:
        from energymodel.calibration.calibrate import calibrate
        from energymodel.calibration.calibrate_logs import calibrate_logs, is_training_log
        from energymodel.calibration.kinds import KINDS
        from energymodel.errors import suggest
        from energymodel.report.answers.calibrate import calibrate_answer, calibration_toml
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
            fitted = calibrate_logs(kind, files, run, cluster=source.cluster or "", **asked)
        elif len(files) > 1:
            raise InputError(f"calibrate {kind}: {len(files)} tables, and no training log. Give one table, or logs.")
        elif source.is_given:
            raise InputError(f"{files[0]}: it is a table, whose rows say model and layout. Leave out the scenario.")
        else:
            fitted = calibrate(kind, files[0], **asked)
    return show.deliver(calibrate_answer(fitted), files={".toml": lambda: calibration_toml(fitted)})


def _list_columns(kind: str) -> int:
    from energymodel.calibration.kinds import KINDS
    from energymodel.readers.columns import column_lines

    print(f"{kind}: {KINDS[kind].title}")
    print("\n".join(f"  {line}" for line in column_lines(KINDS[kind].columns)))
    return TRUSTED
