"""Numbers of the points within the limits, and distributions of their outputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from energymodel.sweeps.axes import Range
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import GridSample, feasible, output_of
from energymodel.sweeps.reductions import AbstractSum, Chunk, wide

BINS = 1024
NUMBER_BITS = 31
"""Bits that hold the bins of several outputs of a point."""
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@register_dataclass
@dataclass(frozen=True)
class Count(AbstractSum):
    """How many points obey the limits."""

    limits: Mapping[str, Range] = field(default_factory=dict)

    def pick(self, outputs: Any) -> Any:
        """Whether the point obeys them."""
        return jnp.asarray(feasible(outputs, self.limits))

    def init(self, grid: Grid) -> Any:
        """None yet."""
        return jnp.zeros((), jnp.int32)

    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """Add those of the chunk."""
        return state + jnp.sum(chunk.masked(picked, False), dtype=jnp.int32)

    def result(self, state: Any, grid: Grid) -> int:
        """The number."""
        return int(state)


@dataclass(frozen=True)
class BinCounts:
    """Counts of an output between edges, and of points below the first and above the last one."""

    edges: np.ndarray
    counts: np.ndarray
    below: int
    above: int

    @classmethod
    def of(cls, counts: np.ndarray, span: Range) -> "BinCounts":
        """From counts by `bin_numbers`."""
        spaced = np.geomspace if span[0] > 0.0 else np.linspace
        return cls(spaced(*span, len(counts) - 1), counts[1:-1], int(counts[0]), int(counts[-1]))

    def quantile(self, share: float) -> float:
        """Value below which a share of the points lies, exact to the width of a bin."""
        cumulative = np.concatenate([[self.below], self.below + np.cumsum(self.counts)])
        return float(np.interp(share * (cumulative[-1] + self.above), cumulative, self.edges))


def quantiles(counts: BinCounts, shares: Sequence[float] = SHARES) -> dict[float, float]:
    """Quantiles by share of the points."""
    return {share: counts.quantile(share) for share in shares}


def bin_numbers(values: Any, low: Any, high: Any, bins: int) -> Any:
    """Number of the bin of each value: 0 below `low`, 1 to `bins`, `bins + 1` above `high`.

    Bins are equal in the value, or in its logarithm where `low` is positive. NaN has no bin: mask it.
    """
    low, high = jnp.asarray(low, values.dtype), jnp.asarray(high, values.dtype)
    logarithmic, positive = low > 0.0, values > 0.0
    low, high = (jnp.where(logarithmic, jnp.log(jnp.where(logarithmic, end, 1.0)), end) for end in (low, high))
    scaled = jnp.where(logarithmic, jnp.log(jnp.where(positive, values, 1.0)), values)
    number = jnp.floor((scaled - low) * (bins / (high - low)))
    number = jnp.where(logarithmic & ~positive, -1.0, number)  # no logarithm: it lies below
    return jnp.clip(number, -1.0, float(bins)).astype(jnp.int32) + 1


@register_dataclass
@dataclass(frozen=True)
class Histogram(AbstractSum):
    """Counts of outputs in bins, over the points within the limits; `result` is `{output: summary(BinCounts)}`.

    Bins are equal in the output, or in its logarithm where the range is positive. `spans` are the ranges, taken from a
    sample of the grid unless given; what lies beyond is counted apart.
    """

    outputs: Sequence[str]
    limits: Mapping[str, Range] = field(default_factory=dict)
    bins: int = BINS
    spans: Mapping[str, Range] = field(default_factory=dict)
    summary: Callable[[BinCounts], Any] = lambda counts: counts

    def scaled_to(self, sample: GridSample) -> "Histogram":
        """With ranges."""
        return replace(self, spans=self.spans or {name: sample.range(name, self.limits) for name in self.outputs})

    def pick(self, outputs: Any) -> Any:
        """The outputs, NaN where a limit is broken."""
        permitted = feasible(outputs, self.limits)
        return {name: jnp.where(permitted, output_of(outputs, name), jnp.nan) for name in self.outputs}

    def init(self, grid: Grid) -> dict[str, Any]:
        """Empty bins; one below, one above."""
        return {name: jnp.zeros(self.bins + 2, jnp.int32) for name in self.outputs}

    def update(self, state: dict[str, Any], picked: dict[str, Any], chunk: Chunk) -> dict[str, Any]:
        """Count the points of a chunk."""
        missing, width = self.bins + 2, (self.bins + 2).bit_length()
        names, together, updated = list(picked), max(1, NUMBER_BITS // width), {}
        for group in (names[first : first + together] for first in range(0, len(names), together)):
            packed: Any = 0
            for position, name in enumerate(group):
                number = bin_numbers(picked[name], *self.spans[name], self.bins)
                number = chunk.masked(jnp.where(jnp.isnan(picked[name]), missing, number), missing)
                packed = packed | (number << (position * width))
            # XLA evaluates the model once for each array that a loop reads, and without a barrier point by point in it.
            packed = jax.lax.optimization_barrier(packed).reshape(-1)
            for position, name in enumerate(group):
                number = (packed >> (position * width)) & (2**width - 1)
                updated[name] = state[name].at[number].add(1, mode="drop")
        return updated

    def result(self, state: Any, grid: Grid) -> dict[str, Any]:
        """Counts with their edges, or what is asked of them."""
        return {name: self.summary(BinCounts.of(wide(state[name]), self.spans[name])) for name in self.outputs}
