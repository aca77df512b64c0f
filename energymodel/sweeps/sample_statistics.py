"""How are the outputs of random samples distributed, and how likely do they stay within limits?"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from energymodel.sweeps.feasibility import Range, output_of, within
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.grid_sample import GridSample
from energymodel.sweeps.histogram import BINS, BinCounts, bin_numbers, quantiles
from energymodel.sweeps.reductions import AbstractReduction, Chunk, add_wide, float_dtype, wide

GROUPS = 64
"""Groups of replicates, whose spread gives the errors of means and indices."""
LEVEL = 0.95
NORMAL = float(stats.norm.ppf(0.5 + 0.5 * LEVEL))  # standard deviations of a two-sided interval of `LEVEL`
ALL = "all"
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


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
    """Number of samples, a `Spread` by output, and a `Chance` by limit and for "all" of them."""

    count: int
    spreads: Mapping[str, Spread]
    chances: Mapping[str, Chance]


@dataclasses.dataclass(frozen=True)
class SampleStatistics(AbstractReduction):
    """Distributions of outputs over a grid (replicate, point), and how many samples obey each limit and all of them.

    Limits do not restrict the distributions. `spans` are the ranges of the bins; `centers` and `scales` keep sums in
    float32 accurate.
    """

    outputs: Sequence[str]
    limits: Mapping[str, Range]
    spans: Sequence[Range]
    centers: Sequence[float]
    scales: Sequence[float]

    @classmethod
    def scaled(cls, outputs: Sequence[str], limits: Mapping[str, Range], sample: GridSample) -> "SampleStatistics":
        """With ranges, centers and scales from a sample."""
        centers, scales = sample.moments(outputs)
        return cls(outputs, limits, [sample.range(name, {}) for name in outputs], centers, scales)

    def pick(self, outputs: Any) -> Any:
        """The outputs and whether each limit holds, as two vectors."""
        values = jnp.stack([jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs])
        holds = [jnp.asarray(within(output_of(outputs, name), ends)) for name, ends in self.limits.items()]
        held = jnp.stack([*holds, jnp.all(jnp.stack(holds))]) if holds else jnp.ones(1, bool)
        return {"values": values, "held": held}

    def init(self, grid: Grid) -> Any:
        """Nothing yet."""
        count = len(self.outputs)
        return {
            "counts": jnp.zeros(count * (BINS + 2), jnp.int32),
            "sums": jnp.zeros((GROUPS, count, 3), float_dtype()),
            "held": jnp.zeros(len(self.limits) + 1, jnp.int32),
            "samples": jnp.zeros((), jnp.int32),
        }

    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """Add the samples of a chunk."""
        values = picked["values"].reshape(-1, len(self.outputs))
        held = picked["held"].reshape(len(values), -1)
        finite = jnp.isfinite(values)
        low, high = np.transpose(self.spans)
        offsets = np.arange(len(self.outputs), dtype=np.int32) * (BINS + 2)
        numbers = jnp.where(finite, bin_numbers(values, low, high, BINS) + offsets, len(state["counts"]))
        centered = (values - np.array(self.centers)) / np.array(self.scales)
        centered = jnp.where(finite, centered.astype(values.dtype), 0.0)
        sums = jnp.stack([finite.astype(values.dtype).sum(0), centered.sum(0), jnp.square(centered).sum(0)], axis=-1)
        return {
            "counts": state["counts"].at[numbers.reshape(-1)].add(1, mode="drop"),
            "sums": state["sums"].at[chunk.leading[0] % GROUPS].add(sums),
            "held": state["held"] + jnp.sum(held, axis=0, dtype=jnp.int32),
            "samples": state["samples"] + len(values),
        }

    def merge(self, first: Any, second: Any) -> Any:
        """Sums."""
        return add_wide(first, second)

    def result(self, state: Any, grid: Grid) -> SampleSummary:
        """Spreads of the outputs and chances of the limits."""
        state = jax.tree.map(wide, state)
        total = int(state["samples"])
        rows = np.reshape(state["counts"], (len(self.outputs), -1))
        spreads = {
            name: _spread(
                BinCounts.of(row, span), state["sums"][:, place], self.centers[place], self.scales[place], total
            )
            for place, (name, row, span) in enumerate(zip(self.outputs, rows, self.spans, strict=True))
        }
        held = zip((*self.limits, ALL), state["held"], strict=True)
        chances = {name: chance(int(count), total) for name, count in held} if self.limits else {}
        return SampleSummary(total, spreads, chances)


def _spread(counts: BinCounts, sums: np.ndarray, center: float, scale: float, total: int) -> Spread:
    """Statistics of an output from its histogram and its sums by group: number, first and second power."""
    finite = int(counts.counts.sum()) + counts.below + counts.above
    if not finite:
        nan = math.nan
        return Spread(nan, nan, nan, dict.fromkeys(QUANTILES, nan), dict.fromkeys(QUANTILES, (nan, nan)), 1.0)
    number, first, second = sums[sums[:, 0] > 0.0].T
    mean = first.sum() / number.sum()
    variance = max(0.0, second.sum() / number.sum() - mean * mean)
    # Groups are independent: the error of their weighted mean is that of their spread around it.
    residuals, groups = number * (first / number - mean), len(number)
    error = math.sqrt(float(np.sum(residuals**2)) * groups / max(groups - 1, 1)) / float(number.sum())
    ranges = {}
    for share in QUANTILES:
        half = NORMAL * math.sqrt(share * (1.0 - share) / finite)  # as if samples were independent
        ranges[share] = counts.quantile(max(0.0, share - half)), counts.quantile(min(1.0, share + half))
    return Spread(
        center + scale * float(mean),
        scale * error if groups > 1 else math.nan,
        scale * math.sqrt(variance),
        quantiles(counts, QUANTILES),
        ranges,
        1.0 - finite / total,
    )


def chance(held: int, count: int) -> Chance:
    """Share of samples within a limit with its interval [Wilson 1927], as if samples were independent: no narrower."""
    share, squared = held / count, NORMAL**2
    center = (share + squared / (2.0 * count)) / (1.0 + squared / count)
    half = math.sqrt(squared * (share * (1.0 - share) / count + squared / (4.0 * count**2))) / (1.0 + squared / count)
    return Chance(share, max(0.0, min(share, center - half)), min(1.0, max(share, center + half)))
