"""`energymodel limits`: the energy of a run beside the bounds set by physics and technology."""

from energymodel.cli.delivery import Delivery
from energymodel.cli.evaluate_command import evaluate_scenario
from energymodel.cli.shell import Progress, guarded
from energymodel.cli.source import Source


@guarded
def command(source: Source, show: Delivery) -> int:
    """Compare the energy of a run with Landauer's bound, speed limits, the CMOS wall and the chip's roofline."""
    show.check()
    with Progress() as progress:
        scenario, outcome = evaluate_scenario(source, progress)
        import jax

        from energymodel.report.answers.limits import limits_answer
        from energymodel.sweeps.outcome_spread import outcome_spread

        with jax.enable_x64(True):
            answer = limits_answer(scenario, outcome, outcome_spread(scenario))
    return show.deliver(answer)
