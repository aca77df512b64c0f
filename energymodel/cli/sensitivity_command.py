"""`energymodel sensitivity`: what to change or measure next."""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError

WIDTH = 136  # of tables where the output is no terminal


@shell.guarded
def command(
    source: Source,
    show: Delivery,
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
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Lines of each table.")] = 12,
) -> int:
    """Say what to change or measure next: elasticities by every number, and what its uncertainty does."""
    show.check()
    for option, value in {"--minimize": minimize, "--limit": limit, "--vary": vary, "--fix": fix}.items():
        if value and not optimum:
            raise InputError(f"{option} is about the optimum: add --optimum.")
    if optimum and of:
        raise InputError("--of is about the plan as given: leave out --optimum, or name the objective by --minimize.")
    with shell.Progress(lines=optimum) as progress:
        scenario = source.read()
        if optimum:
            scenario = scenario.with_question(minimize, limit, vary, fix or ())
        progress(f"loading the model for {scenario.name} ...")
        import jax

        from energymodel.report.answers.sensitivity import sensitivity_answer
        from energymodel.search.sensitivity import OF, sensitivity
        from energymodel.sweeps.outcome_spread import outcome_spread

        with jax.enable_x64(True), shell.keeping():
            effects = sensitivity(scenario, tuple(of or OF), optimum=optimum, progress=progress)
        spread = outcome_spread(scenario, effects.optimum.plan if effects.optimum else None)
        answer = sensitivity_answer(effects, spread, top)
    return show.deliver(answer, WIDTH)
