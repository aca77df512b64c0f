"""`energymodel evaluate`: what does a run yield and cost?"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.scenarios.scenario import Scenario
    from energymodel.sweeps.outcome_spread import OutcomeSpread
    from energymodel.system.outcome import TrainingOutcome
    from energymodel.system.trajectory import RunTrajectory


Trajectory = Annotated[
    bool, typer.Option("--trajectory", help="Show the run over time as well; -o run.csv then has a row for each time.")
]
Points = Annotated[int | None, typer.Option("--points", metavar="N", help="Times of the trajectory; 20 unless given.")]


@shell.guarded
def command(
    source: Source,
    as_json: shell.AsJson = False,
    output: shell.Output = None,
    trajectory: Trajectory = False,
    points: Points = None,
    plot: shell.Plot = None,
    opened: shell.Open = False,
) -> int:
    """Evaluate a training run: loss, time, energy, power, temperature, money and carbon."""
    shell.check_report(output, opened=opened)
    shell.check_output(plot, shell.PICTURES)
    if not trajectory and (points is not None or plot is not None):
        raise InputError("--points and --plot are of a run over time: add --trajectory.")
    with shell.Progress() as progress:
        given, outcome = evaluate_scenario(source, progress)
        progress("moving the uncertain numbers ...")
        from energymodel.sweeps.outcome_spread import outcome_spread

        spread = outcome_spread(given)
        run = None
        if trajectory:
            progress("following the run ...")
            from energymodel.system.trajectory import USUAL_POINTS, run_trajectory

            _, run = run_trajectory(given.system, given.plan, USUAL_POINTS if points is None else points)
    return _deliver(given, outcome, spread, run, as_json=as_json, output=output, plot=plot, opened=opened)


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


def _deliver(
    scenario: "Scenario",
    outcome: "TrainingOutcome",
    spread: "OutcomeSpread",
    run: "RunTrajectory | None",
    *,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    opened: bool,
) -> int:
    from energymodel.report.json_tree import run_json, strict
    from energymodel.report.page.evaluate_page import evaluate_page
    from energymodel.report.page.spending import OWN, energy_bars
    from energymodel.report.tables import outcome_report

    tree = {**run_json(scenario, scenario.plan, outcome, spread), "warnings": warnings(outcome)}
    report = outcome_report(scenario, scenario.plan, outcome, spread)
    said = tuple(warnings(outcome))
    files: dict[str, Any] = {
        "page": lambda: evaluate_page(scenario, outcome, spread, shell.command_line(), run=run, warnings=said),
        "chart": lambda: energy_bars({OWN: (scenario.plan, outcome)}),
        "opened": opened,
    }
    if run is not None:
        from rich.console import Group

        from energymodel.report import trajectory_report

        tree["trajectory"] = trajectory_report.trajectory_json(run)
        report = Group(report, "", trajectory_report.trajectory_table(run))
        files |= {
            "rows": lambda: trajectory_report.trajectory_csv(run),
            "plot": plot,
            "figure": lambda kind: trajectory_report.trajectory_figure(run, kind),
        }
    shell.deliver(tree, report, as_json=as_json, output=output, **files)
    broken = broken_limits(scenario, outcome)
    if broken:
        return shell.fail(" ".join(broken), shell.NOT_TRUSTED, "infeasible")
    not_finite = [path for path, _ in strict(tree)[1]]
    if not_finite:
        return shell.fail(
            f"{', '.join(not_finite)}: not finite. Check the numbers that were set.", shell.NOT_TRUSTED, "not trusted"
        )
    return shell.TRUSTED


def warnings(outcome: "TrainingOutcome") -> list[str]:
    """What does not forbid the run, but should be known."""
    if float(outcome.slack.information) >= 0.0:
        return []
    times = math.exp(-float(outcome.slack.information))
    return [
        f"information absorbed is {times:.3g} times the capacity of the parameters "
        "(system.capacity_per_parameter, a prior): the loss law is used beyond what the model can store"
    ]


def broken_limits(scenario: "Scenario", outcome: "TrainingOutcome") -> list[str]:
    """One sentence for each limit of the hardware and the building that the plan breaks."""
    from energymodel.units import format_quantity

    system, plan, slack = scenario.system, scenario.plan, outcome.slack
    peak, cap = float(outcome.power_peak), float(plan.power_cap)
    flux = float(outcome.power_busy) / float(system.accelerator.die_area)
    raised = format_quantity(peak, "W")
    chilled = format_quantity(float(outcome.chilled_heat) / float(plan.chips), "W")
    coolant, inlet = float(plan.coolant_temperature), system.facility.cooling.inlet
    limits = {  # value, limit, unit, next step
        "facility_power": (
            *(peak, float(system.facility.power_limit), "W"),
            f"Raise system.facility.power_limit to {raised}, or lower plan.chips or plan.power_cap.",
        ),
        "temperature": (
            *(float(outcome.temperature), float(system.accelerator.maximum_temperature), "K"),
            "Lower plan.coolant_temperature, plan.power_cap or plan.clock.",
        ),
        "clock": (
            *(cap / math.exp(float(slack.clock)), cap, "W"),
            "The chip draws more than plan.power_cap at its lowest clock: raise it.",
        ),
        "heat_flux": (
            *(flux, flux * math.exp(float(slack.heat_flux)), "W/m^2"),
            "Lower plan.power_cap, or take another system.facility.",
        ),
        "coolant": (
            *(coolant, float(inlet.highest if coolant > inlet.highest else inlet.lowest), "K"),
            "Change plan.coolant_temperature, or take another class: system.facility.cooling.inlet=ashrae-a4.",
        ),
        "ramp": (
            *(float(outcome.temperature_ramp), float(system.facility.ramp_limit), "K/s"),
            "Lower plan.power_cap, or raise system.facility.ramp_limit.",
        ),
        "chillers": (
            *(float(outcome.chilled_heat), float(system.facility.cooling.chiller_capacity) * float(plan.chips), "W"),
            f"Raise system.facility.cooling.chiller_capacity to {chilled} per chip, raise plan.coolant_temperature, or "
            "lower plan.power_cap or plan.clock.",
        ),
        "supplies": (
            *(math.exp(-float(slack.supplies)), 1.0, "1"),
            "Raise rated_power of system.facility.un.power_supply, .bus_converter or .point_of_load.",
        ),
        "power_swing": (
            *(float(outcome.power_swing), float(system.facility.swing_limit), "W"),
            "Raise plan.power_floor, or give system.facility.storage power and energy (per chip).",
        ),
        "power_ramp": (
            *(float(outcome.power_ramp), float(system.facility.power_ramp_limit), "W/s"),
            "Raise plan.power_floor, or give system.facility.storage power and energy (per chip).",
        ),
    }
    return [
        f"{name}: {format_quantity(value, unit)} {'exceeds' if value > limit else 'is below'} the limit "
        f"{format_quantity(limit, unit)}. {remedy}"
        for name, (value, limit, unit, remedy) in limits.items()
        if float(getattr(slack, name)) < 0.0
    ]
