"""What is best along some axes, for each value of the others?"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.reductions import (
    AbstractReduction,
    Chunk,
    Points,
    Range,
    feasible,
    float_dtype,
    least_or_inf,
    lesser,
    masked,
    output_of,
    places,
)

MOST = 10**7
"""Points of the axes that are kept, at most: the state of every tile holds them."""


@dataclasses.dataclass(frozen=True)
class BestAlong(AbstractReduction):
    """The point of least `value` along `axes`, for each combination of the other axes.

    `result` is an array over the other axes, in the order of the grid, infinite where no point obeys the limits.
    """

    value: str | Callable[[Any], Any]
    axes: Sequence[str]
    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)

    looks_for_points = True
    ranked = False

    def kept(self, grid: Grid) -> list[int]:
        """Places of the axes that are kept.

        **Raises:** `InputError` for an axis that the grid lacks, or too many kept points.
        """
        names = [axis.name for axis in grid.axes]
        for name in self.axes:
            if name not in names:
                raise InputError(f'keep: "{name}" is no axis. Choose among {", ".join(names)}.')
        found = [place for place, name in enumerate(names) if name not in self.axes]
        count = math.prod(len(grid.axes[place]) for place in found)
        if count > MOST:
            raise InputError(f"keep: {count:,} points would be kept, more than {MOST:,}. Reduce along more axes.")
        return found

    def pick(self, outputs: Any) -> Any:
        """The value, infinite where a limit is broken."""
        return least_or_inf(output_of(outputs, self.value), feasible(outputs, self.limits))

    def init(self, grid: Grid) -> Points:
        """No points."""
        shape = tuple(_padded_length(grid, place) for place in self.kept(grid))
        return Points(jnp.full(shape, jnp.inf, float_dtype()), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32))

    def update(self, state: Points, picked: Any, chunk: Chunk) -> Points:
        """Compare the best of the chunk with what it stands beside; look for places only if one is better."""
        kept, cut = self.kept(chunk.grid), chunk.grid.cut
        inside = [place - cut for place in kept if place >= cut]
        outside = [place for place in range(picked.ndim) if place not in inside]
        values = jnp.transpose(masked(picked, chunk), (*inside, *outside))
        values = values.reshape((*values.shape[: len(inside)], -1))
        numbers = jnp.arange(picked.size, dtype=jnp.int32).reshape(picked.shape)
        numbers = jnp.transpose(numbers, (*inside, *outside)).reshape(values.shape)
        starts = [chunk.leading[place] if place < cut else chunk.start if place == cut else 0 for place in kept]
        leading = sum(place < cut for place in kept)
        sizes = (1,) * leading + values.shape[:-1]
        old = Points(*(jax.lax.dynamic_slice(part, starts, sizes) for part in state))
        least = jnp.min(values, axis=-1).reshape(sizes)

        def better(_: None) -> Points:
            best = jnp.argmin(values, axis=-1)
            where = jnp.take_along_axis(numbers, best[..., None], axis=-1).reshape(sizes)
            wins = least < old.value
            new = Points(
                jnp.where(wins, least, old.value),
                jnp.where(wins, jnp.asarray(chunk.number, jnp.int32), old.chunk),
                jnp.where(wins, where, old.place),
            )
            return Points(
                *(jax.lax.dynamic_update_slice(part, one, starts) for part, one in zip(state, new, strict=True))
            )

        return jax.lax.cond(jnp.any(least < old.value), better, lambda _: state, None)

    def merge(self, first: Points, second: Points) -> Points:
        """The lesser of each pair, the first where they are equal."""
        return lesser(first, second)

    def kept_points(self, state: Points, grid: Grid) -> list[tuple[int, ...]]:
        """Indices of the points found."""
        return places(state, grid)

    def result(self, state: Points, grid: Grid) -> np.ndarray:
        """Least values over the axes that are kept."""
        inside = tuple(slice(len(grid.axes[place])) for place in self.kept(grid))
        return np.asarray(np.asarray(state.value)[inside])


def _padded_length(grid: Grid, place: int) -> int:
    return grid.blocks * grid.block if place == grid.cut else len(grid.axes[place])
