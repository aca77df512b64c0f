"""`energymodel design-chip`: the chip that trains a model best, at a fixed area, power and price."""

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source


@shell.guarded
def command(
    source: Source, show: Delivery, minimize: shell.Minimize = None, limit: shell.Limit = None, vary: shell.Vary = None
) -> int:
    """Design the accelerator together with the plan, at the area, power and price of the scenario's own.

    Limits chip_area, chip_power and chip_price, and numbers system.chip_design.* to vary, replace the usual ones.
    """
    show.check()
    with shell.Progress(lines=True) as progress:
        scenario = source.read(("system.chip_design=scaled",))
        progress(f"loading the design search for {scenario.name} ...")
        import jax

        from energymodel.report.answers.design_chip import design_chip_answer
        from energymodel.search.chip_search import chip_question, design_chip
        from energymodel.sweeps.first_order import saving_at_risk

        asked = chip_question(scenario, minimize, limit or (), vary or ())
        designed = design_chip(asked, progress)
        optimum = designed.optimum
        with jax.enable_x64(True):
            risk = saving_at_risk(optimum) if optimum.success else None
            answer = design_chip_answer(designed, risk)
    return show.deliver(answer)
