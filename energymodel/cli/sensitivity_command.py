"""`energymodel sensitivity`: what should one change or measure next?"""

from typing import Annotated

import typer

from energymodel.cli.optimize_command import asked_of, checked_objective, parse_limit, written
from energymodel.cli.shell import (
    INTERRUPTED,
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
from energymodel.errors import InputError

EXTENSIONS = (".json", ".csv", ".svg", ".png")
WIDTH = 136  # of tables where the output is no terminal


@guarded
def command(
    scenario: ScenarioName,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            metavar="OUTPUT",
            help="Output of evaluate, such as energy, time, money, carbon, loss, mfu or energy.cooling; repeatable. "
            "The first one orders the tables.",
        ),
    ] = None,
    optimum: Annotated[
        bool, typer.Option("--optimum", help="Of the optimum instead of the scenario's own plan.")
    ] = False,
    minimize: Annotated[
        str | None,
        typer.Option("--minimize", metavar="OBJECTIVE", help="What the optimum minimizes, as in `optimize`."),
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=VALUE", help="Limit of the optimum; repeatable.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="PATH=LOW:HIGH", help="Let a number vary between bounds; repeatable."),
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option("--fix", metavar="PATH", help="Keep a number of the plan; repeatable.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Lines of each table.")] = 12,
    changes: Changes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> int:
    """Say what to change or measure next: elasticities by every number, and what its uncertainty does."""
    check_output(output, EXTENSIONS)
    search = {"--minimize": minimize, "--limit": limit, "--vary": vary, "--fix": fix}
    for option, value in search.items():
        if value and not optimum:
            raise InputError(f"{option} is about the optimum: add --optimum.")
    if optimum and of:
        raise InputError("--of is about the plan as given: leave out --optimum, or name the objective by --minimize.")
    limits = dict(parse_limit(text) for text in limit or ())
    objective = checked_objective(minimize) if minimize is not None else None
    with Progress(lines=optimum) as progress:
        given = read_scenario(scenario, changes)
        asked = asked_of(given, objective, limits, vary or [], fix or [])
        progress(f"loading the model for {given.name} ...")
        with heeded():
            import jax

            from energymodel.design.sensitivity import OF, sensitivity
            from energymodel.report.sensitivity_report import sensitivity_file, sensitivity_json, sensitivity_report

        names = tuple(of or OF)
        with jax.enable_x64(True):
            if optimum:
                found = sensitivity(given, optimum=True, **asked, progress=progress)
            else:
                found = sensitivity(given, names, progress=progress)
        tree = sensitivity_json(found, written(asked, given) if optimum else {})
        report = sensitivity_report(found, top)
        content = sensitivity_file(found, output.suffix) if output is not None and output.suffix != ".json" else None
    deliver(tree, report, as_json=as_json, output=output, content=content, width=WIDTH)
    if found.success:
        return TRUSTED
    code = INTERRUPTED if found.result == "interrupted" else NOT_TRUSTED
    return fail(found.message, code, found.result)
