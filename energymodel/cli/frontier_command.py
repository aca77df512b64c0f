"""`energymodel frontier`: a run on ever more efficient hardware."""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Changes, Cluster, ScenarioName, scenario_source

Points = Annotated[int, typer.Option("--points", metavar="N", help="Steps of the path, at least 2.")]
Last = Annotated[float, typer.Option("--generations", metavar="G", help="Process generations of the last step.")]


@shell.guarded
def command(
    scenario: ScenarioName,
    show: Delivery,
    points: Points = 7,
    generations: Last = 30.0,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    cluster: Cluster = None,
    changes: Changes = None,
) -> int:
    """Best plans from today's energy of an operation toward the Landauer limit, and what binds at each step."""
    show.check()
    with shell.Progress(lines=True) as progress:
        progress("loading the design search ...")
        from energymodel.report.answers.frontier import frontier_answer
        from energymodel.search.compare import frontier

        steps = frontier(
            scenario_source(scenario),
            points=points,
            last=generations,
            changes=changes or (),
            cluster=cluster,
            minimize=minimize,
            limits=limit,
            vary=vary,
            progress=progress,
        )
    return show.deliver(frontier_answer(steps))
