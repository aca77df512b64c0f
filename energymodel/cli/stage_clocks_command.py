"""`energymodel stage-clocks`: which clock should each rank of a pipeline have?"""

from typing import Annotated, cast, get_args

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source
from energymodel.errors import InputError, suggest

Points = Annotated[int, typer.Option("--points", metavar="N", help="Step times of the front, at least 2.")]
Slowdown = Annotated[
    str, typer.Option("--slowdown", metavar="SHARE", help="By how much the slowest step may be longer, as 20% or 0.2.")
]
By = Annotated[
    str,
    typer.Option(
        "--per",
        metavar="KIND",
        help="A clock for each rank and direction (rank), for warm-up and cool-down apart (phase), "
        "or for each micro-batch (operation).",
    ),
]


@shell.guarded
def command(
    source: Source,
    per: By = "rank",
    points: Points = 6,
    slowdown: Slowdown = "20%",
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> None:
    """Find the clocks of a pipeline's ranks with the least energy, for several step times (Perseus)."""
    shell.check_outputs(output, plot)
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report import stage_clocks_report
        from energymodel.search.pipeline import Per
        from energymodel.search.stage_front import stage_front
        from energymodel.system.outputs import parse_number

        kinds = get_args(Per)
        if per not in kinds:
            raise InputError(f'per: unknown "{per}". {suggest(per, kinds)}')
        given = source.read()
        progress("searching the clocks ...")
        longer = parse_number(slowdown, "1", "slowdown")
        front = stage_front(given.system, given.plan, per=cast(Per, per), points=points, slowdown=longer)
    tree = {"scenario": given.named_tables, **stage_clocks_report.stage_clocks_json(front)}
    report = stage_clocks_report.stage_clocks_report(front, given.system.accelerator)
    shell.deliver(
        tree,
        report,
        as_json=as_json,
        output=output,
        rows=lambda: stage_clocks_report.stage_clocks_csv(front),
        plot=plot,
        figure=lambda kind: stage_clocks_report.stage_clocks_figure(front, kind),
    )
