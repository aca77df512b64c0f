"""Which uncertain numbers make an output uncertain: Sobol indices of first order and in total?

The sums stream through the sweep in 0.4 MB, and a jackknife over replicates takes milliseconds. For 82 factors, 5
outputs and 2^13 samples, `scipy.stats.sobol_indices` took 1.7 GB and 13 s for each of its bootstrap resamples (999 by
default). SALib took 2 s an output; it needs the outputs of all samples in memory, and its bootstrap ignores replicates.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from energymodel.sweeps.feasibility import output_of
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.reductions import AbstractReduction, Chunk, add_wide, float_dtype, wide
from energymodel.sweeps.sample_statistics import GROUPS, LEVEL

MIN_VARIANCE = 1e-3  # of the squared scale: an output of less variance does not vary


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


@dataclasses.dataclass(frozen=True)
class SobolIndices(AbstractReduction):
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
        values = [jnp.asarray(output_of(outputs, name), float_dtype()) for name in self.outputs]
        return jnp.stack(
            [(one - center) / scale for one, center, scale in zip(values, self.centers, self.scales, strict=True)]
        )

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

    def merge(self, first: Any, second: Any) -> Any:
        """Sums."""
        return add_wide(first, second)

    def result(self, state: Any, grid: Grid) -> Mapping[str, list[SobolIndex]]:
        """Indices by output, with intervals of the jackknife over groups of replicates [Efron 1982]."""
        state = jax.tree.map(wide, state)
        return {
            name: self._indices(state["moments"][:, place], state["first"][:, place], state["total"][:, place])
            for place, name in enumerate(self.outputs)
        }

    def _indices(self, moments: np.ndarray, first: np.ndarray, total: np.ndarray) -> list[SobolIndex]:
        some = moments[:, 0] > 0.0
        moments, sums = moments[some], np.stack([first[some], total[some]], axis=1)
        groups = len(moments)
        if not groups:
            return [SobolIndex(factor, math.nan, math.nan, math.nan, math.nan) for factor in self.factors]
        whole = _ratios(moments.sum(0)[None], sums.sum(0)[None])[0]
        if groups > 1:
            others = _ratios(moments.sum(0) - moments, sums.sum(0) - sums)
            errors = np.sqrt((groups - 1) / groups * np.sum((others - others.mean(0)) ** 2, axis=0))
            half = stats.t.ppf(0.5 + 0.5 * LEVEL, groups - 1) * errors
        else:
            half = np.full_like(whole, math.nan)
        return [
            SobolIndex(factor, *(float(array[side][place]) for side in (0, 1) for array in (whole, half)))
            for place, factor in enumerate(self.factors)
        ]


def _ratios(moments: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Indices from sums: `[rows, first and total, factors]`; zero where the output does not vary."""
    count, first, second = moments.T
    variance = second / count - (first / count) ** 2
    varies = variance > MIN_VARIANCE
    share = 2.0 / (count * np.where(varies, variance, 1.0))
    return np.where(varies[:, None, None], sums * share[:, None, None], 0.0)
