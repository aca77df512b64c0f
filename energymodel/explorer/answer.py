"""The answer of the page: a plan beside the scenario's own, its limits, where it spends, and the plans near it.

Its numbers are those of `evaluate`, from the same builders, so that both say the same.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.explorer.state import PagePlan, PlanSpace
from energymodel.explorer.view import Operation, View
from energymodel.readers.expressions import data_file
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers import run_tables
from energymodel.report.answers.details import costs_table, parts_chart
from energymodel.report.answers.evaluate import capacity_warnings
from energymodel.report.answers.run_tables import OWN
from energymodel.report.cells import Column, Quantity, number, present, share, words
from energymodel.report.number import plain
from energymodel.search.result import efficient
from energymodel.search.training_run import LIMITS_OF_SYSTEM
from energymodel.system.outcome import TrainingOutcome

NOW = "this plan"
MAIN = ("energy", "time", "money", "carbon_operational")
_SHOWN = data_file(__file__, "page.toml")
READ, OBJECTIVES, FIGURES = _SHOWN["outputs"], _SHOWN["objectives"], _SHOWN["figures"]
"""Outputs that the page reads out, units of what its front can show against time, and tables of its figures."""
_BESIDE = "By where it goes, beside the scenario's own plan"
_WORKS = ("matrix products", "kernels of a layer", "whole step")
_INTENSITIES = 6.0  # of the roofline: a decade and a half around its ridge, or as far as the points are
_FARTHEST = 1.1  # of the largest time and value on the front
_FRONT = "front: no such plan is better in both"
_ROUNDING, _SAME = 1e-6, 5e-5
_SMALLEST_RISE = 0.05  # K


def explore_answer(
    space: PlanSpace,
    own: PagePlan,
    now: PagePlan,
    pins: Mapping[str, PagePlan],
    figures: Collection[str] = tuple(FIGURES),
    objective: str = "energy",
) -> Answer:
    """A plan in numbers, beside the scenario's own and the pinned ones.

    **Arguments:**

    - `figures`: those of `FIGURES` that are drawn.
    - `objective`: what the front shows against time.
    """
    if own.spread is None or now.spread is None:
        own, now = own._replace(spread=None), now._replace(spread=None)
    runs = {OWN: own.run, NOW: now.run}
    outcome, limits = run_tables.outcome_table(runs, only=READ), run_tables.limits_table(now.run)
    drawn = [_figure(name, own, now, pins, objective) for name in FIGURES if name in figures]
    compared = [compare_table(space, {OWN: own, **pins, NOW: now})] if pins else []
    energy, time = outcome.number("energy", 1), outcome.number("time", 1)
    return Answer(
        "explore",
        space.own.title,
        Sentence("{energy} in {time}", {"energy": energy, "time": time}),
        [_spoken(outcome), run_tables.limits_sentence(limits)],
        [outcome, limits, *compared, *(table for table, _ in drawn)],
        present(*(chart for _, chart in drawn)),
        warnings=capacity_warnings(now.outcome),
        inputs=space.own.named_tables,
        result="infeasible" if is_broken(now.outcome) else "successful",
    )


def is_broken(outcome: TrainingOutcome) -> bool:
    """Whether a plan breaks a limit; what the parameters can store is none."""
    slacks = (getattr(outcome.slack, name.removeprefix("slack.")) for name in LIMITS_OF_SYSTEM)
    return any(float(slack) < -_ROUNDING for slack in slacks)


def change_of(outcome: Table, name: str) -> tuple[Column, Quantity] | None:
    """Change of an output against the own plan, where there is one."""
    if not isinstance(outcome.column(name)[1][2], Quantity):  # of a probability
        return None
    column, cell = outcome.number(name, 2)
    smallest = _SMALLEST_RISE if column.kind == "difference" else _SAME
    return (column, cell) if math.isfinite(cell.value) and abs(cell.value) >= smallest else None


def _spoken(outcome: Table) -> Sentence:
    """The main outputs with their changes, for those who hear them."""
    parts, numbers = [], {}
    for name in MAIN:
        numbers[name], changed = outcome.number(name, 1), change_of(outcome, name)
        parts.append(f"{numbers[name][0].title} {{{name}}}{f', {{{name} change}}' if changed else ''}")
        numbers |= {f"{name} change": changed} if changed else {}
    return Sentence(f"{'; '.join(parts).capitalize()}.", numbers)


def compare_table(space: PlanSpace, plans: Mapping[str, PagePlan]) -> Table:
    """Plans side by side: numbers and layouts that differ, and outputs with their changes against the first plan."""
    first, *others = plans.values()
    lines: list[tuple[Column, list[Any], list[Any]]] = []  # of each column: the plans, and the changes of the others
    layouts = [space.layouts.names(plan.layout) for plan in plans.values()]
    nothing = [None] * len(others)
    for path in dict.fromkeys(path for plan in plans.values() for path in plan.values):
        knob = space.knobs[path]
        values = [knob.quantity(plan.values.get(path, knob.own)) for plan in plans.values()]
        lines.append((knob.column, values, nothing))
    for name, field in space.layouts.fields.items():
        lines.append((words(name, field.label), [layout[name] for layout in layouts], nothing))
    lines = [line for line in lines if len({*line[1]}) > 1]
    outputs = {column.name: column for column in run_tables.output_columns(serves=False, digits="two")}
    for name in READ:
        changes = [run_tables.change(first.run, plan.run, name, outputs[name]) for plan in others]
        lines.append((outputs[name], [plan.run.quantity(name) for plan in plans.values()], changes))
    rows = [[cells[0] for _, cells, _ in lines]]
    for index in range(len(others)):
        rows += [[cells[index + 1] for _, cells, _ in lines], [changes[index] for *_, changes in lines]]
    labels = [OWN, *(label for name in list(plans)[1:] for label in (name, "change"))]
    columns, kinds = [column for column, *_ in lines], ["", *("", "change") * len(others)]
    return Table("compare", "Plans side by side", columns, rows, tall=True, labels=labels, kinds=kinds)


def _figure(
    name: str, own: PagePlan, now: PagePlan, pins: Mapping[str, PagePlan], objective: str
) -> tuple[Table, Chart | None]:
    """The table of a figure, and the figure; none where there is nothing to draw."""
    if name == "front":
        return front(own, now, pins, objective)
    if name == "roofline":
        return roofline(now.view)
    if name == "thermal":
        return thermal(now.view)
    if name == "money":
        plans = {OWN: own.view.money, NOW: now.view.money}
        table = costs_table({label: {part: float(of[part]) for part in of} for label, of in plans.items()})
        return table, parts_chart(table, name, _BESIDE) if table.rows else None
    of, title = {"energy": ("energy", "Energy of the run"), "time": ("step_time", "Time of one step")}[name]
    table = run_tables.parts_table(of, title, {OWN: own.run, NOW: now.run})
    return table, parts_chart(table, of, _BESIDE) if table.rows else None


def roofline(view: View) -> tuple[Table, Chart]:
    """The work of a chip under the roofs of its arithmetic and its memory."""
    roof = view.roofline
    peak, bandwidth = float(roof.peak), float(roof.bandwidth)
    ridge = peak / bandwidth
    low = min(ridge / _INTENSITIES, 0.7 * float(np.min(roof.intensity)))
    high = max(ridge * _INTENSITIES, 1.4 * float(np.max(roof.intensity)))
    name = f"roof: {plain(bandwidth, 'B/s')} and {plain(peak, 'FLOP/s')}"
    columns = [words("work"), Column("intensity", "operations per byte of memory", "FLOP/B", digits="two")]
    columns += [Column(name, unit="FLOP/s", digits="two") for name in ("roof", "rate")]
    rows = [[name, x, min(peak, bandwidth * x), None] for x in (low, ridge, high)]
    pairs = zip(_WORKS, roof.intensity, roof.rate, strict=True)
    rows += [[work, intensity, None, rate] for work, intensity, rate in pairs]
    limit = "the memory holds them back" if float(roof.intensity[0]) < ridge else "arithmetic is their limit"
    reached = {"share": share(float(roof.rate[0]) / peak)}
    title = Sentence(f"Matrix products reach {{share}} of the peak; {limit}", reached)
    subtitle = f"Roofline of a chip at its clock; the ridge is at {plain(ridge, 'FLOP/B')}"
    look = {"series": "work", "hover": ["rate"], "lines": [name], "log": ["intensity", "roof"], "axis": "rate"}
    table = Table("roofline", "Roofline of a chip", columns, rows)
    return table, Chart("plane", title, "roofline", "intensity", ["roof", "rate"], subtitle, **look)


def thermal(view: View) -> tuple[Table, Chart]:
    """How a chip gets its temperature: from the coolant to the junction, step by step, below the limit."""
    supply, *rises, limit = map(float, view.warmth)
    names = ("along the row", "coolant to package", "within the package", "hot spot")
    columns = [words("step"), Column("from", unit="K"), Column("to", unit="K")]
    columns.append(Column("rise", unit="K", kind="difference"))
    top = supply
    rows: list[list[Any]] = [["coolant supply", top, top, Quantity(top, unit="K", kind="temperature")]]
    for name, rise in zip(names, rises, strict=True):
        rows += [[name, top, top + rise, rise]] if abs(rise) >= _SMALLEST_RISE else []
        top += rise
    rows.append(["junction", top, top, Quantity(top, unit="K", kind="temperature")])
    left = {"left": number(abs(limit - top), "K", "difference")}
    title = Sentence(f"The hottest chip is {{left}} {'below' if limit >= top else 'above'} its limit", left)
    level = (limit, f"limit {plain(limit, 'K', 'temperature')}")
    look = {"base": "from", "label": "rise", "limit": level, "axis": "temperature"}
    table = Table("warmth", "Temperature from the coolant to the junction", columns, rows)
    subtitle = "Busy chip at the end of the row, at steady power"
    return table, Chart("bars", title, "warmth", "step", ["to"], subtitle, **look)


def front(own: PagePlan, now: PagePlan, pins: Mapping[str, PagePlan], objective: str) -> tuple[Table, Chart]:
    """Time against energy, money or carbon of plans with other batches and clocks, at the loss of this one."""
    nearby, of = now.view.nearby, ("time", objective)
    times, values = np.asarray(nearby.time), np.asarray(getattr(nearby, objective))
    finite = np.isfinite(values) & np.isfinite(times)
    obeying = finite & (nearby.slack >= -1e-9)
    usable = obeying if obeying.any() else finite
    best = np.flatnonzero(usable)
    best = best[efficient(np.stack([times, values], axis=1)[best])]
    best = best[np.argsort(times[best])]
    points = {
        label: [plan.run.quantity(name).value for name in of] for label, plan in {NOW: now, OWN: own, **pins}.items()
    }
    farthest = [_FARTHEST * max([at, *numbers[best]]) for at, numbers in zip(points[NOW], (times, values), strict=True)]
    is_other = usable & (times <= farthest[0]) & (values <= farthest[1])
    is_other[best] = False
    groups = {_FRONT: best, "other batches and clocks": np.flatnonzero(is_other)}
    grid = (times, values, nearby.batch_factor, nearby.clock)
    rows: list[list[Any]] = [
        [name, "", *(numbers[index] for numbers in grid)] for name, indices in groups.items() for index in indices
    ]
    rows += [["pinned" if label in pins else label, label, *at, None, None] for label, at in points.items()]
    columns = [
        words("series", ""),
        words("name", ""),
        Column("time", "calendar time", "s", digits="rows"),
        Column(objective, objective, OBJECTIVES[objective], digits="rows"),
        Column("batch_factor", "batch over that of this plan:", kind="share", digits="rows"),
        Column("clock", kind="share", digits="rows"),
    ]
    subtitle = "Plans with other batches and clocks that reach the loss of this plan"
    if obeying.any():
        title = _front_title(points[NOW], times[best], values[best], objective)
        subtitle = f"{subtitle} within all limits"
    else:
        title = Sentence("Every plan with another batch or clock breaks a limit, too")
    look = {"series": "series", "label": "name", "lines": [_FRONT], "hover": [column.name for column in columns[2:]]}
    table = Table("front", "Plans with other batches and clocks", columns, rows)
    return table, Chart("plane", title, "front", "time", [objective], subtitle, **look)


def _front_title(here: Sequence[float], times: np.ndarray, values: np.ndarray, objective: str) -> Sentence:
    """What plans on the front save against this one, in no more time or in more of it."""
    if not len(times):
        return Sentence("No plan with another batch or clock reaches this loss")
    saved = max((1.0 - values[times <= here[0] * (1.0 + 1e-6)] / here[1]), default=0.0)
    text = f"Another batch and clock saves {{saved}} of the {objective} in no more time"
    if not saved > 1e-3:
        saved, text = 1.0 - values[-1] / here[1], f"{{saved}} less {objective} takes {{longer}} more time"
    if not saved > 1e-3:
        return Sentence(f"No other batch or clock here takes less {objective}")
    return Sentence(text, {"saved": share(saved), "longer": share(times[-1] / here[0] - 1.0)})


def operation_sentence(operation: Operation) -> Sentence:
    """Energy of an operation, and how far above the Landauer bound it is."""
    energy, bound = float(operation.energy), float(operation.bound)
    numbers = {"energy": number(energy, "J/FLOP", digits="two"), "times": number(energy / bound, digits="two")}
    return Sentence("{energy} per operation, {times} times the Landauer bound", numbers)
