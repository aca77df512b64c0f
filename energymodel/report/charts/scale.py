"""Where on a chart does a number lie, which numbers stand at the axis, and in which unit?"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from energymodel.constants import ZERO_CELSIUS
from energymodel.units import format_quantity

SHARE = "%"
"""Unit of numbers that are shares of one and are read in percent."""
_STEPS = (1.0, 2.0, 5.0, 10.0)
_DECADES = 1.2  # from this many decades on, a logarithmic axis has ticks at 1, 2 and 5 of each
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Measure(NamedTuple):
    """How numbers in SI are read along an axis: as `(value - zero) / size` in a unit that a person uses."""

    size: float
    zero: float
    word: str

    def shown(self, value: float) -> float:
        """The number in the unit of the axis."""
        return (value - self.zero) / self.size

    def si(self, shown: float) -> float:
        """The number in SI."""
        return shown * self.size + self.zero


def measure(values: Iterable[float], unit: str, *, difference: bool = False) -> Measure:
    """The unit in which the largest of some numbers is read.

    **Arguments:**

    - `unit`: SI unit, or "%" for shares of one.
    - `difference`: whether temperatures are differences.
    """
    if unit == SHARE:
        return Measure(0.01, 0.0, "%")
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if unit == "1" or largest == 0.0:
        return Measure(1.0, 0.0, "" if unit == "1" else unit)
    if unit == "K" and not difference:
        return Measure(1.0, ZERO_CELSIUS, "°C")
    number, _, word = format_quantity(largest, unit, digits=15, difference=difference).partition(" ")
    return Measure(largest / float(number), 0.0, word)


def alike(value: float, unit: Measure, digits: int = 3) -> str:
    """A number in the unit of the others of its chart."""
    shown = unit.shown(value)
    text = f"{float(f'{shown:.{digits}g}'):,.15g}" if 1e-4 <= abs(shown) < 1e6 or not shown else f"{shown:.{digits}g}"
    return f"{text} {unit.word}".strip().replace("e+", "e")


def read(value: float, unit: str, *, digits: int = 3, difference: bool = False) -> str:
    """A number as a person reads it, in any unit of a chart."""
    if unit == SHARE:
        return f"{100.0 * value:.{digits}g} %" if math.isfinite(value) else "not finite"
    if unit == "1" and 1e4 <= abs(value) < 1e9:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return format_quantity(value, unit, digits=digits, difference=difference)


class Scale(NamedTuple):
    """A straight or logarithmic map from numbers to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Pixel of a number; beyond the ends it stays at them."""
        low, high = self.low, self.high
        value = min(max(value, min(low, high)), max(low, high))
        share = math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)


def bounds(
    values: Iterable[float], *, log: bool = False, zero: bool = False, margin: float = 0.05
) -> tuple[float, float]:
    """Ends of an axis that shows all numbers, with some room; with `zero` it begins or ends there."""
    finite = [value for value in values if math.isfinite(value) and (value > 0.0 or not log)]
    if not finite:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(finite), max(finite)
    if log:
        room = max(high / low, 1.02) ** margin
        return low / room, high * room
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        room = 0.5 * abs(low) or 0.5
        return low - room, high + room
    room = margin * (high - low)
    return low - room if low or not zero else 0.0, high + room if high or not zero else 0.0


def ticks(low: float, high: float, count: int, *, log: bool = False) -> list[float]:
    """Round numbers between two ends, about `count` of them."""
    if log and high > 0.0 and math.log10(high / low) >= _DECADES:
        return _decades(low, high, max(count, 2))
    rough = (high - low) / max(count, 1)
    if not (rough > 0.0 and math.isfinite(rough)):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in _STEPS if one * power >= 0.999 * rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def _decades(low: float, high: float, count: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    of_decade: Sequence[float] = (1.0, 2.0, 5.0) if 3 * (last - first) <= count + 2 else (1.0,)
    every = max(1, math.ceil((last - first) / count))
    found = [part * 10.0**power for power in range(first, last + 1, every) for part in of_decade]
    return [one for one in found if low * (1 - 1e-9) <= one <= high * (1 + 1e-9)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Numbers of an axis with the decimals that tell them apart; powers of ten where plain digits would be long."""
    largest = max((abs(value) for value in values), default=0.0)
    smallest = min((abs(value) for value in values if value), default=1.0)
    if largest >= 1e6 or smallest < 1e-4:
        return [_power(value) for value in values]
    gaps = [abs(after - before) for before, after in itertools.pairwise(values)]
    step = min(gaps, default=abs(largest) or 1.0) or 1.0
    wide = largest / smallest >= 20.0 and len(values) > 1 and gaps and max(gaps) > 1.5 * step
    if wide:  # a logarithmic axis: each number has its own decimals
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
