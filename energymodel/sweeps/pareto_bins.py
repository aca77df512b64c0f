"""Which points of a grid have the lowest of one output in each step of another? A front as fine as its steps."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.best_points import Points, lower
from energymodel.sweeps.feasibility import Range, feasible_values
from energymodel.sweeps.float32_functions import in_order, inverse_rough_log2, ordered_bits, rough_log2
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.grid_sample import GridSample
from energymodel.sweeps.pareto_points import efficient
from energymodel.sweeps.passing_rows import if_any, over_rows
from energymodel.sweeps.reductions import AbstractPointReduction, AbstractScaledReduction, Chunk, KeptPoints

BINS = 256
DROPPED_BITS = 9
LEVELS = 2 ** (32 - DROPPED_BITS)
"""Values of a number without its last bits."""
LAST = np.int32(2**31 - 1)
SENTRIES = 8
"""Steps of the staircase that every point is compared with first; only those that pass are sorted into bins."""
ROUNDING = 1e-4
"""Bound on the rounding of `rough_log2`."""


@dataclasses.dataclass(frozen=True)
class ParetoBins(AbstractPointReduction, AbstractScaledReduction):
    """The point of lowest `second` objective in each of about equal steps of the logarithm of the `first`.

    A front as fine as its bins, at little cost; the second objective is compared to 14 bits of its mantissa.
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
        """Both objectives, infinite where a limit is broken."""
        return feasible_values(outputs, (self.first, self.second), self.limits)

    def init(self, grid: Grid) -> Points:
        """Empty bins."""
        none = jnp.zeros(self.bins, jnp.int32)
        return Points(jnp.full(self.bins, level_of(jnp.inf)), none, none)

    def hint(self, state: Points) -> np.ndarray:
        """Levels that a point has to stay below to matter: those of points found, and of the bins below."""
        highest = np.asarray(level_of(np.inf))
        levels = np.asarray(state.value)
        below = np.concatenate([highest[None], np.minimum.accumulate(levels)[:-1]])
        # A point of the same bin and level may be the first of the grid.
        return np.minimum(below, np.minimum(levels + 1, highest)).astype(np.int32)

    def bin_of(self, x: Any) -> Any:
        """Bin of a value of the first objective."""
        low, rate = self._scale()
        place = (rough_log2(jnp.asarray(x, jnp.float32)) - low) * rate
        return jnp.clip(place, 0.0, self.bins - 1.0).astype(jnp.int32)

    def _scale(self) -> tuple[Any, Any]:
        """Rough logarithm of the lowest value, and bins per unit of it."""
        assert self.span is not None
        low, high = map(rough_log2, map(np.float32, self.span))
        return low, self.bins / (high - low)

    def edges(self) -> np.ndarray:
        """Values of the first objective from which on no point lies in a lower bin, whatever the rounding."""
        with jax.ensure_compile_time_eval():
            low, rate = map(np.float64, self._scale())
        found = inverse_rough_log2(low + np.arange(self.bins) / rate + ROUNDING)
        return np.concatenate([[-np.inf], found[1:]])

    def level(self, x: Any, y: Any) -> Any:
        """Level of the second objective, the highest where the first is infinite."""
        return jnp.where(x < jnp.inf, level_of(y), level_of(jnp.inf))

    def update(self, state: Points, picked: Any, chunk: Chunk) -> Points:
        """Sort into the bins the rows of points that improve on the staircase so far."""
        x, y = picked
        bound = jnp.minimum(state.value, chunk.hint)
        staircase = jax.lax.cummin(bound)
        # A table by bin would keep the model out of vector registers. The staircase falls, so a few of its steps,
        # spread evenly over its falls, decide on nearly all points.
        falls = jnp.cumsum(jnp.diff(staircase, prepend=staircase[:1]) != 0)
        spread = jnp.searchsorted(falls, (jnp.arange(SENTRIES) * (falls[-1] + 1)) // SENTRIES)
        starts = jnp.asarray(self.edges(), x.dtype)[spread]
        heights = value_of(staircase[spread]).astype(y.dtype)
        height = heights[0]
        for sentry in range(1, SENTRIES):
            height = jnp.where(x >= starts[sentry], heights[sentry], height)

        def look(state: Points, both: Any) -> Points:
            x = chunk.masked(both.real, jnp.inf)

            def lowest_of_bins() -> Any:
                # Without a barrier bins and levels are computed in the loops that read them, point by point.
                bins, levels = jax.lax.optimization_barrier((self.bin_of(x), self.level(x, both.imag)))
                lowest = bound.at[bins].min(levels).at[bins].get(mode="promise_in_bounds")
                return jnp.where(levels <= lowest, x, jnp.inf)

            return over_rows([x, both], sort, state, lowest_of_bins)

        def sort(state: Points, chosen: list[Any], numbers: Any) -> Points:
            x, numbers = chosen[0], chunk.places(numbers)
            bins, values = self.bin_of(x), self.level(x, chosen[1].imag)

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
            bound = jnp.minimum(state.value, chunk.hint)
            improves = jnp.any(values < jax.lax.cummin(bound)[bins])
            return jax.lax.cond(improves, better, lambda _: state, None)

        # One complex number instead of two arrays, for each of which XLA would evaluate the model.
        both = jax.lax.optimization_barrier(jax.lax.complex(jnp.where(y < height, x, jnp.inf), y))
        return if_any(jnp.min(both.real) < jnp.inf, look, state, both)

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


def level_of(value: Any) -> Any:
    """An integer below `LEVELS` that orders like a number, to 14 bits of its mantissa."""
    return (ordered_bits(value) >> DROPPED_BITS) + LEVELS // 2


def value_of(level: Any) -> Any:
    """The lowest float32 number of a level."""
    return jax.lax.bitcast_convert_type(in_order((level - LEVELS // 2) << DROPPED_BITS), jnp.float32)
