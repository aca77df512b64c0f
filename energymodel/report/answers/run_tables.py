"""Tables that runs share: plan, outcome, parts of a whole, margin to the limits, priors."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
from scipy.special import ndtr

from energymodel.economics.cost import RentedPrice
from energymodel.report.answer import Sentence, Table
from energymodel.report.answers.plan_fields import OF_LIFE, kind_of, part_fields, plan_fields, total
from energymodel.report.cells import Cell, Column, Level, Quantity, number, share, spaced, words
from energymodel.scenarios.clock_scale import REFERENCE_CLOCK
from energymodel.scenarios.fine_tuning import lighter_memory
from energymodel.scenarios.layers import recomputation_words
from energymodel.scenarios.scenario import SYSTEM, Scenario, priors, switched_off
from energymodel.search.result import SAME_NUMBER
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread, deviation
from energymodel.system.memory import FAILING_RISK
from energymodel.system.outcome import DERIVED, EnergyBreakdown, Slack, StepTime, TrainingOutcome
from energymodel.system.plan import RECOMPUTED, ParallelLayout, TrainingPlan

OWN, FOUND, CHANGED = "own plan", "found", "change"
MAIN_OUTPUTS = (
    *("loss", "tokens", "steps", "step_time", "energy", "time", "mfu", "power_average", "pue", "temperature"),
    *("memory_per_chip", "out_of_memory", "money", "carbon_operational"),
)
"""Outputs of the short form."""
_ZERO = ("shard_optimizer", "shard_gradients", "shard_parameters")
_SWITCHES = {*_ZERO, *RECOMPUTED}
_ALWAYS = {"plan.layout.tensor", "plan.layout.pipeline", "plan.layout.microbatch"}
_USUAL = {
    f"{path}.{field.name}": field.default
    for path, component in (("plan", TrainingPlan), ("plan.layout", ParallelLayout))
    for field in dataclasses.fields(component)
    if field.default is not dataclasses.MISSING
}
"""Numbers of a plan that say nothing at this value."""
_TITLES = {
    "microbatch": "sequences per micro-batch",
    **{name: f"{name} share" for name in ("fp8", "fp4", "tf32", "fp32")},
    "loss": "target loss",
}
_BOUNDLESS = 14.0  # of a slack: a limit a million times beyond the value is none
_NEAR = 5e-4  # chance of exceeding a limit from which on the short form names it


class Run(NamedTuple):
    """A plan with its outcome, and the spread of the outcome where it is known."""

    plan: TrainingPlan
    outcome: TrainingOutcome
    spread: OutcomeSpread | None = None

    def quantity(self, name: str) -> Quantity:
        """An output with its interval: by name, or `energy.cooling`, `step_time.compute`."""
        group, _, part = name.partition(".")
        value = getattr(self.outcome, group)
        value = getattr(value, part) if part else total(value) if isinstance(value, eqx.Module) else value
        ends = self.spread.interval(name) if self.spread is not None and group != "slack" else (None, None)
        return Quantity(float(value), *ends)


Runs = Mapping[str, Run]
"""Runs by the name that tables and figures have for them; the last one is what the answer is about."""


def ratio_change(ratio: float, name: str, before: OutcomeSpread | None, after: OutcomeSpread | None) -> Quantity:
    """A ratio of an output less one, with an interval of its own: what moves both runs alike does not count."""
    if before is None or after is None or not ratio > 0.0 or math.isclose(ratio, 1.0, rel_tol=SAME_NUMBER):
        return Quantity(ratio - 1.0)
    half = DEVIATIONS * deviation(after.relative(name) - before.relative(name))
    return Quantity.around(ratio, half).mapped(lambda end: end - 1.0)


def change(before: Run, after: Run, name: str, column: Column) -> Quantity:
    """Change of an output: a ratio less one, or a difference of temperatures."""
    first, second = before.quantity(name).value, after.quantity(name).value
    if column.changed.kind != "difference":
        return ratio_change(second / first if first else math.nan, name, before.spread, after.spread)
    value = second - first
    if before.spread is None or after.spread is None:
        return Quantity(value)
    half = DEVIATIONS * deviation(after.spread.change(name) - before.spread.change(name))
    return Quantity(value, value - half, value + half)


def changed(column: Column, before: Cell, after: Cell) -> Cell:
    """Change of a number that is known exactly; nothing where it stays, or where one of them is missing."""
    if not isinstance(before, Quantity) or not isinstance(after, Quantity) or before.value == after.value:
        return None
    if column.kind == "temperature":
        return Quantity(after.value - before.value)
    return Quantity(after.value / before.value - 1.0) if before.value and after.value else None


def compared(
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Mapping[str, Sequence[Any]],
    change_of: Callable[[Column, Cell, Cell], Cell] = changed,
) -> Table:
    """Rows by name as a tall table; of two of them, what changes."""
    table = Table(name, title, columns, [*rows.values()], tall=True, labels=tuple(rows) if len(rows) > 1 else ())
    if len(rows) != 2:
        return table
    changes = [change_of(column, *cells) for column, *cells in zip(columns, *table.rows, strict=True)]
    labels, kinds = (*rows, CHANGED), ("", "", "change")
    return dataclasses.replace(table, rows=[*table.rows, changes], labels=labels, kinds=kinds)


def output_columns(serves: bool, digits: str = "interval") -> list[Column]:
    """A column for each output, then, for other programs, for each part of energy, step time and slack."""
    declared = {field.name: field.metadata for field in dataclasses.fields(TrainingOutcome)} | dict(DERIVED)
    groups, columns = {"step_time": "step time", "energy": "energy"}, []
    for name, about in declared.items():
        if "title" in about or name in groups:
            level = "data" if name in OF_LIFE and not serves else "short" if name in MAIN_OUTPUTS else "full"
            title = about.get("title") or groups[name]
            own = "three" if name == "step_time" and digits == "interval" else digits
            columns.append(Column(name, title, about["unit"], kind_of(name), own, level))
    return columns + [
        Column(f"{group}.{part.name}", part.metadata["title"], part.metadata["unit"], digits=digits, level="data")
        for group, component in (("energy", EnergyBreakdown), ("step_time", StepTime), ("slack", Slack))
        for part in dataclasses.fields(component)
    ]


def outcome_table(runs: Runs, digits: str = "", only: Collection[str] = ()) -> Table:
    """All outputs, or those named, with their intervals, a row for each run; of two runs, their changes as well.

    - `digits`: of runs to compare, whose uncertainty is unknown; by default two.
    """
    serves = any(float(run.outcome.serving_chip_time) > 0.0 for run in runs.values())
    sure = all(run.spread is not None for run in runs.values())
    columns = output_columns(serves, digits or ("interval" if sure else "two"))
    columns = [column for column in columns if not only or column.name in only]
    rows = {label: [run.quantity(column.name) for column in columns] for label, run in runs.items()}
    title = "Outcome, and its 90 % interval" if sure else "Outcome; how sure it is, is unknown"

    def change_of(column: Column, *_: Cell) -> Cell:
        before, after = runs.values()
        is_ratio = column.name != "out_of_memory" and not column.name.startswith("slack.")
        return change(before, after, column.name, column) if is_ratio else None

    return compared("outcome", title, columns, rows, change_of)


def plan_table(scenario: Scenario, plans: Mapping[str, TrainingPlan], varied: Collection[str] = ()) -> Table:
    """What is decided; numbers that are priors are marked. Of two plans, what differs or was `varied`."""
    origins, alone = scenario.provenance, len(plans) == 1
    reasons = {
        path: origin.source
        for path, origin in origins.items()
        if path.startswith("plan.") and origin.is_prior and origin.source != "default"
    }
    fields = [{field.name: field for field in plan_fields(plan)} for plan in plans.values()]
    cells: dict[Column, list[Any]] = {}

    def add(name: str, title: str, own: list[Any], unit: str = "1", kind: str = "", *, usual: bool = False) -> None:
        differs = len(set(own)) > 1 or f"plan.{name}".split("[")[0] in varied
        level = ("full" if usual else "short") if alone else "short" if differs else "full"
        cells[Column(name, title, unit, kind, level=level)] = own

    for path in dict.fromkeys(name for of_plan in fields for name in of_plan):
        of_plans = [of_plan.get(path) for of_plan in fields]
        field, name = next(field for field in of_plans if field is not None), path.rpartition(".")[2]
        prior = reasons.get(path.split("[")[0], "")
        own = [None if of_plan is None else Quantity(of_plan.value, prior=prior) for of_plan in of_plans]
        usual = name in _SWITCHES or (field.value == _USUAL.get(path) and path not in _ALWAYS)
        title = _TITLES.get(name, field.title)
        add(path.removeprefix("plan."), title, own, field.unit, kind_of(path), usual=usual)
        if path == "plan.layout.pipeline":
            ranks = [float(of.layout.tensor * of.layout.pipeline * of.layout.context) for of in plans.values()]
            add(
                "layout.data",
                "data",
                [float(of.chips) / count for of, count in zip(plans.values(), ranks, strict=True)],
            )
    reference, origin = float(scenario.system.accelerator.reference_clock), origins[REFERENCE_CLOCK]
    prior = f"reference clock: {origin.source}" if origin.is_prior else ""
    frequencies = [Quantity(float(plan.clock) * reference, prior=prior) for plan in plans.values()]
    cells[Column("clock_frequency", "clock frequency", "Hz", level="short" if alone else "full")] = frequencies
    layouts = [plan.layout for plan in plans.values()]
    add("zero_stage", "ZeRO stage", [sum(float(getattr(layout, name)) for name in _ZERO) for layout in layouts])
    add("recomputation", "recomputation", [recomputation_words(layout) for layout in layouts], kind="words")
    return compared("plan", "Plan", [*cells], dict(zip(plans, zip(*cells.values(), strict=True), strict=True)))


def chosen_columns(name: str, title: str, *parts: tuple[Table, Collection[str]]) -> Table:
    """Some columns of tall tables with the same rows as one table, for a first screen."""
    chosen = [(table, index) for table, names in parts for index, of in enumerate(table.names) if of in names]
    first, columns = parts[0][0], [table.columns[index] for table, index in chosen]
    rows = [[table.rows[row][index] for table, index in chosen] for row in range(len(first.rows))]
    return dataclasses.replace(first, name=name, title=title, columns=columns, rows=rows, level="data")


def parts_table(name: str, title: str, runs: Runs, level: Level = "short") -> Table:
    """Parts of `energy` or `step_time` in each run, the largest of the last run first, and their shares of it."""
    first, last, alone = next(iter(runs.values())), list(runs.values())[-1], len(runs) == 1
    size, rows = total(getattr(last.outcome, name)) or 1.0, []
    fields = sorted(part_fields(getattr(last.outcome, name)), key=lambda field: -field.value)
    amounts = [Column(name if alone else label, spaced(name) if alone else label, fields[0].unit) for label in runs]
    columns = [words("part", ""), *amounts, *([Column("change", kind="change")] if len(runs) == 2 else [])]
    columns.append(Column("share", "share" if alone else f"share of {list(runs)[-1]}", kind="share"))
    for field in fields:
        path = f"{name}.{field.name}"
        parts = [run.quantity(path) for run in runs.values()]
        share: Any = field.value / size
        if last.spread is not None:
            half = share * DEVIATIONS * deviation(last.spread.relative(path) - last.spread.relative(name))
            share = share, max(0.0, share - half), min(1.0, share + half)
        if any(part.value for part in parts):
            moved = [change(first, last, path, amounts[0])] if len(runs) == 2 else []
            rows.append([field.title, *parts, *moved, share])
    return Table(f"{name}_parts", title, columns, rows, short=range(min(5, len(rows))), bars="share", level=level)


def fits_in_memory(outcome: TrainingOutcome) -> bool:
    """Whether a plan is likelier to run than to run out of memory."""
    return float(outcome.out_of_memory) <= FAILING_RISK


def memory_sentence(scenario: Scenario, outcome: TrainingOutcome) -> Sentence:
    """What it needs, the probability that it runs out of memory, and what to do where that is more than accepted."""
    risk, accepted = float(outcome.out_of_memory), float(scenario.system.out_of_memory_risk)
    numbers = {
        "need": number(float(outcome.memory_per_chip), "B"),
        "capacity": number(float(scenario.system.accelerator.memory_capacity), "B"),
        "risk": share(risk),
        "accepted": share(accepted),
    }
    text = "{need} of {capacity} per chip: out of memory with a probability of {risk}"
    lighter = list(lighter_memory(scenario.system, scenario.plan).items())
    less = ", ".join(f"{{less_{index}}} with {words}" for index, (words, _) in enumerate(lighter))
    numbers |= {f"less_{index}": number(memory, "B", digits="rows") for index, (_, memory) in enumerate(lighter)}
    less = f" It would take {less}." if less else ""
    if risk <= accepted:
        return Sentence(f"{text}.{less}", numbers)
    text = f"{text}, where a search accepts {{accepted}}." if fits_in_memory(outcome) else f"It does not fit: {text}."
    if less:
        return Sentence(f"{text}{less}", numbers)
    return Sentence(
        f"{text} Raise the tensor or pipeline degree or the sharding, recompute activations, or take more chips; "
        "`energymodel optimize` with the same words finds a layout that fits.",
        numbers,
    )


def limits_table(run: Run, but: str = "") -> Table:
    """Margin to each limit and the chance that it is exceeded, the most likely first; what nobody limits is left out.

    The chance is that of a normal slack, to first order. The margin to a limit of temperature is in kelvin: a share
    of an absolute temperature says nothing.
    """
    kelvins = {"temperature": float(run.outcome.temperature), "coolant": float(run.plan.coolant_temperature)}
    lines: list[tuple[float, float, Column, Quantity]] = []
    for field in part_fields(run.outcome.slack):
        if field.value > _BOUNDLESS or field.name == but:
            continue
        size, column = kelvins.get(field.name, 1.0), Column(field.name, field.title, kind="share")
        if field.name in kelvins:
            column = dataclasses.replace(column, unit="K", kind="difference")
        margin, ends, chance = math.expm1(field.value) * size, (None, None), 0.0
        if run.spread is not None:
            moved = deviation(run.spread.change(f"slack.{field.name}"))
            half = math.exp(field.value) * DEVIATIONS * moved * size
            ends = (margin - half, margin + half)
            chance = float(ndtr(-field.value / moved)) if moved else float(field.value < 0.0)
        lines.append((-chance, field.value, column, Quantity(margin, *ends)))
    lines.sort(key=lambda line: line[:2])
    columns = [
        dataclasses.replace(column, level="short" if index < 4 or -near > _NEAR or slack < 0.0 else "full")
        for index, (near, slack, column, _) in enumerate(lines)
    ]
    rows, labels = [[margin for *_, margin in lines]], ["margin"]
    if run.spread is not None:
        rows, labels = [*rows, [Quantity(abs(near)) for near, *_ in lines]], [*labels, "chance to exceed it"]
    kinds, title = ("", "chance")[: len(rows)], "Margin to each limit, of the value"
    return Table("limits", title, columns, rows, tall=True, labels=labels, kinds=kinds)


def limits_sentence(table: Table) -> Sentence:
    """The limits that are exceeded, or how near the most likely one is."""
    columns = [column for column in table.columns if column.name != "information"]
    if not columns:
        return Sentence("Nothing limits the plan.")
    numbers = {column.name: (column, table.number(column.name)[1]) for column in columns}
    if broken := {name: pair for name, pair in numbers.items() if pair[1].value < -1e-6}:
        parts = [f"{column.title} by {{{name}}}" for name, (column, _) in broken.items()]
        listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
        excess = {
            name: (column, Quantity(-cell.value, cell.high and -cell.high, cell.low and -cell.low))
            for name, (column, cell) in broken.items()
        }
        return Sentence(f"The plan exceeds the limit{'s' * (len(parts) > 1)} of {listed}.", excess)
    nearest = {"margin": numbers[columns[0].name]}
    if len(table.rows) == 1:
        return Sentence(f"The nearest limit is {columns[0].title}: the margin is {{margin}}.", nearest)
    return Sentence(
        f"The limit most likely to be exceeded is {columns[0].title}: the margin is {{margin:i}}, and the probability "
        "that it is exceeded {chance}.",
        nearest | {"chance": table.number(columns[0].name, 1)},
    )


def priors_table(scenario: Scenario) -> Table:
    """Numbers of the system that nobody measured."""
    rows = [[path.removeprefix(SYSTEM), scenario.provenance[path].source] for path in priors(scenario)]
    title = "Numbers of the system that nobody measured"
    return Table("priors", title, [words("number"), words("source")], rows, level="page")


def provenance_notes(scenario: Scenario) -> list[Sentence]:
    """What the time of a run holds beyond the run itself, and how many numbers are priors."""
    system, notes = scenario.system, []
    if stages := float(system.other_stages):
        origin = scenario.provenance["system.other_stages"]
        own = Quantity(stages, prior=origin.source if origin.is_prior else "")
        text = f"Time and energy include {{share}} for other stages: {origin.source}"
        notes.append(Sentence(text, {"share": number(own, kind="share")}))
    if (slowdown := float(system.production_slowdown)) > 1.0:
        origin = scenario.provenance["system.production_slowdown"]
        text = f"Steps take {{times}} times as long as in tuned benchmarks: {origin.source}"
        notes.append(Sentence(text, {"times": number(slowdown, digits="two")}))
    if isinstance(rented := system.market.price, RentedPrice):
        origin = scenario.provenance["system.market.price.chip_time"]
        own = Quantity(float(rented.chip_time), prior=origin.source if origin.is_prior else "")
        notes.append(Sentence(f"A chip costs {{rent}}: {origin.source}", {"rent": number(own, "USD/s", digits="two")}))
    return [*notes, prior_count(scenario)]


def prior_count(scenario: Scenario) -> Sentence:
    """How many numbers of the system nobody measured, and where to read which they are."""
    count, source = sum(path.startswith(SYSTEM) for path in scenario.provenance), scenario.source
    off = len(switched_off(scenario))
    without = f" ({off} more belong to parts that are switched off)" if off else ""
    is_stored = source and not source.startswith("--")
    where = f"`energymodel presets show {source}` lists each with its source, and " if is_stored else ""
    return Sentence(
        f"{len(priors(scenario))} of the {count} numbers of the system are priors{without}; "
        f"{where}`{f'energymodel sensitivity {source}'.strip()}` says what share of the variance rests on them."
    )
