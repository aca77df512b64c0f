"""Bars: parts that add up, amounts beside each other with intervals and limits, changes to both sides, intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.answer import Answer, Chart, Table
from energymodel.report.cells import Column, Quantity
from energymodel.report.charts.axes import BELOW, Axis, bounds
from energymodel.report.charts.figure import Entry, Figure
from energymodel.report.charts.svg import SMALL, Hatches, element, is_hatched, line, number, point, rectangle, text
from energymodel.report.charts.words import shortened, text_width, widest
from energymodel.report.number import interval, is_known
from energymodel.report.number import text as read

_BESIDE = 560.0  # from this width on names stand left of the bars
_STACK, _THICK, _LABEL = 52.0, 26.0, 18.0  # of a stack: its row, its bar, the text above
_LANE, _GAP, _NAME, _ABOVE = 16.0, 12.0, 15.0, 14.0
_MARK = 6.0  # width of a bar of nothing, where bars start at a number
_FARTHEST = 1.5  # deviation at which the axis of intervals ends; an arrow shows what goes beyond
_ROW = 24.0
_SHARE = Column("", "", kind="share")


def words_of(table: Table, name: str) -> list[str]:
    """Cells of a column of words."""
    return [cell if isinstance(cell, str) else "" for cell in table.column(name)[1]]


def stack(answer: Answer, chart: Chart, width: float, hatches: Hatches) -> Figure:
    """Bars of parts of a whole, one for each column; the largest parts come first, those of nothing are left out."""
    table, end = answer.table(chart.table), width - 14.0
    outcome = next((table for table in answer.tables if table.name == "outcome" and chart.whole in table.names), None)
    labels, column = words_of(table, chart.x), table.column(chart.y[0])[0]
    bars = [
        {label: cell for label, cell in zip(labels, table.column(name)[1], strict=True) if isinstance(cell, Quantity)}
        for name in chart.y
    ]
    totals = [math.fsum(max(cell.value, 0.0) for cell in parts.values()) for parts in bars]
    largest = {label: max((parts[label].value for parts in bars if label in parts), default=0.0) for label in labels}
    order = sorted((label for label in labels if largest[label] > 0.0), key=lambda label: -largest[label])
    shares = dict(zip(labels, table.column(chart.label)[1], strict=True)) if chart.label else {}  # of the last bar
    of_share = table.column(chart.label)[0] if shares else _SHARE
    axis = Axis(chart.axis, column, 0.0, max(totals, default=0.0) or 1.0, end=end)
    bottom = len(bars) * _STACK
    marks = axis.across(0.0, bottom)
    for row, (name, parts) in enumerate(zip(chart.y, bars, strict=True)):
        top, title = row * _STACK + _LABEL, table.column(name)[0].title
        of, sum_of_bar = outcome.number(chart.whole, row) if outcome else (column, Quantity(totals[row]))
        words = read(sum_of_bar, of)
        marks.append(text(shortened(title, width - text_width(words) - 24.0), 0.0, top - 5.0, class_="em-halo"))
        marks.append(text(words, end, top - 5.0, anchor="end", class_="em-bold em-halo"))
        start = 0.0
        for index, label in enumerate(order):
            if label not in parts:
                continue
            cell, left = parts[label], axis(start)
            start += max(cell.value, 0.0)
            right, amount = axis(start), read(cell, column)
            part = shares.get(label) if row == len(bars) - 1 else None
            share = read(part or Quantity(cell.value / (totals[row] or 1.0)), of_share)
            class_, fill = hatches.fill(index)
            wide = right - left - (0.8 if right - left > 2.0 else 0.0)
            marks.append(rectangle(left, top, wide, _THICK, class_, f"{title}: {label}: {amount}, {share}", fill))
            if not is_hatched(index) and text_width(amount, SMALL) + 8.0 <= right - left:
                middle = 0.5 * (left + right)
                marks.append(text(amount, middle, top + 17.0, size=SMALL, anchor="middle", class_="em-on"))
    of_one = shares if len(bars) == 1 else {}
    names = [f"{label} {read(of_one[label], of_share)}" if label in of_one else label for label in order]
    return Figure(bottom + BELOW, marks, [Entry(words, index) for index, words in enumerate(names)])


class _Bar(NamedTuple):
    """A bar from one number to another: its color, the words at its end, what hovering shows, its interval."""

    start: float
    end: float
    color: int
    words: str
    hover: str
    low: float | None = None
    high: float | None = None

    @property
    def points_left(self) -> bool:
        return self.end < self.start


def bars(answer: Answer, chart: Chart, width: float, hatches: Hatches) -> Figure:
    """Bars in a group for each line, from nothing or from the column `base`, with their intervals and one limit."""
    table = answer.table(chart.table)
    across = words_of(table, chart.x) if chart.x and not table.tall else []
    names = dict(zip(across, words_of(table, chart.series), strict=True)) if chart.series else {}
    starts = dict(zip(across, table.column(chart.base)[1], strict=True)) if chart.base else {}
    beside = dict(zip(across, table.column(chart.label)[1], strict=True)) if chart.label else {}
    groups: dict[str, list[_Bar]] = {label: [] for label in chart.only}
    series: dict[str, int] = {}
    values, columns = [chart.limit[0]] if chart.limit else [], []
    for name in chart.y:
        for label, column, cell in table.drawn(name, chart.only, "" if table.tall else chart.x):
            several = (name if table.tall else column.title) if len(chart.y) > 1 else ""
            of = names.get(label, several)
            words = read(beside[label], table.column(chart.label)[0]) if beside else read(cell, column)
            ends = interval(cell, column)
            hover = f"{label}{f', {of}' if of else ''}: {words}{f' ({ends})' if ends else ''}"
            from_ = starts.get(label)
            start = from_.value if isinstance(from_, Quantity) else 0.0
            low, high = (cell.low, cell.high) if is_known(cell) else (None, None)
            color = series.setdefault(of, len(series))
            if chart.base and chart.limit and cell.value > chart.limit[0]:
                color = 1  # beyond the limit
            groups.setdefault(label, []).append(_Bar(start, cell.value, color, words, hover, low, high))
            values += [value for value in (cell.value, low, high, start if chart.base else None) if value is not None]
            columns.append(column)
    log = bool(chart.log)
    ends = bounds(values, log=log, zero=not log and not chart.base)
    axis = Axis(chart.axis, columns[0] if columns else _SHARE, *ends, log)
    rows = [(label, group) for label, group in groups.items() if group]
    height, marks = _rows(rows, axis, width, hatches, limit=chart.limit)
    return Figure(height, marks, [Entry(*pair) for pair in series.items()] if len(series) > 1 else [])


def tornado(answer: Answer, chart: Chart, width: float, hatches: Hatches) -> Figure:
    """Changes to both sides, in the order of the table; `hover` names columns of the words at both ends."""
    table = answer.table(chart.table)
    columns = [table.column(name) for name in chart.y]
    ends = [table.column(name) for name in chart.hover] or columns
    rows, used = [], {}
    for row, label in enumerate(words_of(table, chart.x)):
        sides = []
        for index, ((column, cells), (of, words)) in enumerate(zip(columns, ends, strict=True)):
            cell, color = cells[row], index + 2 - len(columns)  # one column has the color of the second end
            if not isinstance(cell, Quantity) or not math.isfinite(cell.value) or not cell.value:
                continue
            beside, change = read(words[row], of), read(cell, column)
            hover = f"{label} {column.title}{f' ({beside})' if beside and chart.hover else ''}: {change}"
            sides.append(_Bar(0.0, cell.value, color, beside, hover))
            used[index] = Entry(column.title, color)
        if isinstance(columns[-1][1][row], Quantity) and (not chart.only or label in chart.only):
            rows.append((label, sides))
    values = [bar.end for _, sides in rows for bar in sides]
    low, high = min([0.0, *values]), max([0.0, *values])
    axis = Axis(chart.axis or "change", columns[-1][0], low, high if high > low else 1.0)
    height, marks = _rows(rows, axis, width, hatches, shared=True)
    return Figure(height, marks, [used[index] for index in sorted(used) if used[index].words])


def _rows(
    rows: Sequence[tuple[str, Sequence[_Bar]]],
    axis: Axis,
    width: float,
    hatches: Hatches,
    *,
    limit: Sequence | None = None,
    shared: bool = False,
) -> tuple[float, list[str]]:
    """Height and marks of bars below each other; with `shared`, bars to opposite sides are on one line."""
    beside = width >= _BESIDE
    left = min(widest([label for label, _ in rows]), 0.38 * width) + 10.0 if beside else 0.0
    before, after = (
        widest([bar.words for _, bars in rows for bar in bars if bar.points_left == is_left], SMALL)
        for is_left in (True, False)
    )
    axis = axis._replace(start=left + before + (8.0 if before else 0.0), end=width - after - 12.0)
    top = _ABOVE if limit else 0.0
    marks, y = [], top + 2.0
    for label, bars in rows:
        lanes = 1 if shared and len({bar.points_left for bar in bars}) == len(bars) else len(bars)
        if beside:
            middle = y + 0.5 * _LANE * lanes + 4.0
            marks.append(text(shortened(label, left - 10.0), left - 10.0, middle, anchor="end"))
        else:
            marks.append(text(shortened(label, width), 0.0, y + 11.0, class_="em-halo"))
            y += _NAME
        for lane, bar in enumerate(bars):
            marks += _bar(bar, axis, y + (lane * _LANE if lanes > 1 else 0.0), hatches, limit)
        y += lanes * _LANE + _GAP
    zero = axis(0.0)
    back = [*axis.across(top, y), line(zero, 0.0, zero, y, "em-axis")]
    if limit:
        x, half = axis(limit[0]), 0.5 * text_width(limit[1], SMALL)
        back.append(line(x, 12.0, x, y, "em-limit"))
        back.append(text(limit[1], min(max(x, half), width - half), 9.0, size=SMALL, anchor="middle"))
    return y + BELOW, [*back, *marks]


def _bar(bar: _Bar, axis: Axis, y: float, hatches: Hatches, limit: Sequence | None) -> list[str]:
    start, end, middle, base = axis(bar.start), axis(bar.end), y + 0.5 * _LANE, y + 0.5 * _LANE + 4.0
    class_, fill = hatches.fill(bar.color)
    left, wide = min(start, end), abs(end - start)
    if bar.start and bar.start == bar.end:
        left, wide = start - 0.5 * _MARK, _MARK
    marks = [rectangle(left, y + 1.0, wide, _LANE - 2.0, class_, bar.hover, fill)]
    right, far = left + wide, left
    if bar.low is not None and bar.high is not None:
        low, high = axis(bar.low), axis(bar.high)
        marks.append(line(low, middle, high, middle, "em-whisker"))
        marks += [line(x, middle - 4.0, x, middle + 4.0, "em-whisker") for x in (low, high)]
        right, far = max(right, high), min(far, low)
    if bar.points_left:
        return [*marks, text(bar.words, far - 5.0, base, size=SMALL, anchor="end", class_="em-halo")]
    long = text_width(bar.words, SMALL)
    is_crossed = limit is not None and right <= axis(limit[0]) <= right + long + 8.0
    if is_crossed and wide > long + 10.0 and right == left + wide and not is_hatched(bar.color):
        return [*marks, text(bar.words, end - 5.0, base, size=SMALL, anchor="end", class_="em-on")]
    return [*marks, text(bar.words, right + 5.0, base, size=SMALL, class_="em-halo")]


def intervals(answer: Answer, chart: Chart, width: float, hatches: Hatches) -> Figure:
    """Intervals of a row of a tall table, or of a column, each as a deviation from its own value."""
    table = answer.table(chart.table)
    rows = []
    for label, column, cell in table.drawn(chart.y[0] if chart.y else "", chart.only):
        if cell.value > 0.0 and is_known(cell) and cell.low is not None and cell.high is not None:
            words = read(cell, column), interval(cell, column)
            rows.append((label, cell.low / cell.value - 1.0, cell.high / cell.value - 1.0, *words))
    low, high = bounds([0.0, *(min(end, _FARTHEST) for row in rows for end in row[1:3])])
    told = [f"{value} ({ends})" for *_, value, ends in rows]
    beside, left, right = width >= _BESIDE, 8.0, width - 8.0
    if beside:
        left = min(widest([row[0] for row in rows]), 0.3 * width) + 10.0
        right = width - min(widest(told), 0.36 * width) - 13.0
    axis = Axis("deviation from the value", _SHARE, low, high, start=left, end=right)
    marks, y = [], 4.0
    for (label, below, above, value, ends), words in zip(rows, told, strict=True):
        if beside:
            marks.append(text(shortened(label, left - 10.0), left - 10.0, y + 16.0, anchor="end"))
            marks.append(text(shortened(words, width - right - 12.0), right + 12.0, y + 16.0))
        else:
            name = shortened(label, width - text_width(words, SMALL) - 12.0, SMALL)
            marks.append(text(name, 0.0, y + 11.0, size=SMALL, class_="em-halo"))
            words = shortened(words, width, SMALL)
            marks.append(text(words, width, y + 11.0, size=SMALL, anchor="end", class_="em-halo"))
            y += 12.0
        middle, x, end = y + 0.5 * _ROW, axis(below), axis(above)
        marks += [line(*ends, "em-line em-hue0") for ends in ((x, middle, end, middle), (x, middle - 4, x, middle + 4))]
        if above > high:
            arrow = f"M{number(end)} {number(middle - 5.0)}l7 5l-7 5z"
            marks.append(element("path", d=arrow, class_="em-area em-hue0"))
        else:
            marks.append(line(end, middle - 4.0, end, middle + 4.0, "em-line em-hue0"))
        marks.append(point(axis(0.0), middle, 0, f"{label}: {value}, with a probability of 90 % {ends}"))
        y += _ROW
    zero = axis(0.0)
    return Figure(y + BELOW, [*axis.across(0.0, y), line(zero, 0.0, zero, y, "em-axis"), *marks])
