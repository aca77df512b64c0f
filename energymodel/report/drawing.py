"""Charts of an answer as figures of the project's own SVG; all words come from `number`."""

import math
from collections.abc import Sequence

from energymodel.report.answer import Answer, Chart, Column, Quantity, Table
from energymodel.report.charts import (
    AbstractChart,
    Axis,
    Bar,
    Box,
    Flow,
    GroupedBars,
    Interval,
    Intervals,
    Level,
    Lines,
    Part,
    Point,
    RankTimeline,
    Sankey,
    Series,
    StackedBars,
    Swing,
    Tornado,
)
from energymodel.report.number import interval, is_known, layout_of_column, sentence, text

_MOST_POINTS = 500
_LINES = 12  # of a description
_WIDE = 3.0  # ratio of the ends of an axis beyond which it is logarithmic, where that is allowed


def svg(answer: Answer, chart: Chart, width: float, *, heading: bool = False, style: bool = False) -> str:
    """The figure of a chart as an SVG element, described by its numbers for those who do not see it."""
    drawing = drawn(answer, chart)
    return drawing.svg(width, heading=heading, style=style, description=description(answer, chart))


def description(answer: Answer, chart: Chart) -> str:
    """The subtitle, and the first numbers of a chart."""
    table = answer.table(chart.table)
    lines = [
        " ".join(filter(None, (label, text(cell, column), f"({ends})" if (ends := interval(cell, column)) else "")))
        for name in chart.y or ("",)
        if table.tall or name
        for label, column, cell in table.series(name, chart.x if chart.kind == "bars" and not table.tall else "")
        if not chart.only or {label, *_named(table, label)} & set(chart.only)
    ]
    more = f"; and {len(lines) - _LINES:,} more, which the table lists" if len(lines) > _LINES else ""
    return ". ".join(filter(None, (chart.subtitle, "; ".join(lines[:_LINES]) + more)))


def _named(table: Table, title: str) -> list[str]:
    return [column.name for column in table.columns if table.tall and column.title == title]


def drawn(answer: Answer, chart: Chart) -> AbstractChart:
    """The figure of a chart."""
    return _KINDS[chart.kind](answer, chart, answer.table(chart.table))


