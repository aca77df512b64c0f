"""Which numbers move a result most: bars to both sides of the present value?"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL, Axis, across
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches
from energymodel.report.charts.legend import Entry
from energymodel.report.charts.scale import SHARE, Scale
from energymodel.report.charts.svg import line, rectangle, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import shortened, widest

_ROW, _THICK, _BESIDE = 26.0, 15.0, 560.0


class Swing(NamedTuple):
    """How a result changes where a number goes down and where it goes up; words for what these ends are."""

    label: str
    down: float
    up: float
    down_words: str = ""
    up_words: str = ""

    @property
    def size(self) -> float:
        """The larger of both changes."""
        return max(abs(self.down), abs(self.up))


@dataclass(frozen=True)
class Tornado(AbstractChart):
    """Changes of a result by each number, the largest first.

    `names` are those of the two ends; `unit` is that of the changes, "%" for shares of one.
    """

    title: str
    swings: tuple[Swing, ...]
    subtitle: str = ""
    axis: str = "change"
    unit: str = SHARE
    names: tuple[str, str] = ("at its low end", "at its high end")

    def entries(self) -> list[Entry]:
        """Both ends."""
        used = [any(one.down for one in self.swings), any(one.up for one in self.swings)]
        return [Entry(name, place) for place, name in enumerate(self.names) if used[place] and name]

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Rows with bars to the left and to the right, words at their ends."""
        swings = [one for one in self.swings if math.isfinite(one.size)]
        axis = Axis(self.axis, self.unit, zero=True, difference=True)
        beside = width >= _BESIDE
        left = min(widest([one.label for one in swings]), 0.4 * width) + 10.0 if beside else 0.0
        words = [self._words(one, axis) for one in swings]
        room = widest([word for pair in words for word in pair], SMALL) + 8.0
        changes = [change for one in swings for change in (one.down, one.up)]
        low, high = min([0.0, *changes]), max([0.0, *changes])
        low, high = (low, high) if high > low else (0.0, 1.0)
        start, end = left + (room if low < 0.0 else 4.0), width - (room if high > 0.0 else 8.0)
        scale = Scale(low, high, start, end)
        marks: list[str] = []
        y = 4.0
        for one, (down, up) in zip(swings, words, strict=True):
            if beside:
                marks.append(text(shortened(one.label, left - 10.0), left - 10.0, y + 16.0, anchor="end"))
            else:
                marks.append(text(shortened(one.label, width, SMALL), 0.0, y + 11.0, size=SMALL, class_="em-halo"))
                y += 12.0
            marks += self._bars(one, down, up, scale, y + 0.5 * (_ROW - _THICK), hatches)
            y += _ROW
        zero = scale(0.0)
        return Drawing(
            y + 36.0, [*across(axis, low, high, start, end, 0.0, y), *marks, line(zero, 0.0, zero, y, "em-axis")]
        )

    def _words(self, one: Swing, axis: Axis) -> tuple[str, str]:
        return one.down_words or self._change(one.down, axis), one.up_words or self._change(one.up, axis)

    def _change(self, change: float, axis: Axis) -> str:
        return f"{'+' if change > 0 else ''}{axis.read(change, 2)}" if change else ""

    def _bars(self, one: Swing, down: str, up: str, scale: Scale, y: float, hatches: Hatches) -> list[str]:
        axis, zero, marks = Axis(self.axis, self.unit, difference=True), scale(0.0), []
        same_side = one.down * one.up > 0.0
        for place, (change, words) in enumerate(((one.down, down), (one.up, up))):
            if not change:
                continue
            end, class_ = scale(change), hatches.fill(place)[0]
            hover = f"{one.label} {self.names[place]}{f' ({words})' if words else ''}: {self._change(change, axis)}"
            tall = 0.5 * _THICK if same_side else _THICK
            top = y + place * tall if same_side else y
            marks.append(rectangle(min(zero, end), top, abs(end - zero), tall, class_, hover))
            if not (same_side and abs(change) < one.size):
                anchor, shift = ("end", -4.0) if change < 0.0 else ("start", 4.0)
                at = y + 0.5 * _THICK + 4.0
                marks.append(text(words, end + shift, at, size=SMALL, anchor=anchor, class_="em-halo"))
        return marks

    def table(self) -> Table:
        """Both changes of each number, with the words of its ends."""
        told = any(one.down_words or one.up_words for one in self.swings)
        rows = [[one.label, one.down, one.up, *([one.down_words, one.up_words] if told else [])] for one in self.swings]
        columns = [Column("number"), *(Column(f"change {name}".strip(), self.unit, True) for name in self.names)]
        return Table([*columns, *([Column("low end"), Column("high end")] if told else [])], rows)
