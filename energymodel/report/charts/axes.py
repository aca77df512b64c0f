"""Axes: units and round numbers along them, and the pixels of numbers."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from energymodel.report.cells import Column
from energymodel.report.charts.svg import SMALL, line, text
from energymodel.report.charts.words import shortened, text_width, widest
from energymodel.report.number import Scale, scale_of

SHARE = Column("", "", kind="share")
"""A column of shares without a name."""
BELOW = 36.0
"""Height of the numbers and the name of an axis below a chart [px]."""
_STEPS = (1.0, 2.0, 5.0, 10.0)
_DECADES = 1.2  # from this many decades on, a logarithmic axis has ticks at 1, 2 and 5 of each
_MANY_DECADES = 1e6  # of a logarithmic axis, over which no prefix fits all numbers
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_ROW, _APART = 44.0, 14.0


class Axis(NamedTuple):
    """A straight or logarithmic map from numbers in SI to pixels: `low` lies at `start` and `high` at `end`."""

    title: str
    column: Column
    low: float
    high: float
    log: bool = False
    start: float = 0.0
    end: float = 1.0

    def __call__(self, value: float) -> float:
        """Pixel of a number; beyond the ends it stays at them."""
        value = min(max(value, self.low), self.high)
        share = (value - self.low) / (self.high - self.low)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    @property
    def unit(self) -> Scale:
        """Unit of the numbers along the axis."""
        if self.log and self.high > _MANY_DECADES * self.low:
            return Scale(1.0, 0.0, self.column.unit.removeprefix("1"))
        return scale_of(math.sqrt(self.low * self.high) if self.log else max(self.low, self.high, key=abs), self.column)

    @property
    def name(self) -> str:
        """Title and unit."""
        word = self.unit.word
        return f"{self.title} [{word}]" if self.title and word else self.title or word

    def ticks(self, count: int) -> tuple[list[float], list[str]]:
        """Pixels and words of about `count` round numbers."""
        unit = self.unit
        numbers = ticks(unit.read(self.low), unit.read(self.high), count, log=self.log)
        return [self(number * unit.size + unit.zero) for number in numbers], tick_texts(numbers)

    def across(self, top: float, bottom: float) -> list[str]:
        """Grid, numbers side by side and name of a horizontal axis that lies at `bottom`."""
        count = max(2, int((self.end - self.start) / 60.0))
        pixels, words = self.ticks(count)
        while count > 1 and any(b - a < widest(words, SMALL) + _APART for a, b in itertools.pairwise(pixels)):
            count -= 1
            pixels, words = self.ticks(count)
        marks, farthest = [], self.end + 0.5 * _APART
        for x, word in zip(pixels, words, strict=True):
            half = 0.5 * text_width(word, SMALL)
            middle = max(x, half) if x + half <= farthest else min(max(x, half), farthest - half)
            marks.append(line(x, top, x, bottom, "em-rule"))
            marks.append(text(word, middle, bottom + 14.0, anchor="middle", class_="em-muted"))
        name = shortened(self.name, self.end, SMALL)
        return [*marks, text(name, max(self.end, text_width(name, SMALL)), bottom + 30.0, anchor="end")]


class Plane(NamedTuple):
    """The area between two axes, what was drawn of it, and its height with the axes."""

    x: Axis
    y: Axis
    marks: list[str]
    height: float


def plane(x: Axis, y: Axis, width: float, height: float) -> Plane:
    """Both axes around a plane; the name of the vertical one stands above it, so that it is read upright."""
    top, bottom = 22.0, 22.0 + height
    y = y._replace(start=bottom, end=top)
    levels, words = y.ticks(max(2, int(height / _ROW)))
    left, end = widest(words, SMALL) + 8.0, width - 10.0
    x = x._replace(start=left, end=end)
    marks = [text(shortened(y.name, width, SMALL), 0.0, 10.0)]
    for level, word in zip(levels, words, strict=True):
        marks.append(line(left, level, end, level, "em-rule"))
        marks.append(text(word, left - 6.0, level + 0.35 * SMALL, anchor="end", class_="em-muted"))
    marks += [*x.across(top, bottom), line(left, bottom, end, bottom, "em-axis")]
    return Plane(x, y, marks, bottom + BELOW + 2.0)


def bounds(
    values: Iterable[float], *, log: bool = False, zero: bool = False, margin: float = 0.05
) -> tuple[float, float]:
    """Ends of an axis that shows all numbers, with some margin; with `zero` it begins or ends there."""
    finite = [value for value in values if math.isfinite(value) and (value > 0.0 or not log)]
    if not finite:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(finite), max(finite)
    if log:
        ratio = max(high / low, 1.02) ** margin
        return low / ratio, high * ratio
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    beyond = margin * (high - low) if high > low else 0.5 * abs(low) or 0.5
    return low - beyond if low or not zero else 0.0, high + beyond if high or not zero or low == high else 0.0


def ticks(low: float, high: float, count: int, *, log: bool = False) -> list[float]:
    """Round numbers between two ends, about `count` of them."""
    if log and high > 0.0 and math.log10(high / low) >= _DECADES:
        count, first, last = max(count, 2), math.floor(math.log10(low)), math.ceil(math.log10(high))
        parts = (1.0, 2.0, 5.0) if 3 * (last - first) <= count + 2 else (1.0,)
        every = max(1, math.ceil((last - first) / count))
        numbers = [part * 10.0**power for power in range(first, last + 1, every) for part in parts]
        return [value for value in numbers if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    rough = (high - low) / max(count, 1)
    if not (rough > 0.0 and math.isfinite(rough)):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in _STEPS if factor * power >= 0.999 * rough)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Numbers of an axis with the decimals that keep them apart; powers of ten where plain digits would be long."""
    sizes = [abs(value) for value in values if value] or [1.0]
    if max(sizes) >= 1e6 or min(sizes) < 1e-4:
        return [_power(value) for value in values]
    gaps = [abs(after - before) for before, after in itertools.pairwise(values)]
    step = min(gaps, default=max(sizes)) or 1.0
    if max(sizes) / min(sizes) >= 20.0 and len(values) > 1 and max(gaps) > 1.5 * step:
        # a logarithmic axis: each number has its own decimals
        return [f"{value:,.0f}" if abs(value) >= 1.0 else f"{value:g}" for value in values]
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    decimals += round(step * 10.0**decimals, 6) % 1.0 > 1e-6
    return [f"{value + 0.0:,.{decimals}f}" for value in values]


def _power(value: float) -> str:
    if not value:
        return "0"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    factor = value / 10.0**exponent
    power = f"10{str(exponent).translate(_SUPERSCRIPTS)}"
    return power if abs(factor - 1.0) < 1e-6 else f"{factor:.3g}×{power}"
