"""`energymodel calibrate`: what do the measurements of a cluster say of its constants?"""

from pathlib import Path
from typing import Annotated

import typer

from energymodel.cli.shell import (
    BAD_INPUT,
    NOT_TRUSTED,
    TRUSTED,
    AsJson,
    Progress,
    check_output,
    deliver,
    fail,
    guarded,
    interruptible,
)
from energymodel.errors import InputError

EXTENSIONS = (".toml", ".json")
FIGURES = (".svg", ".png")


Kind = Annotated[str, typer.Argument(metavar="KIND", help="power, step-time, loss or batch; see --columns.")]
TableFile = Annotated[Path | None, typer.Argument(metavar="CSV", help="Measurements, one row each, with a header.")]
Prior = Annotated[
    str | None,
    typer.Option(metavar="PRESET", help="Scenario, scenario file, accelerator or cluster with what was known before."),
]
Where = Annotated[list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Take these rows only; repeatable.")]
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
    typer.Option("-o", "--output", metavar="FILE", help="Write a scenario file (.toml), or all results (.json)."),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw residuals (.svg, .png).")]


@guarded
def command(
    kind: Kind,
    table: TableFile = None,
    prior: Prior = None,
    where: Where = None,
    form: FormName = None,
    columns: Columns = False,
    as_json: AsJson = False,
    output: OutputFile = None,
    plot: Plot = None,
) -> int:
    """Fit the constants of a system to measurements: values, intervals, held-out errors, what to measure next."""
    check_output(output, EXTENSIONS)
    check_output(plot, FIGURES)
    chosen = dict(_pair(text) for text in where or ())
    with Progress(lines=True) as progress:
        with interruptible():
            from energymodel.calibration.calibrate import calibrate
            from energymodel.calibration.kinds import KINDS
            from energymodel.errors import suggest
            from energymodel.report.calibration_report import (
                calibration_json,
                calibration_report,
                calibration_toml,
                residual_figure,
            )

        if kind not in KINDS:
            raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
        if columns:
            return _list_columns(kind)
        if table is None:
            return fail(
                f"give a CSV file; `energymodel calibrate {kind} --columns` lists its columns.", BAD_INPUT, "error"
            )
        found = calibrate(kind, table, prior=prior, where=chosen, form=form, progress=progress)
        if plot is not None:
            plot.write_bytes(residual_figure(found, plot.suffix[1:]))
        content = calibration_toml(found).encode() if output is not None and output.suffix == ".toml" else None
    deliver(calibration_json(found), calibration_report(found), as_json=as_json, output=output, content=content)
    return TRUSTED if found.converged else fail(found.message, NOT_TRUSTED)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip():
        raise InputError(f'--where "{text}" is not COLUMN=VALUE. Write for example --where gpu=V100.')
    return name.strip(), value.strip()


def _list_columns(kind: str) -> int:
    from energymodel.calibration.kinds import KINDS

    print(f"{kind}: {KINDS[kind].title}")
    for column in KINDS[kind].columns:
        needed = "needed" if column.needed else "optional"
        also = f"; also called {', '.join(column.others)}" if column.others else ""
        print(f"  {column.name} [{column.unit}], {needed}: {column.meaning}{also}")
    return TRUSTED
