"""`energymodel compare`: accelerators, number formats, networks and numbers of chips beside each other."""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
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
    show: Delivery,
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
) -> int:
    """Optimize each combination of accelerators, number formats, networks and chips, and list them, the best first."""
    show.check()
    if not (accelerator or precision or network or topology or chips):
        raise InputError(
            "compare: nothing to compare. Give --accelerator, --precision, --network, --topology or --chips, each "
            "repeatable."
        )
    with shell.Progress(lines=True) as progress:
        progress("loading the design search ...")
        from energymodel.report.answers.compare import compare_answer
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
    return show.deliver(compare_answer(comparison))
