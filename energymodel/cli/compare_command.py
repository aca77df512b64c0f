"""`energymodel compare`: which accelerator, number format, network and number of chips?"""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Changes, Cluster, ScenarioName, scenario_source
from energymodel.errors import InputError

Accelerator = Annotated[
    list[str] | None,
    typer.Option("--accelerator", metavar="NAME", help="An accelerator preset, such as b200-sxm; repeatable."),
]
Format = Annotated[
    list[str] | None,
    typer.Option("--precision", metavar="FORMAT", help="bf16, fp8 or fp4 for the products with weights; repeatable."),
]
Network = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="NAME", help="A network preset, such as infiniband-400g; repeatable."),
]
Topology = Annotated[
    list[str] | None,
    typer.Option(
        "--topology", metavar="NAME", help="fat-tree, rail-only, dragonfly or torus of the same switches; repeatable."
    ),
]
Chips = Annotated[list[float] | None, typer.Option("--chips", metavar="N", help="The most chips; repeatable.")]


@shell.guarded
def command(
    scenario: ScenarioName,
    accelerator: Accelerator = None,
    precision: Format = None,
    network: Network = None,
    topology: Topology = None,
    chips: Chips = None,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    cluster: Cluster = None,
    changes: Changes = None,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> int:
    """Optimize each combination of accelerators, number formats, networks and chips, and list them, the best first."""
    shell.check_outputs(output, plot)
    if not (accelerator or precision or network or topology or chips):
        raise InputError(
            "compare: nothing to compare. Give --accelerator, --precision, --network, --topology or --chips, each "
            "repeatable."
        )
    with shell.Progress(lines=True) as progress:
        progress("loading the design search ...")
        from energymodel.report import compare_report
        from energymodel.search.compare import compare

        comparison = compare(
            scenario_source(scenario),
            accelerators=accelerator or (),
            precisions=precision or (),
            networks=network or (),
            topologies=topology or (),
            chips=chips or (),
            changes=changes or (),
            cluster=cluster,
            minimize=minimize,
            limits=limit,
            vary=vary,
            progress=progress,
        )
    tree = compare_report.compare_json(comparison)
    shell.deliver(
        tree,
        compare_report.compare_report(comparison),
        as_json=as_json,
        output=output,
        rows=lambda: compare_report.compare_csv(comparison),
        plot=plot,
        figure=lambda kind: compare_report.compare_figure(comparison, kind),
    )
    found = any(one.optimum is not None and not one.reason for one in comparison.candidates)
    return shell.TRUSTED if found else shell.fail("no combination has a plan.", shell.NOT_TRUSTED, "infeasible")
