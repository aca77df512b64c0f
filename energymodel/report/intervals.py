"""With how many digits is an uncertain number printed, and how is its interval shown?"""

import math

from energymodel.units import format_quantity

FEWEST, MOST = 1, 4
"""Significant digits of a number, at least and at most."""


def supported_digits(value: float, half_width: float, unit: str) -> int:
    """Significant digits of a number as it is printed, the last of which is worth at most half of `half_width` [1].

    **Arguments:**

    - `value`: the number in the SI unit `unit`.
    - `half_width`: half the width of its interval, in the same unit.
    """
    if not (value and half_width > 0.0 and math.isfinite(half_width)):
        return MOST
    # Decades of the unit that is printed: 6.1 GWh are 2.2e13 J.
    shown = value if unit == "K" else float(format_quantity(value, unit, digits=12).split(" ")[0])
    last = math.floor(math.log10(half_width / 2.0 * abs(shown / value)))
    return min(max(math.floor(math.log10(abs(shown))) - last + 1, FEWEST), MOST)


def with_interval(value: float, low: float, high: float, unit: str, level: float) -> str:
    """A number with its interval, in the digits that this supports: "26 GWh (90 %: 22 to 31)"."""
    half_width = 0.5 * (high - low)
    shown, *ends = (
        format_quantity(one, unit, digits=supported_digits(one, half_width, unit)) for one in (value, low, high)
    )
    word = shown.partition(" ")[2]
    if all(end.partition(" ")[2] == word for end in ends):
        ends = [end.partition(" ")[0] for end in ends]
    return f"{shown} ({100.0 * level:g} %: {ends[0]} to {ends[1]})"
