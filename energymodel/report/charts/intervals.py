"""How sure is each number: values with intervals, beside each other on one axis of relative deviations?"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL, Axis, across
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches
from energymodel.report.charts.legend import Entry, point
from energymodel.report.charts.scale import Scale
from energymodel.report.charts.svg import element, line, number, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import shortened, text_width, widest

_ROW, _WIDE = 24.0, 560.0
_FARTHEST = 1.5  # deviation at which the axis ends; an arrow shows what goes beyond


class Interval(NamedTuple):
    """A positive value in SI with the ends of its interval; `shown` and `ends` are how a person reads them."""

    label: str
    value: float
    low: float
    high: float
    unit: str
    shown: str
    ends: str


@dataclass(frozen=True)
class Intervals(AbstractChart):
    """Intervals of unlike numbers, each as a deviation from its own value in percent."""

    title: str
    intervals: tuple[Interval, ...]
    subtitle: str = ""
    probability: float = 0.9

    def entries(self) -> list[Entry]:
        """None: rows have names."""
        return []

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """A row for each number; its value and interval in words at the right or below its name."""
        axis = Axis("deviation from the value", "%")
        ratios = [end / one.value - 1.0 for one in self.intervals for end in (one.low, one.high)]
        low, high = axis.ends([0.0, *(min(ratio, _FARTHEST) for ratio in ratios)])
        words = [f"{one.shown} ({one.ends})" for one in self.intervals]
        wide = width >= _WIDE
        left = min(widest([one.label for one in self.intervals]), 0.3 * width) + 10.0 if wide else 8.0
        right = width - (min(widest(words), 0.36 * width) + 13.0 if wide else 8.0)
        scale = Scale(low, high, left, right)
        marks: list[str] = []
        y = 4.0
        for one, told in zip(self.intervals, words, strict=True):
            if wide:
                marks.append(text(shortened(one.label, left - 10.0), left - 10.0, y + 16.0, anchor="end"))
                marks.append(text(shortened(told, width - right - 12.0), right + 12.0, y + 16.0))
            else:
                room = width - text_width(told, SMALL) - 12.0
                marks.append(text(shortened(one.label, room, SMALL), 0.0, y + 11.0, size=SMALL, class_="em-halo"))
                marks.append(
                    text(shortened(told, width, SMALL), width, y + 11.0, size=SMALL, anchor="end", class_="em-halo")
                )
                y += 12.0
            hover = f"{one.label}: {one.shown}, with a probability of {100.0 * self.probability:g} % {one.ends}"
            marks += _row(scale, one, y + 0.5 * _ROW, hover)
            y += _ROW
        back = [*across(axis, low, high, left, right, 0.0, y), line(scale(0.0), 0.0, scale(0.0), y, "em-axis")]
        return Drawing(y + 36.0, [*back, *marks])

    def table(self) -> Table:
        """Value and ends in SI; units differ by row."""
        names = ("number", "unit", "value", "low", "high", "shown")
        rows = [
            [one.label, one.unit, one.value, one.low, one.high, f"{one.shown} ({one.ends})"] for one in self.intervals
        ]
        return Table([Column(name, "1" if name in ("value", "low", "high") else "") for name in names], rows)


def _row(scale: Scale, one: Interval, y: float, hover: str) -> list[str]:
    low, high = (scale(end / one.value - 1.0) for end in (one.low, one.high))
    if not (math.isfinite(low) and math.isfinite(high)):
        return []
    marks = [line(low, y, high, y, "em-line em-hue0"), line(low, y - 4.0, low, y + 4.0, "em-line em-hue0")]
    if one.high / one.value - 1.0 > scale.high:
        marks.append(element("path", d=f"M{number(high)} {number(y - 5.0)}l7 5l-7 5z", class_="em-area em-hue0"))
    else:
        marks.append(line(high, y - 4.0, high, y + 4.0, "em-line em-hue0"))
    return [*marks, point(scale(0.0), y, 0, hover)]
