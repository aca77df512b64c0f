"""With how many digits is an uncertain number printed, and how is its interval shown?

One rule for all reports: the last digit is worth at most half of half the width of the 90 % interval, so that 26.18 GWh
between 22 and 31 are "26 GWh". A number has at least one digit and at most four. JSON and CSV have all digits.
"""

import math
from typing import NamedTuple

from energymodel.constants import ZERO_CELSIUS
from energymodel.report.fields import HOUR, PERCENT, Field, show
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.units import format_quantity

MOST = 4
"""Significant digits at most, of exact numbers too."""
_KILOTONNE = 1e6
_LARGE = ((1e6, "million"), (1e9, "billion"))
_SEPARATED = 1e4  # from here on counts have a thousands separator
_POWERS = 1e9  # from here on numbers are powers of ten
TENTH = -1  # decimal place of a tenth


class Scale(NamedTuple):
    """How a number is printed: as `(value - zero) / size` before a word."""

    size: float
    zero: float
    word: str


def scale_of(field: Field) -> Scale:
    """Unit in which a number is read."""
    if field.key.endswith("hours"):
        return _scale_of_unit(field.value * HOUR, "s", 1.0 / HOUR) if field.value < 1.0 else _count(field.value, "h")
    if field.name in PERCENT:
        return Scale(0.01, 0.0, "%")
    if field.unit == "K":
        return Scale(1.0, ZERO_CELSIUS, "°C")
    if field.unit == "kg" and abs(field.value) >= _KILOTONNE:
        return Scale(_KILOTONNE, 0.0, "kt")
    if field.unit == "1":
        return _count(field.value)
    if field.unit == "token/J":
        return Scale(1.0, 0.0, field.unit)
    return _scale_of_unit(field.value, field.unit)


def _count(value: float, unit: str = "") -> Scale:
    size, word = next((one for one in _LARGE if one[0] <= abs(value) < 1e3 * one[0]), (1.0, ""))
    return Scale(size, 0.0, f"{word} {unit}".strip())


def _scale_of_unit(value: float, unit: str, factor: float = 1.0) -> Scale:
    number, _, word = format_quantity(value, unit, digits=15).partition(" ")
    return Scale(factor * (value / float(number) if value else 1.0), 0.0, word)


def decimal_place(number: float, half_width: float) -> int:
    """Power of ten of the last digit that half the width of an interval supports, for numbers as they are printed."""
    first = math.floor(math.log10(abs(number))) if number else 0
    if not (half_width > 0.0 and math.isfinite(half_width)):
        return first - MOST + 1
    return min(max(math.floor(math.log10(half_width / 2.0)), first - MOST + 1), first)


def _text(number: float, place: int) -> str:
    """A number to a decimal place, or to one digit where it would round to nothing."""
    if number and abs(number) < 0.5 * 10.0**place:
        place = math.floor(math.log10(abs(number)))
    number = round(number, -place)
    if abs(number) >= _POWERS:
        digits = max(1, math.floor(math.log10(abs(number))) - place + 1)
        return f"{number:.{digits}g}".replace("e+", "e")
    decimals = max(0, -place)
    return f"{number:,.{decimals}f}" if abs(number) >= _SEPARATED else f"{number:.{decimals}f}"


def is_known(field: Field, low: float, high: float) -> bool:
    """Whether a number has an interval of some width."""
    return math.isfinite(field.value) and math.isfinite(high - low) and high - low > 1e-9 * abs(field.value)


def rounded(field: Field, low: float, high: float) -> str:
    """A number in the digits that its interval supports, with its unit; as `show` where there is no interval."""
    if not is_known(field, low, high):
        return show(field, digits=MOST)
    scale, place = _shown_as(field, 0.5 * (high - low))
    return f"{_text((field.value - scale.zero) / scale.size, place)} {scale.word}".rstrip()


def ends(field: Field, low: float, high: float) -> str:
    """The interval of a number, in the same unit and digits: "22 to 31"; empty where there is none."""
    if not is_known(field, low, high):
        return ""
    scale, place = _shown_as(field, 0.5 * (high - low))
    return " to ".join(_text((end - scale.zero) / scale.size, place) for end in (low, high))


def _shown_as(field: Field, half_width: float) -> tuple[Scale, int]:
    """Scale and last decimal place of an uncertain number; 973 MWh +- 500 MWh are 1.0 GWh."""
    scale = scale_of(field)
    for _ in range(2):
        number = (field.value - scale.zero) / scale.size
        place = decimal_place(number, half_width / scale.size)
        shown = round(number, -place) * scale.size * (1.0 + 1e-9) + scale.zero  # not just below the next unit
        scale, before = scale_of(field._replace(value=shown)), scale
        if scale.word == before.word:
            return before, place
    return scale, decimal_place((field.value - scale.zero) / scale.size, half_width / scale.size)


def with_interval(value: float, low: float, high: float, unit: str, level: float) -> str:
    """A number with its interval, in the digits that this supports: "26 GWh (90 %: 22 to 31)"."""
    field = quantity(value, unit)
    interval = ends(field, low, high)
    return f"{rounded(field, low, high)} ({100.0 * level:g} %: {interval})" if interval else rounded(field, low, high)


def quantity(value: float, unit: str) -> Field:
    """A number that is no output."""
    return Field("", "", "", unit, value)


def interval_of(field: Field, spread: OutcomeSpread | None, group: str = "") -> tuple[float, float]:
    """90 % interval of an output in the unit of its field; the value alone where none is known.

    **Arguments:**

    - `group`: `energy` or `step_time`, of which the field is a part.
    """
    if spread is None:
        return field.value, field.value
    low, high = spread.interval(f"{group}.{field.name}" if group else field.name)
    return (low / HOUR, high / HOUR) if field.key.endswith("hours") else (low, high)


def like(value: float, unit: str, half_width: float) -> str:
    """A number in the digits of an objective whose logarithm has an interval of this half-width."""
    return rounded(quantity(value, unit), value * math.exp(-half_width), value * math.exp(half_width))


def percent(share: float, half_width: float = 0.0, *, sign: str = "") -> str:
    """A share in percent, in the digits of its interval, not finer than a tenth of a percent; `sign` "+" shows it."""
    number, half = 100.0 * share, 100.0 * half_width
    place = max(TENTH, math.floor(math.log10(half / 2.0))) if half > 0.0 and math.isfinite(half) else TENTH
    place = min(place, max(0, math.floor(math.log10(abs(number)))) if number else 0)
    text = f"{round(number, -place):{sign}.{max(0, -place)}f}"
    return f"{text.lstrip('+-') if float(text) == 0.0 else text} %"
