"""`energymodel pareto`: plans that cannot be improved in one respect without giving up another."""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source


@shell.guarded
def command(
    source: Source,
    show: Delivery,
    minimize: Annotated[
        list[str] | None,
        typer.Option(
            "--minimize", metavar="OBJECTIVE", help="Energy, time, money, carbon or loss; give it twice or more."
        ),
    ] = None,
    points: Annotated[int, typer.Option("--points", help="Points of the front.")] = 64,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
) -> int:
    """Draw the front of plans that trade objectives, by default energy against time, with exchange rates."""
    show.check()
    with shell.Progress(lines=True) as progress:
        scenario = source.read().with_question(None, limit, vary, fix or ())
        progress(f"loading the design search for {scenario.name} ...")
        import jax

        from energymodel.report.answers.pareto import pareto_answer
        from energymodel.search.pareto import pareto
        from energymodel.sweeps.outcome_spread import outcome_spread

        with jax.enable_x64(True):
            with shell.keeping():
                front = pareto(scenario, minimize or ("energy", "time"), points, progress=progress)
            progress("moving the uncertain numbers")
            knee, own = outcome_spread(scenario, front.points[front.knee].plan), outcome_spread(scenario)
            answer = pareto_answer(front, knee, own, details=show.details)
    return show.deliver(answer)
