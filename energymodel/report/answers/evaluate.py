"""The answer of `evaluate`: what a run yields and costs, where that goes, how near the limits and how sure it is."""

import dataclasses
import math

import numpy as np

from energymodel.report.answer import DATA, FULL, SHORT, Answer, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.batch_penalty import batch_sentences
from energymodel.report.answers.causes import causes, elasticities, elasticities_of_plan
from energymodel.report.answers.run_tables import (
    OWN,
    Run,
    limits_sentence,
    limits_table,
    outcome_table,
    parts_table,
    plan_table,
    priors_table,
    provenance_notes,
)
from energymodel.report.answers.spending import bits_sentence, energy_flow, largest_parts, money_table, parts_chart
from energymodel.report.answers.step import step_parts
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.trajectory import RunTrajectory

DRAWN = (
    *("energy", "time", "money", "carbon_operational", "carbon_embodied", "step_time", "mfu", "power_average"),
    *("power_peak", "pue", "memory_per_chip", "energy_per_bit", "landauer_multiple"),
)
"""Outputs whose intervals are drawn."""
UNITS = {
    "time": "s",
    "progress": "1",
    "batch": "token",
    "tokens": "token",
    "token_rate": "token/s",
    "loss": "nat/token",
    "loss_rate": "nat/token/s",
    "information": "bit",
    "information_rate": "bit/s",
    "power": "W",
    "energy": "J",
    "energy_per_bit": "J/bit",
    "money": "USD",
    "carbon": "kg",
}
"""Columns of a run over time."""
_IN_FILES = ("progress", "token_rate", "loss_rate", "information")
_TITLES = {"information_rate": "learned", "energy_per_bit": "next bit"}


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
    runs = {OWN: run}
    outputs, limits = outcome_table(runs), limits_table(run)
    energy = parts_table("energy", "Energy", runs)
    step = parts_table("step_time", "Time of one step", runs, FULL)
    names = ("energy", "time", "money", "carbon_operational", "loss")
    numbers = {name: outputs.number(name) for name in names}
    over_time = [trajectory_table(trajectory)] if trajectory is not None else []
    tables = [plan_table(scenario, {OWN: run.plan}), outputs, energy, step, limits, *over_time]
    charts = [
        parts_chart(energy, "energy", "Energy of the run by where it goes"),
        parts_chart(step, "step_time", "Time of one step by term"),
        *limits_chart(limits),
        intervals_chart(outputs),
    ]
    notes = [*batch_sentences(scenario, scenario.plan, outcome), *filter(None, [bits_sentence(run)])]
    if details:
        more, drawings, sentences = detail_parts(scenario, runs, "energy")
        tables, charts, notes = [*tables, *more], [*charts, *drawings], [*notes, *sentences]
    if trajectory is not None:
        charts.insert(0, trajectory_chart(over_time[0]))
    message, result = run_verdict(scenario, run)
    return Answer(
        "evaluate",
        scenario.title,
        Sentence("{energy} in {time}", numbers),
        [
            Sentence(
                "The run takes {time:i} and {energy:i}, costs {money:i}, emits {carbon_operational:i} of carbon "
                "dioxide in operation, and reaches a loss of {loss:i}.",
                numbers,
            ),
            joined(largest_parts(energy, "energy"), largest_parts(step, "step time")),
            limits_sentence(limits),
        ],
        [*tables, priors_table(scenario)],
        charts,
        [*notes, *provenance_notes(scenario)],
        capacity_warnings(outcome),
        [
            ("What to change or measure first", f"energymodel sensitivity {scenario.source}".strip()),
            ("A better plan", f"energymodel optimize {scenario.source}".strip()),
        ],
        scenario.named_tables,
        "trajectory" if trajectory is not None else "",
        result,
        message,
    )


def outcome_answer(outcome: TrainingOutcome) -> Answer:
    """An outcome in Python, of which neither plan nor uncertainty is known: its numbers have two digits."""
    runs = {OWN: Run(None, outcome)}  # type: ignore[arg-type]
    outputs, energy = outcome_table(runs), parts_table("energy", "Energy", runs)
    charts = [parts_chart(energy, "energy", "Energy of the run")]
    title = "Outcome of a training run"
    return Answer("outcome", title, Sentence("How sure it is, is unknown"), [], [outputs, energy], charts)


def joined(*sentences: Sentence) -> Sentence:
    """Sentences as one paragraph; their numbers keep apart."""
    words, numbers = [], {}
    for index, sentence in enumerate(sentences):
        text = sentence.words
        for name, number in sentence.numbers.items():
            text = text.replace(f"{{{name}", f"{{{index}_{name}")
            numbers[f"{index}_{name}"] = number
        words.append(text if text.endswith(".") else f"{text}.")
    return Sentence(" ".join(words), numbers)


def detail_parts(
    scenario: Scenario, runs: dict[str, Run], objective: str, subtitle: str = "Largest elasticities, the plan held"
) -> tuple[list[Table], list[Chart], list[Sentence]]:
    """Tables, charts and notes of pages: money, the stream of energy, a step, elasticities, causes of uncertainty."""
    last = list(runs.values())[-1]
    money = money_table(scenario, runs)
    flow, flow_chart = energy_flow(last.outcome)
    passes, timeline, sentence = step_parts(scenario, last)
    moved, bars = elasticities(elasticities_of_plan(scenario, last.plan, objective), objective, subtitle)
    why, shares = causes(scenario, last.spread, "energy") if last.spread is not None else (None, None)
    tables = [table for table in (money, flow, passes, moved, why) if table is not None and table.rows]
    charts = [parts_chart(money, "money", "Money of the run by what it pays for")] if money.rows else []
    charts += [chart for chart in (flow_chart, timeline, bars, shares) if chart is not None]
    return tables, charts, [sentence]


