"""What does the page of a sweep say: the points that it kept, and how they compare?"""

import math

from energymodel.report.charts import AbstractChart, Axis, Bar, GroupedBars, Lines, Part, Point, Series
from energymodel.report.charts.scale import read
from energymodel.report.page.document import Page, Section
from energymodel.report.page.markup import paragraph, paragraphs, terminal_table
from energymodel.report.page.sureness import sureness_section
from energymodel.report.sweep_report import axes_table, sweep_lines, winners_table
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.best_points import BestAlong
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.sweeps.pareto import Pareto
from energymodel.sweeps.scenario_axes import UNITS
from energymodel.sweeps.sweep_result import SweepResult, Winner
from energymodel.units import counted

ROWS = 100  # of the table
BARS = 12
MOST_POINTS = 500  # of a figure


def sweep_page(
    scenario: Scenario, swept: SweepResult, minimize: str, spread: OutcomeSpread | None, command: str
) -> Page:
    """The page of a sweep: axes, points, a figure of what was kept."""
    chart = sweep_chart(swept, minimize) if swept.winners else None
    return Page(
        title=scenario.title,
        answer=f"Sweep of {counted(swept.points, 'point')}",
        summary=_sentences(swept, minimize),
        figure=chart,
        sections=[
            Section("Points that were kept", _kept(swept, minimize, spread)),
            Section("Axes", terminal_table(axes_table(swept.axes))),
            Section("The sweep", paragraphs(sweep_lines(scenario, swept, minimize, spread))),
            *([sureness_section(scenario, spread)] if spread is not None else []),
        ],
        command=command,
    )


def _kept(swept: SweepResult, minimize: str, spread: OutcomeSpread | None) -> str:
    if not swept.winners:
        return paragraph(swept.message or "No points are kept by this question; --json has what it found.")
    return terminal_table(winners_table(swept.axes, swept.winners[:ROWS], minimize, spread))


def best_of(swept: SweepResult) -> Winner:
    """The point of the lowest value; the first where nothing is minimized."""
    return min(swept.winners, key=lambda one: one.value if math.isfinite(one.value) else math.inf)


def point_words(swept: SweepResult, winner: Winner) -> str:
    """Where a point lies: the last word of each axis, and its value."""
    return ", ".join(
        f"{axis.name.rpartition('.')[2].replace('_', ' ')} {_value(winner.point[axis.name], axis.unit)}"
        for axis in swept.axes
    )


def _value(value: object, unit: str) -> str:
    return value if isinstance(value, str) else read(float(value), unit, digits=4)  # pyright: ignore[reportArgumentType]


def _sentences(swept: SweepResult, minimize: str) -> list[str]:
    if not swept.winners:
        return [swept.message] if swept.message else [f"The sweep evaluated {counted(swept.points, 'point')}."]
    best = best_of(swept)
    sentences = [f"Of {counted(swept.points, 'point')}, the best has {point_words(swept, best)}."]
    if math.isfinite(best.value):
        value = read(best.value, UNITS.get(minimize, "1"), digits=4)
        sentences.append(f"Its {minimize.replace('_', ' ')} is {value}.")
    if len(swept.winners) > 1:
        sentences.append(f"The sweep kept {len(swept.winners):,} points.")
    return sentences


def sweep_chart(swept: SweepResult, minimize: str) -> AbstractChart:
    """A front in its plane; a line along the axis that was kept; else the best points side by side."""
    if isinstance(swept.keep, Pareto):
        return _front(swept, *tuple(swept.keep.objectives)[:2])
    along = [axis for axis in swept.axes if axis.numeric and _runs_along(swept, axis.name)]
    if isinstance(swept.keep, BestAlong) and along and len(swept.winners) > 2:
        return _along(swept, along[0].name, along[0].unit, minimize)
    return _best(swept, minimize)


def _runs_along(swept: SweepResult, name: str) -> bool:
    """Whether each point has its own value of an axis."""
    values = [winner.point[name] for winner in swept.winners]
    return len(set(values)) == len(values)


def _along(swept: SweepResult, name: str, unit: str, minimize: str) -> Lines:
    winners = sorted(swept.winners, key=lambda one: one.point[name])
    points = tuple(
        Point(float(one.point[name]), one.value, point_words(swept, one))
        for one in winners[:: -(-len(winners) // MOST_POINTS)]
    )
    word, what = name.rpartition(".")[2].replace("_", " "), minimize.replace("_", " ")
    best = best_of(swept)
    title = f"The lowest {what} is at {word} {_value(best.point[name], unit)}"
    ratio = points[-1].x / points[0].x if points[0].x > 0.0 else 1.0
    axes = Axis(word, unit, log=ratio > 20.0), Axis(what, UNITS.get(minimize, "1"))
    return Lines(title, *axes, (Series(what, points, "both"),), f"Lowest {what} at each {word}")


def _front(swept: SweepResult, first: str, second: str) -> Lines:
    points = tuple(
        Point(one.outputs[second], one.outputs[first], point_words(swept, one))
        for one in swept.winners[:: -(-len(swept.winners) // MOST_POINTS)]
    )
    words = [name.replace("_", " ") for name in (first, second)]
    title = f"{len(swept.winners):,} points of the grid trade {words[0]} against {words[1]}"
    if len(swept.winners) == 1:
        title = f"One point of the grid is best in both {words[0]} and {words[1]}"
    axes = Axis(words[1], UNITS.get(second, "1")), Axis(words[0], UNITS.get(first, "1"))
    return Lines(title, *axes, (Series("efficient points", points, "points"),), "Hover for the point")


def _best(swept: SweepResult, minimize: str) -> GroupedBars:
    what = minimize.replace("_", " ")
    kept = swept.winners[:BARS]
    groups = tuple(Bar(point_words(swept, one), (Part("", one.value),)) for one in kept)
    title = f"The lowest {what} is {read(kept[0].value, UNITS.get(minimize, '1'), digits=4)}"
    if len(kept) > 1 and kept[0].value > 0.0:
        title = f"The second-best point takes {100.0 * (kept[1].value / kept[0].value - 1.0):.2g} % more {what}"
    return GroupedBars(title, UNITS.get(minimize, "1"), groups, f"Best points of the grid by {what}", what)
