"""The answer of `evaluate`: what a run yields and costs, where that goes, how near the limits and how sure it is."""

import dataclasses
import math

import numpy as np

from energymodel.readers.expressions import data_file
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers import details as where
from energymodel.report.answers import run_tables
from energymodel.report.answers.run_tables import OWN, Run
from energymodel.report.cells import Quantity, declared, number, present, share
from energymodel.report.number import sentence
from energymodel.scenarios.files import inlet_class
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.trajectory import RunTrajectory

DRAWN = (
    *("energy", "time", "money", "carbon_operational", "carbon_embodied", "step_time", "mfu", "power_average"),
    *("power_peak", "pue", "memory_per_chip", "energy_per_bit", "landauer_multiple"),
)
"""Outputs whose intervals are drawn."""
_OVER_TIME = declared("over_time")
INLET = "INLET"  # in a remedy: the class that takes the coolant


def evaluate_answer(
    scenario: Scenario,
    outcome: TrainingOutcome,
    spread: OutcomeSpread | None,
    *,
    trajectory: RunTrajectory | None = None,
    details: bool = False,
) -> Answer:
    """A run in numbers.

    **Arguments:**

    - `details`: with money by part, a step pass by pass, elasticities and causes of the uncertainty, as pages have
      them; they take a second.
    """
    run = Run(scenario.plan, outcome, spread)
    runs, outputs, limits = {OWN: run}, run_tables.outcome_table({OWN: run}), run_tables.limits_table(run)
    (energy, step), charts = where.spent(runs)
    numbers = {name: outputs.number(name) for name in ("energy", "time", "money", "carbon_operational", "loss")}
    tables = [run_tables.plan_table(scenario, {OWN: run.plan}), outputs, energy, step, limits]
    charts = [*charts, *limits_chart(limits), intervals_chart(outputs)]
    notes = where.learning_sentences(scenario, scenario.plan, outcome)
    notes += [] if scenario.is_fine_tuned else present(where.bits_sentence(run))
    reached = "" if scenario.is_fine_tuned else ", and reaches a loss of {loss:i}"
    if trajectory is not None:
        over_time, chart = trajectory_parts(trajectory)
        tables, charts = [*tables, over_time], [chart, *charts]
    if details:
        more, drawings, sentences = where.detail_parts(scenario, runs, "energy")
        tables, charts, notes = [*tables, *more], [*charts, *drawings], [*notes, *sentences]
    nearest = run_tables.chosen_columns("nearest_limits", "Nearest limits", (limits, limits.names[:3]))
    message, result = run_verdict(scenario, run, outputs)
    of_energy, of_step = where.largest_parts(energy, "energy"), where.largest_parts(step, "step time")
    return Answer.of(
        scenario,
        "evaluate",
        Sentence("{energy} in {time}", numbers),
        [
            Sentence(
                "The run takes {time:i} and {energy:i}, costs {money:i}, emits {carbon_operational:i} of carbon "
                f"dioxide in operation{reached}.",
                numbers,
            ),
            Sentence(f"{of_energy.words}. {of_step.words}.", {**of_energy.numbers, **of_step.numbers}),
            run_tables.limits_sentence(limits),
            run_tables.memory_sentence(scenario, outcome),
        ],
        [*tables, nearest, run_tables.priors_table(scenario)],
        charts=charts,
        notes=[*notes, *run_tables.provenance_notes(scenario)],
        warnings=capacity_warnings(outcome),
        also=[
            ("What to change or measure first", f"energymodel sensitivity {scenario.source}".strip()),
            ("A better plan", f"energymodel optimize {scenario.source}".strip()),
        ],
        screen=["trajectory", "nearest_limits"] if trajectory is not None else ["nearest_limits"],
        rows="trajectory" if trajectory is not None else "",
        result=result,
        message=message,
    )


def outcome_answer(outcome: TrainingOutcome) -> Answer:
    """An outcome in Python, of which neither plan nor uncertainty is known: its numbers have two digits."""
    runs = {OWN: Run(None, outcome)}  # type: ignore[arg-type]
    outputs, energy = run_tables.outcome_table(runs), run_tables.parts_table("energy", "Energy", runs)
    charts = [where.parts_chart(energy, "energy", "Energy of the run")]
    title = "Outcome of a training run"
    return Answer("outcome", title, Sentence("How sure it is, is unknown"), [], [outputs, energy], charts)


def limits_chart(limits: Table) -> list[Chart]:
    """The chance that each limit is exceeded, which compares limits of any unit."""
    chances = limits.series("chance to exceed it") if len(limits.rows) > 1 else []
    likely = [chance for chance in chances if chance[2].value >= 1e-4]
    if not likely:
        return []
    first = {"chance": likely[0][1:]}
    title = Sentence(f"The limit of {likely[0][0]} is exceeded with a probability of {{chance}}", first)
    subtitle = "Probability that the hardware exceeds its limit, since its numbers are uncertain"
    y = ["chance to exceed it"]
    return [Chart("bars", title, "limits", y=y, subtitle=subtitle, only=[of[0] for of in likely], axis="probability")]


