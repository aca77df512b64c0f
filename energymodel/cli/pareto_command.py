"""`energymodel pareto`: which plans cannot be improved in one respect without giving up another?"""

from typing import Annotated

import typer

from energymodel.cli.shell import (
    FIGURES,
    AsJson,
    Changes,
    Fix,
    Limit,
    Output,
    Progress,
    ScenarioName,
    Vary,
    check_output,
    deliver,
    guarded,
    interruptible,
    read_scenario,
    verdict,
)


@guarded
def command(
    scenario: ScenarioName,
    minimize: Annotated[
        list[str] | None,
        typer.Option("--minimize", metavar="OBJECTIVE", help="Two or more of energy, time, money, carbon, loss."),
    ] = None,
    points: Annotated[int, typer.Option("--points", help="Points of the front.")] = 64,
    limit: Limit = None,
    vary: Vary = None,
    fix: Fix = None,
    changes: Changes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> int:
    """Draw the front of plans that trade objectives, by default energy against time, with exchange rates."""
    check_output(output, (".json", ".csv", *FIGURES))
    with Progress(lines=True) as progress:
        given = read_scenario(scenario, changes).with_question(None, limit, vary, fix or ())
        progress(f"loading the design search for {given.name} ...")
        with interruptible():
            import jax

            from energymodel.design.pareto import pareto
            from energymodel.report.front_report import front_file, front_json, front_report

        with jax.enable_x64(True):
            front = pareto(given, minimize or ("energy", "time"), points, progress=progress)
            tree, report = front_json(front), front_report(front)
            content = front_file(front, output.suffix) if output is not None and output.suffix != ".json" else None
    deliver(tree, report, as_json=as_json, output=output, content=content)
    return verdict(front.result, front.message)
