"""How is a sweep shown: the points that it kept as a table, JSON, CSV?"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report.intervals import like, percent, with_interval
from energymodel.report.json_tree import Tree
from energymodel.report.sweep_rows import MOST_ROWS, infeasible_points, sweep_rows
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.outcome_spread import DEVIATIONS, LEVEL, OutcomeSpread
from energymodel.sweeps.reductions import AbstractPointReduction
from energymodel.sweeps.scenario_axes import UNITS
from energymodel.sweeps.sweep_result import SweepCost, SweepResult, Winner
from energymodel.units import counted, format_point_rate, format_quantity

SHOWN = ("energy", "time", "money", "facility_power", "temperature", "loss")
"""Outputs of the table; the files hold all."""
ROWS = 24
MOST_NAMED = 8  # combinations without a point


def sweep_report(
    scenario: Scenario, swept: SweepResult, minimize: str, spread: OutcomeSpread | None = None
) -> RenderableType:
    """What was asked, the points that were kept, and how long it took.

    With the spread of the scenario's own plan, all points have the digits that it supports.
    """
    title = Text(f"{scenario.title}: sweep of {counted(swept.points, 'point')}", style="bold")
    parts: list[RenderableType] = [title, "", axes_table(swept.axes)]
    if swept.winners:
        parts += ["", winners_table(swept.axes, swept.winners[:ROWS], minimize, spread)]
    if not isinstance(swept.keep, AbstractPointReduction):
        parts += ["", rows_table(swept)]
    lines = sweep_lines(scenario, swept, minimize, spread)
    if len(swept.winners) > ROWS:
        lines.insert(0, f"{ROWS} of {len(swept.winners)} points are shown; -o sweep.csv writes all.")
    return Group(*parts, "", Text("\n".join(lines)))


def sweep_lines(
    scenario: Scenario, swept: SweepResult, minimize: str, spread: OutcomeSpread | None = None
) -> list[str]:
    """What lies between the points, how sure the first one is, how long it took, and what is to be said of it."""
    lines = []
    if swept.polished is not None and swept.winners:
        near = swept.polished
        gain = 100.0 * (1.0 - near.value / swept.winners[0].value)
        at = ", ".join(_shown_value(axis, near.point[axis.name]) for axis in swept.axes)
        lines.append(f"Between the points, {minimize} is {gain:.2g} % lower ({near.result}): {at}.")
    if swept.winners and spread:
        lines.append(_interval_line(scenario, swept.winners[0], spread))
    if missing := infeasible_points(swept):
        at = "; ".join(_at(swept.axes, point) for point in missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED} others" if len(missing) > MOST_NAMED else ""
        lines.append(f"No point obeys all limits at {at}{more}.")
    rate = swept.points / swept.seconds if swept.seconds else 0.0
    lines.append(f"{counted(swept.points, 'point')} in {swept.seconds:.1f} s, {format_point_rate(rate)}.")
    lines.append(swept.choice.sentence())
    return [line for line in (*lines, swept.message) if line]


def axes_table(axes: Sequence[Axis]) -> Table:
    """Axes with their ends and the number of values."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("axis", no_wrap=True)
    for heading in ("from", "to", "values"):
        table.add_column(heading, justify="right", no_wrap=True)
    for axis in axes:
        ends = (_shown_value(axis, axis.label(0)), _shown_value(axis, axis.label(len(axis) - 1)))
        table.add_row(axis.name, *ends, f"{len(axis):,}")
    return table


def winners_table(
    axes: Sequence[Axis], winners: Sequence[Winner], minimize: str, spread: OutcomeSpread | None = None
) -> Table:
    """Points that were kept, with their axes and usual outputs, and what is minimized against the first of them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    outputs = [name for name in SHOWN if name in winners[0].outputs]
    several = len(winners) > 1 and winners[0].value > 0.0
    headings = [f"{minimize} above first"] if several else []
    headings += [name.replace("_", " ") for name in outputs]
    headings += [axis.name.rpartition(".")[2].replace("_", " ") for axis in axes]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for winner in winners:
        table.add_row(
            *([percent(winner.value / winners[0].value - 1.0, sign="+")] if several else []),
            *(_shown_output(winner, name, spread) for name in outputs),
            *(_shown_value(axis, winner.point[axis.name]) for axis in axes),
        )
    return table


def rows_table(swept: SweepResult) -> Table:
    """The first rows of what a reduction makes of all points."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    head, rows = sweep_rows(swept)
    for heading in head:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in itertools.islice(rows, ROWS):
        table.add_row(*(f"{one:.5g}" if isinstance(one, float) else str(one) for one in row))
    if next(rows, None) is not None:
        table.add_row(*("..." for _ in head))
    return table


