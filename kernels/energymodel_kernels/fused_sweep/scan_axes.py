"""The grid of a sweep: the values of its axes, and the point of each number.

Points are numbered with the last axis fastest. A number is kept as two: of the outer axes, and of the inner ones.
"""

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Real, as_real


class Axis(eqx.Module):
    """Values of one variable, `low + i (high - low) / (count - 1)`, or the same in logarithms.

    - `low`, `high`: first and last value, in the variable's unit.
    - `count`: how many [1]; a single value is `low`.
    - `logarithmic`: whether equal steps are equal ratios; both ends are then positive.
    """

    low: Real = eqx.field(converter=as_real)
    high: Real = eqx.field(converter=as_real)
    count: int = eqx.field(static=True)
    logarithmic: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"an axis has {self.count} values: at least 1 is needed")

    def numbers(self, dtype: Any) -> tuple[Array, Array]:
        """First value and step between values, of the logarithm where that is what has equal steps."""
        low, high = (jnp.asarray(end, dtype) for end in (self.low, self.high))
        if self.logarithmic:
            low, high = jnp.log(low), jnp.log(high)
        return low, (high - low) / max(self.count - 1, 1)

    def value(self, first: Array, step: Array, index: Array) -> Array:
        """Value number `index`, from what `numbers` returns."""
        value = first + step * index.astype(first.dtype)
        return jnp.exp(value) if self.logarithmic else value


class Grid(NamedTuple):
    """A product of named axes."""

    names: tuple[str, ...]
    axes: tuple[Axis, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Values of each axis [1]."""
        return tuple(axis.count for axis in self.axes)

    def point(self, values: Sequence[Any]) -> Any:
        """Values under the names of the axes, a tuple in their order."""
        return _point_type(self.names)(*values)

    def split(self, inner: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Counts of the outer axes and of the last `inner` ones."""
        cut = len(self.axes) - inner
        return self.counts[:cut], self.counts[cut:]

    def at(self, indices: Sequence[Array], dtype: Any) -> Any:
        """The point with these indices along the axes."""
        return self.point([axis.value(*axis.numbers(dtype), i) for axis, i in zip(self.axes, indices, strict=True)])


@cache
def _point_type(names: tuple[str, ...]) -> Any:
    """One type for the same names, so that points are of one form."""
    return namedtuple("Point", names)


def unravel(number: Array, counts: Sequence[int]) -> list[Array]:
    """Indices along axes of the point with a number, the last axis fastest; int32, of which `number` is never negative.

    Plain division: rounding towards negative infinity would ask a TPU for its kind.
    """
    indices: list[Array] = []
    for position, count in enumerate(counts):
        below = prod(counts[position + 1 :])
        index = jax.lax.div(number, jnp.full_like(number, below)) if below > 1 else number
        indices.append(jax.lax.rem(index, jnp.full_like(number, count)) if position else index)
    return indices
