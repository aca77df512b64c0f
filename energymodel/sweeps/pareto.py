"""Pareto fronts of a grid.

Every point is compared with a few sentries of the front so far; rows that hold a point which passes are looked at
again, and the points that pass that, too, are compared with the whole front.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from energymodel.search.result import efficient as undominated
from energymodel.sweeps.axes import Range
from energymodel.sweeps.best_points import Points
from energymodel.sweeps.float32_functions import ordered_bits
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import feasible_values
from energymodel.sweeps.reductions import AbstractPointReduction, Chunk, float_dtype

CAPACITY = 1024
SENTRIES = 16
"""Points of a front that every point is compared with first."""
GUARDS = 64
"""Points of the front of a sample of the grid, which every tile knows, and of a front that is looked at again."""
ROW, GROUP = 128, 32
"""Points in a row, and rows that are looked at together."""
STEPS = 512
MANY = 32
"""Rows with a point that passes, from which on all points of a chunk are compared with each other in so many steps."""


class FrontState(NamedTuple):
    """Points that none dominates: objectives in columns, infinite beyond the last; how many did not find room."""

    values: Any
    chunk: Any
    position: Any
    lost: Any


@register_dataclass
@dataclass(frozen=True)
class Pareto(AbstractPointReduction):
    """Every point that no other point dominates, exactly, for two and more objectives.

    Of points with equal objectives the first one is kept. `capacity` bounds the front; a larger one says so.
    """

    objectives: Sequence[str]
    limits: Mapping[str, Range] = field(default_factory=dict)
    capacity: int = CAPACITY

    def pick(self, outputs: Any) -> Any:
        """The objectives, infinite where a limit is broken."""
        return feasible_values(outputs, self.objectives, self.limits)

    def init(self, grid: Grid) -> FrontState:
        """An empty front."""
        none = jnp.zeros(self.capacity, jnp.int32)
        values = jnp.full((len(self.objectives), self.capacity), jnp.inf, float_dtype())
        return FrontState(values, none, none, jnp.zeros((), jnp.int32))

    def hint(self, state: FrontState) -> np.ndarray:
        """Points a little worse than some of the front, so that they dominate no point of it."""
        values = np.asarray(state.values)
        count = np.sum(values[0] < np.inf)
        return np.nextafter(values[:, (np.arange(GUARDS) * count) // GUARDS], values.dtype.type(np.inf))

    def update(self, state: FrontState, picked: Any, chunk: Chunk) -> FrontState:
        """Join the points that pass two looks with the front."""
        few = [spread(front, SENTRIES) for front in (chunk.hint, state.values)]
        if len(picked) > 2:
            passes = below(picked, jnp.concatenate(few, axis=1))
        else:
            starts = jnp.where(chunk.hint[0, 0] < jnp.inf, few[0][0], few[1][0])
            points = jnp.concatenate([chunk.hint, state.values], axis=1)
            heights = jnp.min(jnp.where(points[0] <= starts[:, None], points[1], jnp.inf), axis=1)
            passes = below_stairs(picked, starts, heights)

        def insert(state: FrontState, columns: list[Any], positions: Any) -> FrontState:
            values = jnp.stack(columns)

            def passing(state: FrontState) -> Any:
                if len(values) == 2:
                    covered = _under(values, chunk.hint) | _under(values, state.values)
                else:
                    sentries = jnp.concatenate([chunk.hint, spread(state.values, GUARDS)], axis=1)
                    covered = _covered(values, sentries, strictly=False)
                return (values[0] < jnp.inf) & ~covered

            def turn(carry: tuple[FrontState, Any]) -> tuple[FrontState, Any]:
                state, waiting = carry
                order = jnp.nonzero(waiting, size=waiting.size, fill_value=waiting.size)[0]
                some = spread(values.at[:, order].get(mode="fill", fill_value=jnp.inf), GUARDS)
                waiting = waiting & ~_covered(values, some, strictly=True)  # of equal points the first is still there
                taken = jnp.nonzero(waiting, size=ROW, fill_value=waiting.size)[0]
                new = values.at[:, taken].get(mode="fill", fill_value=jnp.inf)
                numbers = jnp.full(ROW, chunk.number, jnp.int32), positions.at[taken].get(mode="fill", fill_value=0)
                state = join(state, FrontState(new, *numbers, jnp.zeros((), jnp.int32)), self.capacity)
                return state, waiting.at[taken].set(False, mode="drop") & passing(state)

            return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), turn, (state, passing(state)))[0]

        return over_rows(passes, picked, chunk, insert, state, narrows=len(picked) == 2)

    def merge(self, first: FrontState, second: FrontState) -> FrontState:
        """The front of both."""
        pairs = zip(first[:3], second[:3], strict=True)
        values, chunk, position = (np.concatenate([*map(np.asarray, pair)], axis=-1) for pair in pairs)
        filled = np.flatnonzero(values[0] < np.inf)
        rows = filled[efficient(values[:, filled])]
        lost = first.lost + second.lost + np.int32(max(len(rows) - self.capacity, 0))
        rows = rows[: self.capacity]
        missing = (0, self.capacity - len(rows))
        values = np.pad(values[:, rows], ((0, 0), missing), constant_values=np.inf)
        return FrontState(values, np.pad(chunk[rows], missing), np.pad(position[rows], missing), lost)

    def kept_points(self, state: FrontState, grid: Grid) -> list[tuple[int, ...]]:
        """The points of the front."""
        return Points(state.values[0], state.chunk, state.position).indices(grid)

    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """The efficient ones, by the first objective."""
        return efficient([outputs[name] for name in self.objectives])

    def warning(self, state: FrontState) -> str:
        """How many points the front was too small for."""
        lost = int(state.lost)
        warning = f"The front has more than {self.capacity:,} points; {lost:,} were lost. Raise capacity."
        return warning if lost else ""


def below_stairs(columns: Sequence[Any], starts: Any, heights: Any) -> Any:
    """Which points, by two objectives, are lower than the last of some stairs that starts before them."""
    starts, heights = jax.lax.optimization_barrier((starts, heights))
    height = jnp.asarray(jnp.inf, columns[1].dtype)
    for start, own in zip(starts, heights, strict=True):
        height = jnp.where(columns[0] > start, own, height)
    return columns[1] < height


def below(columns: Sequence[Any], sentries: Any) -> Any:
    """Which points none of the sentries dominates, nor equals."""
    passing = columns[0] < jnp.inf
    for sentry in range(sentries.shape[1]):
        covered = [sentries[row, sentry] <= column for row, column in enumerate(columns)]
        passing = passing & ~functools.reduce(jnp.logical_and, covered)
    return passing


def spread(points: Any, count: int) -> Any:
    """So many points of a front, spread evenly over it; infinite where it has none."""
    filled = jnp.sum(points[0] < jnp.inf)
    return points[:, (jnp.arange(count) * filled) // count]


def below_steps(first: Any, second: Any) -> Any:
    """Which points, by two objectives, are lower than all points in lower steps of the first objective."""
    finite = first < jnp.inf
    ends = jnp.min(first), jnp.max(jnp.where(finite, first, -jnp.inf))
    # Equal steps of the bits are about equal ratios, and never lower for a higher number.
    low, high, x = (ordered_bits(value).astype(jnp.float32) for value in (*ends, first))
    step = jnp.clip((x - low) * (STEPS / jnp.maximum(high - low, 1.0)), 0.0, STEPS - 1.0).astype(jnp.int32)
    step = jax.lax.optimization_barrier(step)  # else it is computed in the loops that read it, point by point
    highest = jnp.full(STEPS, jnp.inf, second.dtype)
    lowest = highest.at[step].min(jnp.where(finite, second, jnp.inf))
    before = jnp.concatenate([highest[:1], jax.lax.cummin(lowest)[:-1]])
    return second < before.at[step].get(mode="promise_in_bounds")


def over_rows(
    passes: Any,
    picked: Sequence[Any],
    chunk: Chunk,
    insert: Callable[[Any, list[Any], Any], Any],
    state: Any,
    narrows: bool = False,
) -> Any:
    """The state after `insert` has seen the points of rows in which one passes, group after group.

    It takes the state, the objectives, infinite where a point does not pass, and positions in the chunk. If `narrows`,
    and many rows pass, it sees only points that `below_steps` lets pass.
    """
    # Complex numbers halve the arrays, for each of which XLA would evaluate the model.
    columns = [jnp.where(passes, picked[0], jnp.inf), *picked[1:]]
    pairs = [jax.lax.complex(*columns[first : first + 2]) for first in range(0, len(columns) - 1, 2)]
    packed = jax.lax.optimization_barrier(pairs + columns[2 * len(pairs) :])

    def passing_rows(first: Any) -> tuple[Any, Any, Any]:
        # XLA for CPU vectorizes loops over the shape of the chunk, but not those that compute a reshaped result.
        first = in_rows(jax.lax.optimization_barrier(first))
        rows, count = jnp.min(first, axis=-1) < jnp.inf, len(first)
        order = jnp.nonzero(rows, size=count + -count % GROUP, fill_value=count)[0].astype(jnp.int32)
        return first, order, jnp.sum(rows, dtype=jnp.int32)

    def look(state: Any, packed: Sequence[Any]) -> Any:
        first, *packed = jax.lax.optimization_barrier([chunk.masked(packed[0].real, jnp.inf), *packed])
        others, rows = [*map(in_rows, packed)], passing_rows(first)

        def narrowed(*_: Any) -> tuple[Any, Any, Any]:
            return passing_rows(jnp.where(below_steps(first, packed[0].imag), first, jnp.inf))

        passing, order, number = jax.lax.cond(rows[2] > MANY, narrowed, lambda *same: same, *rows) if narrows else rows
        count, width = passing.shape

        def group(step: Any, state: Any) -> Any:
            chosen = jax.lax.dynamic_slice_in_dim(order, step * GROUP, GROUP)
            taken = jnp.minimum(chosen, count - 1)
            positions = taken[:, None] * width + jnp.arange(width, dtype=jnp.int32)
            own = jnp.where((chosen < count)[:, None], passing[taken], jnp.inf)
            rest = [part for other in others for part in (other[taken].real, other[taken].imag)][1 : len(picked)]
            columns = [own, *(jnp.where(own < jnp.inf, column, jnp.inf) for column in rest)]
            return insert(state, [column.reshape(-1) for column in columns], positions.reshape(-1))

        return jax.lax.fori_loop(0, (number + (GROUP - 1)) // GROUP, group, state)

    def turn(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        again, state, packed = carry
        again, seen = jax.lax.optimization_barrier((again, packed))  # else XLA moves the look out of the loop
        return again & False, look(state, seen), packed

    # A loop of at most one turn updates the state in place, where a branch would copy it for every chunk.
    some = jnp.min(packed[0].real) < jnp.inf
    return jax.lax.while_loop(lambda carry: carry[0], turn, (some, state, packed))[1]


def in_rows(values: Any) -> Any:
    """Points of a chunk in rows of about `ROW`; filled up with infinities only where the points do not divide."""
    flat = values.reshape(-1)
    width = next((width for width in range(ROW, ROW // 8, -1) if flat.size % width == 0), 0)
    if width:
        return flat.reshape(-1, width)
    return jnp.concatenate([flat, jnp.full(-flat.size % ROW, jnp.inf, flat.dtype)]).reshape(-1, ROW)


def _under(points: Any, front: Any) -> Any:
    """Whether a point of a front of two objectives, in the order of the first, is at least as good in both."""
    last = jnp.searchsorted(front[0], points[0], side="right") - 1
    return (last >= 0) & (front[1][last] <= points[1])


def _covered(points: Any, others: Any, *, strictly: bool) -> Any:
    """Whether one of the others is at least as good as a point in all respects; if `strictly`, better in one."""
    # Objective after objective, and reduced over the first axis: XLA for CPU vectorizes that.
    pairs = [(other[:, None], point[None, :]) for other, point in zip(others, points, strict=True)]
    verdict = functools.reduce(jnp.logical_and, (other <= point for other, point in pairs))
    if strictly:
        verdict = verdict & functools.reduce(jnp.logical_or, (other < point for other, point in pairs))
    return jnp.any(verdict, axis=0)


def join(old: FrontState, fresh: FrontState, capacity: int) -> FrontState:
    """The front with further points, ordered by the first objective; of equal points the first stays.

    Points of `old` do not dominate each other; those of `fresh` may.
    """
    new = fresh.values
    numbers = jnp.arange(new.shape[1])
    twins = jnp.all(new[:, :, None] == new[:, None, :], axis=0) & (numbers[:, None] < numbers[None, :])
    lost_new = _covered(new, old.values, strictly=False) | ~(new[0] < jnp.inf)
    lost_new = lost_new | _covered(new, new, strictly=True) | jnp.any(twins, axis=0)
    lost_old = _covered(old.values, new, strictly=True) | ~(old.values[0] < jnp.inf)
    gone = jnp.concatenate([lost_old, lost_new])
    alive = jnp.where(gone[None, :], jnp.inf, jnp.concatenate([old.values, new], axis=1))
    order = jnp.argsort(alive[0], stable=True)[:capacity]
    too_many = jnp.maximum(jnp.sum(~gone) - capacity, 0).astype(jnp.int32)
    return FrontState(
        alive[:, order],
        jnp.concatenate([old.chunk, fresh.chunk])[order],
        jnp.concatenate([old.position, fresh.position])[order],
        old.lost + fresh.lost + too_many,
    )


def efficient(columns: Sequence[np.ndarray] | np.ndarray) -> list[int]:
    """Rows of points that none dominates, by the first column; of equal points the first."""
    values = np.stack([np.asarray(column, np.float64) for column in columns])
    order = np.lexsort(values[::-1])
    if len(values) != 2:
        return order[undominated(values[:, order].T)].tolist()
    second = values[1][order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
    return order[second < before].tolist()
