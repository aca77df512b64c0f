"""`energymodel batch`: where does a larger batch stop to pay?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source

Points = Annotated[int, typer.Option("--points", metavar="N", help="Batches of the table, at most.")]


@shell.guarded
def command(
    source: Source,
    points: Points = 12,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> None:
    """Time, energy and money to the same loss against batch, and the best batch for each with its interval."""
    shell.check_outputs(output, plot)
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report import batch_curve_report
        from energymodel.sweeps.batch_curve import batch_curve

        given = source.read()
        progress("evaluating the batches ...")
        curve = batch_curve(given, points)
    tree = {"scenario": given.named_tables, **batch_curve_report.batch_curve_json(curve)}
    shell.deliver(
        tree,
        batch_curve_report.batch_curve_report(curve),
        as_json=as_json,
        output=output,
        rows=lambda: batch_curve_report.batch_curve_csv(curve),
        plot=plot,
        figure=lambda kind: batch_curve_report.batch_curve_figure(curve, kind),
    )
