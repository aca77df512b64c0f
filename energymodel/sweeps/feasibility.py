"""Limits of a point: outputs by name, and the ranges that they have to stay in."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import jax
import jax.numpy as jnp

Range = tuple[float, float]
Output = str | Callable[[Any], Any]
"""An output by its name, or a function of all outputs."""
FEASIBLE = "feasible"
"""A model may return its own verdict on a point as an output of this name."""


def output_of(outputs: Any, output: Output) -> Any:
    """An output from a mapping, a named tuple or a module."""
    if callable(output):
        return output(outputs)
    return outputs[output] if isinstance(outputs, Mapping) else getattr(outputs, output)


def within(value: Any, limits: Range) -> Any:
    """Whether `low <= value <= high`; infinite ends, which are never traced, are not compared."""
    low, high = limits
    above = True if isinstance(low, float) and low == -math.inf else value >= low
    return above if isinstance(high, float) and high == math.inf else above & (value <= high)


def feasible(outputs: Any, limits: Mapping[str, Range]) -> Any:
    """Whether the outputs of a point lie within their limits, and the model's own verdict holds."""
    has_verdict = FEASIBLE in outputs if isinstance(outputs, Mapping) else hasattr(outputs, FEASIBLE)
    verdict = output_of(outputs, FEASIBLE) if has_verdict else True
    return reduce(and_, (within(output_of(outputs, name), ends) for name, ends in limits.items()), verdict)


def feasible_values(outputs: Any, names: Sequence[Output], limits: Mapping[str, Range]) -> tuple[jax.Array, ...]:
    """Outputs of a point, all infinite where a limit is broken or one of them is not a finite number."""
    values = [jnp.asarray(output_of(outputs, name)) for name in names]
    permitted = reduce(and_, (jnp.abs(value) < jnp.inf for value in values), feasible(outputs, limits))
    return tuple(jnp.where(permitted, value, jnp.inf) for value in values)
