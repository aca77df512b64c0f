"""`energymodel frontier`: what would a run take with ever more efficient hardware?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Changes, Cluster, ScenarioName, scenario_source

Points = Annotated[int, typer.Option("--points", metavar="N", help="Steps of the path, at least 2.")]
Last = Annotated[float, typer.Option("--generations", metavar="G", help="Process generations of the last step.")]


@shell.guarded
def command(
    scenario: ScenarioName,
    points: Points = 7,
    generations: Last = 30.0,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    cluster: Cluster = None,
    changes: Changes = None,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> None:
    """Best plans from today's energy of an operation toward the Landauer limit, and what binds at each step."""
    shell.check_outputs(output, plot)
    with shell.Progress(lines=True) as progress:
        progress("loading the design search ...")
        from energymodel.report import frontier_report
        from energymodel.search.compare import frontier

        found = frontier(
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
    tree = frontier_report.frontier_json(found)
    shell.deliver(
        tree,
        frontier_report.frontier_report(found),
        as_json=as_json,
        output=output,
        rows=lambda: frontier_report.frontier_csv(found),
        plot=plot,
        figure=lambda kind: frontier_report.frontier_figure(found, kind),
    )
