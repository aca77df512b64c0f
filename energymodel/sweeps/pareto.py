"""Pareto fronts of a grid: exact, or as fine as steps of the first objective.

Every point is compared with a few sentries of the front so far; rows that hold a point which passes, with a staircase
of the front; and the points that pass that, with the whole front.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.search.result import efficient as undominated
from energymodel.sweeps.best_points import Points
from energymodel.sweeps.feasibility import Range, feasible_values
from energymodel.sweeps.float32_functions import in_order, inverse_rough_log2, ordered_bits, rough_log2
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.grid_sample import GridSample
from energymodel.sweeps.reductions import AbstractPointReduction, Chunk, PointIndices, float_dtype

CAPACITY = 1024
STEPS = 512  # of the coarse look at a front of two objectives
SENTRIES, BIN_SENTRIES = 16, 8
"""Points of a front that every point is compared with first; only those that pass are compared with all."""
GUARDS = 64
"""Points of the front of a sample of the grid, which every tile knows."""
BINS = 256
DROPPED_BITS = 9
"""Last bits of the second objective that bins ignore: 14 bits of the mantissa stay."""
ROUNDING = 1e-4
"""Bound on the rounding of `rough_log2`."""
ROW, GROUP = 128, 32
"""Points in a row, and rows that are looked at together."""
MANY = 64
"""Rows from which on it pays to look at all points of a chunk at once."""


class FrontState(NamedTuple):
    """Points that none dominates: objectives in columns, infinite beyond the last; how many did not find room."""

    values: Any
    chunk: Any
    position: Any
    lost: Any


@dataclasses.dataclass(frozen=True)
class Pareto(AbstractPointReduction):
    """Every point that no other point dominates, exactly, for two and more objectives.

    Of points with equal objectives the first one is kept. `capacity` bounds the front; a larger one says so. `span` is
    the range of the first of two objectives, taken from a sample of the grid unless given; it changes only the speed.
    """

    objectives: Sequence[str]
    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    capacity: int = CAPACITY
    span: Range | None = None
    takes_padding: ClassVar[bool] = True
    has_numbers: ClassVar[bool] = True
    sentries: ClassVar[int] = SENTRIES

    def scaled_to(self, sample: GridSample) -> "Pareto":
        """With the range of the first of two objectives."""
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

    def rounded(self, columns: Sequence[Any]) -> Sequence[Any]:
        """The objectives as they are compared, at the points that pass a first look."""
        return columns

    def starts(self, x: Any) -> Any:
        """Values of the first of two objectives beyond which all are at least the rounded ones."""
        return x

    def step_of(self, x: Any) -> Any:
        """Step of a value of the first of two objectives; never lower for a higher value, to the last bit.

        Equal steps of the bits of a positive number are about equal ratios.
        """
        assert self.span is not None
        low, high, x = (ordered_bits(number).astype(jnp.float32) for number in (*self.span, x))
        step = (x - low) * (STEPS / jnp.maximum(high - low, 1.0))
        return jnp.clip(step, 0.0, STEPS - 1.0).astype(jnp.int32)

    def below_steps(self, points: Any, columns: Sequence[Any], own: bool = False) -> Any:
        """Which points, by two objectives, are lower than all `points` of the steps below, and their `own`."""
        highest = jnp.full(STEPS, jnp.inf, columns[1].dtype)
        # Without a barrier the steps are computed in the loops that read them, point by point.
        steps = jax.lax.optimization_barrier(self.step_of(columns[0]))
        lowest = highest.at[self.step_of(points[0])].min(points[1])
        if own:
            lowest = lowest.at[steps].min(columns[1])
        before = jnp.concatenate([highest[:1], jax.lax.cummin(lowest)[:-1]])
        return columns[1] < before.at[steps].get(mode="promise_in_bounds")

    def hint(self, state: FrontState) -> np.ndarray:
        """Points a little worse than some of the front, so that they dominate no point of it."""
        values = np.asarray(state.values)
        count = np.sum(values[0] < np.inf)
        return np.nextafter(values[:, (np.arange(GUARDS) * count) // GUARDS], values.dtype.type(np.inf))

    def first_look(self, state: FrontState, guards: Any, columns: Sequence[Any]) -> Any:
        """The first objective, infinite where one of a few sentries dominates the point, or where it is infinite."""
        if len(columns) > 2:
            few = jnp.concatenate([spread(guards, self.sentries), spread(state.values, self.sentries)], axis=1)
            return jnp.where(below(columns, few), columns[0], jnp.inf)
        points = jnp.concatenate([guards, state.values], axis=1)
        some = [spread(front, self.sentries)[0] for front in (guards, state.values)]
        starts = jnp.where(guards[0, 0] < jnp.inf, *some)
        heights = jnp.min(jnp.where(points[0] <= starts[:, None], points[1], jnp.inf), axis=1)
        starts, heights = jax.lax.optimization_barrier((self.starts(starts), heights))
        height = jnp.asarray(jnp.inf, columns[1].dtype)
        for sentry in range(self.sentries):
            height = jnp.where(columns[0] > starts[sentry], heights[sentry], height)
        return jnp.where(columns[1] < height, columns[0], jnp.inf)

    def update(self, state: FrontState, picked: Any, chunk: Chunk) -> FrontState:
        """Compare all points with a coarse front, and those that pass with the front."""

        def look(state: FrontState, packed: list[Any]) -> FrontState:
            first = chunk.masked(packed[0].real, jnp.inf)

            def lowest_of_steps() -> Any:
                points = jnp.concatenate([chunk.hint, state.values], axis=1)
                columns = self.rounded([first, jnp.where(first < jnp.inf, packed[0].imag, jnp.inf)])
                return jnp.where(self.below_steps(points, columns, own=True), first, jnp.inf)

            return over_rows([first, *packed], sort, state, lowest_of_steps if len(picked) == 2 else None)

        def sort(state: FrontState, chosen: list[Any], numbers: Any) -> FrontState:
            first, *packed = chosen
            columns = [
                part for pair in packed for part in ((pair.real, pair.imag) if jnp.iscomplexobj(pair) else (pair,))
            ]
            columns = self.rounded([first, *(jnp.where(first < jnp.inf, column, jnp.inf) for column in columns[1:])])
            numbers = chunk.positions(numbers)

            def insert(carry: tuple[FrontState, Any]) -> tuple[FrontState, Any]:
                state, waiting = carry
                taken = jnp.nonzero(waiting, size=ROW, fill_value=waiting.size)[0]
                values = jnp.stack([column.at[taken].get(mode="fill", fill_value=jnp.inf) for column in columns])
                positions = numbers.at[taken].get(mode="fill", fill_value=0)
                fresh = FrontState(values, jnp.full(ROW, chunk.number, jnp.int32), positions, jnp.zeros((), jnp.int32))
                return join(state, fresh, self.capacity), waiting.at[taken].set(False, mode="drop")

            if len(columns) == 2:
                waiting = self.below_steps(jnp.concatenate([chunk.hint, state.values], axis=1), columns)
            else:
                waiting = below(columns, jnp.concatenate([chunk.hint, spread(state.values, GUARDS)], axis=1))
            return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), insert, (state, waiting))[0]

        # Complex numbers halve the arrays, for each of which XLA would evaluate the model.
        columns = [self.first_look(state, chunk.hint, picked), *picked[1:]]
        pairs = [jax.lax.complex(*columns[first : first + 2]) for first in range(0, len(columns) - 1, 2)]
        packed = jax.lax.optimization_barrier(pairs + columns[2 * len(pairs) :])
        return if_any(jnp.min(packed[0].real) < jnp.inf, look, state, packed)

    def merge(self, first: FrontState, second: FrontState) -> FrontState:
        """The front of both."""
        pairs = zip(first[:3], second[:3], strict=True)
        values, chunk, position = (np.concatenate([*map(np.asarray, pair)], axis=-1) for pair in pairs)
        filled = np.flatnonzero(values[0] < np.inf)
        rows = filled[efficient(values[:, filled])]
        lost = first.lost + second.lost + np.int32(max(len(rows) - self.capacity, 0))
        rows = rows[: self.capacity]
        missing = self.capacity - len(rows)
        return FrontState(
            np.pad(values[:, rows], ((0, 0), (0, missing)), constant_values=np.inf),
            np.pad(chunk[rows], (0, missing)),
            np.pad(position[rows], (0, missing)),
            lost,
        )

    def kept_points(self, state: FrontState, grid: Grid) -> PointIndices:
        """The points of the front; a warning where it was too small."""
        lost = int(state.lost)
        warning = f"The front has more than {self.capacity:,} points; {lost:,} were lost. Raise capacity."
        return PointIndices(Points(state.values[0], state.chunk, state.position).indices(grid), warning if lost else "")

    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """The efficient ones, by the first objective."""
        return efficient([outputs[name] for name in self.objectives])


@dataclasses.dataclass(frozen=True)
class ParetoBins(Pareto):
    """The point of lowest second objective in each of about equal steps of the logarithm of the first.

    A front as fine as its bins, at little cost; the second objective is compared to 14 bits of its mantissa. Points
    beyond `span` fall into the end bins. The front is that of the numbers of bins.
    """

    capacity: int = BINS
    sentries: ClassVar[int] = BIN_SENTRIES

    def scaled_to(self, sample: GridSample) -> "ParetoBins":
        """With the range of the first objective.

        **Raises:** `InputError` for too many bins, or an output that is not positive.
        """
        if not 0 < self.capacity <= BINS:
            raise InputError(f"bins: {self.capacity} is not between 1 and {BINS}.")
        low, high = self.span or sample.range(self.objectives[0], self.limits)
        if low <= 0.0:
            raise InputError(
                f"keep: {self.objectives[0]} is not positive on all of a sample, so it has no logarithmic bins. "
                "Use pareto."
            )
        return dataclasses.replace(self, span=(low, high))

    def rounded(self, columns: Sequence[Any]) -> Sequence[Any]:
        """Number of the bin, and the second objective without its last bits; infinite where the first is."""
        x, y = columns
        level = jax.lax.bitcast_convert_type(in_order(ordered_bits(y) & -(2**DROPPED_BITS)), jnp.float32)
        level = jnp.where(x < jnp.inf, level.astype(float_dtype()), jnp.inf)
        # Without a barrier both are computed in the loops that read them, point by point.
        return jax.lax.optimization_barrier((jnp.where(x < jnp.inf, self.bin_of(x), jnp.inf), level))

    def _scale(self) -> tuple[Any, Any]:
        """Rough logarithm of the lowest value, and bins per unit of it."""
        assert self.span is not None
        low, high = (rough_log2(jnp.asarray(end, jnp.float32)) for end in self.span)
        return low, self.capacity / (high - low)

    def bin_of(self, x: Any) -> Any:
        """Number of the bin of a value of the first objective."""
        low, rate = self._scale()
        step = (rough_log2(jnp.asarray(x, jnp.float32)) - low) * rate
        return jnp.floor(jnp.clip(step, 0.0, self.capacity - 1.0)).astype(float_dtype())

    def starts(self, x: Any) -> Any:
        """Values of the first objective from which on no point lies in a lower bin than x, whatever the rounding."""
        low, rate = self._scale()
        edges = inverse_rough_log2(low + jnp.arange(self.capacity, dtype=jnp.float32) / rate + ROUNDING)
        edges = jnp.where(jnp.arange(self.capacity) > 0, edges.astype(float_dtype()), -jnp.inf)
        return jnp.where(x < jnp.inf, edges[self.step_of(x)], jnp.inf)

    def hint(self, state: FrontState) -> np.ndarray:
        """Points of the front one level worse: a point of the same bin and level may be the first of the grid."""
        values = np.array(state.values)
        filled = values[0] < np.inf
        bits = in_order(values[1, filled].astype(np.float32).view(np.int32)) + np.int32(2**DROPPED_BITS)
        values[1, filled] = in_order(bits).view(np.float32)
        return values

    def step_of(self, x: Any) -> Any:
        """The bin itself."""
        return jnp.minimum(x, self.capacity - 1.0).astype(jnp.int32)

    def below_steps(self, points: Any, columns: Sequence[Any], own: bool = False) -> Any:
        """Which points are lower than all `points` up to their bins, and the lowest of them."""
        steps = jax.lax.optimization_barrier(self.step_of(columns[0]))
        bins = jnp.full(self.capacity, jnp.inf, columns[1].dtype).at[self.step_of(points[0])].min(points[1])
        passing = columns[1] < jax.lax.cummin(bins).at[steps].get(mode="promise_in_bounds")
        if own:
            bins = bins.at[steps].min(columns[1])
            passing = passing & (columns[1] <= bins.at[steps].get(mode="promise_in_bounds"))
        return passing


def if_any(some: Any, look: Callable[[Any, Any], Any], state: Any, columns: Any) -> Any:
    """The state after a look at the columns of a chunk if there is `some` point to look at, else the state.

    A loop of at most one turn updates the state in place, where a branch would copy it for every chunk.
    """

    def turn(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        again, state, columns = carry
        again, seen = jax.lax.optimization_barrier((again, columns))  # else XLA moves the look out of the loop
        return again & False, look(state, seen), columns

    return jax.lax.while_loop(lambda carry: carry[0], turn, (some, state, columns))[1]


def over_rows(
    columns: Sequence[Any],
    sort: Callable[[Any, list[Any], Any], Any],
    state: Any,
    narrow: Callable[[], Any] | None = None,
) -> Any:
    """Give `sort` the state and the points of rows in which one passes, group after group, with their numbers.

    `columns` have the shape of the chunk; the first one is infinite where a point does not pass. Where many rows have
    one that does, `narrow` makes more of that column infinite, after a look at all points.
    """
    # XLA for CPU vectorizes loops over the shape of the chunk, but not those that compute a reshaped result.
    first, *others = jax.lax.optimization_barrier(list(columns))

    def passing(column: Any) -> Any:
        return jnp.min(in_rows(column), axis=-1) < jnp.inf

    rows = passing(first)
    if narrow is not None:
        many = jnp.sum(rows) > MANY
        rows = jax.lax.cond(many, lambda: passing(jax.lax.optimization_barrier(narrow())), lambda: rows)
    first, others = in_rows(first), [in_rows(other) for other in others]
    count, width = first.shape
    order = jnp.nonzero(rows, size=count + -count % GROUP, fill_value=count)[0].astype(jnp.int32)

    def group(number: Any, state: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(order, number * GROUP, GROUP)
        taken = jnp.minimum(chosen, count - 1)
        numbers = taken[:, None] * width + jnp.arange(width, dtype=jnp.int32)
        points = [jnp.where((chosen < count)[:, None], first[taken], jnp.inf), *(other[taken] for other in others)]
        return sort(state, [column.reshape(-1) for column in points], numbers.reshape(-1))

    groups = (jnp.sum(rows, dtype=jnp.int32) + (GROUP - 1)) // GROUP
    return jax.lax.fori_loop(0, groups, group, state)


def in_rows(values: Any) -> Any:
    """Points of a chunk in rows of about `ROW`; filled up with infinities only where the points do not divide."""
    flat = values.reshape(-1)
    width = next((width for width in range(ROW, ROW // 8, -1) if flat.size % width == 0), 0)
    if width:
        return flat.reshape(-1, width)
    return jnp.concatenate([flat, jnp.full(-flat.size % ROW, jnp.inf, flat.dtype)]).reshape(-1, ROW)


def spread(points: Any, count: int) -> Any:
    """So many points of a front, spread evenly over it; infinite where it has none."""
    filled = jnp.sum(points[0] < jnp.inf)
    return points[:, (jnp.arange(count) * filled) // count]


def below(columns: Sequence[Any], sentries: Any) -> Any:
    """Which points none of the sentries dominates, nor equals."""
    passing = columns[0] < jnp.inf
    for sentry in range(sentries.shape[1]):
        covered = [sentries[row, sentry] <= column for row, column in enumerate(columns)]
        passing = passing & ~functools.reduce(jnp.logical_and, covered)
    return passing


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
