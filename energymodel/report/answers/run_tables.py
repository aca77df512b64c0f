"""Tables that runs share: plan, outcome, parts of a whole, margin to the limits, priors."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
from scipy.special import ndtr

from energymodel.report.answer import CHANCE, CHANGE, DATA, FULL, PAGE, SHORT, Cell, Column, Quantity, Sentence, Table
from energymodel.report.fields import OF_LIFE, PERCENT, Field, outcome_fields, plan_fields, total
from energymodel.scenarios.clock_scale import REFERENCE_CLOCK
from energymodel.scenarios.priors import SYSTEM, priors, switched_off
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread, deviation
from energymodel.system.outcome import DERIVED, EnergyBreakdown, Slack, StepTime, TrainingOutcome
from energymodel.system.plan import ParallelLayout, TrainingPlan

OWN, FOUND, CHANGED = "own plan", "found", "change"
MAIN_OUTPUTS = (
    *("loss", "tokens", "steps", "step_time", "energy", "time", "mfu", "power_average", "pue", "temperature"),
    *("memory_per_chip", "money", "carbon_operational"),
)
"""Outputs of the short form."""
_RECOMPUTATION = {(0.0, 0.0): "none", (1.0, 0.0): "selective", (0.0, 1.0): "full"}
_SWITCHES = {"shard_optimizer", "shard_gradients", "shard_parameters", "recompute_attention", "recompute_full"}
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
        known = self.spread is not None and group != "slack"
        return Quantity(float(value), *(self.spread.interval(name) if self.spread and known else (None, None)))


Runs = Mapping[str, Run]
"""Runs by the name that tables and figures have for them; the last one is what the answer is about."""


def change(before: Run, after: Run, name: str, column: Column) -> Quantity:
    """Change of an output with an interval of its own: what moves both runs alike does not count.

    A ratio less one, or a difference of temperatures.
    """
    first, second = before.quantity(name).value, after.quantity(name).value
    known = before.spread is not None and after.spread is not None
    if column.changed.kind == "difference":
        value, half = second - first, math.nan
        if before.spread is not None and after.spread is not None:
            half = DEVIATIONS * deviation(after.spread.change(name) - before.spread.change(name))
        return Quantity(value, value - half, value + half) if known else Quantity(value)
    ratio = second / first if first else math.nan
    if before.spread is None or after.spread is None or not ratio > 0.0:
        return Quantity(ratio - 1.0)
    half = DEVIATIONS * deviation(after.spread.relative(name) - before.spread.relative(name))
    return Quantity(ratio - 1.0, ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0)


def kind_of(field: Field) -> str:
    """How a number of a plan or an outcome is read."""
    name = field.name.rpartition(".")[2].partition("[")[0]
    if field.key.endswith("hours"):
        return "hours"
    if name in ("steps", "chips"):
        return "count"
    return "share" if name in PERCENT or name == "waiting_clock" else "temperature" if field.unit == "K" else "amount"


def output_columns(serves: bool, digits: str = "interval") -> list[Column]:
    """A column for each output, then for each part of energy, step time and slack."""
    columns = []
    for field in _OUTPUTS:
        level = DATA if field.name in OF_LIFE and not serves else SHORT if field.name in MAIN_OUTPUTS else FULL
        columns.append(Column(field.name, field.title, field.unit, kind_of(field), digits, level))
    return columns + [Column(part.name, part.title, part.unit, digits=digits, level=DATA) for part in _PARTS]


def _outputs() -> list[Field]:
    """Names, keys, titles and units of all outputs, without their values."""
    declared = {field.name: field.metadata for field in dataclasses.fields(TrainingOutcome)} | dict(DERIVED)
    groups = {"step_time": "step time", "energy": "energy"}
    return [
        Field(name, about["key"], about.get("title") or groups[name], about["unit"], math.nan)
        for name, about in declared.items()
        if "title" in about or name in groups
    ]


_OUTPUTS = _outputs()
_PARTS = [
    Field(f"{group}.{field.name}", "", field.metadata["title"], field.metadata["unit"], math.nan)
    for group, component in (("energy", EnergyBreakdown), ("step_time", StepTime), ("slack", Slack))
    for field in dataclasses.fields(component)
]
"""Parts of energy and step time, and the logarithm of limit over value of each limit: for other programs."""


def outcome_table(runs: Runs, digits: str = "", only: Collection[str] = ()) -> Table:
    """All outputs, or those named, with their intervals, a row for each run; of two runs, their changes as well.

    - `digits`: of runs to compare, whose uncertainty is unknown; by default two.
    """
    serves = any(float(run.outcome.serving_chip_time) > 0.0 for run in runs.values())
    known = all(run.spread is not None for run in runs.values())
    columns = output_columns(serves, digits or ("interval" if known else "two"))
    columns = [column for column in columns if not only or column.name in only]
    rows = [[run.quantity(column.name) for column in columns] for run in runs.values()]
    title = "Outcome, and its 90 % interval" if known else "Outcome; how sure it is, is unknown"
    if len(runs) != 2:
        return Table("outcome", title, columns, rows, tall=True, labels=tuple(runs) if len(runs) > 1 else ())
    own, best = runs.values()
    changes = [None if "slack." in column.name else change(own, best, column.name, column) for column in columns]
    labels, kinds = (*runs, CHANGED), ("", "", CHANGE)
    return Table("outcome", title, columns, [*rows, changes], tall=True, labels=labels, kinds=kinds)


def plan_table(scenario: Scenario, plans: Mapping[str, TrainingPlan], varied: Collection[str] = ()) -> Table:
    """What is decided; numbers that are priors are marked. Of two plans, what differs or was `varied`."""
    reasons = plan_priors(scenario)
    fields = [{field.name: field for field in plan_fields(plan)} for plan in plans.values()]
    columns: list[Column] = []
    rows: list[list[Cell]] = [[] for _ in plans]

    def add(column: Column, cells: Sequence[Cell]) -> None:
        columns.append(column)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)

    def level_of(path: str, usual: bool, differs: bool) -> int:
        if len(plans) > 1:
            return SHORT if differs or path.split("[")[0] in varied else FULL
        return FULL if path.rpartition(".")[2] in _SWITCHES or usual else SHORT

    def number(field: Field | None) -> Cell:
        return None if field is None else Quantity(field.value, prior=reasons.get(field.name.split("[")[0], ""))

    for path in dict.fromkeys(name for of_plan in fields for name in of_plan):
        own = [of_plan.get(path) for of_plan in fields]
        field = next(one for one in own if one is not None)
        name = path.rpartition(".")[2]
        same = len({one.value if one else None for one in own}) == 1
        usual = field.value == _USUAL.get(path) and same and path not in _ALWAYS
        level = level_of(path, usual, not same)
        title = _TITLES.get(name, field.title)
        add(Column(path.removeprefix("plan."), title, field.unit, kind_of(field), level=level), [*map(number, own)])
        if path == "plan.layout.pipeline":
            replicas = [data_parallel(plan) for plan in plans.values()]
            level = level_of("layout.data", usual=False, differs=len(set(replicas)) > 1)
            add(Column("layout.data", "data", level=level), [*map(Quantity, replicas)])
    reference = float(scenario.system.accelerator.reference_clock)
    origin = scenario.provenance[REFERENCE_CLOCK]
    prior = f"reference clock: {origin.source}" if origin.is_prior else ""
    frequencies = [Quantity(float(plan.clock) * reference, prior=prior) for plan in plans.values()]
    level = SHORT if len(plans) == 1 else FULL
    add(Column("clock_frequency", "clock frequency", "Hz", level=level), frequencies)
    stages = [Quantity(sum(float(getattr(plan.layout, name)) for name in _ZERO)) for plan in plans.values()]
    add(Column("zero_stage", "ZeRO stage", level=level_of("zero_stage", False, len({*stages}) > 1)), stages)
    words = [_recomputation(plan) for plan in plans.values()]
    level = level_of("recomputation", False, len({*words}) > 1)
    add(Column("recomputation", "recomputation", kind="words", level=level), words)
    if len(plans) == 1:
        return Table("plan", "Plan", columns, rows, tall=True)
    rows.append([_changed(column, *cells) for column, *cells in zip(columns, *rows, strict=True)])
    return Table("plan", "Plan", columns, rows, tall=True, labels=(*plans, CHANGED), kinds=("", "", CHANGE))


def _changed(column: Column, before: Cell, after: Cell) -> Cell:
    """Change of a number that is known exactly; nothing where it stays, or where one of them is missing."""
    if not isinstance(before, Quantity) or not isinstance(after, Quantity) or before.value == after.value:
        return None
    if column.kind == "temperature":
        return Quantity(after.value - before.value)
    return Quantity(after.value / before.value - 1.0) if before.value and after.value else None


_ZERO = ("shard_optimizer", "shard_gradients", "shard_parameters")


def _recomputation(plan: TrainingPlan) -> str:
    layout = plan.layout
    shares = (float(layout.recompute_attention), float(layout.recompute_full))
    return _RECOMPUTATION.get(shares, f"attention {shares[0]:g}, all {shares[1]:g}")


def data_parallel(plan: TrainingPlan) -> float:
    """Replicas of the model."""
    layout = plan.layout
    return float(plan.chips) / float(layout.tensor * layout.pipeline * layout.context)


def parts_table(name: str, title: str, runs: Runs, level: int = SHORT) -> Table:
    """Parts of `energy` or `step_time` in each run, the largest of the last run first, and their shares of it."""
    first, last = next(iter(runs.values())), list(runs.values())[-1]
    alone = len(runs) == 1
    fields = sorted(outcome_fields(getattr(last.outcome, name)), key=lambda field: -field.value)
    columns = [Column("part", "", kind="words")]
    columns += [
        Column(name if alone else label, name.replace("_", " ") if alone else label, fields[0].unit) for label in runs
    ]
    columns += [Column("change", "change", kind="change")] if len(runs) == 2 else []
    columns.append(Column("share", "share" if alone else f"share of {list(runs)[-1]}", kind="share"))
    rows = []
    for field in fields:
        parts = [run.quantity(f"{name}.{field.name}") for run in runs.values()]
        if any(part.value for part in parts):
            moved = [change(first, last, f"{name}.{field.name}", columns[1])] if len(runs) == 2 else []
            rows.append([field.title, *parts, *moved, _share(last, name, field)])
    return Table(f"{name}_parts", title, columns, rows, short=range(min(5, len(rows))), bars="share", level=level)


def _share(run: Run, name: str, field: Field) -> Quantity:
    share = field.value / (total(getattr(run.outcome, name)) or 1.0)
    if run.spread is None:
        return Quantity(share)
    half = share * DEVIATIONS * deviation(run.spread.relative(f"{name}.{field.name}") - run.spread.relative(name))
    return Quantity(share, max(0.0, share - half), min(1.0, share + half))


def limits_table(run: Run, but: str = "") -> Table:
    """Margin to each limit and the chance that it is exceeded, the most likely first; what nobody limits is left out.

    The chance is that of a normal slack, to first order. The margin to a limit of temperature is in kelvin: a share
    of an absolute temperature says nothing.
    """
    kelvins = {"temperature": float(run.outcome.temperature), "coolant": float(run.plan.coolant_temperature)}
    lines: list[tuple[float, float, Column, Quantity, Quantity | None]] = []
    for field in outcome_fields(run.outcome.slack):
        if field.value > _BOUNDLESS or field.name == but:
            continue
        size, kind = kelvins.get(field.name, 1.0), "difference" if field.name in kelvins else "share"
        margin, ends, chance = math.expm1(field.value) * size, (None, None), None
        if run.spread is not None:
            moved = deviation(run.spread.change(f"slack.{field.name}"))
            half = math.exp(field.value) * DEVIATIONS * moved * size
            ends = (margin - half, margin + half)
            chance = Quantity(float(ndtr(-field.value / moved)) if moved else float(field.value < 0.0))
        column = Column(field.name, field.title, "K" if kind == "difference" else "1", kind)
        lines.append((-chance.value if chance else 0.0, field.value, column, Quantity(margin, *ends), chance))
    lines.sort(key=lambda line: line[:2])
    columns = [
        dataclasses.replace(column, level=SHORT if index < 4 or -near > _NEAR or slack < 0.0 else FULL)
        for index, (near, slack, column, _, _) in enumerate(lines)
    ]
    rows: list[list[Cell]] = [[margin for *_, margin, _ in lines]]
    labels, kinds = ["margin"], [""]
    if run.spread is not None:
        rows.append([chance for *_, chance in lines])
        labels, kinds = [*labels, "chance to exceed it"], [*kinds, CHANCE]
    return Table("limits", "Margin to each limit, of the value", columns, rows, tall=True, labels=labels, kinds=kinds)


def limits_sentence(table: Table) -> Sentence:
    """The limits that are exceeded, or how near the most likely one is."""
    columns = [column for column in table.columns if column.name != "information"]
    if not columns:
        return Sentence("Nothing limits the plan.")
    broken = [column for column in columns if table.number(column.name)[1].value < -1e-6]
    if broken:
        words = [f"{column.title} by {{{column.name}}}" for column in broken]
        excess = {column.name: (column, table.number(column.name)[1]) for column in broken}
        numbers = {
            name: (
                dataclasses.replace(column, kind="share" if column.kind == "change" else column.kind),
                _positive(cell),
            )
            for name, (column, cell) in excess.items()
        }
        listed = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
        return Sentence(f"The plan exceeds the limit{'s' * (len(words) > 1)} of {listed}.", numbers)
    nearest = columns[0]
    numbers = {"margin": table.number(nearest.name)}
    if len(table.rows) == 1:
        return Sentence(f"The nearest limit is {nearest.title}: the margin is {{margin}}.", numbers)
    numbers["chance"] = table.number(nearest.name, 1)
    return Sentence(
        f"The limit most likely to be exceeded is {nearest.title}: the margin is {{margin:i}}, and the probability "
        "that it is exceeded {chance}.",
        numbers,
    )


def _positive(cell: Quantity) -> Quantity:
    ends = (None, None) if cell.low is None or cell.high is None else (-cell.high, -cell.low)
    return Quantity(-cell.value, *ends)


def priors_table(scenario: Scenario) -> Table:
    """Numbers of the system that nobody measured."""
    rows = [[path.removeprefix(SYSTEM), scenario.provenance[path].source] for path in priors(scenario)]
    columns = [Column("number", "number", kind="words"), Column("source", "source", kind="words")]
    return Table("priors", "Numbers of the system that nobody measured", columns, rows, level=PAGE)


def plan_priors(scenario: Scenario) -> Mapping[str, str]:
    """Path and source of the numbers of the plan that are assumed."""
    return {
        path: origin.source
        for path, origin in scenario.provenance.items()
        if path.startswith("plan.") and origin.is_prior and origin.source != "default"
    }


def provenance_notes(scenario: Scenario) -> list[Sentence]:
    """What the time of a run holds beyond the run itself, and how many numbers are priors."""
    system, notes = scenario.system, []
    share = Column("", "", kind="share")
    if stages := float(system.other_stages):
        origin = scenario.provenance["system.other_stages"]
        numbers = {"share": (share, Quantity(stages, prior=origin.source if origin.is_prior else ""))}
        notes.append(Sentence(f"Time and energy include {{share}} for other stages: {origin.source}", numbers))
    if (slowdown := float(system.production_slowdown)) > 1.0:
        origin = scenario.provenance["system.production_slowdown"]
        times = {"times": (Column("", "", digits="two"), Quantity(slowdown))}
        notes.append(Sentence(f"Steps take {{times}} times as long as in tuned benchmarks: {origin.source}", times))
    return [*notes, prior_count(scenario)]


def prior_count(scenario: Scenario) -> Sentence:
    """How many numbers of the system nobody measured, and where to read which they are."""
    total_count = sum(path.startswith(SYSTEM) for path in scenario.provenance)
    off = len(switched_off(scenario))
    without = f" ({off} more belong to parts that are switched off)" if off else ""
    source = scenario.source
    is_stored = source and not source.startswith("--")
    where = f"`energymodel presets show {source}` lists each with its source, and " if is_stored else ""
    return Sentence(
        f"{len(priors(scenario))} of the {total_count} numbers of the system are priors{without}; "
        f"{where}`{f'energymodel sensitivity {source}'.strip()}` says what share of the variance rests on them."
    )
