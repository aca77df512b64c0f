"""Where energy, time and money go: charts of parts, the stream of energy from the grid to bits, parts of money."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from energymodel.report.answer import FULL, Chart, Column, Sentence, Table, number, share, spaced, words
from energymodel.report.answers.run_tables import Run, Runs
from energymodel.report.fields import part_fields, total
from energymodel.scenarios.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem, as_designed

_SMALLEST = 1e-9  # of the whole: what is less is rounding
_SHARE = Column("share", kind="share", digits="two")


def parts_chart(table: Table, of: str, subtitle: str) -> Chart:
    """Bars of the parts of a whole, one for each run."""
    amounts = [column.name for column in table.columns if column.kind not in ("words", "share", "change")]
    title, axis = largest_parts(table, spaced(of)), spaced(of)
    return Chart("stack", title, table.name, "part", amounts, subtitle, label="share", whole=of, axis=axis)


def largest_parts(table: Table, of: str) -> Sentence:
    """What the largest two parts take: "Switching takes 37 % of the energy; host takes 31 %"."""
    (first, *_), *rest = series = table.series("share", "part")
    numbers = {"first": series[0][1:]}
    text = f"{first[:1].upper()}{first[1:]} {_takes(first)} {{first}} of the {of}"
    if rest and rest[0][2].value >= 0.05:
        numbers["second"] = rest[0][1:]
        text += f"; {rest[0][0]} {_takes(rest[0][0])} {{second}}"
    return Sentence(text, numbers)


def _takes(label: str) -> str:
    plural = label.endswith("s") or " and " in label or "," in label
    return "take" if plural else "takes"


def energy_flow(outcome: TrainingOutcome) -> tuple[Table, Chart]:
    """Energy from the grid to the operations that the model needs."""
    parts = {field.name: max(field.value, 0.0) for field in part_fields(outcome.energy)}
    titles = {field.name: field.title for field in part_fields(outcome.energy)}
    energy, switching = total(outcome.energy), titles["dynamic"]
    useful = min(float(outcome.euf) * energy, parts["dynamic"])
    groups = {
        "chips": ("dynamic", "static", "idle_wait", "memory"),
        "grid": ("host", "network"),
        "building": ("delivery_loss", "cooling", "other"),
    }
    streams = [
        ("grid", "chips", sum(parts[name] for name in groups["chips"])),
        ("chips", switching, parts["dynamic"]),
        (switching, "operations of the model", useful),
        (switching, "recomputation and losses", parts["dynamic"] - useful),
        *(("chips", titles[name], parts[name]) for name in groups["chips"][1:]),
        *(("grid", titles[name], parts[name]) for name in groups["grid"]),
        ("grid", "building", sum(parts[name] for name in groups["building"])),
        *(("building", titles[name], parts[name]) for name in groups["building"]),
    ]
    rows = [[source, target, value, value / energy] for source, target, value in streams if value > _SMALLEST * energy]
    columns = [words("from"), words("to"), Column("amount", unit="J", digits="two"), _SHARE]
    of_model = {"share": share(useful / energy if energy else 0.0)}
    title = Sentence("{share} of the energy switches operations that the model needs", of_model)
    table = Table("energy_flow", "Energy from the grid to bits", columns, rows, level=FULL)
    subtitle = "Energy from the grid to the bits that are switched"
    return table, Chart("flow", title, table.name, "from", ["amount"], subtitle, "to", label="share", whole="energy")


def bits_sentence(run: Run) -> Sentence | None:
    """What a bit that the model absorbs takes, beside Landauer's limit."""
    units = {"information": "bit", "energy_per_bit": "J/bit", "landauer_multiple": "1"}
    numbers = {name: number(run.quantity(name), unit, digits="two") for name, unit in units.items()}
    if not all(np.isfinite(cell.value) for _, cell in numbers.values()):
        return None
    return Sentence(
        "The model absorbs about {information}, at {energy_per_bit} for each bit. All operations together take about "
        "{landauer_multiple} times the energy that erasing their bits needs at minimum (Landauer's limit).",
        numbers,
    )


def money_table(scenario: Scenario, runs: Runs) -> Table:
    """Money of runs by what it pays for; no rows where the last run costs nothing."""
    return costs_table({label: money_parts(scenario, run.plan, run.outcome) for label, run in runs.items()})


def costs_table(parts: Mapping[str, Mapping[str, float]]) -> Table:
    """Costs of runs by part [USD], the largest of the last run first, and their shares of it."""
    last = list(parts.values())[-1]
    columns = [words("part", "")]
    columns += [Column("money" if len(parts) == 1 else label, label, "USD", digits="two") for label in parts]
    rows = [
        [part, *(of.get(part, 0.0) for of in parts.values()), value / sum(last.values())]
        for part, value in sorted(last.items(), key=lambda pair: -pair[1])
    ]
    return Table("money_parts", "Money by what it pays for", [*columns, _SHARE], rows, level=FULL)


def money_parts(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, float]:
    """Money of a run by what it pays for [USD]; the parts add up to the money of the outcome."""
    with jax.enable_x64(True):
        parts = costs(*as_designed(scenario.system, plan), outcome)
    return large_costs({name: float(part) for name, part in parts.items()})


def large_costs(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts of a cost that are more than rounding."""
    smallest = _SMALLEST * sum(parts.values())
    return {name: part for name, part in parts.items() if part > smallest}


def costs(system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome) -> dict[str, Any]:
    """Money of a run as it was designed, by what it pays for [USD]; the parts add up to the money of the outcome.

    A price adds up what chips, energy, power and time cost, so that each is the price of it alone. What the price of
    the chips leaves over are links, storage and plant.
    """
    price, chips = system.market.price, plan.chips + system.spare_chips(plan.spares)

    def cost(chip_price: Any, chips: Any, energy: Any, power: Any) -> Any:
        return price.cost(chip_price, chips, outcome.time, energy, power)

    waiting, rent = cost(0.0, 0.0, 0.0, 0.0), cost(0.0, chips, 0.0, 0.0)
    parts = {
        "chips and servers": cost(system.accelerator.price, chips, 0.0, 0.0) - rent,
        "rent of chips": rent - waiting,
        "energy": cost(0.0, 0.0, outcome.energy.total, 0.0) - waiting,
        "peak power and building": cost(0.0, 0.0, 0.0, outcome.power_peak) - waiting,
        "value of time": waiting,
    }
    return {**parts, "links, storage and plant": outcome.money - sum(parts.values())}
