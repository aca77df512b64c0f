"""Digits, units, intervals and marks of priors: the one place where numbers become text.

The last digit is worth at most half of half the width of the 90 % interval, so that 26.18 GWh between 22 and 31 are
"26 GWh". A number has at least one digit and at most four; a step time has three, since people compare those of two
answers, whose error is common. JSON and CSV have all digits.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from energymodel.constants import ZERO_CELSIUS
from energymodel.report.answer import Sentence
from energymodel.report.cells import Cell, Column, Quantity
from energymodel.units import format_quantity

MOST = 4
"""Significant digits at most, of exact numbers too."""
PRIOR_MARK = "†"
HOUR = 3600.0
_KILOTONNE = 1e6
_LARGE = ((1e6, "million"), (1e9, "billion"))
_SEPARATED = 1e4  # from here on counts have a thousands separator
_POWERS = 1e9  # from here on numbers are powers of ten
_SHARES = ("share", "change")
_TENTH, _HUNDREDTH = -1, -2  # decimal places
_NOTHING = 1e-6  # a share or a change that is none


class Scale(NamedTuple):
    """Unit in which a number is read: `(value - zero) / size`, before a word."""

    size: float
    zero: float
    word: str

    def read(self, value: float) -> float:
        """The number in this unit."""
        return (value - self.zero) / self.size


Layout = tuple[Scale, int]
"""Unit, and decimal place of the last digit."""


def scale_of(value: float, column: Column) -> Scale:
    """Unit in which a number of a column is read."""
    if column.kind in _SHARES:
        return Scale(0.01, 0.0, "%")
    if column.kind == "temperature":
        return Scale(1.0, ZERO_CELSIUS, "°C")
    if column.kind == "hours":
        size, word = _large(value / HOUR)
        return Scale(size * HOUR, 0.0, f"{word} h".strip())
    if column.unit in ("1", "token/J"):
        size, word = _large(value)
        return Scale(size, 0.0, f"{word} {column.unit.removeprefix('1')}".strip())
    if column.unit == "kg" and abs(value) >= _KILOTONNE:
        return Scale(_KILOTONNE, 0.0, "kt")
    difference = column.kind == "difference"
    number, _, word = format_quantity(value, column.unit, digits=15, difference=difference).partition(" ")
    word = f"per {word[2:]}" if word.startswith("1/") else word
    return Scale(value / float(number) if value else 1.0, 0.0, word)


def _large(value: float) -> tuple[float, str]:
    return next((pair for pair in _LARGE if pair[0] <= abs(value) < 1e3 * pair[0]), (1.0, ""))


def known_ends(cell: Cell) -> tuple[float, float] | None:
    """Ends of the interval of a cell, where it is a number with an interval of some width."""
    if not isinstance(cell, Quantity) or cell.low is None or cell.high is None or not math.isfinite(cell.value):
        return None
    width = cell.high - cell.low
    return (cell.low, cell.high) if math.isfinite(width) and width > 1e-9 * abs(cell.value) else None


@functools.lru_cache(4096)  # tables, figures and their descriptions show the same numbers
def layout_of(cell: Quantity, column: Column) -> Layout:
    """Unit and last decimal place of one number; 973 MWh +- 500 MWh are 1.0 GWh."""
    low, high = known_ends(cell) or (0.0, 0.0)
    half, scale = 0.5 * (high - low), scale_of(cell.value, column)
    for _ in range(2):
        digit = _place(scale.read(cell.value), half / scale.size, column)
        rounded = round(scale.read(cell.value), -digit) * scale.size * (1.0 + 1e-9) + scale.zero
        scale, before = scale_of(rounded, column), scale
        if scale.word == before.word:
            return before, digit
    return scale, _place(scale.read(cell.value), half / scale.size, column)


def layout_of_column(cells: Sequence[Cell], column: Column) -> Layout | None:
    """One unit and last digit for a column whose rows share their error, so that neighbors stay apart."""
    numbers = [cell.value for cell in cells if isinstance(cell, Quantity) and math.isfinite(cell.value)]
    if column.digits != "rows" or len(numbers) < 2:
        return None
    scale = scale_of(max(numbers, key=abs), column)
    read = [scale.read(number) for number in numbers]
    span, first = max(read) - min(read), _first(max(map(abs, read)))
    return scale, min(max(_first(0.5 * span / len(read)) if span else first, first - MOST + 1), first)


def _first(number: float) -> int:
    return math.floor(math.log10(abs(number))) if number else 0


def _place(number: float, half: float, column: Column) -> int:
    """Power of ten of the last digit that half the width of an interval supports, for a number as it is printed."""
    first = _first(number)
    if column.digits == "three":
        return min(_place(number, half, dataclasses.replace(column, digits="interval")), first - 2)
    if column.kind in _SHARES and half:
        return min(max(_TENTH, _first(half / 2.0)), max(0, first))
    if column.kind in _SHARES:
        return max(first - 1, _HUNDREDTH) if column.kind == "change" or column.digits == "two" else _TENTH
    if column.digits == "two" and not half:
        return first - 1
    return min(max(_first(half / 2.0), first - MOST + 1), first) if 0.0 < half < math.inf else first - MOST + 1


@functools.lru_cache(4096)
def text(cell: Cell, column: Column, layout: Layout | None = None) -> str:
    """A cell as a person reads it; a number with its unit, and with a mark where it is a prior."""
    if not isinstance(cell, Quantity):
        return cell or ""
    column = cell.column(column)
    mark = f" {PRIOR_MARK}" if cell.prior else ""
    if not math.isfinite(cell.value):
        return f"{cell.value}{mark}"
    if _is_count(cell, column):
        return f"{cell.value:,.0f}{mark}"
    scale, digit = layout or layout_of(cell, column)
    value = 0.0 if column.kind in _SHARES and abs(cell.value) < _NOTHING else cell.value
    number = _digits(scale.read(value), digit, "+" if column.kind == "change" else "")
    if layout is None and not known_ends(cell) and "." in number and "e" not in number and column.kind not in _SHARES:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {scale.word}".rstrip() + mark


def interval(cell: Cell, column: Column, layout: Layout | None = None) -> str:
    """The 90 % interval in the unit and digits of its number: "22 to 31"; empty where none is known."""
    ends = known_ends(cell)
    if not isinstance(cell, Quantity) or ends is None or column.digits == "rows":
        return ""
    scale, digit = layout or layout_of(cell, cell.column(column))
    if column.digits == "three":
        plain_column = dataclasses.replace(column, digits="interval")
        digit = _place(scale.read(cell.value), 0.5 * (ends[1] - ends[0]) / scale.size, plain_column)
    return " to ".join(_digits(scale.read(end), digit) for end in ends)


def sentence(words: Sentence) -> str:
    """A sentence with its numbers; "{name:i}" adds the interval."""
    filled = words.words
    for name, (column, cell) in words.numbers.items():
        ends, number = interval(cell, column), text(cell, column)
        filled = filled.replace(f"{{{name}:i}}", f"{number} (90 %: {ends})" if ends else number)
        filled = filled.replace(f"{{{name}}}", number)
    return filled


def plain(value: float, unit: str = "1", kind: str = "amount") -> str:
    """An exact number as a person reads it."""
    return text(Quantity(value), Column("", "", unit, kind))


def _is_count(cell: Quantity, column: Column) -> bool:
    is_count = column.kind == "count" or (column.kind == "amount" and float(cell.value).is_integer())
    exact = column.unit == "1" and column.digits != "two" and not known_ends(cell)
    return is_count and exact and abs(cell.value) < _POWERS


def _digits(number: float, digit: int, sign: str = "") -> str:
    """A number to a decimal place, or to one digit where it would round to nothing."""
    if number and abs(number) < 0.5 * 10.0**digit:
        digit = _first(number)
    number = round(number, -digit) + 0.0
    if abs(number) >= _POWERS:
        return f"{number:{sign}.{max(1, _first(number) - digit + 1)}g}".replace("e+", "e")
    separator = "," if abs(number) >= _SEPARATED else ""
    return f"{number:{sign if number else ''}{separator}.{max(0, -digit)}f}"
