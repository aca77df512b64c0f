"""`energymodel evaluate`: what a run yields and costs."""

from typing import TYPE_CHECKING, Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario
    from energymodel.system.outcome import TrainingOutcome

Trajectory = Annotated[
    bool, typer.Option("--trajectory", help="Show the run over time as well; -o run.csv then has a row for each time.")
]
Points = Annotated[int | None, typer.Option("--points", metavar="N", help="Times of the trajectory; 20 unless given.")]


@shell.guarded
def command(source: Source, show: Delivery, trajectory: Trajectory = False, points: Points = None) -> int:
    """Evaluate a training run: loss, time, energy, power, temperature, money and carbon."""
    show.check()
    if not trajectory and points is not None:
        raise InputError("--points is of a run over time: add --trajectory.")
    with shell.Progress() as progress:
        scenario, outcome = evaluate_scenario(source, progress)
        progress("moving the uncertain numbers ...")
        from energymodel.report.answers.evaluate import evaluate_answer
        from energymodel.sweeps.outcome_spread import outcome_spread

        spread, run = outcome_spread(scenario), None
        if trajectory:
            progress("following the run ...")
            from energymodel.system.trajectory import USUAL_POINTS, run_trajectory

            _, run = run_trajectory(scenario.system, scenario.plan, USUAL_POINTS if points is None else points)
        answer = evaluate_answer(scenario, outcome, spread, trajectory=run, details=show.details)
    return show.deliver(answer)


def evaluate_scenario(source: Source, progress: shell.Progress) -> "tuple[Scenario, TrainingOutcome]":
    """A scenario and its outcome in float64, as NumPy numbers.

    **Raises:** `InputError`, also if the model does not fit in the memory of the chips.
    """
    progress("loading JAX ...")
    import jax

    from energymodel.scenarios.validate import check_fit
    from energymodel.system.evaluate import evaluate_once

    progress(f"loading {source.name} ...")
    scenario = source.read()
    progress("compiling and evaluating the model ...")
    with jax.enable_x64(True):
        outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
        check_fit(scenario.system, scenario.plan, float(outcome.memory_per_chip))
    return scenario, outcome
