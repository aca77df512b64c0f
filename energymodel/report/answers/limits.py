"""The answer of `limits`: the energy of a run above its lower bounds, and the rates that its energy allows."""

import dataclasses
import math

from energymodel.report.answer import DATA, FULL, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.run_tables import Run, outcome_table, prior_count, priors_table
from energymodel.report.answers.spending import bits_sentence, energy_flow
from energymodel.report.energy_bounds import Bounds, run_bounds
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread
from energymodel.system.outcome import TrainingOutcome

_COLUMNS = (
    Column("bound", "bound", kind="words"),
    Column("energy", "energy", "J", digits="two"),
    Column("multiple", "the run is, times"),
    Column("basis", "basis", kind="words"),
    Column("key", "key", kind="words", level=DATA),
)
_OF_OPERATIONS = ("landauer_operation", "landauer_finite_time")


def limits_answer(scenario: Scenario, outcome: TrainingOutcome, spread: OutcomeSpread) -> Answer:
    """The bounds of a run in numbers."""
    bounds, run = run_bounds(scenario.system, scenario.plan, outcome), Run(scenario.plan, outcome, spread)
    table, rates = bounds_table(bounds, spread), rates_table(bounds, spread)
    flow_table, flow = energy_flow(outcome)
    multiples = {row[4]: row[2] for row in table.rows}
    numbers = {str(key): (_COLUMNS[2], cell) for key, cell in multiples.items() if isinstance(cell, Quantity)}
    numbers |= {column.name: rates.number(column.name) for column in rates.columns}
    numbers["energy"] = Column("", "", "J"), run.quantity("energy")
    sentences = [
        Sentence("The run takes {energy:i}. Bits are erased at {temperature}.", numbers),
        Sentence(
            "That is {roofline} times what operations and memory traffic alone take on its chip, and {cmos_wall} times "
            "what arithmetic takes in the best CMOS that is foreseen.",
            numbers,
        ),
        Sentence("It is {landauer_operation} times Landauer's limit for the bits that the operations erase.", numbers),
        Sentence(
            "Information absorbed: {information}, {share} of the storage capacity of the parameters; {energy_per_bit}, "
            "{energy_per_bit_multiple} times k_B T ln 2.",
            numbers,
        ),
        Sentence(
            "Speed limit of operations (Margolus and Levitin): {speed_limit_of_energy} with the energy of the run, "
            "{speed_limit_of_step_energy} with that of one step; the run does {operation_rate}.",
            numbers,
        ),
    ]
    bits = bits_sentence(run)
    return Answer(
        "limits",
        scenario.title,
        Sentence("How far the run is from the bounds of physics, technology and its own chip"),
        sentences,
        [
            table,
            rates,
            dataclasses.replace(outcome_table({"run": run}), level=FULL),
            flow_table,
            priors_table(scenario),
        ],
        [ladder_chart(bounds, table), flow],
        [*([bits] if bits else []), prior_count(scenario)],
        inputs=scenario.named_tables,
        rows="bounds",
    )


def bounds_table(bounds: Bounds, spread: OutcomeSpread) -> Table:
    """Lower bounds and the multiples of them that the run takes.

    Those of the bits that operations erase are as uncertain as the outcome's multiple of Landauer's limit, whose bits
    per operation are uncertain; the others as the energy.
    """
    rows: list[list[Cell]] = []
    for bound in bounds.bounds:
        name = "landauer_multiple" if bound.key in _OF_OPERATIONS else "energy"
        multiple = uncertain(bound.multiple, spread, name)
        rows.append([bound.title, Quantity(bound.energy), multiple, bound.basis, bound.key])
    rows.append(["the run", Quantity(bounds.energy), Quantity(1.0), "", "run"])
    return Table("bounds", "Lower bounds on energy", _COLUMNS, rows, short=range(len(rows) - 1))


def uncertain(value: float, spread: OutcomeSpread, name: str) -> Quantity:
    """A number whose logarithm is as uncertain as that of an output."""
    half = DEVIATIONS * spread.deviation(name)
    return Quantity(value, value * math.exp(-half), value * math.exp(half))


def rates_table(bounds: Bounds, spread: OutcomeSpread) -> Table:
    """What a bit takes, and how fast operations could be."""
    numbers = {
        Column("temperature", "erasure at", "K", "temperature"): Quantity(bounds.temperature),
        Column("information", "information absorbed", "bit"): uncertain(bounds.information, spread, "information"),
        Column("capacity", "storage capacity", "bit"): Quantity(bounds.capacity),
        Column("share", "share of the capacity", kind="share"): uncertain(
            bounds.information / bounds.capacity, spread, "information"
        ),
        Column("energy_per_bit", "energy of a bit", "J/bit"): uncertain(
            bounds.energy_per_bit, spread, "energy_per_bit"
        ),
        Column("energy_per_bit_multiple", "times k_B T ln 2"): uncertain(
            bounds.energy_per_bit_multiple, spread, "energy_per_bit"
        ),
        Column("operation_rate", "rate of operations", "FLOP/s", digits="two"): Quantity(bounds.operation_rate),
        Column("speed_limit_of_energy", "speed limit of the energy", "1/s", digits="two"): Quantity(
            bounds.speed_limit_of_energy
        ),
        Column("speed_limit_of_step_energy", "speed limit of a step", "1/s", digits="two"): Quantity(
            bounds.speed_limit_of_power
        ),
    }
    return Table(
        "rates", "What a bit takes, and rates of operations", [*numbers], [[*numbers.values()]], tall=True, level=FULL
    )


def ladder_chart(bounds: Bounds, table: Table) -> Chart:
    """Energy of the run above its lower bounds, on a logarithmic axis."""
    nearest = max((bound for bound in bounds.bounds if bound.energy > 0.0), key=lambda bound: bound.energy)
    multiple = next(row[2] for row in table.rows if row[4] == nearest.key)
    assert isinstance(multiple, Quantity)
    title = Sentence(
        f"The run takes {{times}} times the nearest bound: {nearest.title}", {"times": (_COLUMNS[2], multiple)}
    )
    positive = ["the run", *(bound.title for bound in bounds.bounds if bound.energy > 0.0)]
    subtitle = "Lower bounds on the energy of the run"
    return Chart("bars", title, "bounds", "bound", ["energy"], subtitle, log=["energy"], only=positive, axis="energy")
