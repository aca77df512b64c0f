"""How does a chip get its temperature: from the coolant up, step by step, below the limit?"""

from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL, Axis, across
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches
from energymodel.report.charts.legend import Entry
from energymodel.report.charts.scale import Scale, read
from energymodel.report.charts.svg import line, rectangle, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import shortened, text_width, widest

_ROW, _THICK, _TOP = 26.0, 16.0, 18.0
_BESIDE = 480.0
_LEAST = 0.05  # K: a smaller step is left out


class Rise(NamedTuple):
    """A step of the temperature [K] with its name."""

    label: str
    kelvins: float


@dataclass(frozen=True)
class TemperatureLadder(AbstractChart):
    """Steps of a temperature from a supply [K] up, each beginning where the one before ends, and a limit [K]."""

    title: str
    supply: float
    rises: tuple[Rise, ...]
    limit: float
    subtitle: str = ""
    supply_label: str = "coolant supply"
    top_label: str = "junction"

    @property
    def top(self) -> float:
        """Where the steps end [K]."""
        return self.supply + sum(rise.kelvins for rise in self.rises)

    def entries(self) -> list[Entry]:
        """None: rows have names."""
        return []

    def _rows(self) -> list[tuple[str, float, float, str]]:
        """Name, start, end and words of each bar."""
        rows, at = [(self.supply_label, self.supply, self.supply, read(self.supply, "K"))], self.supply
        for rise in self.rises:
            if abs(rise.kelvins) >= _LEAST:
                rows.append((rise.label, at, at + rise.kelvins, f"{rise.kelvins:+.3g} K"))
            at += rise.kelvins
        return [*rows, (self.top_label, at, at, read(at, "K"))]

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Bars below each other; supply and junction are marks on the axis."""
        del hatches
        axis, rows = Axis("temperature", "K"), self._rows()
        low, high = axis.ends([self.supply, self.top, self.limit])
        beside = width >= _BESIDE
        left = min(widest([name for name, *_ in rows]), 0.4 * width) + 10.0 if beside else 4.0
        right = width - 16.0
        tall = _ROW if beside else _ROW + 12.0
        bottom = _TOP + len(rows) * tall
        scale = Scale(low, high, left, right)
        marks = across(axis, low, high, left, right, _TOP, bottom)
        for place, (name, start, end, words) in enumerate(rows):
            y = _TOP + place * tall + (0.0 if beside else 14.0)
            if beside:
                marks.append(text(shortened(name, left - 10.0), left - 10.0, y + _THICK - 2.0, anchor="end"))
            else:
                marks.append(text(name, left, y - 4.0, size=SMALL, class_="em-halo"))
            hue = "em-area em-hue1" if end > self.limit else "em-area em-hue0"
            x, wide = scale(min(start, end)), abs(scale(end) - scale(start))
            if start == end:
                marks.append(rectangle(x - 3.0, y, 6.0, _THICK, hue, f"{name}: {words}"))
                x, wide = x - 3.0, 6.0
            else:
                marks.append(rectangle(x, y, wide, _THICK, hue, f"{name}: {words}"))
            after = x + wide + 5.0
            room = after + text_width(words, SMALL) <= right + 14.0
            at = after if room else x - 5.0
            marks.append(
                text(words, at, y + _THICK - 4.0, size=SMALL, anchor="start" if room else "end", class_="em-halo")
            )
        x, words = scale(self.limit), f"limit {read(self.limit, 'K')}"
        half = 0.5 * text_width(words, SMALL)
        marks.append(line(x, 12.0, x, bottom, "em-limit"))
        marks.append(text(words, min(max(x, half), width - half), 9.0, size=SMALL, anchor="middle"))
        return Drawing(bottom + 36.0, marks)

    def table(self) -> Table:
        """A row for each step: where it starts and where it ends."""
        rows = [[name, start, end] for name, start, end, _ in self._rows()]
        return Table([Column("step"), Column("from", "K"), Column("to", "K")], [*rows, ["limit", None, self.limit]])
