"""The answer of `sweep`: points of a grid that were kept, or what a reduction makes of all of them."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.errors import InputError
from energymodel.report.answer import DATA, PAGE, SHORT, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.causes import causes
from energymodel.report.answers.evaluate import intervals_chart
from energymodel.report.answers.run_tables import Run, outcome_table, output_columns, prior_count, priors_table
from energymodel.report.number import plain
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.best_points import BestAlong
from energymodel.sweeps.full_array import FullArray
from energymodel.sweeps.histogram import BinCounts, Count, Histogram
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread
from energymodel.sweeps.pareto import Pareto
from energymodel.sweeps.scenario_axes import UNITS
from energymodel.sweeps.sweep_result import SweepCost, SweepResult, Winner
from energymodel.units import counted

SHOWN = ("energy", "time", "money", "facility_power", "temperature", "loss")
"""Outputs of the short form; the files hold all."""
ROWS = 24
MOST_ROWS = 10**6
"""Points of a full array in a table or in JSON; more are for a Zarr store."""
_BARS = 12
_MOST_NAMED = 8  # combinations without a point
_LOG = 20.0  # ratio of the ends of an axis from which on it is logarithmic
_SHARE = Column("", "", kind="share", digits="two")


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
    rows = rows_table(swept, minimize, spread, most)
    tables, charts = [rows], []
    if swept.winners:
        charts.append(_chart(swept, rows, minimize))
    tables += [axes_table(swept.axes), _run_table(swept)]
    if swept.polished is not None:
        near = swept.polished
        columns = [*map(axis_column, swept.axes), _value_column(minimize), Column("result", "result", kind="words")]
        columns.append(Column("message", "message", kind="words"))
        cells = [
            *(_cell(axis, near.point[axis.name]) for axis in swept.axes),
            Quantity(near.value),
            near.result,
            near.message,
        ]
        tables.append(Table("polished", "Between the points", columns, [cells], level=DATA))
    if missing := infeasible_points(swept):
        chosen = [axis for axis in swept.axes if axis.name in missing[0]]
        cells = [[_cell(axis, point[axis.name]) for axis in chosen] for point in missing]
        title = "Combinations at which no point obeys all limits"
        tables.append(Table("infeasible", title, [*map(axis_column, chosen)], cells, level=DATA))
    if asked:
        tables.append(question_table(asked))
    if spread is not None and details:
        own = outcome_table({scenario.name: Run(scenario.plan, spread.outcome, spread)})
        tables.append(dataclasses.replace(own, title="Outcome of the scenario's own plan", level=PAGE))
        charts.append(intervals_chart(own))
        table, chart = causes(scenario, spread, "energy")
        tables.append(table)
        charts += [chart] if chart is not None else []
    if details:
        tables.append(priors_table(scenario))
    result = "interrupted" if not swept.complete else "infeasible" if swept.message else "successful"
    return Answer(
        "sweep",
        scenario.title,
        Sentence(f"Sweep of {counted(swept.points, 'point')}"),
        [*_sentences(scenario, swept, rows, minimize), Sentence(swept.choice.sentence())],
        tables,
        charts,
        [prior_count(scenario)],
        inputs=scenario.named_tables,
        rows=rows.name,
        result=result,
        message=swept.message,
    )


def _sentences(scenario: Scenario, swept: SweepResult, rows: Table, minimize: str) -> list[Sentence]:
    """Where the best point lies, how sure it is, what lies between the points, and where there is none."""
    sentences = [Sentence(swept.message)] if swept.message else []
    if swept.winners:
        best = _best_index(swept)
        numbers = {
            column.name: (column if column.digits != "rows" else dataclasses.replace(column, digits="interval"), cell)
            for column, cell in zip(rows.columns, rows.rows[best], strict=True)
            if isinstance(cell, Quantity)
        }
        words = (
            f"Of {counted(swept.points, 'point')}, the best has {point_words(swept.axes, swept.winners[best].point)}"
        )
        value = _value_name(swept.winners[best], minimize)
        words += f"; its {_word(minimize)} is {{{value}}}." if value in numbers else "."
        sentences.append(Sentence(words, numbers))
        sure = [name for name in SHOWN if name in numbers and numbers[name][1].low is not None]
        if sure:
            listed = ", ".join(f"{_word(name)} {{{name}:i}}" for name in sure)
            sentences.append(
                Sentence(f"Intervals of that point, as wide as those of {scenario.name} itself: {listed}.", numbers)
            )
        if swept.polished is not None:
            near, gain = swept.polished, 1.0 - swept.polished.value / swept.winners[0].value
            words = f"Between the points, {minimize} is {{gain}} lower ({near.result}): "
            numbers = {"gain": (_SHARE, Quantity(gain))}
            sentences.append(Sentence(f"{words}{point_words(swept.axes, near.point)}.", numbers))
    if missing := infeasible_points(swept):
        chosen = [axis for axis in swept.axes if axis.name in missing[0]]
        at = "; ".join(point_words(chosen, point) for point in missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} others" if len(missing) > _MOST_NAMED else ""
        sentences.append(Sentence(f"No point obeys all limits at {at}{more}."))
    return sentences


def rows_table(swept: SweepResult, minimize: str, spread: OutcomeSpread | None = None, most: int = MOST_ROWS) -> Table:
    """The points kept; of a full array all points, of counts and quantiles their numbers.

    A combination of axes at which no point obeys the limits has a row without outputs.
    """
    if isinstance(swept.keep, FullArray):
        return _full(swept, swept.keep.outputs, most)
    if isinstance(swept.keep, Count):
        columns = [Column("points", "points", kind="count"), Column("within_limits", "within limits", kind="count")]
        return Table("count", "Points", columns, [[Quantity(swept.points), Quantity(float(swept.result or 0))]])
    if isinstance(swept.keep, Histogram):
        return _distributions(swept.result or {}, swept.units)
    return _points(swept, minimize, spread)


def _points(swept: SweepResult, minimize: str, spread: OutcomeSpread | None) -> Table:
    outputs = list(swept.winners[0].outputs) if swept.winners else []
    titles = {column.name: column for column in output_columns(serves=True)}
    columns = [axis_column(axis) for axis in swept.axes]
    for name in outputs:
        unit = swept.units.get(name, "1")
        column = titles.get(name, Column(name, _word(name), unit, kind="temperature" if unit == "K" else "amount"))
        level = SHORT if name in SHOWN or name == minimize else DATA
        varies = len({winner.outputs[name] for winner in swept.winners}) > 1
        columns.append(dataclasses.replace(column, unit=unit, digits="rows" if varies else "interval", level=level))
    first = swept.winners[0].value if swept.winners else math.nan
    several = len(swept.winners) > 1 and first > 0.0
    has_value = math.isfinite(first) and minimize not in outputs
    columns += [_value_column(minimize)] if has_value else []
    columns += [Column("change", f"{_word(minimize)} above first", kind="change")] if several else []
    columns.append(Column("point", "point", kind="words", level=DATA))
    rows: list[list[Cell]] = []
    for winner, label in zip(swept.winners, _labels(swept), strict=True):
        row = [_cell(axis, winner.point[axis.name]) for axis in swept.axes]
        row += [_output(winner, name, spread) for name in outputs]
        row += [Quantity(winner.value)] if has_value else []
        row += [Quantity(winner.value / first - 1.0)] if several else []
        rows.append([*row, label])
    for point in infeasible_points(swept):
        row = [_cell(axis, point[axis.name]) if axis.name in point else None for axis in swept.axes]
        rows.append([*row, *[None] * (len(columns) - len(row))])
    kept = len(swept.winners)
    title = f"{min(kept, ROWS)} of {kept:,} points that were kept" if kept > ROWS else "Points that were kept"
    return Table("points", title, columns, rows, short=range(min(kept, ROWS)))


def _full(swept: SweepResult, names: Sequence[str], most: int) -> Table:
    axes = swept.grid.axes
    arrays: Mapping[str, Any] = swept.result if swept.result is not None else swept.to_xarray()
    values = [np.asarray(arrays[name]) for name in names]
    columns = [axis_column(axis) for axis in axes]
    columns += [Column(name, _word(name), swept.units.get(name, "1")) for name in names]
    shape = tuple(len(axis) for axis in axes)
    rows: list[list[Cell]] = [
        [
            *(_cell(axis, axis.label(place)) for axis, place in zip(axes, index, strict=True)),
            *(Quantity(float(array[index])) for array in values),
        ]
        for index in itertools.islice(np.ndindex(*shape), most)
    ]
    count = math.prod(shape)
    title = f"{min(ROWS, count)} of {count:,} points" if count > ROWS else "All points"
    return Table("points", title, columns, rows, short=range(min(ROWS, len(rows))))


def _distributions(outputs: Mapping[str, Any], units: Mapping[str, str]) -> Table:
    """Bins with their counts, or quantiles by share of the points."""
    name_column = Column("output", "output", kind="words")

    def cell(name: str, value: float) -> Quantity | None:
        return Quantity(float(value), unit=units.get(name, "1")) if math.isfinite(value) else None

    if not all(isinstance(output, BinCounts) for output in outputs.values()):
        columns = [name_column, Column("share", "share of points", kind="share"), Column("value", "value", "")]
        quantiles: list[list[Cell]] = [
            [_word(name), Quantity(share), cell(name, value)]
            for name, output in outputs.items()
            for share, value in output.items()
        ]
        return Table("quantiles", "Quantiles", columns, quantiles)
    columns = [
        name_column,
        Column("from", "from", ""),
        Column("to", "to", ""),
        Column("points", "points", kind="count"),
    ]
    bins: list[list[Cell]] = [
        [_word(name), cell(name, low), cell(name, high), Quantity(float(count))]
        for name, output in outputs.items()
        for low, high, count in zip(
            [-math.inf, *output.edges],
            [*output.edges, math.inf],
            [output.below, *output.counts, output.above],
            strict=True,
        )
        if count
    ]
    short = range(min(ROWS, len(bins)))
    title = f"{ROWS} of {len(bins)} bins" if len(bins) > ROWS else "Bins that have points"
    return Table("histogram", title, columns, bins, short=short, note="A bin without an end is open.")


def infeasible_points(swept: SweepResult) -> list[dict[str, Any]]:
    """The combinations of axes for which the best along others was asked, and no point obeys the limits."""
    if not isinstance(swept.keep, BestAlong) or not swept.complete:
        return []
    others = [index for index, axis in enumerate(swept.axes) if axis.name not in swept.keep.axes]
    feasible = {tuple(winner.index[other] for other in others) for winner in swept.winners}
    chosen = [swept.axes[other] for other in others]
    return [
        {axis.name: axis.label(number) for axis, number in zip(chosen, index, strict=True)}
        for index in np.ndindex(*(len(axis) for axis in chosen))
        if index not in feasible
    ]


def axes_table(axes: Iterable[Axis]) -> Table:
    """Axes with their ends and the number of values."""
    columns = [Column("axis", "axis", kind="words"), Column("from", "from", ""), Column("to", "to", "")]
    columns.append(Column("values", "values", kind="count"))
    rows: list[list[Cell]] = []
    for axis in axes:
        ends = [_cell(axis, axis.label(number)) for number in (0, len(axis) - 1)]
        unit, kind = axis_column(axis).unit, axis_column(axis).kind
        own = [end._replace(unit=unit, kind=kind) if isinstance(end, Quantity) else end for end in ends]
        rows.append([axis.name, *own, Quantity(len(axis))])
    return Table("axes", "Axes", columns, rows)


def question_table(asked: Mapping[str, str]) -> Table:
    """What was asked, for other programs."""
    columns = [Column("name", "question", kind="words"), Column("value", "", kind="words")]
    return Table("question", "The question", columns, [list(pair) for pair in asked.items()], level=DATA)


def axis_column(axis: Axis) -> Column:
    """The column of an axis: numbers in SI, or names of choices."""
    kind = "words" if axis.labels is not None else "temperature" if axis.unit == "K" else "amount"
    return Column(axis.name, _word(axis.name.rpartition(".")[2]), axis.unit, kind)


def _cell(axis: Axis, value: Any) -> Cell:
    return value if isinstance(value, str) else Quantity(float(value))


def _value_column(minimize: str) -> Column:
    return Column("value", minimize, UNITS.get(minimize, "1"), digits="rows")


def _value_name(winner: Winner, minimize: str) -> str:
    """Name of the column of what is minimized."""
    return minimize if minimize in winner.outputs else "value"


def _output(winner: Winner, name: str, spread: OutcomeSpread | None) -> Quantity:
    """An output of a point whose logarithm is as uncertain as that of the scenario's own plan."""
    value = winner.outputs[name]
    half = DEVIATIONS * spread.deviation(name) if spread is not None and name in SHOWN else 0.0
    return Quantity(value, value * math.exp(-half), value * math.exp(half)) if half > 0.0 else Quantity(value)


