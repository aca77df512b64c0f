"""The answer of `sweep`: points of a grid that were kept, or what a reduction makes of all of them."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.errors import InputError
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.details import causes
from energymodel.report.answers.evaluate import intervals_chart
from energymodel.report.answers.run_tables import Run, outcome_table, output_columns, prior_count, priors_table
from energymodel.report.cells import Column, Quantity, number, present, share, spaced, words
from energymodel.report.number import plain
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.best_points import BestAlong
from energymodel.sweeps.full_array import FullArray
from energymodel.sweeps.histogram import BinCounts, Count, Histogram
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread
from energymodel.sweeps.pareto import Pareto
from energymodel.sweeps.scenario_axes import ACCELERATOR, UNITS
from energymodel.sweeps.sweep_result import Edge, SweepCost, SweepResult
from energymodel.system.outputs import parse_objective
from energymodel.units import counted

SHOWN = ("energy", "time", "money", "facility_power", "temperature", "loss")
"""Outputs of the short form; the files hold all."""
ROWS = 24
MOST_ROWS = 10**6
"""Points of a full array in a table or in JSON; more are for a Zarr store."""
_RATE = Column("rate", "points per second", "1/s", digits="two")
_BARS = 12
_MOST_NAMED = 8  # combinations without a point
_LOG = 20.0  # ratio of the ends of an axis from which on it is logarithmic


def check_rows(keep: str, points: int) -> None:
    """Check before the work that a full array is small enough for a table.

    **Raises:** `InputError` that says where a larger one is kept.
    """
    if keep.partition(":")[0].strip() == "full" and points > MOST_ROWS:
        raise InputError(
            f"-o: a full array of {points:,} points is more than the {MOST_ROWS:,} that a table or JSON holds. Give "
            "--resume FOLDER, which keeps it as a Zarr store, and leave out -o, --json and --full."
        )


def sweep_answer(
    scenario: Scenario,
    swept: SweepResult,
    minimize: str,
    spread: OutcomeSpread | None = None,
    asked: Mapping[str, str] | None = None,
    *,
    most: int = MOST_ROWS,
    details: bool = False,
) -> Answer:
    """A sweep in numbers.

    **Arguments:**

    - `spread`: of the scenario's own plan; the outputs of all points are as uncertain.
    - `asked`: the question in words, such as `{"keep": "best"}`.
    - `most`: rows of a full array.
    - `details`: also what makes the outputs uncertain.
    """
    rows, at = rows_table(swept, minimize, spread, most), {axis.name: axis_column(axis) for axis in swept.axes}
    run: dict[Column, Any] = {
        Column("points", kind="count"): swept.points,
        Column("time", unit="s", digits="two"): swept.seconds,
        _RATE: swept.points / swept.seconds if swept.seconds else None,
        words("complete", level="data"): swept.complete,
        words("order", "order of the axes", "data"): ", ".join(swept.grid.names),
    }
    tables = [rows, axes_table(swept.axes), Table.facts("run", "The sweep", run)]
    charts = [_chart(swept, rows, minimize)] if swept.winners else []
    if missing := infeasible_points(swept):
        columns = [column for name, column in at.items() if name in missing[0]]
        cells, title = [[*point.values()] for point in missing], "Combinations at which no point obeys all limits"
        tables.append(Table("infeasible", title, columns, cells, level="data"))
    tables += [question_table(asked)] if asked else []
    if spread is not None and details:
        own = outcome_table({scenario.name: Run(scenario.plan, spread.outcome, spread)})
        table, chart = causes(scenario, spread, "energy")
        tables += [dataclasses.replace(own, title="Outcome of the scenario's own plan", level="page"), table]
        charts += present(intervals_chart(own), chart)
    return Answer.of(
        scenario,
        "sweep",
        Sentence(f"Sweep of {counted(swept.points, 'point')}"),
        _sentences(scenario, swept, rows, minimize),
        [*tables, *([priors_table(scenario)] if details else [])],
        charts=charts,
        notes=[prior_count(scenario)],
        rows=rows.name,
        result="interrupted" if not swept.complete else "infeasible" if swept.message else "successful",
        message=swept.message,
    )


def _sentences(scenario: Scenario, swept: SweepResult, rows: Table, minimize: str) -> list[Sentence]:
    """Where the best point lies, how sure it is, and where there is none."""
    texts, numbers = [swept.message] if swept.message else [], {}
    if swept.winners:
        best = _best_index(swept)
        for column, cell in zip(rows.columns, rows.rows[best], strict=True):
            if isinstance(cell, Quantity):
                digits = "interval" if column.digits == "rows" else column.digits
                numbers[column.name] = dataclasses.replace(column, digits=digits), cell
        at, value = point_words(swept.axes, swept.winners[best].point), _value_name(swept, minimize)
        text = f"Of {counted(swept.points, 'point')}, the best has {at}"
        texts.append(f"{text}; its {spaced(minimize)} is {{{value}}}." if value in numbers else f"{text}.")
        certain = [name for name in SHOWN if name in numbers and numbers[name][1].low is not None]
        if sure := ", ".join(f"{spaced(name)} {{{name}:i}}" for name in certain):
            texts.append(f"Intervals of that point, as wide as those of {scenario.name} itself: {sure}.")
    if missing := infeasible_points(swept):
        chosen = [axis for axis in swept.axes if axis.name in missing[0]]
        at = "; ".join(point_words(chosen, point) for point in missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} others" if len(missing) > _MOST_NAMED else ""
        texts.append(f"No point obeys all limits at {at}{more}.")
    if swept.loss is not None:
        numbers["held"] = number(swept.loss, UNITS["loss"])
        texts.append("Every point trains to one loss, {held}, in as many tokens as it needs (unless they are an axis).")
    if ACCELERATOR in {axis.name for axis in swept.axes}:
        texts.append(
            "Along system.accelerator the chip changes with its power cap; node, network and rent stay those of the "
            "scenario. `energymodel compare --accelerator NAME` takes those of each chip."
        )
    return [*(Sentence(text, numbers) for text in texts), *map(_edge_sentence, swept.edges, itertools.repeat(minimize))]


def _edge_sentence(edge: Edge, minimize: str) -> Sentence:
    """That the best point lies at the end of an axis, and what lies a step beyond."""
    column, is_low = axis_column(edge.axis), edge.beyond < edge.end
    numbers = {name: number(getattr(edge, name), column.unit, column.kind) for name in ("end", "beyond")}
    numbers["saving"] = share(abs(edge.saving))
    saves = f"{spaced(minimize)} is {{saving}} {'lower' if edge.saving > 0.0 else 'higher'}"
    beyond = saves if math.isfinite(edge.saving) else "a limit is broken"
    widen = f" {'Begin the axis lower' if is_low else 'End the axis higher'}." if edge.saving > 0.0 else ""
    end = f"The best point lies at the {'low' if is_low else 'high'} end of {edge.axis.name}, {{end}}"
    return Sentence(f"{end}: a step beyond, at {{beyond}}, {beyond}.{widen}", numbers)


def rows_table(swept: SweepResult, minimize: str, spread: OutcomeSpread | None = None, most: int = MOST_ROWS) -> Table:
    """The points kept; of a full array all points, of counts and quantiles their numbers.

    A combination of axes at which no point obeys the limits has a row without outputs.
    """
    if isinstance(swept.keep, FullArray):
        return _full(swept, swept.keep.outputs, most)
    if isinstance(swept.keep, Count):
        columns = [Column("points", kind="count"), Column("within_limits", kind="count")]
        return Table("count", "Points", columns, [[swept.points, swept.result or 0]])
    if isinstance(swept.keep, Histogram):
        return _distributions(swept.result or {}, swept.units)
    return _points(swept, minimize, spread)


def _points(swept: SweepResult, minimize: str, spread: OutcomeSpread | None) -> Table:
    winners, titles = swept.winners, {column.name: column for column in output_columns(serves=True)}
    outputs, columns = list(winners[0].outputs) if winners else [], [axis_column(axis) for axis in swept.axes]
    for name in outputs:
        unit, varies = swept.units.get(name, "1"), len({winner.outputs[name] for winner in winners}) > 1
        column = titles.get(name, Column(name, unit=unit))
        level = "short" if name in SHOWN or name == minimize else "data"
        columns.append(dataclasses.replace(column, unit=unit, digits="rows" if varies else "interval", level=level))
    first = winners[0].value if winners else math.nan
    if math.isfinite(first) and minimize not in outputs:
        columns.append(Column("value", minimize, parse_objective(minimize).unit, digits="rows"))
    if len(winners) > 1 and first > 0.0:
        columns.append(Column("change", f"{spaced(minimize)} above first", kind="change"))
    columns.append(words("point", level="data"))
    halves = {name: DEVIATIONS * spread.deviation(name) for name in SHOWN if name in outputs} if spread else {}
    labels = [point_words(swept.axes, winner.point) for winner in winners]
    counts = Counter(labels)  # points that read alike are numbered
    rows: list[Mapping[str, Any]] = [
        {
            **winner.point,
            **{name: Quantity.around(value, halves.get(name) or None) for name, value in winner.outputs.items()},
            "value": winner.value,
            "change": winner.value / first - 1.0 if first else None,
            "point": f"{label} (point {index})" if counts[label] > 1 else label,
        }
        for index, (winner, label) in enumerate(zip(winners, labels, strict=True), 1)
    ]
    count = len(rows)
    cells = [[row.get(column.name) for column in columns] for row in (*rows, *infeasible_points(swept))]
    title = f"{min(count, ROWS)} of {count:,} points that were kept" if count > ROWS else "Points that were kept"
    return Table("points", title, columns, cells, short=range(min(count, ROWS)))


def _full(swept: SweepResult, names: Sequence[str], most: int) -> Table:
    axes, shape = swept.grid_axes, swept.grid.sizes
    arrays: Mapping[str, Any] = swept.result if swept.result is not None else swept.to_xarray()
    values, count = [np.asarray(arrays[name]) for name in names], math.prod(shape)
    columns = [*map(axis_column, axes)]
    columns += [Column(name, unit=swept.units.get(name, "1"), kind="amount") for name in names]
    rows = [
        [*(axis.label(at) for axis, at in zip(axes, index, strict=True)), *(array[index] for array in values)]
        for index in itertools.islice(np.ndindex(*shape), most)
    ]
    title = f"{min(ROWS, count)} of {count:,} points" if count > ROWS else "All points"
    return Table("points", title, columns, rows, short=range(min(ROWS, len(rows))))


def _distributions(outputs: Mapping[str, Any], units: Mapping[str, str]) -> Table:
    """Bins with their counts, or quantiles by share of the points."""

    def cell(name: str, value: float) -> Quantity | None:
        return Quantity(float(value), unit=units.get(name, "1")) if math.isfinite(value) else None

    rows: list[list[Any]] = []
    if not all(isinstance(output, BinCounts) for output in outputs.values()):
        columns = [words("output"), Column("share", "share of points", kind="share"), Column("value", unit="")]
        for name, output in outputs.items():
            rows += [[spaced(name), of_points, cell(name, value)] for of_points, value in output.items()]
        return Table("quantiles", "Quantiles", columns, rows)
    columns = [words("output"), Column("from", unit=""), Column("to", unit=""), Column("points", kind="count")]
    for name, output in outputs.items():
        ends = itertools.pairwise([-math.inf, *output.edges, math.inf])
        counts = zip(ends, [output.below, *output.counts, output.above], strict=True)
        rows += [[spaced(name), cell(name, low), cell(name, high), count] for (low, high), count in counts if count]
    title = f"{ROWS} of {len(rows)} bins" if len(rows) > ROWS else "Bins that have points"
    short, note = range(min(ROWS, len(rows))), "A bin without an end is open."
    return Table("histogram", title, columns, rows, short=short, note=note)


def infeasible_points(swept: SweepResult) -> list[dict[str, Any]]:
    """The combinations of axes for which the best along others was asked, and no point obeys the limits."""
    if not isinstance(swept.keep, BestAlong) or not swept.complete:
        return []
    others = [index for index, axis in enumerate(swept.axes) if axis.name not in swept.keep.axes]
    feasible = {tuple(winner.index[other] for other in others) for winner in swept.winners}
    chosen = [swept.axes[other] for other in others]
    return [
        {axis.name: axis.label(at) for axis, at in zip(chosen, index, strict=True)}
        for index in np.ndindex(*(len(axis) for axis in chosen))
        if index not in feasible
    ]


def axes_table(axes: Iterable[Axis]) -> Table:
    """Axes with their ends and the number of values."""
    columns = [words("axis"), Column("from", "from", ""), Column("to", "to", ""), Column("values", kind="count")]
    rows: list[list[Any]] = []
    for axis in axes:
        labels = [axis.label(index) for index in (0, len(axis) - 1)]
        ends = [end if isinstance(end, str) else Quantity(float(end), unit=axis.unit) for end in labels]
        rows.append([axis.name, *ends, len(axis)])
    return Table("axes", "Axes", columns, rows)


def question_table(asked: Mapping[str, str]) -> Table:
    """What was asked, for other programs."""
    columns = [words("name", "question"), words("value", "")]
    return Table("question", "The question", columns, [*asked.items()], level="data")


def axis_column(axis: Axis) -> Column:
    """The column of an axis: numbers in SI, or names of choices."""
    kind = "words" if axis.labels is not None else ""
    return Column(axis.name, spaced(axis.name.rpartition(".")[2]), axis.unit, kind)


def _value_name(swept: SweepResult, minimize: str) -> str:
    """Name of the column of what is minimized."""
    return minimize if minimize in swept.winners[0].outputs else "value"


def _best_index(swept: SweepResult) -> int:
    """Index of the point of the lowest value; the first where nothing is minimized."""
    values = [winner.value if math.isfinite(winner.value) else math.inf for winner in swept.winners]
    return values.index(min(values))


def point_words(axes: Sequence[Axis], point: Mapping[str, Any]) -> str:
    """Where a point lies: the last word of each axis, and its value."""
    parts = []
    for axis in axes:
        column, value = axis_column(axis), point[axis.name]
        read = value if isinstance(value, str) else plain(float(value), column.unit, column.kind)
        parts.append(f"{column.title} {read}")
    return ", ".join(parts)


def _chart(swept: SweepResult, rows: Table, minimize: str) -> Chart:
    """A front in its plane; a line along the axis that was kept; else the best points side by side."""
    winners, of = swept.winners, spaced(minimize)
    if isinstance(swept.keep, Pareto):
        first, second = tuple(swept.keep.objectives)[:2]
        title = f"{len(winners):,} points of the grid trade {spaced(first)} against {spaced(second)}"
        if len(winners) == 1:
            title = f"One point of the grid is best in both {spaced(first)} and {spaced(second)}"
        return Chart("plane", Sentence(title), rows.name, second, [first], "Hover for the point", hover=["point"])
    value = _value_name(swept, minimize)
    numeric = [axis for axis in swept.axes if axis.numeric]
    along = [axis for axis in numeric if len({winner.point[axis.name] for winner in winners}) == len(winners)]
    if isinstance(swept.keep, BestAlong) and along and len(winners) > 2:
        axis, numbers = along[0], [winner.point[along[0].name] for winner in winners]
        title = Sentence(f"The lowest {of} is at {point_words([axis], winners[_best_index(swept)].point)}")
        log = [axis.name] if min(numbers) > 0.0 and max(numbers) > _LOG * min(numbers) else []
        subtitle = f"Lowest {of} at each {axis_column(axis).title}"
        return Chart("plane", title, rows.name, axis.name, [value], subtitle, hover=["point"], lines=True, log=log)
    column, cell = rows.number(value)
    title = Sentence(f"The lowest {of} is {{lowest}}", {"lowest": number(cell, column.unit, column.kind)})
    if "change" in rows.names:
        more = {"more": share(rows.number("change", 1)[1])}
        title = Sentence(f"The second-best point takes {{more}} more {of}", more)
    only, subtitle = [str(label) for label in rows.column("point")[1][:_BARS]], f"Best points of the grid by {of}"
    return Chart("bars", title, rows.name, "point", [value], subtitle, only=only, axis=of)


def cost_answer(scenario: Scenario, cost: SweepCost) -> Answer:
    """Points, memory and time that a sweep would take."""
    cells: dict[Column, Any] = {
        Column("points", kind="count"): cost.points,
        Column("tiles", kind="count"): cost.tiles,
        Column("chunk", "points of a chunk", kind="count"): cost.chunk,
        Column("memory", "memory, besides that of the compiler", "B"): cost.memory,
        Column("time", "time, after compilation", "s", digits="two"): cost.seconds,
        _RATE: cost.points / cost.seconds,
        words("order", "order of the axes, outermost first"): ", ".join(cost.order),
    }
    headline = Sentence(f"{counted(cost.points, 'point')} in {counted(cost.tiles, 'tile')}, not evaluated")
    return Answer.of(scenario, "sweep", headline, [], [Table.facts("cost", "Cost", cells)], rows="cost")