def intervals_chart(outputs: Table, names: tuple[str, ...] = DRAWN, row: str = "") -> Chart:
    """Intervals of outputs, each relative to its value; the first of them has the title."""
    column, cell = outputs.number(names[0], list(outputs.labels).index(row) if row else 0)
    half = {"half": share(0.5 * math.log(cell.high / cell.low) if cell.low and cell.high else 0.0)}
    title = Sentence(f"{column.title.capitalize()} is known within about {{half}}", half)
    subtitle = "Intervals that hold with a probability of 90 %"
    return Chart("intervals", title, outputs.name, y=[row] if row else [], subtitle=subtitle, only=names)


def trajectory_parts(run: RunTrajectory) -> tuple[Table, Chart]:
    """A row for each time of a run, and its loss against the energy used."""
    constant = {"batch": not np.ptp(run.batch), "information_rate": not np.any(run.information_rate)}
    cells = {}
    for column in _OVER_TIME:
        hidden = dataclasses.replace(column, level="data") if constant.get(column.name) else column
        cells[hidden] = getattr(run, column.name)
    half = next(loss for loss, energy in zip(run.loss, run.energy, strict=True) if energy >= 0.5 * run.energy[-1])
    numbers = {"half": number(half, "nat/token"), "end": number(run.loss[-1], "nat/token")}
    title = Sentence("After half of the energy the loss is {half}, at the end {end}", numbers)
    look = {"hover": ["time", "energy", "loss", "power", "energy_per_bit"], "lines": True}
    note = "The loss is that of a run that ends there, with its learning rate decayed."
    table = Table.of("trajectory", "Run over time", cells, note=note)
    return table, Chart("plane", title, "trajectory", "energy", ["loss"], "Loss along the run", **look)


def capacity_warnings(outcome: TrainingOutcome) -> list[Sentence]:
    """What does not forbid the run, but should be known."""
    slack = float(outcome.slack.information)
    text = (
        "The tokens hold {times} times the information that the parameters can store (system.capacity_per_parameter, "
        "a prior). The predicted loss is too low if that limit is real: fewer tokens or a larger model obey it."
    )
    return [Sentence(text, {"times": number(math.exp(-slack), digits="two")})] if slack < 0.0 else []


def run_verdict(scenario: Scenario, run: Run, outputs: Table) -> tuple[str, str]:
    """Why a run is not to be trusted, if it is not, and the word for it."""
    if broken := broken_limits(scenario, run):
        return " ".join(map(sentence, broken)), "infeasible"
    cells = zip(outputs.names, outputs.rows[0], strict=True)
    if wrong := [name for name, cell in cells if isinstance(cell, Quantity) and not math.isfinite(cell.value)]:
        return f"{', '.join(wrong)}: not finite. Check the numbers that were set.", "not trusted"
    return "", "successful"


def broken_limits(scenario: Scenario, run: Run) -> list[Sentence]:
    """One sentence for each limit of the hardware and the building that the plan breaks."""
    system, plan, outcome, slacks = scenario.system, run.plan, run.outcome, run.outcome.slack
    chips, cap, coolant = float(plan.chips), float(plan.power_cap), float(plan.coolant_temperature)
    inlet = system.facility.cooling.inlet
    is_cold, another = coolant < float(inlet.lowest), inlet_class(coolant, float(inlet.lowest), float(inlet.highest))
    values = {
        "facility_power": outcome.power_peak,
        "temperature": outcome.temperature,
        "clock": cap / math.exp(float(slacks.clock)),
        "heat_flux": float(outcome.power_busy) / float(system.accelerator.die_area),
        "coolant": coolant,
        "ramp": outcome.temperature_ramp,
        "chillers": outcome.chilled_heat,
        "supplies": math.exp(-float(slacks.supplies)),
        "host_memory": math.exp(-float(slacks.host_memory)) * float(system.node.host_memory),
        "power_swing": outcome.power_swing,
        "power_ramp": outcome.power_ramp,
    }
    sentences = []
    for name, (unit, remedy) in data_file(__file__, "remedies.toml").items():
        if (slack := float(getattr(slacks, name))) < 0.0:
            is_below, value = name == "coolant" and is_cold, float(values[name])
            limit = value * math.exp(-slack if is_below else slack)
            amounts = {"value": value, "limit": limit, "each": value / chips}
            numbers = {key: number(of, unit) for key, of in amounts.items()}
            verb = "is below" if is_below else "exceeds"
            sentences.append(
                Sentence(f"{name}: {{value}} {verb} the limit {{limit}}. {remedy.replace(INLET, another)}", numbers)
            )
    return sentences