def _run_table(swept: SweepResult) -> Table:
    """Points, time and rate of the evaluation, and the program."""
    rate = swept.points / swept.seconds if swept.seconds else math.nan
    cells: dict[Column, Cell] = {
        Column("points", "points", kind="count"): Quantity(swept.points),
        Column("time", "time", "s", digits="two"): Quantity(swept.seconds),
        Column("rate", "points per second", "1/s", digits="two"): Quantity(rate) if math.isfinite(rate) else None,
        Column("complete", "complete", kind="words", level=DATA): "yes" if swept.complete else "no",
        Column("order", "order of the axes", kind="words", level=DATA): ", ".join(
            axis.name for axis in swept.grid.axes
        ),
        Column("program", "evaluated by", kind="words", level=DATA): swept.choice.program,
        Column("reason", "because", kind="words", level=DATA): swept.choice.reason,
    }
    for name, number in swept.choice.rates.items():
        cells[Column(f"rate_{name}", f"first tile by {name}", "1/s", level=DATA)] = Quantity(number)
    return Table("run", "The sweep", [*cells], [[*cells.values()]], tall=True)


def _best_index(swept: SweepResult) -> int:
    """Index of the point of the lowest value; the first where nothing is minimized."""
    values = [winner.value if math.isfinite(winner.value) else math.inf for winner in swept.winners]
    return values.index(min(values))


