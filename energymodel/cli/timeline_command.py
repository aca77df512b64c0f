"""`energymodel timeline`: the passes of a step by pipeline rank, and with --clocks the clocks that save its energy."""

from typing import Annotated, cast, get_args

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError, suggest

Clocks = Annotated[
    bool, typer.Option("--clocks", help="Find the clocks of the ranks with the lowest energy instead (Perseus).")
]
Points = Annotated[
    int | None, typer.Option("--points", metavar="N", help="Of --clocks: step times of the front, 6 unless given.")
]
Slowdown = Annotated[
    str | None,
    typer.Option("--slowdown", metavar="SHARE", help="Of --clocks: extra time of the slowest step; 20% unless given."),
]
By = Annotated[
    str | None,
    typer.Option(
        "--per",
        metavar="KIND",
        help="Of --clocks: a clock for each rank and direction (rank), for warm-up and cool-down apart (phase), "
        "or for each micro-batch (operation).",
    ),
]


@shell.guarded
def command(
    source: Source,
    show: Delivery,
    clocks: Clocks = False,
    per: By = None,
    points: Points = None,
    slowdown: Slowdown = None,
) -> int:
    """Simulate the pipeline of a step pass by pass, or find the clocks of its ranks with the lowest energy."""
    show.check()
    for name, value in (("per", per), ("points", points), ("slowdown", slowdown)):
        if value is not None and not clocks:
            raise InputError(f"{name}: {value} belongs to a search of clocks. Add --clocks, or leave it out.")
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report.answers.timeline import stage_clocks_answer, timeline_answer
        from energymodel.search.pipeline import Per
        from energymodel.search.pipeline_clocks import stage_front
        from energymodel.search.timeline import step_timeline
        from energymodel.system.outputs import parse_number

        if per is not None and per not in get_args(Per):
            raise InputError(f'per: unknown "{per}". {suggest(per, get_args(Per))}')
        scenario = source.read()
        if clocks:
            progress("searching the clocks ...")
            longer = parse_number(slowdown or "20%", "1", "slowdown")
            kind = cast(Per, per or "rank")
            front = stage_front(
                scenario.system, scenario.plan, per=kind, points=6 if points is None else points, slowdown=longer
            )
            answer = stage_clocks_answer(scenario, front)
        else:
            progress("simulating the step ...")
            answer = timeline_answer(scenario, step_timeline(scenario.system, scenario.plan))
    return show.deliver(answer)
