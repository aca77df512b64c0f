"""`energymodel limits`: how far is a run from the bounds set by physics and technology?"""

from energymodel.cli.evaluate_command import evaluate_scenario
from energymodel.cli.shell import AsJson, Open, Output, Progress, check_report, command_line, deliver, guarded
from energymodel.cli.source import Source


@guarded
def command(source: Source, as_json: AsJson = False, output: Output = None, opened: Open = False) -> None:
    """Compare the energy of a run with Landauer's bound, speed limits, the CMOS wall and the chip's roofline."""
    check_report(output, opened=opened)
    with Progress() as progress:
        given, outcome = evaluate_scenario(source, progress)
        import jax

        from energymodel.report.json_tree import run_json
        from energymodel.report.limits_report import limits_json, limits_report, run_limits
        from energymodel.report.page.limits_page import ladder_chart, limits_page
        from energymodel.sweeps.outcome_spread import outcome_spread

        spread = outcome_spread(given)
        with jax.enable_x64(True):
            tree = {**run_json(given, given.plan, outcome, spread), "limits": limits_json(given, outcome)}
            report = limits_report(given, outcome, spread)
    deliver(
        tree,
        report,
        as_json=as_json,
        output=output,
        page=lambda: limits_page(given, outcome, spread, command_line()),
        chart=lambda: ladder_chart(run_limits(given, outcome)),
        opened=opened,
    )