def point_words(axes: Sequence[Axis], point: Mapping[str, Any]) -> str:
    """Where a point lies: the last word of each axis, and its value."""
    return ", ".join(f"{axis_column(axis).title} {_read(axis, point[axis.name])}" for axis in axes)


def _read(axis: Axis, value: Any) -> str:
    column = axis_column(axis)
    return value if isinstance(value, str) else plain(float(value), column.unit, column.kind)


def _labels(swept: SweepResult) -> list[str]:
    """Words for each point; points that read alike are numbered."""
    words = [point_words(swept.axes, winner.point) for winner in swept.winners]
    twice = {word for word, of in itertools.groupby(sorted(words)) if len(list(of)) > 1}
    return [f"{word} (point {index})" if word in twice else word for index, word in enumerate(words, 1)]


def _word(name: str) -> str:
    return name.replace("_", " ")


def _chart(swept: SweepResult, rows: Table, minimize: str) -> Chart:
    """A front in its plane; a line along the axis that was kept; else the best points side by side."""
    if isinstance(swept.keep, Pareto):
        first, second = tuple(swept.keep.objectives)[:2]
        kept, words = len(swept.winners), [_word(name) for name in (first, second)]
        title = f"{kept:,} points of the grid trade {words[0]} against {words[1]}"
        if kept == 1:
            title = f"One point of the grid is best in both {words[0]} and {words[1]}"
        return Chart("plane", Sentence(title), rows.name, second, [first], "Hover for the point", hover=["point"])
    value, best = _value_name(swept.winners[0], minimize), _best_index(swept)
    along = [axis for axis in swept.axes if axis.numeric and _runs_along(swept, axis.name)]
    if isinstance(swept.keep, BestAlong) and along and len(swept.winners) > 2:
        axis = along[0]
        column = axis_column(axis)
        title = f"The lowest {_word(minimize)} is at {column.title} {_read(axis, swept.winners[best].point[axis.name])}"
        numbers = [winner.point[axis.name] for winner in swept.winners]
        log = [axis.name] if min(numbers) > 0.0 and max(numbers) > _LOG * min(numbers) else []
        subtitle = f"Lowest {_word(minimize)} at each {column.title}"
        return Chart(
            *("plane", Sentence(title), rows.name, axis.name, [value], subtitle), hover=["point"], lines=True, log=log
        )
    column, cell = rows.number(value)
    numbers = {"lowest": (dataclasses.replace(column, digits="interval"), cell)}
    sentence = Sentence(f"The lowest {_word(minimize)} is {{lowest}}", numbers)
    if "change" in rows.names:
        more = {"more": (_SHARE, rows.number("change", 1)[1])}
        sentence = Sentence(f"The second-best point takes {{more}} more {_word(minimize)}", more)
    only = [str(label) for label in rows.column("point")[1][:_BARS]]
    subtitle = f"Best points of the grid by {_word(minimize)}"
    return Chart("bars", sentence, rows.name, "point", [value], subtitle, only=only, axis=_word(minimize))


