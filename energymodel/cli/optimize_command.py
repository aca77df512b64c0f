"""`energymodel optimize`: the best plan within limits, and what each limit is worth."""

from typing import TYPE_CHECKING

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario

MODEL = "model."


@shell.guarded
def command(
    source: Source,
    show: Delivery,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    tolerance: shell.Tolerance = None,
) -> int:
    """Find the best plan within limits, and print it beside the scenario's own."""
    show.check()
    with shell.Progress(lines=True) as progress:
        own = source.read()
        if any(path.strip().startswith(MODEL) for path in vary or ()):
            if tolerance is not None:
                raise InputError("--tolerance: a search of the model's shape has none. Leave it out.")
            return _optimize_model(own, minimize, limit, vary or [], fix, show, progress)
        scenario = own.with_question(minimize, limit, vary, fix or (), tolerance)
        progress(f"loading the design search for {scenario.name} ...")
        import jax

        from energymodel.report.answers.optimize import optimize_answer
        from energymodel.search.optimize import optimize
        from energymodel.sweeps.first_order import saving_at_risk

        with jax.enable_x64(True):
            with shell.keeping():
                optimum = optimize(scenario, progress=progress)
            if optimum.success:
                progress("moving the uncertain numbers")
            risk = saving_at_risk(optimum) if optimum.success else None
            answer = optimize_answer(optimum, risk, details=show.details)
    return show.deliver(answer)


def _optimize_model(
    scenario: "Scenario",
    minimize: str | None,
    limit: list[str] | None,
    vary: list[str],
    fix: list[str] | None,
    show: Delivery,
    progress: shell.Progress,
) -> int:
    """Search the shape of the model with the plan, at the loss of the scenario's own."""
    names = [path.strip().removeprefix(MODEL) for path in vary if path.strip().startswith(MODEL)]
    for name in names:
        if "=" in name:
            raise InputError(
                f"vary {MODEL}{name}: the shape varies by up to a factor of 4, without bounds of its own. "
                f"Write {MODEL}{name.partition('=')[0]}, or {MODEL}* for the usual shape."
            )
    rest = [path for path in vary if not path.strip().startswith(MODEL)]
    asked = scenario.with_question(minimize, limit, rest, fix or ())
    progress(f"loading the search of shapes for {scenario.name} ...")
    from energymodel.report.answers.architecture import architecture_answer
    from energymodel.search.architecture import optimize_architecture

    progress("searching depths, widths and the plan")
    shape = [name for name in names if name not in ("*", "layers")]
    architecture = optimize_architecture(asked, names=None if "*" in names else shape)
    return show.deliver(architecture_answer(architecture, details=show.details))
