"""Which values can a number at a path of a system or a plan not have?

Each field declares its range (`energymodel.ranges`); text with a unit is never negative (`units.parse_quantity`),
unless its field is `signed`. Numbers that a preset chooses and no component holds have their ranges here.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, Range, check_field

NEAR_LIMIT_RANGES: Mapping[str, Range] = {
    **dict.fromkeys(("landauer_multiple", "slope_factor"), AT_LEAST_ONE),
    **dict.fromkeys(("bits_per_flop", "reference_voltage", "temperature", "rated_power", "die_area"), ABOVE_ZERO),
    "depth_per_activity": ABOVE_ZERO,
}
"""Of the numbers that a near-limit accelerator follows from (`presets.near_limit`)."""


def check_number(component: Any, field: str, values: Iterable[float], path: str) -> None:
    """Check numbers that shall stand at a dotted field below a component, as `check_field`; `path` is for messages."""
    with contextlib.suppress(KeyError):  # the tokens of a plan whose goal is a loss are not
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
    for part in parents:
        component = getattr(component, part)
    return {one.name: one for one in dataclasses.fields(component)}[name]
