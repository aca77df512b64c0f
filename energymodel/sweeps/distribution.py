"""How are the outputs of a grid distributed: histograms and quantiles?"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from energymodel.sweeps.grid import Grid
from energymodel.sweeps.reductions import AbstractReduction, Chunk, Range, Sampled, feasible, output_of

BINS = 1024
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of an output between edges, and of points below the first and above the last one."""

    edges: np.ndarray
    counts: np.ndarray
    below: int
    above: int

    def quantile(self, share: float) -> float:
        """Value below which a share of the points lies, exact to the width of a bin."""
        cumulative = np.concatenate([[self.below], self.below + np.cumsum(self.counts)])
        wanted = share * (cumulative[-1] + self.above)
        return float(np.interp(wanted, cumulative, self.edges))


@dataclasses.dataclass(frozen=True)
class Histogram(AbstractReduction):
    """Counts of outputs in bins, over the points within the limits; `result` is `{output: Counts}`.

    Bins are equal in the output, or in its logarithm where a sample of the grid is positive. `spans` are the ranges,
    taken from that sample unless given; what lies beyond is counted apart.
    """

    outputs: Sequence[str]
    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    bins: int = BINS
    spans: Mapping[str, Range] | None = None

    def prepare(self, sampled: Sampled) -> "Histogram":
        """Take the ranges from a sample."""
        if self.spans is not None:
            return self
        return dataclasses.replace(self, spans={name: sampled.range(name, self.limits) for name in self.outputs})

    def pick(self, outputs: Any) -> Any:
        """The outputs, NaN where a limit is broken."""
        permitted = feasible(outputs, self.limits)
        values = {name: jnp.asarray(output_of(outputs, name)) for name in self.outputs}
        return {name: jnp.where(permitted, value, jnp.nan) for name, value in values.items()}

    def init(self, grid: Grid) -> dict[str, Any]:
        """Empty bins; one below, one above."""
        return {name: jnp.zeros(self.bins + 2, jnp.int32) for name in self.outputs}

    def update(self, state: dict[str, Any], picked: dict[str, Any], chunk: Chunk) -> dict[str, Any]:
        """Count the points of a chunk."""
        return {name: self._count(state[name], name, picked[name], chunk) for name in state}

    def _count(self, counts: Any, name: str, values: Any, chunk: Chunk) -> Any:
        low, high = self.span(name)
        scaled = jnp.log(values) if self.logarithmic(name) else values
        low, high = (np.log(end) if self.logarithmic(name) else end for end in (low, high))
        place = jnp.floor((scaled - low) * (self.bins / (high - low)))
        # Zero and negative values of a positive output have no logarithm: they lie below.
        place = jnp.where(self.logarithmic(name) & (values <= 0), -1.0, place)
        number = jnp.clip(place, -1.0, float(self.bins)).astype(jnp.int32) + 1
        number = jnp.where(jnp.isnan(values), self.bins + 2, number)
        if chunk.valid is not None:
            number = jnp.where(chunk.valid, number, self.bins + 2)
        return counts.at[number.reshape(-1)].add(1, mode="drop")

    def span(self, name: str) -> Range:
        """Range of the bins of an output."""
        assert self.spans is not None
        return self.spans[name]

    def logarithmic(self, name: str) -> bool:
        """Whether bins are equal in the logarithm."""
        return self.span(name)[0] > 0.0

    def edges(self, name: str) -> np.ndarray:
        """Edges of the bins of an output."""
        low, high = self.span(name)
        return (np.geomspace if self.logarithmic(name) else np.linspace)(low, high, self.bins + 1)

    def start(self, state: Any) -> Any:
        """The same in 64 bits."""
        return {name: np.asarray(counts, np.int64) for name, counts in state.items()}

    def merge(self, first: Any, second: Any) -> Any:
        """Sums, in 64 bits."""
        return {name: first[name] + np.asarray(second[name], np.int64) for name in first}

    def result(self, state: Any, grid: Grid) -> dict[str, Counts]:
        """Counts with their edges."""
        return {
            name: Counts(self.edges(name), counts[1:-1], int(counts[0]), int(counts[-1]))
            for name, counts in state.items()
        }


@dataclasses.dataclass(frozen=True)
class Quantiles(Histogram):
    """Quantiles of outputs over the points within the limits, from a histogram: `{output: {share: value}}`."""

    shares: Sequence[float] = QUANTILES

    def result(self, state: Any, grid: Grid) -> Any:
        """Quantiles by output and share."""
        counted = super().result(state, grid)
        return {name: {share: one.quantile(share) for share in self.shares} for name, one in counted.items()}
