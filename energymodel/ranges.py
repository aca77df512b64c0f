"""Ranges of numbers: what each field declares, and the extent of each unit.

Every field that holds a number declares its range beside its unit (`numerics.real`). A range that states no end ends
where its unit does (`EXTENTS`): beyond any machine, site or run, and near enough that products of a dozen numbers
neither overflow nor vanish. Numbers that exclude each other are checked in `scenarios`.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError
from energymodel.units import UNITS, format_quantity

EXTENTS: dict[str, tuple[float, float]] = {
    unit: tuple(about["extent"]) for unit, about in UNITS.items() if "extent" in about
}
"""The smallest number of a unit that is not zero, and the largest, in SI."""


class Range(NamedTuple):
    """What a number may be, in SI: from `low` to `high`, without `low` itself if it is `above`."""

    low: float
    high: float = math.inf
    above: bool = False

    def within(self, unit: str) -> "Range":
        """The same, up to the extent of a unit where an end is not stated."""
        smallest, largest = EXTENTS[unit]
        if self.above and self.low == 0.0:
            return Range(min(smallest, self.high), min(self.high, largest))
        return Range(max(self.low, -largest), min(self.high, largest), self.above)

    def holds(self, value: float) -> bool:
        """Whether a value is possible."""
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def describe(self, unit: str, *, difference: bool = False) -> str:
        """What is possible, in words that follow "give"; `difference` as in `units.format_quantity`."""
        low = format_quantity(self.low, unit, difference=difference)
        if self.high == math.inf:
            return f"a value above {low}" if self.above else f"a value of at least {low}"
        high = format_quantity(self.high, unit, difference=difference)
        what = "a share" if self.low >= 0.0 and self.high == 1.0 and unit == "1" else "a value"
        return f"{what} above {low} and at most {high}" if self.above else f"{what} between {low} and {high}"


ANY = Range(0.0)
SIGNED = Range(-math.inf)
SHARE = Range(0.0, 1.0)
SHARE_ABOVE_ZERO = Range(0.0, 1.0, above=True)
ABOVE_ZERO = Range(0.0, above=True)
AT_LEAST_ONE = Range(1.0)
EXPONENT = Range(0.0, 10.0, above=True)
"""Of a power law: nothing measured has a steeper one."""
FACTOR = Range(1e-3, 1e3)
"""A ratio of like quantities, of which neither vanishes beside the other."""
COOLANT = Range(ZERO_CELSIUS - 40.0, ZERO_CELSIUS + 100.0)
"""Liquids and air that leave a chip below its limit."""
ABSOLUTE = Range(150.0, 1000.0)
"""Temperatures [K] of places where machines stand, and of machines that work."""
DEGREES = Range(0.0, 200.0)
"""Differences of such temperatures [K]."""


def check_value(value: float, unit: str, allowed: Range, path: str, *, difference: bool = False) -> None:
    """Check one number against what it may be.

    **Arguments:**

    - `value`: in SI.
    - `path`: what the message calls the number.
    - `difference`: whether a temperature is a difference.

    **Raises:** `InputError` that names path, value, unit and what is possible.
    """
    possible = allowed.describe(unit, difference=difference)
    if not math.isfinite(value):
        raise InputError(f"{path}: {value:g} {unit} is not a finite number. Give {possible}.", thing=path, unit=unit)
    if not allowed.holds(value):
        text = format_quantity(value, unit, difference=difference)
        raise InputError(f"{path}: {text} is impossible; give {possible}.", thing=path, value=value, unit=unit)


def check_field(field: "dataclasses.Field[Any]", values: Iterable[float], path: str) -> None:
    """Check numbers of a field against its range, as `check_value`."""
    about = field.metadata
    for value in values:
        if about.get("optional") and value == 0.0:
            raise InputError(f"{path}: 0 stands for nothing that can be built. Leave it out where there is none.")
        check_value(float(value), about["unit"], about["range"], path, difference=about.get("difference", False))


def check_number(component: Any, field: str, values: Iterable[float], path: str) -> None:
    """Check numbers of a dotted field below a component, as `check_field`; what has no such field is not checked."""
    with contextlib.suppress(KeyError):  # the tokens of a plan whose goal is a loss
        check_field(declaration(component, field), values, path)


def ends_of(component: Any, field: str) -> tuple[float, float]:
    """The lowest and the highest value that a number at a dotted field below a component may have, in SI."""
    allowed: Range = declaration(component, field).metadata["range"]
    return (math.nextafter(allowed.low, math.inf) if allowed.above else allowed.low), allowed.high


def declaration(component: Any, field: str) -> "dataclasses.Field[Any]":
    """The declaration of a dotted field below a component.

    **Raises:** `KeyError` if it has no such number.
    """
    *parents, name = field.split(".")
    owner = reduce(getattr, parents, component)
    return {declared.name: declared for declared in dataclasses.fields(owner)}[name]


def check_numbers(component: Any, path: str) -> None:
    """Check all numbers of a component and its parts, as a file is checked that gives them.

    **Raises:** `InputError` for the first that is not finite or outside its range.
    """
    for where, field, values in declared_numbers(component, path):
        check_field(field, values, where)


def declared_numbers(component: Any, path: str) -> Iterator[tuple[str, "dataclasses.Field[Any]", np.ndarray]]:
    """Path, declaration and values of all numbers of a component and its parts."""
    for field in dataclasses.fields(component):
        value, where = getattr(component, field.name), f"{path}.{field.name}"
        if "range" in field.metadata and value is not None:
            yield where, field, np.ravel(np.asarray(value))
        elif dataclasses.is_dataclass(value):
            yield from declared_numbers(value, where)