def _runs_along(swept: SweepResult, name: str) -> bool:
    """Whether each point has its own value of an axis."""
    return len({winner.point[name] for winner in swept.winners}) == len(swept.winners)


def cost_answer(scenario: Scenario, cost: SweepCost) -> Answer:
    """Points, memory and time that a sweep would take."""
    cells: dict[Column, Cell] = {
        Column("points", "points", kind="count"): Quantity(cost.points),
        Column("tiles", "tiles", kind="count"): Quantity(cost.tiles),
        Column("chunk", "points of a chunk", kind="count"): Quantity(cost.chunk),
        Column("memory", "memory, besides that of the compiler", "B"): Quantity(cost.memory),
        Column("time", "time, after compilation", "s", digits="two"): Quantity(cost.seconds),
        Column("rate", "points per second", "1/s", digits="two"): Quantity(cost.points / cost.seconds),
        Column("order", "order of the axes, outermost first", kind="words"): ", ".join(cost.order),
    }
    table = Table("cost", "Cost", [*cells], [[*cells.values()]], tall=True)
    headline = Sentence(f"{counted(cost.points, 'point')} in {counted(cost.tiles, 'tile')}, not evaluated")
    return Answer("sweep", scenario.title, headline, [], [table], inputs=scenario.named_tables, rows="cost")