def _bars(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """Bars beside each other, a group for each line."""
    groups: dict[str, list[Part]] = {}
    columns = []
    for name in chart.y:
        for label, column, cell in table.series(name, "" if table.tall else chart.x):
            if not chart.only or label in chart.only:
                of = column.title if len(chart.y) > 1 else ""
                groups.setdefault(label, []).append(_part(of, column, cell))
                columns.append(column)
    if chart.series:
        names = dict(zip(_words(table, chart.x), _words(table, chart.series), strict=True))
        groups = {label: [part._replace(label=names[label]) for part in parts] for label, parts in groups.items()}
    named = {label: name for name in chart.only for label in groups if label == name} if chart.only else groups
    bars = tuple(Bar(label, tuple(groups[label])) for label in named)
    unit = "%" if columns[0].kind in ("share", "change") else columns[0].unit
    return GroupedBars(
        sentence(chart.title),
        unit,
        bars,
        chart.subtitle,
        chart.axis,
        chart.limit[:2] if chart.limit else None,
        difference=columns[0].kind == "difference",
        log=bool(chart.log),
    )


def _part(label: str, column: Column, cell: Quantity, share: str = "") -> Part:
    ends = (cell.low, cell.high) if is_known(cell) else (None, None)
    return Part(label, cell.value, *ends, words=text(cell, column), ends=interval(cell, column), share=share)


def _words(table: Table, name: str) -> list[str]:
    return [cell if isinstance(cell, str) else "" for cell in table.column(name)[1]]


def _stack(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """A bar of parts for each column, with the whole of the outcome."""
    outcome = next((one for one in answer.tables if one.name == "outcome" and chart.whole in one.names), None)
    shares = dict(zip(_words(table, chart.x), table.column(chart.label)[1], strict=True)) if chart.label else {}
    share_column = table.column(chart.label)[0] if chart.label else Column("", "")
    bars = []
    for row, name in enumerate(chart.y):
        column, cells = table.column(name)
        parts = tuple(
            _part(label, column, cell, text(shares.get(label), share_column) if len(chart.y) == 1 else "")
            for label, cell in zip(_words(table, chart.x), cells, strict=True)
            if isinstance(cell, Quantity)
        )
        whole = ""
        if outcome is not None:
            of, quantity = outcome.number(chart.whole, row)
            whole = text(quantity, of)
        bars.append(Bar(column.title, parts, whole))
    return StackedBars(
        sentence(chart.title), table.column(chart.y[0])[0].unit, tuple(bars), chart.subtitle, chart.axis, 2
    )


def _plane(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """Points or lines; `y` columns are series where no column names them."""
    x, xs = table.column(chart.x)
    across = layout_of_column(xs, x)
    labels = table.column(chart.label)[1] if chart.label else [""] * len(xs)
    hover = [
        (*table.column(name), layout_of_column(table.column(name)[1], table.column(name)[0])) for name in chart.hover
    ]
    series: dict[str, list[Point]] = {}
    columns = [table.column(name)[0] for name in chart.y]
    values: list[float] = []
    for name in chart.y:
        y, ys = table.column(name)
        up = layout_of_column(ys, y)
        names = table.column(chart.series)[1] if chart.series else [y.title] * len(xs)
        for index, (left, height, of, label) in enumerate(zip(xs, ys, names, labels, strict=True)):
            if not (isinstance(left, Quantity) and isinstance(height, Quantity) and math.isfinite(height.value)):
                continue
            words = [f"{column.title} {text(cells[index], column, layout)}".strip() for column, cells, layout in hover]
            words = words or [f"{of}: {text(height, y, up)}, {x.title} {text(left, x, across)}"]
            ends = (height.low, height.high) if is_known(height) and y.digits != "rows" else (None, None)
            series.setdefault(str(of), []).append(
                Point(left.value, height.value, "\n".join(words), str(label or ""), *ends)
            )
            values.append(height.value)
    kind = "both" if chart.lines else "points"
    axes = [
        _axis(columns[0], values, chart, title=chart.axis or columns[0].title),
        _axis(x, [cell.value for cell in xs if isinstance(cell, Quantity)], chart),
    ]
    levels = (Level(chart.limit[0], *chart.limit[1:]),) if chart.limit else ()
    if chart.lines:
        series = {name: sorted(points, key=lambda point: point.x) for name, points in series.items()}
    series = {name: _thinned(points) for name, points in series.items()}
    named = tuple(Series(name, tuple(points), kind) for name, points in series.items())
    if chart.diagonal:
        ends = [end for points in series.values() for point in points for end in (point.x, point.y)]
        line = tuple(Point(end, end) for end in (min(ends), max(ends)))
        named = (*named, Series(chart.diagonal, line))
    return Lines(sentence(chart.title), axes[1], axes[0], named, chart.subtitle, levels)


def _thinned(points: list[Point]) -> list[Point]:
    """At most so many points as a page can hold, spread along the axis."""
    step = -(-len(points) // _MOST_POINTS)
    return points if step == 1 else sorted(points, key=lambda point: point.x)[::step]


def _axis(column: Column, values: Sequence[float], chart: Chart, title: str = "") -> Axis:
    unit = "%" if column.kind in ("share", "change") else column.unit
    is_log = column.name in chart.log and min(values) > 0.0 and max(values) > _WIDE * min(values)
    return Axis(title or column.title, unit, log=is_log, zero=unit == "%", difference=column.kind == "difference")


def _intervals(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """Intervals of a row of a tall table, or of a column, each relative to its value."""
    names = dict(zip((column.title for column in table.columns), table.names, strict=True))
    rows = tuple(
        Interval(
            label,
            cell.value,
            cell.low or 0.0,
            cell.high or 0.0,
            column.unit,
            text(cell, column),
            interval(cell, column),
        )
        for label, column, cell in table.series(chart.y[0] if chart.y else "")
        if is_known(cell) and cell.value > 0.0 and (not chart.only or {label, names.get(label)} & set(chart.only))
    )
    return Intervals(sentence(chart.title), rows, chart.subtitle)


def _tornado(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """Changes to both sides, in the order of the table."""
    (down, downs), (up, ups) = (table.column(name) for name in [*chart.y, *chart.y][:2])
    ends_of = [
        {label: text(cell, column) for label, cell in zip(_words(table, chart.x), cells, strict=True)}
        for column, cells in map(table.column, chart.hover)
    ]
    swings = []
    for label, low, high in zip(_words(table, chart.x), downs, ups, strict=True):
        if isinstance(high, Quantity) and (not chart.only or label in chart.only):
            ends = low.value if isinstance(low, Quantity) and len(chart.y) > 1 else 0.0, high.value
            words = text(low, down) if ends[0] else "", text(high, up)
            if chart.hover:
                words = tuple(named[label] for named in ends_of)  # type: ignore[assignment]
            swings.append(Swing(label, *ends, *words))
    names = (down.title, up.title) if len(chart.y) > 1 else ("", up.title)
    unit = "%" if up.kind == "change" else up.unit
    return Tornado(sentence(chart.title), tuple(swings), chart.subtitle, chart.axis or "change", unit, names)


def _flow(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """A stream that divides, from the places of `x` to those of `series`."""
    column, amounts = table.column(chart.y[0])
    shares, share = (table.column(chart.label)[1], table.column(chart.label)[0]) if chart.label else ([], column)
    whole = ""
    if chart.whole:
        of, quantity = answer.table("outcome").number(chart.whole)
        whole = text(quantity, of)
    flows = tuple(
        Flow(source, target, cell.value, text(cell, column), text(shares[index], share) if shares else "")
        for index, (source, target, cell) in enumerate(
            zip(_words(table, chart.x), _words(table, chart.series), amounts, strict=True)
        )
        if isinstance(cell, Quantity)
    )
    return Sankey(sentence(chart.title), column.unit, flows, chart.subtitle, 2, whole)


def _timeline(answer: Answer, chart: Chart, table: Table) -> AbstractChart:
    """Boxes of ranks: columns rank, kind, start, end, lane and lanes."""
    ranks, starts, ends, lanes, count = (
        [cell.value if isinstance(cell, Quantity) else 0.0 for cell in table.column(name)[1]]
        for name in ("rank", "start", "end", "lane", "lanes")
    )
    boxes = tuple(
        Box(int(rank), kind, start, end, int(lane), int(of))
        for rank, kind, start, end, lane, of in zip(
            ranks, _words(table, "kind"), starts, ends, lanes, count, strict=True
        )
    )
    end = chart.limit[0] if chart.limit else None
    return RankTimeline(sentence(chart.title), boxes, chart.subtitle, end, chart.axis or "rank")


_KINDS = {
    "bars": _bars,
    "stack": _stack,
    "plane": _plane,
    "intervals": _intervals,
    "tornado": _tornado,
    "flow": _flow,
    "timeline": _timeline,
}
