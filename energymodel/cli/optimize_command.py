"""`energymodel optimize`: which plan is best within limits, and what is each limit worth?"""

from pathlib import Path
from typing import TYPE_CHECKING

from energymodel.cli import shell
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario

MODEL = "model."


@shell.guarded
def command(
    source: Source,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    tolerance: shell.Tolerance = None,
    as_json: shell.AsJson = False,
    output: shell.Output = None,
    opened: shell.Open = False,
) -> int:
    """Find the best plan within limits, and print it beside the scenario's own."""
    shell.check_report(output, opened=opened)
    with shell.Progress(lines=True) as progress:
        own = source.read()
        if any(path.strip().startswith(MODEL) for path in vary or ()):
            if tolerance is not None:
                raise InputError("--tolerance: a search of the model's shape has none. Leave it out.")
            return _optimize_model(own, minimize, limit, vary or [], fix, as_json, output, opened, progress)
        given = own.with_question(minimize, limit, vary, fix or (), tolerance)
        progress(f"loading the design search for {given.name} ...")
        import jax

        from energymodel.report.json_tree import optimum_json
        from energymodel.report.page.optimum_page import optimum_page, summary_figure
        from energymodel.report.plan_report import failure_line, optimum_report
        from energymodel.search.optimize import optimize
        from energymodel.sweeps.first_order import saving_at_risk

        with jax.enable_x64(True):
            with shell.keeping():
                optimum = optimize(given, progress=progress)
            if optimum.success:
                progress("moving the uncertain numbers")
            risk = saving_at_risk(optimum) if optimum.success else None
            tree, report = optimum_json(optimum, risk), optimum_report(optimum, risk)
    shell.deliver(
        tree,
        report,
        as_json=as_json,
        output=output,
        page=lambda: optimum_page(optimum, risk, shell.command_line()),
        chart=lambda: summary_figure(optimum),
        opened=opened,
    )
    return shell.verdict(optimum.result, failure_line(optimum))


def _optimize_model(
    scenario: "Scenario",
    minimize: str | None,
    limit: list[str] | None,
    vary: list[str],
    fix: list[str] | None,
    as_json: bool,
    output: Path | None,
    opened: bool,
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
    from energymodel.report.architecture_report import architecture_json, architecture_report
    from energymodel.report.page.architecture_page import architecture_page, flatness_chart
    from energymodel.search.architecture import optimize_architecture

    progress("searching depths, widths and the plan")
    shape = [name for name in names if name not in ("*", "layers")]
    found = optimize_architecture(asked, names=None if "*" in names else shape)
    shell.deliver(
        architecture_json(found),
        architecture_report(found),
        as_json=as_json,
        output=output,
        page=lambda: architecture_page(found, shell.command_line()),
        chart=lambda: flatness_chart(found),
        opened=opened,
    )
    return shell.TRUSTED if found.success else shell.fail(found.message, shell.NOT_TRUSTED, "not trusted")
