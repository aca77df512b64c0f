"""Points, lines, bands and levels in a plane."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.answer import Answer, Chart
from energymodel.report.cells import Cell, Column, Quantity
from energymodel.report.charts.axes import Axis, Plane, bounds, plane
from energymodel.report.charts.svg import SMALL, Entry, Figure, Hatches, dash, hue, line, path, point, text
from energymodel.report.charts.words import Area, Labels, shortened, text_width
from energymodel.report.number import known_ends, layout_of_column
from energymodel.report.number import text as read

_TALL, _SHARE = 300.0, 0.75  # height of a plane, and at most this share of its width
_MOST = 500  # points of a series: what a page can hold
_WIDE = 3.0  # ratio of the ends of an axis beyond which it is logarithmic, where that is allowed


class _Point(NamedTuple):
    """A point, what hovering shows, its label, and the interval of its height."""

    x: float
    y: float
    hover: str = ""
    label: str = ""
    low: float | None = None
    high: float | None = None


class _Series(NamedTuple):
    """Points of one color, joined by a line or not, each marked or not."""

    name: str
    points: Sequence[_Point]
    is_joined: bool
    is_marked: bool


def points(answer: Answer, chart: Chart, width: float, _: Hatches) -> Figure:
    """Series by a column of names, or by the columns `y`; `lines` joins all, or those that it names.

    A line without anything to hover has no marks at its points.
    """
    table = answer.table(chart.table)
    x, y = (table.column(name)[0] for name in (chart.x, chart.y[0]))
    series = _series(answer, chart)
    drawn = [at for group in series for at in group.points]
    heights = [end for at in drawn for end in (at.y, at.low, at.high) if end is not None]
    across = _axis(chart, x, x.title, [at.x for at in drawn], "x")
    up = _axis(chart, y, chart.axis or y.title, heights, "y")
    area = plane(across, up, width, min(_TALL, _SHARE * width))
    labels = Labels(Area(area.x.start, area.y.end - 2.0, area.x.end + 8.0, area.y.start))
    marks = [*area.marks, *(_level(chart.limit, area, labels) if chart.limit else [])]
    marks += [mark for index, group in enumerate(series) for mark in _joined(group, index, area)]
    for index, group in enumerate(series):
        for at in group.points:
            left, top = area.x(at.x), area.y(at.y)
            if group.is_marked or at.label:
                marks.append(point(left, top, index, at.hover))
                labels.block(Area(left - 4.0, top - 4.0, left + 4.0, top + 4.0))
    for at in drawn:
        if at.label:
            labels.put(at.label, area.x(at.x), area.y(at.y))
    kinds = ["line" if group.is_joined else "points" for group in series]
    entries = [Entry(group.name, index, kinds[index]) for index, group in enumerate(series)]
    return Figure(area.height, [*marks, *labels.marks], entries if len(series) > 1 else [])


def _axis(chart: Chart, column: Column, title: str, values: list[float], name: str) -> Axis:
    """The axis of a column; logarithmic where the chart allows it and the numbers are far apart."""
    log = column.name in chart.log and bool(values) and min(values) > 0.0 and max(values) > _WIDE * min(values)
    limits = [chart.limit[0]] if chart.limit and (chart.limit[2:] or ("y",))[0] == name else []
    ends = bounds([*values, *limits], log=log, zero=column.kind in ("share", "change"))
    return Axis(title, column, *ends, log)


def _series(answer: Answer, chart: Chart) -> list[_Series]:
    table = answer.table(chart.table)
    x, xs = table.column(chart.x)
    hover = [_in_column(*table.column(name)) for name in chart.hover]
    labels = table.column(chart.label)[1] if chart.label else [""] * len(xs)
    groups: dict[str, list[_Point]] = {}
    for name in chart.y:
        y, ys = table.column(name)
        names = table.column(chart.series)[1] if chart.series else [y.title] * len(xs)
        texts = hover or [_in_column(y, ys), _in_column(x, xs)]
        for index, (left, height, of) in enumerate(zip(xs, ys, names, strict=True)):
            if not (isinstance(left, Quantity) and isinstance(height, Quantity)):
                continue
            if math.isfinite(left.value) and math.isfinite(height.value):
                words = [f"{title} {cells[index]}".strip() for title, cells in texts if cells[index]]
                words = words if hover else [f"{of}: {texts[0][1][index]}, {words[1]}"]
                ends = known_ends(height) if y.digits != "rows" else None
                at = _Point(left.value, height.value, "\n".join(words), str(labels[index] or ""), *(ends or ()))
                groups.setdefault(str(of), []).append(at)
    series = []
    for name, members in groups.items():
        is_joined = chart.lines if isinstance(chart.lines, bool) else name in chart.lines
        step = -(-len(members) // _MOST)
        if is_joined or step > 1:
            members = sorted(members, key=lambda at: at.x)[::step]
        series.append(_Series(name, members, is_joined, not is_joined or any(at.hover for at in members)))
    if chart.diagonal:
        ends = [end for group in series for at in group.points for end in (at.x, at.y)]
        series.append(_Series(chart.diagonal, [_Point(end, end) for end in (min(ends), max(ends))], True, False))
    return series


def _in_column(column: Column, cells: Sequence[Cell]) -> tuple[str, list[str]]:
    layout = layout_of_column(cells, column)
    return column.title, [read(cell, column, layout) for cell in cells]


def _joined(series: _Series, index: int, area: Plane) -> list[str]:
    """The line of a series with the band of its intervals, or the intervals of single points."""
    bounded = [
        (area.x(at.x), area.y(at.low), area.y(at.high))
        for at in series.points
        if at.low is not None and at.high is not None
    ]
    marks = [line(x, low, x, high, "em-whisker") for x, low, high in bounded if series.is_marked]
    if len(bounded) > 1 and not series.is_marked:
        band = [*((x, low) for x, low, _ in bounded), *((x, high) for x, _, high in reversed(bounded))]
        marks.append(path(band, f"em-tint {hue(index)}", closed=True))
    if series.is_joined and len(series.points) > 1:
        pixels = [(area.x(at.x), area.y(at.y)) for at in series.points]
        marks.append(path(pixels, f"em-line {hue(index)}", dashes=dash(index)))
    return marks


def _level(level: tuple[float, str] | tuple[float, str, str], area: Plane, labels: Labels) -> list[str]:
    """A line across the plane at a value of y, or of x, with its name."""
    left, right, bottom, top = area.x.start, area.x.end, area.y.start, area.y.end
    words = shortened(level[1], right - left - 8.0, SMALL)
    wide = text_width(words, SMALL)
    if level[2:] != ("x",):
        y = area.y(level[0])
        base = y - 4.0 if y - top > 16.0 else y + 12.0
        labels.block(Area(right - wide - 4.0, base - 11.0, right, base + 3.0))
        return [line(left, y, right, y, "em-limit"), text(words, right, base, anchor="end", class_="em-halo")]
    x = area.x(level[0])
    beside = x + 4.0 if x + wide + 6.0 < right else x - wide - 4.0
    labels.block(Area(beside, top, beside + wide, top + 14.0))
    return [line(x, top, x, bottom, "em-limit"), text(words, max(beside, 0.0), top + 10.0, class_="em-halo")]
