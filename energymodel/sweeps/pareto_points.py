"""Which points of a grid cannot be improved in one respect without giving up another?

`Pareto` keeps them exactly; `ParetoBins` keeps a coarser front that costs less.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.best_points import Points, lower
from energymodel.sweeps.feasibility import Range, feasible_values
from energymodel.sweeps.float32_functions import rough_log2
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.grid_sample import GridSample
from energymodel.sweeps.reductions import (
    AbstractPointReduction,
    AbstractScaledReduction,
    Chunk,
    KeptPoints,
    float_dtype,
)

BINS = 256
DROPPED_BITS = 9
LEVEL_BITS = 23
LEVELS = 2**LEVEL_BITS
"""Values of a number without its last bits; with the bin it makes an integer of 32 bits, so there are 256 bins."""
CAPACITY = 1024
STEPS = 512  # of the coarse look at a front of two objectives
ROW = 128
GROUP = 16
"""Points in a row, and rows that are sorted in together, where a point may improve a front."""
LAST = np.int32(2**31 - 1)
SENTRIES, SENTRIES_OF_TWO = 32, 8
"""Points of a front that every point is compared with first; only those that pass are compared with all."""


@dataclasses.dataclass(frozen=True)
class ParetoBins(AbstractPointReduction, AbstractScaledReduction):
    """The point of lowest `second` objective in each of about equal steps of the logarithm of the `first`.

    A front as fine as its bins, at little cost: bin and second objective share one number, the latter to 14 bits.
    `span` is the range of the first objective, taken from a sample of the grid unless given; points beyond it fall
    into the end bins.
    """

    first: str
    second: str
    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    bins: int = BINS
    span: Range | None = None
    takes_padding: ClassVar[bool] = True

    def scaled_to(self, sample: GridSample) -> "ParetoBins":
        """With the range of the first objective.

        **Raises:** `InputError` for too many bins, or an output that is not positive.
        """
        if not 0 < self.bins <= BINS:
            raise InputError(f"bins: {self.bins} is not between 1 and {BINS}.")
        low, high = self.span or sample.range(self.first, self.limits)
        if low <= 0.0:
            raise InputError(
                f"keep: {self.first} is not positive on all of a sample, so it has no logarithmic bins. Use pareto."
            )
        return dataclasses.replace(self, span=(low, high))

    def pick(self, outputs: Any) -> Any:
        """Bin and second objective in one integer, which orders like the objective within a bin.

        With two arrays to read, XLA would evaluate the model once for each.
        """
        x, y = feasible_values(outputs, (self.first, self.second), self.limits)
        return self.bin_of(x) * LEVELS + level_of(y)

    def init(self, grid: Grid) -> Points:
        """Empty bins."""
        none = jnp.zeros(self.bins, jnp.int32)
        return Points(jnp.full(self.bins, level_of(jnp.inf)), none, none)

    def bin_of(self, x: Any) -> Any:
        """Bin of a value of the first objective."""
        assert self.span is not None
        low, high = map(rough_log2, map(np.float32, self.span))
        place = (rough_log2(jnp.asarray(x, jnp.float32)) - low) * (self.bins / (high - low))
        return jnp.clip(place, 0.0, self.bins - 1.0).astype(jnp.int32)

    def update(self, state: Points, picked: Any, chunk: Chunk) -> Points:
        """Sort into the bins the rows of points that improve on the staircase so far."""
        staircase = jax.lax.cummin(state.value)
        # A table by bin would keep the model out of vector registers; the staircase falls, so a few of its steps decide
        # on nearly all points.
        level, improves = picked & (LEVELS - 1), picked < LAST
        for sentry in range(0, self.bins, max(1, self.bins // SENTRIES_OF_TWO)):
            improves = improves & ((picked < sentry * LEVELS) | (level < staircase[sentry]))

        def look(keys: Any) -> Points:
            keys = _rows(chunk.masked(keys, LAST), LAST)
            return _over_rows(keys < LAST, functools.partial(sort, keys), state)

        def sort(keys: Any, state: Points, rows: Any, inside: Any) -> Points:
            chosen = jnp.where(inside, keys[rows], LAST).reshape(-1)
            bins, values = chosen >> LEVEL_BITS, chosen & (LEVELS - 1)
            numbers = chunk.places(_numbers(rows, keys.shape[-1]))

            def better(_: None) -> Points:
                lowest = state.value.at[bins].min(values)
                wins = (values == lowest[bins]) & (values < state.value[bins])
                first = jnp.full(self.bins, LAST).at[jnp.where(wins, bins, self.bins)].min(numbers, mode="drop")
                new = first < LAST
                return Points(
                    jnp.where(new, lowest, state.value),
                    jnp.where(new, jnp.asarray(chunk.number, jnp.int32), state.chunk),
                    jnp.where(new, first, state.place),
                )

            # Rows before these may already hold better points.
            improves = jnp.any(values < jax.lax.cummin(state.value)[bins])
            return jax.lax.cond(improves, better, lambda _: state, None)

        # What a branch takes is computed before it: once, and in the shape of the chunk, which keeps vector loops.
        keys = jnp.where(improves, picked, LAST)
        return jax.lax.cond(jnp.min(keys) < LAST, look, lambda _: state, keys)

    def merge(self, first: Points, second: Points) -> Points:
        """The lower of each bin."""
        return lower(first, second)

    def result(self, state: Points, grid: Grid) -> None:
        """Nothing besides the points."""

    def kept_points(self, state: Points, grid: Grid) -> KeptPoints:
        """The points of the staircase."""
        value = np.where(state.value < np.asarray(level_of(np.inf)), state.value, np.inf)
        before = np.concatenate([[np.inf], np.minimum.accumulate(value)[:-1]])
        steps = value < before
        return KeptPoints(Points(value[steps], state.chunk[steps], state.place[steps]).indices(grid))

    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """The efficient ones, by the first objective."""
        return efficient([outputs[self.first], outputs[self.second]])


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

    def passing(self, state: FrontState, columns: Sequence[Any]) -> Any:
        """Which points a coarse look at the front lets pass; the others are dominated, or twins of its points."""
        if len(columns) == 2:
            room = jnp.full(STEPS, jnp.inf, columns[1].dtype)
            lowest = jax.lax.cummin(room.at[self.step_of(state.values[0])].min(state.values[1]))
            before = jnp.concatenate([room[:1], lowest[:-1]])  # of the steps below
            return columns[1] < before.at[self.step_of(columns[0])].get(mode="promise_in_bounds")
        return self.below_sentries(state, columns)

    def below_sentries(self, state: FrontState, columns: Sequence[Any]) -> Any:
        """Which points no sentry dominates: sentries spread over the front, and those after its last stop nothing."""
        count = SENTRIES_OF_TWO if len(columns) == 2 else SENTRIES
        passing = columns[0] < jnp.inf
        found = jnp.sum(state.values[0] < jnp.inf)
        spread = (jnp.arange(count) * found) // count
        for sentry in range(count):
            below = [state.values[row, spread[sentry]] <= column for row, column in enumerate(columns)]
            passing = passing & ~functools.reduce(jnp.logical_and, below)
        return passing

    def update(self, state: FrontState, picked: Any, chunk: Chunk) -> FrontState:
        """Compare all points with a coarse front, and those that pass with the front."""

        def look(columns: list[Any]) -> FrontState:
            columns = [_rows(chunk.masked(column, jnp.inf)) for column in columns]
            return _over_rows(columns[0] < jnp.inf, functools.partial(sort, columns), state)

        def sort(columns: list[Any], state: FrontState, rows: Any, inside: Any) -> FrontState:
            some = [jnp.where(inside, column[rows], jnp.inf).reshape(-1) for column in columns]
            numbers = chunk.places(_numbers(rows, columns[0].shape[-1]))

            def insert(carry: tuple[FrontState, Any]) -> tuple[FrontState, Any]:
                state, waiting = carry
                taken = jnp.nonzero(waiting, size=ROW, fill_value=waiting.size)[0]
                values = jnp.stack([column.at[taken].get(mode="fill", fill_value=jnp.inf) for column in some])
                places = numbers.at[taken].get(mode="fill", fill_value=0)
                fresh = FrontState(values, jnp.full(ROW, chunk.number, jnp.int32), places, jnp.zeros((), jnp.int32))
                return join(state, fresh, self.capacity, jnp), waiting.at[taken].set(False, mode="drop")

            return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), insert, (state, self.passing(state, some)))[0]

        if len(picked) == 2:
            # One complex number instead of two arrays, for each of which XLA would evaluate the model.
            first, second = picked
            both = jax.lax.optimization_barrier(
                jax.lax.complex(jnp.where(self.below_sentries(state, picked), first, jnp.inf), second)
            )
            some = jnp.min(both.real) < jnp.inf
            return jax.lax.cond(some, lambda both: look([both.real, both.imag]), lambda _: state, both)
        return jax.lax.cond(jnp.min(picked[0]) < jnp.inf, look, lambda _: state, list(picked))

    def merge(self, first: FrontState, second: FrontState) -> FrontState:
        """The front of both."""
        return join(first, second, self.capacity, np)

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


def _covers(left: Any, right: Any, xp: Any, *, strictly: bool) -> Any:
    """Whether points of `left` are at least as good as points of `right`; if `strictly`, better in one respect."""
    above, below = left[:, :, None], right[:, None, :]
    verdict = xp.all(above <= below, axis=0)
    return verdict & xp.any(above < below, axis=0) if strictly else verdict


def join(front: FrontState, fresh: FrontState, capacity: int, xp: Any) -> FrontState:
    """The front with further points, ordered by the first objective; of equal points the first stays.

    Points of `front` do not dominate each other; those of `fresh` may.
    """
    old, new = front.values, fresh.values
    numbers = xp.arange(new.shape[1])
    twins = xp.all(new[:, :, None] == new[:, None, :], axis=0) & (numbers[:, None] < numbers[None, :])
    lost_new = xp.any(_covers(old, new, xp, strictly=False), axis=0) | ~(new[0] < xp.inf)
    lost_new = lost_new | xp.any(_covers(new, new, xp, strictly=True) | twins, axis=0)
    lost_old = xp.any(_covers(new, old, xp, strictly=True), axis=0) | ~(old[0] < xp.inf)
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


def _over_rows(passing: Any, sort: Callable[[Any, Any, Any], Any], state: Any) -> Any:
    """Give `sort` the rows with a point that passes, in groups; the last group has rows that are not inside."""
    rows = jnp.any(passing, axis=-1)
    count = rows.size
    order = jnp.nonzero(rows, size=count + -count % GROUP, fill_value=count)[0].astype(jnp.int32)

    def group(number: Any, state: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(order, number * GROUP, GROUP)
        return sort(state, jnp.minimum(chosen, count - 1), (chosen < count)[:, None])

    groups = (jnp.sum(rows, dtype=jnp.int32) + (GROUP - 1)) // GROUP
    return jax.lax.fori_loop(0, groups, group, state)


def in_order(bits: Any) -> Any:
    """Integers that order like the float32 numbers with these bits."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative numbers order the other way


def ordered_bits(value: Any) -> Any:
    """An integer that orders like a float32 number."""
    return in_order(jax.lax.bitcast_convert_type(jnp.asarray(value, jnp.float32), jnp.int32))


def level_of(value: Any) -> Any:
    """An integer below `LEVELS` that orders like a number, to 14 bits of its mantissa."""
    return (ordered_bits(value) >> DROPPED_BITS) + LEVELS // 2


def _rows(values: Any, missing: Any = jnp.inf) -> Any:
    """Points of a chunk in rows of about `ROW`; filled up with what is missing only where the points do not divide."""
    flat = values.reshape(-1)
    width = next((one for one in range(ROW, ROW // 8, -1) if flat.size % one == 0), 0)
    if width:  # a concatenation would keep the model from running in vector registers
        return flat.reshape(-1, width)
    return jnp.concatenate([flat, jnp.full(-flat.size % ROW, missing, flat.dtype)]).reshape(-1, ROW)


def _numbers(rows: Any, width: int) -> Any:
    """Places in the chunk of the points of some rows, flat."""
    return (rows[:, None] * width + jnp.arange(width, dtype=jnp.int32)).reshape(-1)


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
