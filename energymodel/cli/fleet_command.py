"""`energymodel fleet`: what do groups of unlike devices yield together, and how should they share the work?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Changes, Cluster, ScenarioName, scenario_source
from energymodel.errors import InputError

Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help='Further devices, such as "a100-sxm4-80gb 1024"; repeatable.'),
]


@shell.guarded
def command(
    scenario: ScenarioName,
    group: Groups = None,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    cluster: Cluster = None,
    changes: Changes = None,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> int:
    """Evaluate a fleet of unlike devices that train one model together; with --minimize, choose clocks and batch."""
    shell.check_outputs(output, plot)
    if limit and not minimize:
        raise InputError("fleet: a limit is for a search. Say what to --minimize, such as energy.")
    with shell.Progress(lines=True) as progress:
        progress("loading JAX ...")
        from energymodel.report import fleet_report
        from energymodel.search.fleet import load_fleet
        from energymodel.search.fleet_search import optimize_fleet

        fleet = load_fleet(scenario_source(scenario), group or (), changes or (), cluster)
        if minimize:
            progress("optimizing the clocks of the groups ...")
            shown = fleet_report.of_search(optimize_fleet(fleet, minimize, limit))
        else:
            progress("evaluating the groups ...")
            shown = fleet_report.as_planned(fleet)
    shell.deliver(
        {"scenario": fleet.named_tables, **fleet_report.fleet_json(shown)},
        fleet_report.fleet_report(shown),
        as_json=as_json,
        output=output,
        rows=lambda: fleet_report.fleet_csv(shown),
        plot=plot,
        figure=lambda kind: fleet_report.fleet_figure(shown, kind),
    )
    if shown.optimum is None or shown.optimum.success:
        return shell.TRUSTED
    return shell.fail(shown.optimum.message, shell.NOT_TRUSTED, "infeasible")
