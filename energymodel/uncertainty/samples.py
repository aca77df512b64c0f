"""How are the outputs of random samples distributed, and how likely do they stay within limits?"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from energymodel.sweeps.distribution import Counts, Histogram
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.reductions import Chunk, Range, float_dtype, output_of
from energymodel.sweeps.reductions import Sampled as SampledGrid

GROUPS = 64
"""Groups of blocks, whose spread tells the errors of means and indices."""
LEVEL = 0.95
ALL = "all"
DRAWN = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
DEFINED = 0.999
"""Share of samples that have a finite output, below which its distribution is not to be trusted."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Distribution of an output over the samples, in SI.

    - `mean`, `deviation`: of the samples with a finite output; `error` is the standard error of the mean.
    - `quantiles`: by share of the samples, and `ranges` their 95 % intervals.
    - `undefined`: share of the samples without a finite output.
    """

    mean: float
    error: float
    deviation: float
    quantiles: Mapping[float, float]
    ranges: Mapping[float, Range]
    undefined: float


@dataclasses.dataclass(frozen=True)
class Chance:
    """Share of the samples within a limit, and its 95 % interval [Wilson 1927]."""

    share: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class SampleSummary:
    """What is known from samples: a `Spread` by output, a `Chance` by limit and for "all" of them."""

    count: int
    spreads: Mapping[str, Spread]
    chances: Mapping[str, Chance]
    counts: Mapping[str, Counts]


@dataclasses.dataclass(frozen=True)
class Samples(Histogram):
    """Distribution of outputs over the samples of a grid (block, lane), and how many obey each limit and all of them.

    Limits do not restrict the distributions. `centers` and `scales` keep sums in float32 accurate; a sample gives them.
    """

    shares: Sequence[float] = DRAWN
    centers: Sequence[float] = ()
    scales: Sequence[float] = ()
    alone: bool = False

    def prepare(self, sampled: SampledGrid) -> "Samples":
        """Take ranges, centers and scales from a sample."""
        spans = {name: sampled.range(name, {}) for name in self.outputs}
        moments = [sampled.moments(name) for name in self.outputs]
        centers, scales = ([pair[side] for pair in moments] for side in (0, 1))
        return dataclasses.replace(self, spans=self.spans or spans, centers=tuple(centers), scales=tuple(scales))

    def pick(self, outputs: Any) -> Any:
        """The outputs and whether each limit holds, as two vectors."""
        values = jnp.stack([jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs])
        holds = [_holds(output_of(outputs, name), ends) for name, ends in self.limits.items()]
        held = jnp.stack([*holds, jnp.all(jnp.stack(holds))]) if holds else jnp.ones(1, bool)
        return {"values": values, "held": held}

    def init(self, grid: Grid) -> Any:
        """Nothing yet."""
        count = len(self.outputs)
        return {
            "counts": jnp.zeros(count * (self.bins + 2), jnp.int32),
            "sums": jnp.zeros((GROUPS, count, 3), float_dtype()),
            "held": jnp.zeros(len(self.limits) + 1, jnp.int32),
            "samples": jnp.zeros((), jnp.int32),
        }

    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """Add the samples of a chunk."""
        values = picked["values"].reshape(-1, len(self.outputs))
        held = picked["held"].reshape(len(values), -1)
        finite = jnp.isfinite(values)
        logs = np.array([self.logarithmic(name) for name in self.outputs])
        ends = np.array([self.span(name) for name in self.outputs])
        low, high = np.where(logs[:, None], np.log(np.where(logs[:, None], ends, 1.0)), ends).T
        positive = finite & (values > 0.0)
        scaled = jnp.where(logs, jnp.log(jnp.where(positive, values, 1.0)), values)
        place = jnp.floor(
            (scaled - jnp.asarray(low, values.dtype)) * jnp.asarray(self.bins / (high - low), values.dtype)
        )
        place = jnp.where(logs & ~positive, -1.0, place)  # no logarithm: it lies below
        number = jnp.clip(jnp.where(finite, place, 0.0), -1.0, float(self.bins)).astype(jnp.int32) + 1
        size = len(self.outputs) * (self.bins + 2)
        number = jnp.where(finite, number + np.arange(len(self.outputs), dtype=np.int32) * (self.bins + 2), size)
        centered = (values - np.array(self.centers)) / np.array(self.scales)
        centered = jnp.where(finite, centered.astype(values.dtype), 0.0)
        sums = jnp.stack([finite.astype(values.dtype).sum(0), centered.sum(0), jnp.square(centered).sum(0)], axis=-1)
        return {
            "counts": state["counts"].at[number.reshape(-1)].add(1, mode="drop"),
            "sums": state["sums"].at[chunk.leading[0] % GROUPS].add(sums),
            "held": state["held"] + jnp.sum(held, axis=0, dtype=jnp.int32),
            "samples": state["samples"] + len(values),
        }

    def start(self, state: Any) -> Any:
        """The same in 64 bits."""
        return jax.tree.map(wide, state)

    def merge(self, first: Any, second: Any) -> Any:
        """Sums, in 64 bits."""
        return jax.tree.map(lambda one, other: one + wide(other), first, second)

    def result(self, state: Any, grid: Grid) -> Any:
        """Spreads of the outputs and chances of the limits."""
        total = int(state["samples"])
        rows = np.reshape(state["counts"], (len(self.outputs), -1))
        counts = {
            name: Counts(self.edges(name), row[1:-1], int(row[0]), int(row[-1]))
            for name, row in zip(self.outputs, rows, strict=True)
        }
        spreads = {
            name: self._spread(counts[name], state["sums"][:, place], self.centers[place], self.scales[place], total)
            for place, name in enumerate(self.outputs)
        }
        names = (*self.limits, ALL)
        chances = {name: chance(int(held), total) for name, held in zip(names, state["held"], strict=True)}
        return SampleSummary(total, spreads, chances if self.limits else {}, counts)

    def _spread(self, counts: Counts, sums: np.ndarray, center: float, scale: float, total: int) -> Spread:
        finite = int(counts.counts.sum()) + counts.below + counts.above
        number, first, second = sums[sums[:, 0] > 0.0].T
        if not finite:
            nothing = dict.fromkeys(self.shares, math.nan)
            return Spread(math.nan, math.nan, math.nan, nothing, dict.fromkeys(self.shares, (math.nan, math.nan)), 1.0)
        mean = first.sum() / number.sum()
        variance = max(0.0, second.sum() / number.sum() - mean * mean)
        # Groups are independent: the error of their weighted mean is that of their spread around it.
        residuals = number * (first / number - mean)
        groups = len(number)
        error = math.sqrt(float(np.sum(residuals**2)) * groups / max(groups - 1, 1)) / float(number.sum())
        half = {share: _half(share, finite) for share in self.shares}
        return Spread(
            center + scale * float(mean),
            scale * error if groups > 1 else math.nan,
            scale * math.sqrt(variance),
            {share: counts.quantile(share) for share in self.shares},
            {
                share: (counts.quantile(max(0.0, share - width)), counts.quantile(min(1.0, share + width)))
                for share, width in half.items()
            },
            1.0 - finite / total,
        )


def wide(leaf: Any) -> np.ndarray:
    """Integers and floats in 64 bits."""
    leaf = np.asarray(leaf)
    return leaf.astype(np.int64 if np.issubdtype(leaf.dtype, np.integer) else np.float64)


def _holds(value: Any, ends: Range) -> Any:
    value = jnp.asarray(value)
    return (value >= ends[0]) & (value <= ends[1])


def _half(share: float, count: int) -> float:
    """Half the width of the interval of a share of independent samples [definition: normal approximation]."""
    return normal_quantile() * math.sqrt(share * (1.0 - share) / count)


def normal_quantile() -> float:
    """Standard deviations of a two-sided interval of `LEVEL`."""
    return float(stats.norm.ppf(0.5 + 0.5 * LEVEL))


def chance(held: int, count: int) -> Chance:
    """Share of samples within a limit with its interval [Wilson 1927], as if samples were independent: no narrower."""
    share, squared = held / count, normal_quantile() ** 2
    center = (share + squared / (2.0 * count)) / (1.0 + squared / count)
    half = math.sqrt(squared * (share * (1.0 - share) / count + squared / (4.0 * count**2))) / (1.0 + squared / count)
    return Chance(share, max(0.0, min(share, center - half)), min(1.0, max(share, center + half)))
