"""Distributions of the outputs of random samples, chances of staying within limits, and Sobol indices.

The sums of the indices stream through the sweep in 0.4 MB, and a jackknife over replicates takes milliseconds. For 82
factors, 5 outputs and 2^13 samples, `scipy.stats.sobol_indices` took 1.7 GB and 13 s for each of its 999 bootstrap
resamples. SALib took 2 s an output; it needs the outputs of all samples in memory, and its bootstrap ignores
replicates.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from scipy import stats

from energymodel.sweeps.axes import Range
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.histogram import BINS, BinCounts, bin_numbers, quantiles
from energymodel.sweeps.points import output_of, within
from energymodel.sweeps.reductions import AbstractSum, Chunk, float_dtype, wide

GROUPS = 64
"""Groups of replicates, whose spread gives the errors of means and indices."""
LEVEL = 0.95
NORMAL = float(stats.norm.ppf(0.5 + 0.5 * LEVEL))  # standard deviations of a two-sided interval of `LEVEL`
ALL = "all"
MIN_VARIANCE = 1e-3  # of the squared scale: an output of less variance does not vary
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


class SampleSummary(NamedTuple):
    """Number of samples, a `Spread` by output, and a `Chance` by limit and for "all" of them."""

    samples: int = 0
    spreads: Mapping[str, Spread] = {}
    chances: Mapping[str, Chance] = {}


@dataclasses.dataclass(frozen=True)
class SobolIndex:
    """Share of a factor in the variance of an output [1].

    - `first`: alone, `Var(E[y | x_k]) / Var(y)`.
    - `total`: with everything in which it takes part, `E[Var(y | all but x_k)] / Var(y)`.
    - `first_half`, `total_half`: half the widths of their 95 % intervals.
    """

    factor: str
    first: float
    first_half: float
    total: float
    total_half: float


@register_dataclass
@dataclasses.dataclass(frozen=True)
class SampleStatistics(AbstractSum):
    """Distributions of outputs over a grid (replicate, point), and how many samples obey each limit and all of them.

    Limits do not restrict the distributions. `spans` are the ranges of the bins; `centers` and `scales` keep sums in
    float32 accurate.
    """

    outputs: Sequence[str]
    limits: Mapping[str, Range]
    spans: Sequence[Range]
    centers: Sequence[float]
    scales: Sequence[float]

    def pick(self, outputs: Any) -> Any:
        """The outputs and whether each limit holds, as two vectors."""
        values = jnp.stack([jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs])
        holds = [jnp.asarray(within(output_of(outputs, name), self.limits[name])) for name in sorted(self.limits)]
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
        low, high = (jnp.stack([jnp.asarray(span[end], values.dtype) for span in self.spans]) for end in (0, 1))
        offsets = np.arange(len(self.outputs), dtype=np.int32) * (BINS + 2)
        numbers = jnp.where(finite, bin_numbers(values, low, high, BINS) + offsets, len(state["counts"]))
        centers, scales = (jnp.asarray(numbers, values.dtype) for numbers in (self.centers, self.scales))
        centered = jnp.where(finite, (values - centers) / scales, 0.0)
        sums = jnp.stack([finite.astype(values.dtype).sum(0), centered.sum(0), jnp.square(centered).sum(0)], axis=-1)
        return {
            "counts": state["counts"].at[numbers.reshape(-1)].add(1, mode="drop"),
            "sums": state["sums"].at[chunk.leading[0] % GROUPS].add(sums),
            "held": state["held"] + jnp.sum(held, axis=0, dtype=jnp.int32),
            "samples": state["samples"] + len(values),
        }

    def result(self, state: Any, grid: Grid) -> SampleSummary:
        """Spreads of the outputs and chances of the limits."""
        state = jax.tree.map(wide, state)
        total = int(state["samples"])
        rows = np.reshape(state["counts"], (len(self.outputs), -1))
        sums = np.moveaxis(state["sums"], 1, 0)
        columns = zip(self.outputs, rows, self.spans, sums, self.centers, self.scales, strict=True)
        spreads = {
            name: _spread(BinCounts.of(row, span), own, center, scale, total)
            for name, row, span, own, center, scale in columns
        }
        held = zip((*sorted(self.limits), ALL), state["held"], strict=True)
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
    interval = stats.binomtest(held, count).proportion_ci(LEVEL, "wilson")
    return Chance(held / count, float(interval.low), float(interval.high))


@register_dataclass
@dataclasses.dataclass(frozen=True)
class SobolIndices(AbstractSum):
    """Sobol's indices over a grid (replicate, point, from_b), of samples a and b, and a with factor k of b, `ab_k`:

    `V_k = mean(b (ab_k - a))` [Saltelli et al. 2010, table 2, b], `T_k = mean((a - ab_k)^2) / 2` [Jansen 1999].
    Samples with an output that is not finite are left out. `result` is `{output: [SobolIndex, ...]}` in the order of
    the factors.
    """

    outputs: Sequence[str]
    factors: Sequence[str]
    centers: Sequence[float]
    scales: Sequence[float]

    def pick(self, outputs: Any) -> Any:
        """The outputs as a vector, centered and scaled."""
        values = jnp.stack([jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs])
        centers, scales = (jnp.asarray(numbers, values.dtype) for numbers in (self.centers, self.scales))
        return (values - centers) / scales

    def init(self, grid: Grid) -> Any:
        """Nothing yet."""
        each = jnp.zeros((GROUPS, len(self.outputs), len(self.factors)), float_dtype())
        return {"moments": jnp.zeros((GROUPS, len(self.outputs), 3), float_dtype()), "first": each, "total": each}

    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """Add the samples of a chunk, each with all its resampled factors."""
        values = picked.reshape(-1, len(self.factors) + 2, len(self.outputs))
        finite = jnp.all(jnp.isfinite(values), axis=1)
        values = jnp.where(finite[:, None, :], values, 0.0)
        a, b, ab = values[:, 0], values[:, 1], values[:, 2:]
        moments = [2.0 * finite.astype(values.dtype).sum(0), (a + b).sum(0), (a * a + b * b).sum(0)]
        first = jnp.sum(b[:, None, :] * (ab - a[:, None, :]), axis=0)
        total = 0.5 * jnp.sum(jnp.square(ab - a[:, None, :]), axis=0)
        group = chunk.leading[0] % GROUPS
        return {
            "moments": state["moments"].at[group].add(jnp.stack(moments, axis=-1)),
            "first": state["first"].at[group].add(first.T),
            "total": state["total"].at[group].add(total.T),
        }

    def result(self, state: Any, grid: Grid) -> Mapping[str, list[SobolIndex]]:
        """Indices by output, with intervals of the jackknife over groups of replicates [Efron 1982]."""
        state = jax.tree.map(wide, state)
        return {
            name: self._indices(*(state[key][:, column] for key in ("moments", "first", "total")))
            for column, name in enumerate(self.outputs)
        }

    def _indices(self, moments: np.ndarray, first: np.ndarray, total: np.ndarray) -> list[SobolIndex]:
        used = moments[:, 0] > 0.0
        moments, sums = moments[used], np.stack([first[used], total[used]], axis=1)
        groups = len(moments)
        if not groups:
            return [SobolIndex(factor, math.nan, math.nan, math.nan, math.nan) for factor in self.factors]
        shares = _ratios(moments.sum(0)[None], sums.sum(0)[None])[0]
        half = np.full_like(shares, math.nan)
        if groups > 1:
            others = _ratios(moments.sum(0) - moments, sums.sum(0) - sums)
            errors = np.sqrt((groups - 1) / groups * np.sum((others - others.mean(0)) ** 2, axis=0))
            half = stats.t.ppf(0.5 + 0.5 * LEVEL, groups - 1) * errors
        rows = np.stack([shares[0], half[0], shares[1], half[1]], axis=-1).tolist()
        return [SobolIndex(factor, *row) for factor, row in zip(self.factors, rows, strict=True)]


def _ratios(moments: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Indices from sums: `[rows, first and total, factors]`; zero where the output does not vary."""
    count, first, second = moments.T
    variance = second / count - (first / count) ** 2
    varies = variance > MIN_VARIANCE
    share = 2.0 / (count * np.where(varies, variance, 1.0))
    return np.where(varies[:, None, None], sums * share[:, None, None], 0.0)
