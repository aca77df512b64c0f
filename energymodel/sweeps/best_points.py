"""The points of lowest value of a grid: of all points, or along some axes for each value of the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from energymodel.errors import InputError
from energymodel.sweeps.axes import Range
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import Output, feasible_values
from energymodel.sweeps.reductions import AbstractPointReduction, Chunk, float_dtype

MAX_KEPT = 10**7
"""Most points that `BestAlong` may keep: the state of every tile holds them."""
ROW = 512


class Points(NamedTuple):
    """Points by value, chunk and position in the chunk; empty entries have infinite value."""

    value: Any
    chunk: Any
    position: Any

    @classmethod
    def empty(cls, *shape: int) -> "Points":
        """Positions without points."""
        none = jnp.zeros(shape, jnp.int32)
        return cls(jnp.full(shape, jnp.inf, float_dtype()), none, none)

    def indices(self, grid: Grid) -> list[tuple[int, ...]]:
        """Indices along the axes of the points that are not empty."""
        filled = np.isfinite(self.value)
        points = zip(np.asarray(self.chunk)[filled], np.asarray(self.position)[filled], strict=True)
        return [grid.index(int(chunk), int(position)) for chunk, position in points]

    def improved(self, others: "Points", xp: Any) -> "Points":
        """The lower of each pair; of equal ones the own."""
        wins = others.value < self.value
        return Points(*(xp.where(wins, other, own) for own, other in zip(self, others, strict=True)))


def lowest(first: Points, second: Points, count: int, xp: Any) -> Points:
    """The lowest `count` of all points, in order; of equal points those of `first` come first."""
    both = Points(*(xp.concatenate(pair) for pair in zip(first, second, strict=True)))
    order = xp.argsort(both.value, stable=True)[:count]
    return Points(*(part[order] for part in both))


def lowest_of(values: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The lowest `count` of many values, in order, and their positions; of equal ones the first.

    They lie in as many rows, those of lowest minima, so that only these are sorted.
    """
    rows = jnp.concatenate([values, jnp.full(-values.size % ROW, jnp.inf, values.dtype)]).reshape(-1, ROW)
    chosen = jnp.sort(jax.lax.top_k(-jnp.min(rows, axis=1), min(count, len(rows)))[1])
    negative, order = jax.lax.top_k(-rows[chosen].reshape(-1), count)
    return -negative, (chosen[order // ROW] * ROW + order % ROW).astype(jnp.int32)


@register_dataclass
@dataclass(frozen=True)
class Top(AbstractPointReduction):
    """The `count` points of lowest `value` within `limits`, ties in the order of the grid.

    `spare` more are kept, so that the second evaluation in float64 can correct the order of near ties in float32.
    """

    value: Output
    count: int = 1
    limits: Mapping[str, Range] = field(default_factory=dict)
    spare: int = 31

    def pick(self, outputs: Any) -> jax.Array:
        """The value, infinite where a limit is broken."""
        return feasible_values(outputs, (self.value,), self.limits)[0]

    def init(self, grid: Grid) -> Points:
        """No points."""
        return Points.empty(self.count + self.spare)

    def update(self, state: Points, picked: Any, chunk: Chunk) -> Points:
        """Merge the best of the chunk, if one of them is better than the last one kept."""
        count = self.count + self.spare

        def better(picked: Any) -> Points:
            flat = chunk.masked(picked, jnp.inf).reshape(-1)
            if count == 1:
                position = jnp.argmin(flat).astype(jnp.int32)[None]
                return Points(flat[position], jnp.asarray(chunk.number, jnp.int32)[None], position)
            values, positions = lowest_of(flat, min(count, flat.size))
            numbers = jnp.full(positions.shape, chunk.number, jnp.int32)
            return lowest(state, Points(values, numbers, positions), count, jnp)

        # Padding repeats points, so it has no lower value.
        return jax.lax.cond(jnp.min(picked) < state.value[-1], better, lambda _: state, picked)

    def merge(self, first: Points, second: Points) -> Points:
        """The lowest of both."""
        return lowest(first, second, self.count + self.spare, np)

    def kept_points(self, state: Points, grid: Grid) -> list[tuple[int, ...]]:
        """All of them, the spare ones included."""
        return state.indices(grid)

    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """The best by value, ties in the order of the grid."""
        return np.argsort(values, stable=True)[: self.count].tolist()


@register_dataclass
@dataclass(frozen=True)
class BestAlong(AbstractPointReduction):
    """The point of lowest `value` along `axes`, for each combination of the other axes.

    `result` is an array over the other axes, in the order of the grid, infinite where no point obeys the limits.
    """

    value: Output
    axes: Sequence[str]
    limits: Mapping[str, Range] = field(default_factory=dict)

    def other_axes(self, grid: Grid) -> list[int]:
        """Numbers of the axes that stay.

        **Raises:** `InputError` for an axis that the grid lacks, or too many kept points.
        """
        for name in self.axes:
            if name not in grid.names:
                raise InputError(f'keep: "{name}" is not an axis. Choose from {", ".join(grid.names)}.')
        others = [number for number, name in enumerate(grid.names) if name not in self.axes]
        count = math.prod(grid.sizes[number] for number in others)
        if count > MAX_KEPT:
            raise InputError(
                f"keep: along:{','.join(self.axes)} would keep {count:,} points, more than {MAX_KEPT:,}. "
                "Name more axes after along."
            )
        return others

    def pick(self, outputs: Any) -> jax.Array:
        """The value, infinite where a limit is broken."""
        return feasible_values(outputs, (self.value,), self.limits)[0]

    def init(self, grid: Grid) -> Points:
        """No points, padding included."""
        return Points.empty(*(grid.lengths[number] for number in self.other_axes(grid)))

    def update(self, state: Points, picked: Any, chunk: Chunk) -> Points:
        """Compare the best of the chunk with the points so far; find their positions only if one is better."""
        others, cut = self.other_axes(chunk.grid), chunk.grid.cut
        inside = [number - cut for number in others if number >= cut]
        reduced = [number for number in range(picked.ndim) if number not in inside]
        values, shape = chunk.masked(picked, jnp.inf), tuple(picked.shape[number] for number in inside)
        firsts = [*chunk.leading, chunk.start, *(np.int32(0) for _ in chunk.grid.sizes[cut + 1 :])]
        starts = [firsts[number] for number in others]
        sizes = (1,) * (len(others) - len(inside)) + shape
        old = Points(*(jax.lax.dynamic_slice(part, starts, sizes) for part in state))
        minimum = jnp.min(values, axis=reduced).reshape(sizes)

        def better(values: Any) -> Points:
            numbers = jnp.arange(values.size, dtype=jnp.int32).reshape(values.shape)
            rows, numbers = (
                jnp.transpose(part, (*inside, *reduced)).reshape((*shape, -1)) for part in (values, numbers)
            )
            best = jnp.argmin(rows, axis=-1)
            positions = jnp.take_along_axis(numbers, best[..., None], axis=-1).reshape(sizes)
            blocks = old.improved(Points(minimum, jnp.asarray(chunk.number, jnp.int32), positions), jnp)
            parts = zip(state, blocks, strict=True)
            return Points(*(jax.lax.dynamic_update_slice(part, block, starts) for part, block in parts))

        return jax.lax.cond(jnp.any(minimum < old.value), better, lambda _: state, values)

    def merge(self, first: Points, second: Points) -> Points:
        """The lower of each pair."""
        return first.improved(second, np)

    def result(self, state: Points, grid: Grid) -> np.ndarray:
        """Lowest values over the other axes."""
        inside = tuple(slice(grid.sizes[number]) for number in self.other_axes(grid))
        return np.asarray(np.asarray(state.value)[inside])

    def kept_points(self, state: Points, grid: Grid) -> list[tuple[int, ...]]:
        """One for each combination that has any."""
        return state.indices(grid)

    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """All of them, in the order of the grid."""
        return range(len(values))
