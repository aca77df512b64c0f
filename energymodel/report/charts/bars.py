"""Which amounts are large: bars of parts that add up, or bars side by side with intervals?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from energymodel.report.charts.axes import SMALL, Axis, across
from energymodel.report.charts.chart import AbstractChart, Drawing
from energymodel.report.charts.colors import Hatches, is_hatched
from energymodel.report.charts.legend import Entry
from energymodel.report.charts.scale import Measure, Scale, alike
from energymodel.report.charts.svg import line, rectangle, text
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.text_width import shortened, text_width, widest

_ROW, _THICK, _LABEL = 52.0, 26.0, 18.0
_THIN, _GROUP_GAP = 16.0, 12.0
_BESIDE = 560.0  # from this width on labels stand left of the bars


class Part(NamedTuple):
    """One amount in SI with its interval, and the words for amount, interval and share of a whole."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    words: str = ""
    ends: str = ""
    share: str = ""


class Bar(NamedTuple):
    """A bar of parts, or a group of bars, with its name."""

    label: str
    parts: tuple[Part, ...]
    words: str = ""

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(part.value for part in self.parts)


@dataclass(frozen=True)
class StackedBars(AbstractChart):
    """Bars whose parts add up to a whole; the largest parts come first, and parts of nothing are left out."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    subtitle: str = ""
    axis: str = ""
    digits: int = 3

    def _order(self) -> list[str]:
        sizes: dict[str, float] = {}
        for bar in self.bars:
            for part in bar.parts:
                sizes[part.label] = max(sizes.get(part.label, 0.0), part.value)
        return sorted((label for label in sizes if sizes[label] > 0.0), key=lambda label: -sizes[label])

    def entries(self) -> list[Entry]:
        """Parts, with their share where there is one bar."""
        shares = {part.label: _share(part, self.bars[0]) for part in self.bars[0].parts} if self._alone() else {}
        return [Entry(f"{label} {shares.get(label, '')}".strip(), place) for place, label in enumerate(self._order())]

    def _alone(self) -> bool:
        return len(self.bars) == 1 and self.bars[0].total > 0.0

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Bars below each other, each with its total."""
        axis, order = Axis(self.axis, self.unit, zero=True), self._order()
        unit = axis.measure(0.0, max((bar.total for bar in self.bars), default=0.0))
        low, high = 0.0, max((bar.total for bar in self.bars), default=0.0) or 1.0
        bottom, scale = len(self.bars) * _ROW, Scale(low, high, 0.0, width - 14.0)
        marks = across(axis, low, high, 0.0, width - 14.0, 0.0, bottom)
        for row, bar in enumerate(self.bars):
            top, whole = row * _ROW + _LABEL, bar.words or alike(bar.total, unit, self.digits)
            marks.append(text(shortened(bar.label, width - text_width(whole) - 24.0), 0.0, top - 5.0, class_="em-halo"))
            marks.append(text(whole, width - 14.0, top - 5.0, anchor="end", class_="em-bold em-halo"))
            start = 0.0
            for part in sorted(
                (one for one in bar.parts if one.label in order), key=lambda one: order.index(one.label)
            ):
                place, end = order.index(part.label), start + max(part.value, 0.0)
                left, right = scale(start), scale(end)
                class_, fill = hatches.fill(place)
                amount = part.words or alike(part.value, unit, self.digits)
                words = f"{part.label}: {amount}, {_share(part, bar)}"
                marks.append(
                    rectangle(
                        left,
                        top,
                        right - left - (0.8 if right - left > 2.0 else 0.0),
                        _THICK,
                        class_,
                        f"{bar.label}: {words}",
                        fill,
                    )
                )
                marks += _within(amount, left, right, top, is_hatched(place))
                start = end
        return Drawing(bottom + 36.0, marks)

    def table(self) -> Table:
        """A row for each part, a column for each bar; the total last."""
        values = [{part.label: part.value for part in bar.parts} for bar in self.bars]
        rows = [[label, *(one.get(label) for one in values)] for label in self._order()]
        rows.append(["total", *(bar.total for bar in self.bars)])
        return Table([Column("part"), *(Column(bar.label, self.unit) for bar in self.bars)], rows)


def _share(part: Part, bar: Bar) -> str:
    return part.share or f"{100.0 * part.value / (bar.total or 1.0):.1f} %"


def _within(words: str, left: float, right: float, top: float, hatched: bool) -> list[str]:
    """The amount within its part of a bar, where there is room."""
    if hatched or text_width(words, SMALL) + 8.0 > right - left:
        return []
    return [text(words, 0.5 * (left + right), top + 0.5 * _THICK + 4.0, size=SMALL, anchor="middle", class_="em-on")]


