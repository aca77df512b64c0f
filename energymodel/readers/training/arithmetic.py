"""Which functions may an interpolation of NeMo use?"""

import math
import re
from collections.abc import Callable
from typing import Any


def multiply(one: Any, two: Any) -> float | int:
    """`${multiply:a,b}`: the product."""
    return _number(one) * _number(two)


def divide_ceil(one: Any, two: Any) -> int:
    """`${divide_ceil:a,b}`: the quotient, rounded up."""
    return math.ceil(_number(one) / _number(two))


def divide_floor(one: Any, two: Any) -> int:
    """`${divide_floor:a,b}`: the quotient, rounded down."""
    return math.floor(_number(one) / _number(two))


def add(one: Any, two: Any) -> float | int:
    """`${add:a,b}`: the sum."""
    return _number(one) + _number(two)


RESOLVERS: dict[str, Callable[..., Any]] = {
    "multiply": multiply,
    "divide_ceil": divide_ceil,
    "divide_floor": divide_floor,
    "add": add,
}


def _number(value: Any) -> float | int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise ValueError("no number below 1e15")
    return value
