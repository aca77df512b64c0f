"""How is a plane with two axes drawn: ticks, grid, names with units?"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from energymodel.report.charts.scale import Measure, Scale, bounds, measure, read, tick_texts, ticks
from energymodel.report.charts.svg import line, text
from energymodel.report.charts.text_width import shortened, text_width, widest

SMALL = 11.0
"""Size of the numbers at an axis [px]."""
_BELOW = 38.0  # numbers and name of the axis below
_ROW, _APART = 44.0, 14.0
_MANY_DECADES = 1e6  # of a logarithmic axis, over which no prefix fits all numbers


class Axis(NamedTuple):
    """What an axis measures: `unit` is SI, or "%" for shares of one; ends that are not given follow from the data."""

    title: str
    unit: str = "1"
    log: bool = False
    zero: bool = False
    low: float | None = None
    high: float | None = None
    difference: bool = False

    def read(self, value: float, digits: int = 3) -> str:
        """A number of this axis as a person reads it."""
        return read(value, self.unit, digits=digits, difference=self.difference)

    def ends(self, values: Sequence[float]) -> tuple[float, float]:
        """Ends in SI of an axis that shows these numbers."""
        low, high = bounds(values, log=self.log, zero=self.zero)
        return low if self.low is None else self.low, high if self.high is None else self.high

    def measure(self, low: float, high: float) -> Measure:
        """Unit of the numbers at the axis."""
        if self.log and high > _MANY_DECADES * low:
            return Measure(1.0, 0.0, "" if self.unit == "1" else self.unit)
        middle = [math.sqrt(low * high)] if self.log else [low, high]
        return measure(middle, self.unit, difference=self.difference)

    def name(self, unit: Measure) -> str:
        """Title and unit."""
        return f"{self.title} [{unit.word}]" if self.title and unit.word else self.title or unit.word


class Plane(NamedTuple):
    """The area between two axes, with the maps from numbers to pixels, and what was drawn of it."""

    x: Scale
    y: Scale
    marks: list[str]
    height: float


def axis_ticks(axis: Axis, low: float, high: float, count: int) -> tuple[Measure, list[float], list[str]]:
    """Unit, places in SI and words of the ticks of an axis."""
    unit = axis.measure(low, high)
    shown = ticks(unit.shown(low), unit.shown(high), count, log=axis.log)
    return unit, [unit.si(one) for one in shown], tick_texts(shown)


def fitting_ticks(
    axis: Axis, low: float, high: float, start: float, end: float
) -> tuple[Measure, list[float], list[str]]:
    """As many ticks as have room side by side between two pixels."""
    count = max(2, int((end - start) / 60.0))
    while True:
        unit, places, words = axis_ticks(axis, low, high, count)
        scale = Scale(low, high, start, end, axis.log)
        room = [scale(after) - scale(before) for before, after in itertools.pairwise(places)]
        needed = widest(words, SMALL) + _APART
        if count <= 1 or all(one >= needed for one in room):
            return unit, places, words
        count -= 1


def across(axis: Axis, low: float, high: float, start: float, end: float, top: float, bottom: float) -> list[str]:
    """Grid and numbers of a horizontal axis that lies at `bottom`, with its name below."""
    unit, places, words = fitting_ticks(axis, low, high, start, end)
    scale = Scale(low, high, start, end, axis.log)
    marks = []
    for place, word in zip(places, words, strict=True):
        x, half = scale(place), 0.5 * text_width(word, SMALL)
        marks.append(line(x, top, x, bottom, "em-rule"))
        middle = min(max(x, half), end + 0.5 * _APART - half) if x + half > end + 0.5 * _APART else max(x, half)
        marks.append(text(word, middle, bottom + 14.0, size=SMALL, anchor="middle", class_="em-muted"))
    name = shortened(axis.name(unit), end, SMALL)
    marks.append(text(name, max(end, text_width(name, SMALL)), bottom + 30.0, size=SMALL, anchor="end"))
    return marks


def plane(
    x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float], width: float, height: float, right: float = 10.0
) -> Plane:
    """Both axes around a plane; the name of the vertical one stands above it, so that it is read upright."""
    (left_end, right_end), (low, high) = x.ends(xs), y.ends(ys)
    unit, places, words = axis_ticks(y, low, high, max(2, int(height / _ROW)))
    left, top, bottom = widest(words, SMALL) + 8.0, 22.0, 22.0 + height
    scale_x = Scale(left_end, right_end, left, width - right, x.log)
    scale_y = Scale(low, high, bottom, top, y.log)
    marks = [text(shortened(y.name(unit), width, SMALL), 0.0, 10.0, size=SMALL)]
    for place, word in zip(places, words, strict=True):
        level = scale_y(place)
        marks.append(line(left, level, width - right, level, "em-rule"))
        marks.append(text(word, left - 6.0, level + 0.35 * SMALL, size=SMALL, anchor="end", class_="em-muted"))
    marks += across(x, left_end, right_end, left, width - right, top, bottom)
    marks.append(line(left, bottom, width - right, bottom, "em-axis"))
    return Plane(scale_x, scale_y, marks, bottom + _BELOW)
