"""Bars: parts that add up, amounts beside each other with intervals and limits, changes to both sides, intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from energymodel.report.answer import Answer, Chart, Table
from energymodel.report.cells import Cell, Quantity
from energymodel.report.charts.axes import BELOW, SHARE, Axis, bounds
from energymodel.report.charts.svg import (
    SIZE,
    SMALL,
    Entry,
    Figure,
    Hatches,
    is_hatched,
    line,
    path,
    point,
    rectangle,
    text,
)
from energymodel.report.charts.words import shortened, text_width, widest
from energymodel.report.number import interval, known_ends
from energymodel.report.number import text as read

_BESIDE = 560.0  # from this width on names stand left of the bars
_STACK, _THICK, _LABEL = 52.0, 26.0, 18.0  # of a stack: its row, its bar, the text above
_LANE, _GAP, _NAME, _ABOVE = 16.0, 12.0, 15.0, 14.0
_MARK = 6.0  # width of a bar of nothing, where bars start at a number
_FARTHEST = 1.5  # deviation at which the axis of intervals ends; an arrow shows what goes beyond
_ROW = 24.0


def words_of(table: Table, name: str) -> list[str]:
    """Cells of a column of words."""
    return [cell if isinstance(cell, str) else "" for cell in table.column(name)[1]]


def _by_label(table: Table, labels: str, name: str) -> Mapping[str, Cell]:
    """Cells of a column by the words of another; none without a name."""
    return dict(zip(words_of(table, labels), table.column(name)[1], strict=True)) if name else {}


def stack(answer: Answer, chart: Chart, width: float, hatches: Hatches) -> Figure:
    """Bars of parts of a whole, one for each column; the largest parts come first, those of nothing are left out."""
    table, end = answer.table(chart.table), width - 14.0
    outcome = next((table for table in answer.tables if table.name == "outcome" and chart.total in table.names), None)
    column = table.column(chart.y[0])[0]
    bars = [
        {label: cell for label, cell in _by_label(table, chart.x, name).items() if isinstance(cell, Quantity)}
        for name in chart.y
    ]
    totals = [math.fsum(max(cell.value, 0.0) for cell in parts.values()) for parts in bars]
    labels = words_of(table, chart.x)
    largest = {label: max((parts[label].value for parts in bars if label in parts), default=0.0) for label in labels}
    order = sorted((label for label in labels if largest[label] > 0.0), key=lambda label: -largest[label])
    shares = _by_label(table, chart.x, chart.label)  # of the last bar
    of_share = table.column(chart.label)[0] if shares else SHARE
    axis = Axis(chart.axis, column, 0.0, max(totals, default=0.0) or 1.0, end=end)
    bottom = len(bars) * _STACK
    marks = axis.across(0.0, bottom)
    for row, (name, parts) in enumerate(zip(chart.y, bars, strict=True)):
        top, title = row * _STACK + _LABEL, table.column(name)[0].title
        of, sum_of_bar = outcome.number(chart.total, row) if outcome else (column, Quantity(totals[row]))
        words, start = read(sum_of_bar, of), 0.0
        name = shortened(title, width - text_width(words) - 24.0)
        marks.append(text(name, 0.0, top - 5.0, size=SIZE, class_="em-halo"))
        marks.append(text(words, end, top - 5.0, size=SIZE, anchor="end", class_="em-bold em-halo"))
        for index, label in enumerate(order):
            if label not in parts:
                continue
            cell, left = parts[label], axis(start)
            start += max(cell.value, 0.0)
            right, amount = axis(start), read(cell, column)
            part = shares.get(label) if row == len(bars) - 1 else None
            hover = f"{title}: {label}: {amount}, {read(part or Quantity(cell.value / (totals[row] or 1.0)), of_share)}"
            wide = right - left - (0.8 if right - left > 2.0 else 0.0)
            marks.append(rectangle(left, top, wide, _THICK, *hatches.fill(index), hover))
            if not is_hatched(index) and text_width(amount, SMALL) + 8.0 <= right - left:
                marks.append(text(amount, 0.5 * (left + right), top + 17.0, anchor="middle", class_="em-on"))
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
    """Bars in a group for each line, from nothing or from the column `base`, with their intervals and one limit.

    Changes of a "tornado" go to both sides of one line, in the order of the table, with the words of `hover` at the
    ends.
    """
    table, shared = answer.table(chart.table), chart.kind == "tornado"
    names, starts = (_by_label(table, chart.x, name) for name in (chart.series, chart.base))
    groups: dict[str, list[_Bar]] = {label: [] for label in (words_of(table, chart.x) if shared else chart.only)}
    series: dict[str, int] = {}
    values, columns = [chart.limit[0]] if chart.limit else [], []
    at_ends = list(chart.hover) if shared and chart.hover else [chart.label] * len(chart.y)
    for index, (name, at_end) in enumerate(zip(chart.y, at_ends, strict=True)):
        beside = _by_label(table, chart.x, at_end)
        for label, column, cell in table.drawn(name, chart.only, "" if table.tall else chart.x):
            if shared and not (math.isfinite(cell.value) and cell.value):
                continue
            several = (name if table.tall else column.title) if shared or len(chart.y) > 1 else ""
            of, start = str(names.get(label) or "") if names else several, starts.get(label)
            amount, ends = read(cell, column), interval(cell, column)
            words = read(beside[label], table.column(at_end)[0]) if beside else amount
            hover = f"{label}{f', {of}' if of else ''}: {words}{f' ({ends})' if ends else ''}"
            if shared:
                hover = f"{label} {of}{f' ({words})' if words and beside else ''}: {amount}"
            low, high = known_ends(cell) or (None, None)
            # a single column of changes has the color of the second end
            color = series.setdefault(of, index + 2 - len(chart.y) if shared else len(series))
            if chart.base and chart.limit and cell.value > chart.limit[0]:
                color = 1  # beyond the limit
            bar = _Bar(start.value if isinstance(start, Quantity) else 0.0, cell.value, color, words, hover, low, high)
            groups.setdefault(label, []).append(bar)
            values += [end for end in (bar.end, low, high, bar.start if chart.base else None) if end is not None]
            columns.append(column)
    log = bool(chart.log)
    ends = bounds(values, log=log, zero=not log and not chart.base, margin=0.0 if shared else 0.05)
    axis = Axis(chart.axis, columns[0] if columns else SHARE, *ends, log)
    rows = [(label, group) for label, group in groups.items() if group]
    entries = [Entry(*pair) for pair in series.items()] if shared or len(series) > 1 else []
    return _rows(rows, axis, width, hatches, entries, limit=chart.limit, shared=shared)


def _rows(
    rows: Sequence[tuple[str, Sequence[_Bar]]],
    axis: Axis,
    width: float,
    hatches: Hatches,
    entries: Sequence[Entry],
    *,
    limit: Sequence | None = None,
    shared: bool = False,
) -> Figure:
    """Bars below each other; with `shared`, bars to opposite sides are on one line."""
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
            marks.append(text(shortened(label, left - 10.0), left - 10.0, middle, size=SIZE, anchor="end"))
        else:
            marks.append(text(shortened(label, width), 0.0, y + 11.0, size=SIZE, class_="em-halo"))
            y += _NAME
        for lane, bar in enumerate(bars):
            marks += _bar(bar, axis, y + (lane * _LANE if lanes > 1 else 0.0), hatches, limit)
        y += lanes * _LANE + _GAP
    back = [*axis.across(top, y), line(axis(0.0), 0.0, axis(0.0), y, "em-axis")]
    if limit:
        x, half = axis(limit[0]), 0.5 * text_width(limit[1], SMALL)
        back.append(line(x, 12.0, x, y, "em-limit"))
        back.append(text(limit[1], min(max(x, half), width - half), 9.0, anchor="middle"))
    return Figure(y + BELOW, [*back, *marks], entries)


def _bar(bar: _Bar, axis: Axis, y: float, hatches: Hatches, limit: Sequence | None) -> list[str]:
    start, end, middle, base = axis(bar.start), axis(bar.end), y + 0.5 * _LANE, y + 0.5 * _LANE + 4.0
    left, wide = min(start, end), abs(end - start)
    if bar.start and bar.start == bar.end:
        left, wide = start - 0.5 * _MARK, _MARK
    marks = [rectangle(left, y + 1.0, wide, _LANE - 2.0, *hatches.fill(bar.color), bar.hover)]
    right, far = left + wide, left
    if bar.low is not None and bar.high is not None:
        low, high = axis(bar.low), axis(bar.high)
        marks.append(line(low, middle, high, middle, "em-whisker"))
        marks += [line(x, middle - 4.0, x, middle + 4.0, "em-whisker") for x in (low, high)]
        right, far = max(right, high), min(far, low)
    if bar.points_left:
        return [*marks, text(bar.words, far - 5.0, base, anchor="end", class_="em-halo")]
    long = text_width(bar.words, SMALL)
    is_crossed = limit is not None and right <= axis(limit[0]) <= right + long + 8.0
    if is_crossed and wide > long + 10.0 and right == left + wide and not is_hatched(bar.color):
        return [*marks, text(bar.words, end - 5.0, base, anchor="end", class_="em-on")]
    return [*marks, text(bar.words, right + 5.0, base, class_="em-halo")]


def intervals(answer: Answer, chart: Chart, width: float, _: Hatches) -> Figure:
    """Intervals of a row of a tall table, or of a column, each as a deviation from its own value."""
    table = answer.table(chart.table)
    rows = []
    for label, column, cell in table.drawn(chart.y[0] if chart.y else "", chart.only):
        if cell.value > 0.0 and (ends := known_ends(cell)):
            below, above = (end / cell.value - 1.0 for end in ends)
            rows.append((label, below, above, read(cell, column), interval(cell, column)))
    low, high = bounds([0.0, *(min(end, _FARTHEST) for row in rows for end in row[1:3])])
    beside, left, right = width >= _BESIDE, 8.0, width - 8.0
    if beside:
        left = min(widest([row[0] for row in rows]), 0.3 * width) + 10.0
        right = width - min(widest([f"{value} ({ends})" for *_, value, ends in rows]), 0.36 * width) - 13.0
    axis = Axis("deviation from the value", SHARE, low, high, start=left, end=right)
    marks, y = [], 4.0
    for label, below, above, value, ends in rows:
        words = f"{value} ({ends})"
        if beside:
            marks.append(text(shortened(label, left - 10.0), left - 10.0, y + 16.0, size=SIZE, anchor="end"))
            marks.append(text(shortened(words, width - right - 12.0), right + 12.0, y + 16.0, size=SIZE))
        else:
            name = shortened(label, width - text_width(words, SMALL) - 12.0, SMALL)
            marks.append(text(name, 0.0, y + 11.0, class_="em-halo"))
            marks.append(text(shortened(words, width, SMALL), width, y + 11.0, anchor="end", class_="em-halo"))
            y += 12.0
        middle, x, end = y + 0.5 * _ROW, axis(below), axis(above)
        marks += [line(*ends, "em-line em-hue0") for ends in ((x, middle, end, middle), (x, middle - 4, x, middle + 4))]
        arrow = [(end, middle - 5.0), (end + 7.0, middle), (end, middle + 5.0)]
        cut = path(arrow, "em-area em-hue0", closed=True)
        marks.append(cut if above > high else line(end, middle - 4.0, end, middle + 4.0, "em-line em-hue0"))
        marks.append(point(axis(0.0), middle, 0, f"{label}: {value}, with a probability of 90 % {ends}"))
        y += _ROW
    return Figure(y + BELOW, [*axis.across(0.0, y), line(axis(0.0), 0.0, axis(0.0), y, "em-axis"), *marks])
