"""`energymodel pareto`: which plans cannot be improved in one respect without giving up another?"""

from typing import Annotated

import typer

from energymodel.cli.optimize_command import asked_of, parse_limit
from energymodel.cli.shell import (
    NOT_TRUSTED,
    TRUSTED,
    AsJson,
    Changes,
    Output,
    Progress,
    ScenarioName,
    check_output,
    deliver,
    fail,
    guarded,
    heeded,
    read_scenario,
)

EXTENSIONS = (".json", ".csv", ".svg", ".png", ".html")


@guarded
def command(
    scenario: ScenarioName,
    minimize: Annotated[
        list[str] | None,
        typer.Option("--minimize", metavar="OBJECTIVE", help="Two or more of energy, time, money, carbon, loss."),
    ] = None,
    points: Annotated[int, typer.Option("--points", help="Points of the front.")] = 64,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="Limit any output, as in `optimize`; repeatable."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="PATH=LOW:HIGH", help="Let a number vary between bounds; repeatable."),
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option("--fix", metavar="PATH", help="Keep a number of the plan; repeatable.")
    ] = None,
    changes: Changes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> int:
    """Draw the front of plans that trade objectives, by default energy against time, with exchange rates."""
    check_output(output, EXTENSIONS)
    limits = dict(parse_limit(text) for text in limit or ())
    with Progress(lines=True) as progress:
        given = read_scenario(scenario, changes)
        asked = asked_of(given, None, limits, vary or [], fix or [])
        progress(f"loading the design search for {given.name} ...")
        with heeded():
            import jax

            from energymodel.design.pareto import pareto
            from energymodel.report.front_report import front_file, front_json, front_report

        with jax.enable_x64(True):
            front = pareto(
                given, minimize or ("energy", "time"), points, asked["limits"], asked["vary"], asked["fix"], progress
            )
            tree, report = front_json(front), front_report(front)
            content = front_file(front, output.suffix) if output is not None and output.suffix != ".json" else None
    deliver(tree, report, as_json=as_json, output=output, content=content)
    return TRUSTED if front.success else fail(front.message, NOT_TRUSTED, front.result)
