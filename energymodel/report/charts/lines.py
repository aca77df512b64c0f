"""How does one quantity follow another: lines, points, bands and levels in a plane?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL, Axis, Plane, plane
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches, dash, hue
from energymodel.report.charts.labels import Area, Labels
from energymodel.report.charts.legend import Entry, point
from energymodel.report.charts.svg import element, line, note, number, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import shortened, text_width

_TALL, _SHARE = 300.0, 0.75  # of a plane, and at most this share of its width


class Point(NamedTuple):
    """A place in SI, what hovering over it shows, a label beside it, and an interval of its height."""

    x: float
    y: float
    hover: str = ""
    label: str = ""
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    """Points that belong together, drawn as "line", "points" or "both"; with intervals a line has a band."""

    name: str
    points: tuple[Point, ...]
    kind: str = "line"


class Level(NamedTuple):
    """A line across the plane at a value of x or y, such as a limit, with its name."""

    value: float
    name: str
    of: str = "y"


@dataclass(frozen=True)
class Lines(AbstractChart):
    """Series in a plane, its axes straight or logarithmic."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    subtitle: str = ""
    levels: tuple[Level, ...] = ()
    tall: float = _TALL

    def entries(self) -> list[Entry]:
        """Series, where there is more than one."""
        if len(self.series) < 2:
            return []
        kinds = {"both": "line"}
        return [Entry(one.name, place, kinds.get(one.kind, one.kind)) for place, one in enumerate(self.series)]

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Levels, bands, lines, points, and labels where they are free."""
        points = [one for series in self.series for one in series.points]
        xs = [one.x for one in points] + [one.value for one in self.levels if one.of == "x"]
        ys = [end for one in points for end in (one.y, one.low, one.high) if end is not None]
        ys += [one.value for one in self.levels if one.of == "y"]
        drawn = plane(self.x, self.y, xs, ys, width, min(self.tall, _SHARE * width))
        labels = Labels(Area(drawn.x.start, drawn.y.end - 2.0, drawn.x.end + 8.0, drawn.y.start))
        marks = list(drawn.marks)
        for level in self.levels:
            marks += _level(level, drawn, labels)
        for place, series in enumerate(self.series):
            shown = [one for one in series.points if self._is_shown(one)]
            marks += _band(shown, place, drawn) if series.kind == "line" else _whiskers(shown, drawn)
            marks += [_line(shown, place, drawn)] if series.kind in ("line", "both") and len(shown) > 1 else []
        for place, series in enumerate(self.series):
            for one in series.points:
                if not self._is_shown(one):
                    continue
                x, y = drawn.x(one.x), drawn.y(one.y)
                if series.kind != "line" or one.label:
                    marks.append(point(x, y, place, self._hover(series, one)))
                    labels.block(Area(x - 4.0, y - 4.0, x + 4.0, y + 4.0))
                elif one.hover:
                    marks.append(element("circle", note(one.hover), cx=x, cy=y, r=6, class_="em-hit"))
        for series in self.series:
            for one in series.points:
                if one.label and self._is_shown(one):
                    labels.place(one.label, drawn.x(one.x), drawn.y(one.y), size=SMALL)
        return Drawing(drawn.height, [*marks, *labels.marks])

    def _is_shown(self, one: Point) -> bool:
        return all(
            math.isfinite(value)
            and (value > 0.0 or not axis.log)
            and (axis.low is None or value >= axis.low)
            and (axis.high is None or value <= axis.high)
            for value, axis in ((one.x, self.x), (one.y, self.y))
        )

    def _hover(self, series: Series, one: Point) -> str:
        return one.hover or f"{series.name}: {self.x.read(one.x)}, {self.y.read(one.y)}"

    def table(self) -> Table:
        """A row for each point."""
        known = any(one.low is not None for series in self.series for one in series.points)
        y, x = (self.y.title, self.y.unit, self.y.difference), (self.x.title, self.x.unit, self.x.difference)
        rows = [
            [series.name, one.x, one.y, *([one.low, one.high] if known else [])]
            for series in self.series
            for one in series.points
        ]
        ends = [Column(name, *y[1:]) for name in ("low", "high")] if known else []
        return Table([Column("series"), Column(*x), Column(*y), *ends], rows)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _line(points: Sequence[Point], place: int, drawn: Plane) -> str:
    path = _path([(drawn.x(one.x), drawn.y(one.y)) for one in points])
    return element("path", d=path, class_=f"em-line {hue(place)}", stroke_dasharray=dash(place))


def _band(points: Sequence[Point], place: int, drawn: Plane) -> list[str]:
    known = [
        (drawn.x(one.x), drawn.y(one.low), drawn.y(one.high))
        for one in points
        if one.low is not None and one.high is not None
    ]
    if len(known) < 2:
        return []
    path = _path([*((x, low) for x, low, _ in known), *((x, high) for x, _, high in reversed(known))])
    return [element("path", d=f"{path}z", class_=f"em-tint {hue(place)}")]


def _whiskers(points: Sequence[Point], drawn: Plane) -> list[str]:
    marks = []
    for one in points:
        if one.low is not None and one.high is not None:
            x, low, high = drawn.x(one.x), drawn.y(one.low), drawn.y(one.high)
            marks.append(line(x, low, x, high, "em-whisker"))
    return marks


def _level(level: Level, drawn: Plane, labels: Labels) -> list[str]:
    left, right, bottom, top = drawn.x.start, drawn.x.end, drawn.y.start, drawn.y.end
    words = shortened(level.name, right - left - 8.0, SMALL)
    wide = text_width(words, SMALL)
    if level.of == "y":
        y = drawn.y(level.value)
        base = y - 4.0 if y - top > 16.0 else y + 12.0
        labels.block(Area(right - wide - 4.0, base - 11.0, right, base + 3.0))
        return [
            line(left, y, right, y, "em-limit"),
            text(words, right, base, size=SMALL, anchor="end", class_="em-halo"),
        ]
    x = drawn.x(level.value)
    beside = x + 4.0 if x + wide + 6.0 < right else x - wide - 4.0
    labels.block(Area(beside, top, beside + wide, top + 14.0))
    return [
        line(x, top, x, bottom, "em-limit"),
        text(words, max(beside, 0.0), top + 10.0, size=SMALL, class_="em-halo"),
    ]
