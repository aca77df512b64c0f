"""What is kept of a sweep: the best points, or the best one in each bin of a second quantity."""

from dataclasses import dataclass
from math import log
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

MOST_POINTS = 1024
MOST_BINS = 64
"""Bins of a kernel live in registers."""


@dataclass(frozen=True)
class Best:
    """The `count` points with the least objective [1]; of equal ones, those with the lowest numbers."""

    count: int = 1

    def check(self) -> None:
        """**Raises:** `ValueError` for a count that cannot be kept."""
        if not 1 <= self.count <= MOST_POINTS:
            raise ValueError(f"Best(count={self.count}): between 1 and {MOST_POINTS} points can be kept")

    @property
    def bins(self) -> int:
        """Bins of a kernel [1]."""
        return 1

    @property
    def points(self) -> int:
        """Points that are kept [1]."""
        return self.count

    def bin_of(self, quantities: Any, valid: jax.Array) -> Array:
        """Bin of a point: all points share one."""
        return jnp.where(valid, 0, -1)


@dataclass(frozen=True)
class ParetoBins:
    """The point with the least objective in each of `count` equal bins of a quantity: a front to the width of a bin.

    - `quantity`: position of the quantity among those that the formula returns.
    - `low`, `high`: ends of the bins, in its unit; what is below `low` falls into the first, what is above `high` out.
    - `count`: bins [1].
    - `logarithmic`: whether bins have equal ratios; both ends are then positive.
    """

    quantity: int
    low: float
    high: float
    count: int = 32
    logarithmic: bool = False

    def check(self) -> None:
        """**Raises:** `ValueError` for bins that cannot be kept."""
        if not 1 <= self.count <= MOST_BINS:
            raise ValueError(f"ParetoBins(count={self.count}): between 1 and {MOST_BINS} bins can be kept")
        if not self.low < self.high or (self.logarithmic and self.low <= 0.0):
            raise ValueError(
                f"ParetoBins(low={self.low}, high={self.high}): low must be below high, in logarithms above 0"
            )

    @property
    def bins(self) -> int:
        """Bins of a kernel [1]."""
        return self.count

    @property
    def points(self) -> int:
        """Points that are kept [1]."""
        return self.count

    def bin_of(self, quantities: Any, valid: jax.Array) -> Array:
        """Bin of a point, -1 for a point that is not kept."""
        quantity = jnp.asarray(quantities[self.quantity])
        within = valid & (quantity <= self.high) & (quantity > -jnp.inf)
        quantity = jnp.where(within, quantity, self.high)
        if self.logarithmic:
            position = jnp.log(jnp.maximum(quantity, self.low) / self.low) * (1.0 / log(self.high / self.low))
        else:
            position = (jnp.maximum(quantity, self.low) - self.low) * (1.0 / (self.high - self.low))
        return jnp.where(within, jnp.minimum((position * self.count).astype(jnp.int32), self.count - 1), -1)


Keep = Best | ParetoBins


def judge(objective: Any, quantities: Any, limits: Any, keep: Keep) -> tuple[Array, Array]:
    """Objective and bin of a point; a point beyond a limit, or with anything that is not a number, is in bin -1.

    Comparisons with a number that is none are false, which is all the guard that is needed.
    """
    objective = jnp.asarray(objective)
    valid = (objective < jnp.inf) & (objective > -jnp.inf)
    for quantity, limit in zip(quantities, limits, strict=True):
        valid = valid & (quantity <= limit)
    slot = keep.bin_of(quantities, valid)
    return jnp.where(slot >= 0, objective, jnp.inf), slot
