"""Which points of a grid cannot be improved in one respect without giving up another?"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.sweeps.best_points import Points
from energymodel.sweeps.feasibility import Range, feasible_values
from energymodel.sweeps.float32_functions import in_order, ordered_bits
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.grid_sample import GridSample
from energymodel.sweeps.passing_rows import ROW, if_any, over_rows
from energymodel.sweeps.reductions import (
    AbstractPointReduction,
    AbstractScaledReduction,
    Chunk,
    KeptPoints,
    float_dtype,
)

CAPACITY = 1024
STEPS = 512  # of the coarse look at a front of two objectives
SENTRIES = 16
"""Points of a front that every point is compared with first; only those that pass are compared with all."""
GUARDS = 64
"""Points of the front of a sample of the grid, which every tile knows."""


class FrontState(NamedTuple):
    """Points that none dominates: objectives in columns, infinite beyond the last; how many did not find room."""

    values: Any
    chunk: Any
    place: Any
    lost: Any


@dataclasses.dataclass(frozen=True)
class Pareto(AbstractPointReduction, AbstractScaledReduction):
    """Every point that no other point dominates, exactly, for two and more objectives.

    Of points with equal objectives the first one is kept. `capacity` bounds the front; a larger one says so.
    """

    objectives: Sequence[str]
    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    capacity: int = CAPACITY
    span: Range | None = None
    takes_padding: ClassVar[bool] = True

    def scaled_to(self, sample: GridSample) -> "Pareto":
        """With the range of the first of two objectives, which changes only the speed."""
        if self.span is not None or len(self.objectives) != 2:
            return self
        return dataclasses.replace(self, span=sample.range(self.objectives[0], self.limits))

    def pick(self, outputs: Any) -> Any:
        """The objectives, infinite where a limit is broken."""
        return feasible_values(outputs, self.objectives, self.limits)

    def init(self, grid: Grid) -> FrontState:
        """An empty front."""
        none = jnp.zeros(self.capacity, jnp.int32)
        values = jnp.full((len(self.objectives), self.capacity), jnp.inf, float_dtype())
        return FrontState(values, none, none, jnp.zeros((), jnp.int32))

    def step_of(self, x: Any) -> Any:
        """Step of a value of the first of two objectives; never lower for a higher value, to the last bit.

        Equal steps of the bits of a positive number are about equal ratios.
        """
        assert self.span is not None
        low, high = (float(in_order(np.float32(end).view(np.int32))) for end in self.span)
        place = (ordered_bits(x).astype(jnp.float32) - np.float32(low)) * np.float32(STEPS / max(high - low, 1.0))
        return jnp.clip(place, 0.0, STEPS - 1.0).astype(jnp.int32)

    def hint(self, state: FrontState) -> np.ndarray:
        """Points a little worse than some of the front, so that they dominate no point of it."""
        values = np.asarray(state.values)
        found = np.sum(values[0] < np.inf)
        return np.nextafter(values[:, (np.arange(GUARDS) * found) // GUARDS], values.dtype.type(np.inf))

    def passing(self, state: FrontState, guards: Any, columns: Sequence[Any]) -> Any:
        """Which points a coarse look at the front lets pass; the others are dominated, or twins of its points."""
        if len(columns) == 2:
            return self.below_steps(jnp.concatenate([guards, state.values], axis=1), columns)
        return below(columns, jnp.concatenate([guards, spread(state.values, GUARDS)], axis=1))

    def below_steps(self, known: Any, columns: Sequence[Any], own: bool = False) -> Any:
        """Which points, by two objectives, are lower than all known points of the steps below, and their `own`."""
        room = jnp.full(STEPS, jnp.inf, columns[1].dtype)
        # Without a barrier the steps are computed in the loops that read them, point by point.
        steps = jax.lax.optimization_barrier(self.step_of(columns[0]))
        lowest = room.at[self.step_of(known[0])].min(known[1])
        if own:
            lowest = lowest.at[steps].min(columns[1])
        before = jnp.concatenate([room[:1], jax.lax.cummin(lowest)[:-1]])
        return columns[1] < before.at[steps].get(mode="promise_in_bounds")

    def first_look(self, state: FrontState, guards: Any, columns: Sequence[Any]) -> Any:
        """The first objective, infinite where one of a few sentries dominates the point, or where it is infinite."""
        if len(columns) > 2:
            few = jnp.concatenate([spread(guards, SENTRIES), spread(state.values, SENTRIES)], axis=1)
            return jnp.where(below(columns, few), columns[0], jnp.inf)
        known = jnp.concatenate([guards, state.values], axis=1)
        starts = jnp.where(guards[0, 0] < jnp.inf, spread(guards, SENTRIES)[0], spread(state.values, SENTRIES)[0])
        heights = jnp.min(jnp.where(known[0] <= starts[:, None], known[1], jnp.inf), axis=1)
        starts, heights = jax.lax.optimization_barrier((starts, heights))
        height = jnp.asarray(jnp.inf, columns[1].dtype)
        for sentry in range(SENTRIES):
            height = jnp.where(columns[0] > starts[sentry], heights[sentry], height)
        return jnp.where(columns[1] < height, columns[0], jnp.inf)

    def update(self, state: FrontState, picked: Any, chunk: Chunk) -> FrontState:
        """Compare all points with a coarse front, and those that pass with the front."""

        def look(state: FrontState, packed: list[Any]) -> FrontState:
            first = chunk.masked(packed[0].real, jnp.inf)

            def lowest_of_steps() -> Any:
                known = jnp.concatenate([chunk.hint, state.values], axis=1)
                second = jnp.where(first < jnp.inf, packed[0].imag, jnp.inf)
                return jnp.where(self.below_steps(known, [first, second], own=True), first, jnp.inf)

            return over_rows([first, *packed], sort, state, lowest_of_steps if len(picked) == 2 else None)

        def sort(state: FrontState, chosen: list[Any], numbers: Any) -> FrontState:
            first, *packed = chosen
            some = [part for one in packed for part in ((one.real, one.imag) if jnp.iscomplexobj(one) else (one,))]
            some = [first, *(jnp.where(first < jnp.inf, column, jnp.inf) for column in some[1:])]
            numbers = chunk.places(numbers)

            def insert(carry: tuple[FrontState, Any]) -> tuple[FrontState, Any]:
                state, waiting = carry
                taken = jnp.nonzero(waiting, size=ROW, fill_value=waiting.size)[0]
                values = jnp.stack([column.at[taken].get(mode="fill", fill_value=jnp.inf) for column in some])
                places = numbers.at[taken].get(mode="fill", fill_value=0)
                fresh = FrontState(values, jnp.full(ROW, chunk.number, jnp.int32), places, jnp.zeros((), jnp.int32))
                return join(state, fresh, self.capacity, jnp), waiting.at[taken].set(False, mode="drop")

            waiting = self.passing(state, chunk.hint, some)
            return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), insert, (state, waiting))[0]

        # Complex numbers halve the arrays, for each of which XLA would evaluate the model.
        columns = [self.first_look(state, chunk.hint, picked), *picked[1:]]
        pairs = [jax.lax.complex(*columns[place : place + 2]) for place in range(0, len(columns) - 1, 2)]
        packed = jax.lax.optimization_barrier(pairs + columns[2 * len(pairs) :])
        return if_any(jnp.min(packed[0].real) < jnp.inf, look, state, packed)

    def merge(self, first: FrontState, second: FrontState) -> FrontState:
        """The front of both."""
        joined = merge_fronts(_found(first), _found(second), self.capacity)
        missing = self.capacity - joined.values.shape[1]
        values = np.pad(joined.values, ((0, 0), (0, missing)), constant_values=np.inf)
        return FrontState(values, np.pad(joined.chunk, (0, missing)), np.pad(joined.place, (0, missing)), joined.lost)

    def result(self, state: FrontState, grid: Grid) -> None:
        """Nothing besides the points."""

    def kept_points(self, state: FrontState, grid: Grid) -> KeptPoints:
        """The points of the front; a warning where it was too small."""
        lost = int(state.lost)
        warning = f"The front has more than {self.capacity:,} points; {lost:,} were lost. Raise capacity."
        return KeptPoints(Points(state.values[0], state.chunk, state.place).indices(grid), warning if lost else "")

    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """The efficient ones, by the first objective."""
        return efficient([outputs[name] for name in self.objectives])


def _found(state: FrontState) -> FrontState:
    """A state without the room that is left; comparing all that is empty would take longer than many a tile."""
    values = np.asarray(state.values)
    found = values[0] < np.inf
    return FrontState(values[:, found], np.asarray(state.chunk)[found], np.asarray(state.place)[found], state.lost)


def spread(front: Any, count: int) -> Any:
    """So many points of a front, spread evenly over it; infinite where it has none."""
    found = jnp.sum(front[0] < jnp.inf)
    return front[:, (jnp.arange(count) * found) // count]


def below(columns: Sequence[Any], sentries: Any) -> Any:
    """Which points none of the sentries dominates, nor equals."""
    passing = columns[0] < jnp.inf
    for sentry in range(sentries.shape[1]):
        covered = [sentries[row, sentry] <= column for row, column in enumerate(columns)]
        passing = passing & ~functools.reduce(jnp.logical_and, covered)
    return passing


def _covered(points: Any, others: Any, xp: Any, *, strictly: bool) -> Any:
    """Whether one of the others is at least as good as a point in all respects; if `strictly`, better in one."""
    # Objective after objective, and reduced over the first axis: XLA for CPU vectorizes that.
    pairs = [(other[:, None], point[None, :]) for other, point in zip(others, points, strict=True)]
    verdict = functools.reduce(xp.logical_and, (other <= point for other, point in pairs))
    if strictly:
        verdict = verdict & functools.reduce(xp.logical_or, (other < point for other, point in pairs))
    return xp.any(verdict, axis=0)


def join(front: FrontState, fresh: FrontState, capacity: int, xp: Any) -> FrontState:
    """The front with further points, ordered by the first objective; of equal points the first stays.

    Points of `front` do not dominate each other; those of `fresh` may.
    """
    old, new = front.values, fresh.values
    numbers = xp.arange(new.shape[1])
    twins = xp.all(new[:, :, None] == new[:, None, :], axis=0) & (numbers[:, None] < numbers[None, :])
    lost_new = _covered(new, old, xp, strictly=False) | ~(new[0] < xp.inf)
    lost_new = lost_new | _covered(new, new, xp, strictly=True) | xp.any(twins, axis=0)
    lost_old = _covered(old, new, xp, strictly=True) | ~(old[0] < xp.inf)
    gone = xp.concatenate([lost_old, lost_new])
    alive = xp.where(gone[None, :], xp.inf, xp.concatenate([old, new], axis=1))
    kept = xp.argsort(alive[0], stable=True)[:capacity]
    too_many = xp.maximum(xp.sum(~gone) - capacity, 0).astype(xp.int32)
    return FrontState(
        alive[:, kept],
        xp.concatenate([front.chunk, fresh.chunk])[kept],
        xp.concatenate([front.place, fresh.place])[kept],
        front.lost + fresh.lost + too_many,
    )


def merge_fronts(first: FrontState, second: FrontState, capacity: int) -> FrontState:
    """The front of two, as `join` has it; of two objectives by sorting, which takes milliseconds less."""
    if len(first.values) != 2:
        return join(first, second, capacity, np)
    x, y = np.concatenate([first.values, second.values], axis=1)
    order = np.lexsort((y, x))
    lowest = np.minimum.accumulate(y[order])
    kept = order[y[order] < np.concatenate([[np.inf], lowest[:-1]])]
    return FrontState(
        np.stack([x, y])[:, kept[:capacity]],
        np.concatenate([first.chunk, second.chunk])[kept[:capacity]],
        np.concatenate([first.place, second.place])[kept[:capacity]],
        first.lost + second.lost + np.int32(max(len(kept) - capacity, 0)),
    )


def efficient(columns: Sequence[np.ndarray]) -> list[int]:
    """Places of points that none dominates, by the first column; of equal points the first."""
    values = np.stack([np.asarray(column, np.float64) for column in columns])
    order = np.lexsort(values[::-1])
    found: list[int] = []
    for place in order:
        point = values[:, place]
        if not np.any(np.all(values[:, found] <= point[:, None], axis=0)):
            found.append(int(place))
    return found