def _at(axes: Sequence[Axis], point: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis.name} = {_shown_value(axis, point[axis.name])}" for axis in axes if axis.name in point)


def _shown_output(winner: Winner, name: str, spread: OutcomeSpread | None) -> str:
    value = winner.outputs[name]
    half = DEVIATIONS * spread.deviation(name) if spread else 0.0
    return like(value, UNITS[name], half)


def _interval_line(scenario: Scenario, best: Winner, spread: OutcomeSpread) -> str:
    """Intervals of the first point, whose outputs are as uncertain as those of the scenario's own plan."""
    halves = {name: DEVIATIONS * spread.deviation(name) for name in SHOWN if name in best.outputs}
    shown = ", ".join(
        f"{name.replace('_', ' ')} "
        + with_interval(value, value * math.exp(-half), value * math.exp(half), UNITS[name], LEVEL)
        for name, half in halves.items()
        for value in [best.outputs[name]]
        if half > 0.0
    )
    return f"Intervals of the first point, as wide as those of {scenario.name} itself: {shown}." if shown else ""


def _shown_value(axis: Axis, value: Any) -> str:
    return value if isinstance(value, str) else format_quantity(value, axis.unit)


def sweep_json(scenario: Scenario, swept: SweepResult, asked: Mapping[str, Any]) -> Tree:
    """Axes, what was asked, points that were kept with all outputs; `asked` repeats the run."""
    return {
        "scenario": scenario.named_tables,
        **asked,
        "axes": [{"name": axis.name, "unit": axis.unit, "values": axis.labels_or_values()} for axis in swept.axes],
        "order": [axis.name for axis in swept.grid.axes],
        "points": swept.points,
        "points_per_s": swept.points / swept.seconds if swept.seconds else None,
        "time_s": swept.seconds,
        "complete": swept.complete,
        "message": swept.message,
        "evaluated": dataclasses.asdict(swept.choice),
        "units": {name: UNITS.get(name, "1") for name in (swept.winners[0].outputs if swept.winners else ())},
        "winners": [dataclasses.asdict(one) | {"index": list(one.index)} for one in swept.winners],
        "infeasible": infeasible_points(swept),
        **_rows_json(swept),
        "polished": swept.polished and dataclasses.asdict(swept.polished),
    }


def _rows_json(swept: SweepResult) -> Tree:
    """What a reduction makes of all points, as heading and rows."""
    if isinstance(swept.keep, AbstractPointReduction):
        return {}
    head, rows = sweep_rows(swept)
    return {"columns": head, "rows": [list(row) for row in itertools.islice(rows, MOST_ROWS)]}


def cost_json(cost: SweepCost) -> Tree:
    """Points, memory and time that a sweep would take."""
    return {
        "points": cost.points,
        "chunk": cost.chunk,
        "tiles": cost.tiles,
        "memory_b": cost.memory,
        "time_s": cost.seconds,
        "order": list(cost.order),
    }


def cost_report(cost: SweepCost) -> RenderableType:
    """The same in a few lines."""
    return Text(
        f"{counted(cost.points, 'point')} in {counted(cost.tiles, 'tile')}, chunks of {cost.chunk:,}.\n"
        f"Memory: {format_quantity(cost.memory, 'B')}, besides that of the compiler. "
        f"Time: {format_quantity(max(cost.seconds, 1e-3), 's')} "
        f"({format_point_rate(cost.points / cost.seconds)}), after compilation.\n"
        f"Order of the axes, outermost first: {', '.join(cost.order)}."
    )
