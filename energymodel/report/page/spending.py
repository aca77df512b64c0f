"""Where energy, time and money of one plan go, or of two beside each other."""

from collections.abc import Mapping

import equinox as eqx
import numpy as np

from energymodel.report.answers.spending import money_parts
from energymodel.report.charts import Bar, Flow, Part, Sankey, StackedBars
from energymodel.report.fields import outcome_fields, total
from energymodel.report.intervals import like
from energymodel.report.page.document import Section, figure
from energymodel.report.page.markup import paragraph
from energymodel.scenarios.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.units import format_quantity

Runs = Mapping[str, tuple[TrainingPlan, TrainingOutcome]]
"""Plans with their outcomes, by the name that a figure has for them; the last one is what the page is about."""
OWN, FOUND = "own plan", "found"
DIGITS = 2
"""Of amounts in figures: an outcome is seldom known to a hundredth."""
_SMALLEST = 1e-9  # of the whole: what is less is rounding


def spending_section(scenario: Scenario, runs: Runs, *, energy: bool = True) -> Section:
    """Energy from grid to bits, step time and money by part; `energy` as bars too, unless the summary has them."""
    _, outcome = list(runs.values())[-1]
    parts = [figure(energy_bars(runs))] if energy else []
    parts += [figure(energy_flow(outcome)), bits_line(outcome), figure(time_bars(runs))]
    money = money_bars(scenario, runs)
    parts += [figure(money)] if money is not None else []
    return Section("Where energy, time and money go", "".join(parts))


def energy_bars(runs: Runs) -> StackedBars:
    """Energy of the run by part."""
    bars = tuple(_bar(name, outcome.energy) for name, (_, outcome) in runs.items())
    return StackedBars(
        largest_sentence(bars[-1], "energy"), "J", bars, "Energy of the run by where it goes", "energy", DIGITS
    )


def time_bars(runs: Runs) -> StackedBars:
    """Time of a step by term."""
    bars = tuple(_bar(name, outcome.step_time) for name, (_, outcome) in runs.items())
    return StackedBars(
        largest_sentence(bars[-1], "step time"), "s", bars, "Time of one step by term", "step time", DIGITS
    )


def money_bars(scenario: Scenario, runs: Runs) -> StackedBars | None:
    """Money of the run by what it pays for; nothing where the run costs nothing."""
    parts = {name: money_parts(scenario, *run) for name, run in runs.items()}
    bars = tuple(Bar(name, tuple(Part(*pair) for pair in of.items())) for name, of in parts.items())
    if not bars[-1].total > 0.0:
        return None
    return StackedBars(
        largest_sentence(bars[-1], "money"), "USD", bars, "Money of the run by what it pays for", "money", DIGITS
    )


def _bar(name: str, parts: eqx.Module) -> Bar:
    return Bar(name, tuple(Part(field.title, max(field.value, 0.0)) for field in outcome_fields(parts)))


def largest_sentence(bar: Bar, whole: str) -> str:
    """What the largest two parts take: "Switching takes 37 % of the energy, and host takes 31 %"."""
    first, *rest = sorted(bar.parts, key=lambda part: -part.value)
    shares = {part.label: 100.0 * part.value / (bar.total or 1.0) for part in (first, *rest)}
    words = f"{_capital(first.label)} {_takes(first.label)} {shares[first.label]:.0f} % of the {whole}"
    if rest and shares[rest[0].label] >= 5.0:
        words += f"; {rest[0].label} {_takes(rest[0].label)} {shares[rest[0].label]:.0f} %"
    return words


def _takes(label: str) -> str:
    plural = label.endswith("s") or " and " in label or "," in label
    return "take" if plural else "takes"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def energy_flow(outcome: TrainingOutcome) -> Sankey:
    """Energy from the grid to the operations that the model needs."""
    parts = {field.name: field for field in outcome_fields(outcome.energy)}
    whole = total(outcome.energy)

    def amount(*names: str) -> float:
        return sum(max(parts[name].value, 0.0) for name in names)

    def flows(source: str, *names: str) -> list[Flow]:
        return [Flow(source, parts[name].title, amount(name)) for name in names]

    chips, building = ("dynamic", "static", "memory", "idle_wait"), ("delivery_loss", "cooling", "other")
    useful = min(float(outcome.euf) * whole, amount("dynamic"))
    switching = parts["dynamic"].title
    found = [
        Flow("grid", "chips", amount(*chips)),
        *flows("chips", "dynamic"),
        Flow(switching, "operations of the model", useful),
        Flow(switching, "recomputation and losses", amount("dynamic") - useful),
        *flows("chips", "static", "idle_wait", "memory"),
        *flows("grid", "host", "network"),
        Flow("grid", "building", amount(*building)),
        *flows("building", *building),
    ]
    found = [flow for flow in found if flow.value > _SMALLEST * whole]
    title = (
        f"{100.0 * useful / whole:.0f} % of the energy switches operations that the model needs" if whole else "Energy"
    )
    return Sankey(title, "J", tuple(found), "Energy from the grid to the bits that are switched", DIGITS)


def bits_line(outcome: TrainingOutcome) -> str:
    """What a bit that the model absorbs takes, beside Landauer's limit."""
    bits, each = float(outcome.information), float(outcome.energy_per_bit)
    multiple = float(outcome.landauer_multiple)
    if not (np.isfinite(each) and np.isfinite(multiple)):
        return ""
    absorbed, energy = format_quantity(bits, "bit", digits=2), format_quantity(each, "J/bit", digits=2)
    return paragraph(
        f"The model absorbs about {absorbed}, at {energy} for each bit. All operations together take about "
        f"{like(multiple, '1', 1.0)} times the energy that erasing their bits needs at least (Landauer's limit)."
    )
