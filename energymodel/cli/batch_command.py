"""`energymodel batch`: the batch from which a larger one stops to pay."""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source

Points = Annotated[int, typer.Option("--points", metavar="N", help="Batches of the table, at most.")]


@shell.guarded
def command(source: Source, show: Delivery, points: Points = 12) -> int:
    """Time, energy and money to the same loss against batch, and the best batch for each with its interval."""
    show.check()
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report.answers.batch import batch_answer
        from energymodel.sweeps.batch_curve import batch_curve

        scenario = source.read()
        progress("evaluating the batches ...")
        answer = batch_answer(scenario, batch_curve(scenario, points))
    return show.deliver(answer)