@dataclass(frozen=True)
class GroupedBars(AbstractChart):
    """Bars side by side in groups, each with its amount, its interval, and one limit across all.

    `limit` is an amount with its name, drawn as a line.
    """

    title: str
    unit: str
    groups: tuple[Bar, ...]
    subtitle: str = ""
    axis: str = ""
    limit: tuple[float, str] | None = None
    difference: bool = False
    high: float | None = None
    log: bool = False
    digits: int = 3

    def _names(self) -> list[str]:
        return list(dict.fromkeys(part.label for group in self.groups for part in group.parts))

    def entries(self) -> list[Entry]:
        """Names of the bars of a group, where there is more than one."""
        names = self._names()
        return [Entry(name, place) for place, name in enumerate(names)] if len(names) > 1 else []

    def _axis(self) -> Axis:
        return Axis(self.axis, self.unit, self.log, not self.log, high=self.high, difference=self.difference)

    def draw(self, width: float, hatches: Hatches) -> Drawing:
        """Groups below each other, their names left or, on narrow pages, above."""
        axis, names = self._axis(), self._names()
        values = [end for group in self.groups for part in group.parts for end in _ends(part)]
        values += [self.limit[0]] if self.limit else []
        unit = axis.measure(*axis.ends(values))
        labels = [group.label for group in self.groups]
        beside = width >= _BESIDE
        left = min(widest(labels), 0.36 * width) + 10.0 if beside else 0.0
        words_wide = widest([self._words(part, unit) for group in self.groups for part in group.parts], SMALL)
        low, high = axis.ends([value for value in values if math.isfinite(value)])
        scale = Scale(low, high, left, width - words_wide - 12.0, self.log)
        marks: list[str] = []
        y = 14.0 if self.limit else 2.0
        for group in self.groups:
            if beside:
                middle = y + 0.5 * _THIN * len(group.parts) + 4.0
                marks.append(text(shortened(group.label, left - 10.0), left - 10.0, middle, anchor="end"))
            else:
                marks.append(text(shortened(group.label, width), 0.0, y + 11.0, class_="em-halo"))
                y += 17.0
            for part in group.parts:
                marks += self._bar(part, names.index(part.label), scale, y, group.label, hatches, unit)
                y += _THIN
            y += _GROUP_GAP
        back = across(axis, low, high, left, width - words_wide - 12.0, 14.0 if self.limit else 0.0, y)
        zero = scale.start if self.log else scale(0.0)
        limit = self._limit(scale, y, width)
        return Drawing(y + 36.0, [*back, line(zero, 0.0, zero, y, "em-axis"), *limit, *marks])

    def _amount(self, value: float, unit: Measure) -> str:
        """An amount in the unit of the axis; on a logarithmic one each has its own."""
        if self.log:
            return self._axis().read(value, self.digits)
        return alike(value, unit, self.digits)

    def _words(self, part: Part, unit: Measure) -> str:
        return part.words or self._amount(part.value, unit)

    def _bar(
        self, part: Part, place: int, scale: Scale, y: float, group: str, hatches: Hatches, unit: Measure
    ) -> list[str]:
        zero, end = (scale.start if self.log else scale(0.0)), scale(part.value)
        class_, fill = hatches.fill(place)
        words, interval = self._words(part, unit), f" ({part.ends})" if part.ends else ""
        if part.low is not None and part.high is not None and not part.ends:
            interval = f" ({self._amount(part.low, unit)} to {self._amount(part.high, unit)})"
        hover = f"{group}{f', {part.label}' if part.label else ''}: {words}{interval}"
        marks = [rectangle(min(zero, end), y + 1.0, abs(end - zero), _THIN - 2.0, class_, hover, fill)]
        after, base = max(end, zero), y + 0.5 * _THIN + 4.0
        if part.low is not None and part.high is not None:
            low, high, middle = scale(part.low), scale(part.high), y + 0.5 * _THIN
            marks.append(line(low, middle, high, middle, "em-whisker"))
            marks += [line(one, middle - 4.0, one, middle + 4.0, "em-whisker") for one in (low, high)]
            after = max(after, high)
        wide = text_width(words, SMALL)
        crossed = self.limit is not None and after <= scale(self.limit[0]) <= after + wide + 8.0
        if crossed and after == end and end - zero > wide + 10.0 and not is_hatched(place):
            return [*marks, text(words, end - 5.0, base, size=SMALL, anchor="end", class_="em-on")]
        return [*marks, text(words, after + 5.0, base, size=SMALL, class_="em-halo")]

    def _limit(self, scale: Scale, bottom: float, width: float) -> list[str]:
        if self.limit is None:
            return []
        x, words = scale(self.limit[0]), self.limit[1]
        half = 0.5 * text_width(words, SMALL)
        middle = min(max(x, half), width - half)
        label = text(words, middle, 9.0, size=SMALL, anchor="middle")
        return [line(x, 12.0, x, bottom, "em-limit"), label]

    def table(self) -> Table:
        """A row for each bar, with the ends of its interval where there are any."""
        known = any(part.low is not None for group in self.groups for part in group.parts)
        named = len(self._names()) > 1
        rows = [
            [group.label, *([part.label] if named else []), part.value, *([part.low, part.high] if known else [])]
            for group in self.groups
            for part in group.parts
        ]
        of_values = ["value", *(["low", "high"] if known else [])]
        numbers = [Column(name, self.unit, self.difference) for name in of_values]
        return Table([Column("name"), *([Column("of")] if named else []), *numbers], rows)


def _ends(part: Part) -> Sequence[float]:
    return [value for value in (part.value, part.low, part.high) if value is not None]
