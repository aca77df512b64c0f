"""`energymodel design-chip`: the chip that trains a model best, at a fixed area, power and price."""

from energymodel.cli import shell
from energymodel.cli.source import Source


@shell.guarded
def command(
    source: Source,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    as_json: shell.AsJson = False,
    output: shell.TableOutput = None,
) -> int:
    """Design the accelerator together with the plan, at the area, power and price of the scenario's own.

    Limits chip_area, chip_power and chip_price, and numbers system.chip_design.* to vary, replace the usual ones.
    """
    shell.check_output(output)
    with shell.Progress(lines=True) as progress:
        scenario = source.read(("system.chip_design=scaled",))
        progress(f"loading the design search for {scenario.name} ...")
        import jax

        from energymodel.report.chip_report import chip_json, chip_report
        from energymodel.report.plan_report import failure_line
        from energymodel.search.chip_search import chip_question, design_chip
        from energymodel.sweeps.first_order import saving_at_risk

        asked = chip_question(scenario, minimize, limit or (), vary or ())
        designed = design_chip(asked, progress)
        optimum = designed.optimum
        with jax.enable_x64(True):
            risk = saving_at_risk(optimum) if optimum.success else None
            tree, report = chip_json(designed, risk), chip_report(designed, risk)
    shell.deliver(tree, report, as_json=as_json, output=output)
    return shell.verdict(optimum.result, failure_line(optimum))