def limits_chart(limits: Table) -> list[Chart]:
    """The chance that each limit is exceeded, which compares limits of any unit."""
    chances = limits.series("chance to exceed it") if len(limits.rows) > 1 else []
    likely = [title for title, _, chance in chances if chance.value >= 1e-4]
    if not likely:
        return []
    first = {"chance": next(pair[1:] for pair in chances if pair[0] == likely[0])}
    title = Sentence(f"The limit of {likely[0]} is exceeded with a probability of {{chance}}", first)
    subtitle = "Probability that the hardware exceeds its limit, since its numbers are uncertain"
    y = ["chance to exceed it"]
    return [Chart("bars", title, "limits", y=y, subtitle=subtitle, only=likely, axis="probability")]


def intervals_chart(outputs: Table, names: tuple[str, ...] = DRAWN, row: str = "") -> Chart:
    """Intervals of outputs, each relative to its value; the first of them has the title."""
    column, cell = outputs.number(names[0], list(outputs.labels).index(row) if row else 0)
    half = 0.5 * math.log(cell.high / cell.low) if cell.low and cell.high else 0.0
    numbers = {"half": (Column("", "", kind="share", digits="two"), Quantity(half))}
    title = Sentence(f"{column.title.capitalize()} is known within about {{half}}", numbers)
    subtitle = "Intervals that hold with a probability of 90 %"
    return Chart("intervals", title, outputs.name, y=[row] if row else [], subtitle=subtitle, only=names)


def trajectory_table(run: RunTrajectory) -> Table:
    """A row for each time of a run."""
    empty = {"batch": not np.ptp(run.batch), "information_rate": not np.any(run.information_rate)}
    columns = [
        Column(
            name,
            _TITLES.get(name, name.replace("_", " ")),
            UNITS[name],
            digits="rows",
            level=DATA if name in _IN_FILES or empty.get(name) else SHORT,
        )
        for name in run._fields
    ]
    rows = [[Quantity(float(cell)) for cell in row] for row in zip(*run, strict=True)]
    note = "The loss is that of a run that ends there, with its learning rate decayed."
    return Table("trajectory", "Run over time", columns, rows, note=note)


def trajectory_chart(table: Table) -> Chart:
    """Loss against the energy used, along the run."""
    energy, loss = (
        [cell.value for cell in table.column(name)[1] if isinstance(cell, Quantity)] for name in ("energy", "loss")
    )
    half = next(value for spent, value in zip(energy, loss, strict=True) if spent >= 0.5 * energy[-1])
    column = dataclasses.replace(table.column("loss")[0], digits="interval")
    numbers = {"half": (column, Quantity(half)), "end": (column, Quantity(loss[-1]))}
    title = Sentence("After half of the energy the loss is {half}, at the end {end}", numbers)
    hover = ["time", "energy", "loss", "power", "energy_per_bit"]
    return Chart("plane", title, "trajectory", "energy", ["loss"], "Loss along the run", hover=hover, lines=True)


def capacity_warnings(outcome: TrainingOutcome) -> list[Sentence]:
    """What does not forbid the run, but should be known."""
    if float(outcome.slack.information) >= 0.0:
        return []
    times = Column("", "", digits="two"), Quantity(math.exp(-float(outcome.slack.information)))
    return [
        Sentence(
            "information absorbed is {times} times the capacity of the parameters (system.capacity_per_parameter, a "
            "prior): the loss law is used beyond what the model can store",
            {"times": times},
        )
    ]


def run_verdict(scenario: Scenario, run: Run) -> tuple[str, str]:
    """Why a run is not to be trusted, if it is not, and the word for it."""
    from energymodel.report.number import sentence

    if broken := broken_limits(scenario, run):
        return " ".join(map(sentence, broken)), "infeasible"
    outputs = outcome_table({OWN: run})
    wrong = [
        column.name
        for column, cell in zip(outputs.columns, outputs.rows[0], strict=True)
        if isinstance(cell, Quantity) and not math.isfinite(cell.value)
    ]
    if wrong:
        return f"{', '.join(wrong)}: not finite. Check the numbers that were set.", "not trusted"
    return "", "successful"


def broken_limits(scenario: Scenario, run: Run) -> list[Sentence]:
    """One sentence for each limit of the hardware and the building that the plan breaks."""
    system, plan, outcome, slack = scenario.system, run.plan, run.outcome, run.outcome.slack
    peak, cap = float(outcome.power_peak), float(plan.power_cap)
    flux = float(outcome.power_busy) / float(system.accelerator.die_area)
    chips = float(plan.chips)
    coolant, inlet = float(plan.coolant_temperature), system.facility.cooling.inlet
    limits = {  # value, limit, unit, next step
        "facility_power": (
            *(peak, float(system.facility.power_limit), "W"),
            "Raise system.facility.power_limit to {value}, or lower plan.chips or plan.power_cap.",
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
            *(float(outcome.chilled_heat), float(system.facility.cooling.chiller_capacity) * chips, "W"),
            "Raise system.facility.cooling.chiller_capacity to {each} per chip, raise plan.coolant_temperature, or "
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
    sentences = []
    for name, (value, limit, unit, remedy) in limits.items():
        if float(getattr(slack, name)) < 0.0:
            column = Column(name, "", unit, "temperature" if unit == "K" else "amount")
            amounts = {"value": value, "limit": limit, "each": value / chips}
            numbers = {key: (column, Quantity(amount)) for key, amount in amounts.items()}
            verb = "exceeds" if value > limit else "is below"
            sentences.append(Sentence(f"{name}: {{value}} {verb} the limit {{limit}}. {remedy}", numbers))
    return sentences
