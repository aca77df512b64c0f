"""Draws of uncertain numbers, and a model at them.

Independent uniform numbers, one for each factor, become the values of a model. A factor is one number, or all numbers
of a joint distribution. Samples are Sobol points with independent random digital shifts, the replicates: each sample is
uniform, so that estimates have no bias, and the spread between replicates gives their errors [L'Ecuyer & Lemieux 2002].
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr

from energymodel.errors import InputError
from energymodel.scenarios.distributions import FAMILIES, NumberDistribution, parse_distribution, read_joint

JOINT = "joint"
BITS = 23  # of a uniform number: with a half added float32 holds it exactly
DEVIATIONS = np.linspace(-6.0, 6.0, 2049)  # nodes of a tabulated quantile function, in standard deviations
LOG, ADD, BETWEEN, TABLE = range(4)


@dataclasses.dataclass(frozen=True)
class UncertainNumber:
    """An uncertain number by its path: its value, its unit, its distribution, and the ends between which it lies."""

    path: str
    value: float
    unit: str
    distribution: NumberDistribution
    ends: tuple[float, float] = (-math.inf, math.inf)

    def probabilities(self) -> tuple[float, float]:
        """Probabilities below both ends: what its distribution leaves outside them is cut off."""
        if self.distribution.family == "lognormal" and self.value <= 0.0:
            return 0.0, 1.0  # zero stays zero, and the sign of a negative number stays
        low, high = (self.distribution.below(end, self.value) for end in self.ends)
        return low, high


class JointDraws(eqx.Module):
    """Draws of the numbers of a joint distribution, as deviations from their values.

    `deviations` are added to the number, or to its logarithm where `logarithmic`.
    """

    deviations: Float[Array | np.ndarray, "draws numbers"]
    values: Float[Array | np.ndarray, " numbers"]
    logarithmic: tuple[bool, ...] = eqx.field(static=True)

    def __call__(self, uniform: Float[Array, ""]) -> Float[Array, " numbers"]:
        """The numbers of one draw, chosen by a uniform number."""
        count, log = self.deviations.shape[0], np.array(self.logarithmic)
        change = jnp.asarray(self.deviations)[jnp.minimum((uniform * count).astype(jnp.int32), count - 1)]
        return jnp.where(log, self.values * jnp.exp(jnp.where(log, change, 0.0)), self.values + change)

    def covariance(self) -> Float[np.ndarray, "numbers numbers"]:
        """Covariance of the numbers, to first order where the draws are logarithms."""
        scale = np.where(self.logarithmic, self.values, 1.0)
        return np.atleast_2d(np.cov(np.asarray(self.deviations) * scale, rowvar=False))


class NumberSampler(eqx.Module):
    """Uncertain numbers as functions of independent uniform ones.

    - `factors`: names of the factors: paths, then "joint NAME".
    - `paths`: of the independent numbers, then of those of each joint distribution; `owners` are the numbers of their
      factors.
    - `kinds`: how an independent number follows from a share `start + span * uniform`, by `value` and `scale`.
    """

    factors: tuple[str, ...] = eqx.field(static=True)
    paths: tuple[str, ...] = eqx.field(static=True)
    owners: tuple[int, ...] = eqx.field(static=True)
    kinds: tuple[int, ...] = eqx.field(static=True)
    value: Float[Array | np.ndarray, " independent"]
    scale: Float[Array | np.ndarray, " independent"]
    start: Float[Array | np.ndarray, " independent"]
    span: Float[Array | np.ndarray, " independent"]
    tables: Float[Array | np.ndarray, "tabulated nodes"]
    joints: tuple[JointDraws, ...]

    def __call__(self, uniform: Float[Array, " factors"]) -> Float[Array, " numbers"]:
        """All numbers in SI, in the order of `paths`, from one number between 0 and 1 for each factor."""
        independent = len(self.kinds)
        kinds, value, scale = np.array(self.kinds, int), jnp.asarray(self.value), jnp.asarray(self.scale)
        share = self.start + self.span * uniform[:independent]
        share = jnp.clip(share, 2.0**-BITS / 2.0, 1.0 - 2.0**-BITS / 2.0)
        deviation = jnp.sqrt(2.0).astype(share.dtype) * jax.lax.erf_inv(2.0 * share - 1.0)
        number = jnp.where(kinds == LOG, value * jnp.exp(jnp.where(kinds == LOG, scale * deviation, 0.0)), value)
        number = jnp.where(kinds == ADD, value + scale * deviation, number)
        number = jnp.where(kinds == BETWEEN, value + scale * share, number)
        for row, column in enumerate(np.flatnonzero(kinds == TABLE)):
            number = number.at[column].set(_interpolated(jnp.asarray(self.tables)[row], deviation[column]))
        return jnp.concatenate([number, *map(JointDraws.__call__, self.joints, uniform[independent:])])

    def named(self, numbers: Float[Array, " numbers"]) -> dict[str, Float[Array, ""]]:
        """Numbers by path."""
        return {path: numbers[column] for column, path in enumerate(self.paths)}


def _interpolated(table: Array, deviation: Array) -> Array:
    node = (deviation - DEVIATIONS[0]) / (DEVIATIONS[1] - DEVIATIONS[0])
    low = jnp.clip(jnp.floor(node), 0.0, DEVIATIONS.size - 2.0)
    index, weight = low.astype(jnp.int32), jnp.clip(node - low, 0.0, 1.0)
    return table[index] * (1.0 - weight) + table[index + 1] * weight


def in_groups(numbers: Iterable[UncertainNumber]) -> tuple[list[UncertainNumber], dict[str, list[UncertainNumber]]]:
    """Independent numbers, and those of each joint distribution by its name."""
    alone: list[UncertainNumber] = []
    groups: dict[str, list[UncertainNumber]] = {}
    for number in numbers:
        joint = number.distribution.is_joint
        (groups.setdefault(number.distribution.name, []) if joint else alone).append(number)
    return alone, groups


def number_sampler(numbers: Sequence[UncertainNumber]) -> NumberSampler:
    """A sampler of numbers by their distributions."""
    alone, groups = in_groups(numbers)
    kinds, rows, tables = [], [], []
    for number in alone:
        family, parameters = number.distribution.family, number.distribution.numbers
        start, end = number.probabilities()
        kind = {"lognormal": LOG, "normal": ADD, "uniform": BETWEEN}.get(family, TABLE)
        value, scale = number.value, parameters[0]
        if kind == BETWEEN:
            value, scale = parameters[0], parameters[1] - parameters[0]
        kinds.append(kind)
        rows.append((value, scale, start, end - start))
        if kind == TABLE:
            tables.append(FAMILIES[family].quantile(ndtr(DEVIATIONS), number.value, parameters))
    value, scale, start, span = np.array(rows, np.float64).reshape(-1, 4).T
    return NumberSampler(
        factors=(*(number.path for number in alone), *(f"{JOINT} {name}" for name in groups)),
        paths=tuple(number.path for group in (alone, *groups.values()) for number in group),
        owners=(*range(len(alone)), *(len(alone) + row for row, group in enumerate(groups.values()) for _ in group)),
        kinds=tuple(kinds),
        value=value,
        scale=scale,
        start=start,
        span=span,
        tables=np.array(tables, np.float64).reshape(-1, DEVIATIONS.size),
        joints=tuple(joint_draws(name, members) for name, members in groups.items()),
    )


def joint_draws(name: str, members: Sequence[UncertainNumber]) -> JointDraws:
    """Draws of a joint distribution for some numbers, by the last part of their paths."""
    columns, logarithmic, draws = read_joint(name)
    last_parts = {member.path: member.path.rpartition(".")[2] for member in members}
    for path, part in last_parts.items():
        if part not in columns:
            raise InputError(f'uncertainty of {path}: "joint {name}" holds only {", ".join(columns)}.')
    chosen = [columns.index(part) for part in last_parts.values()]
    values = np.array([member.value for member in members], np.float64)
    return JointDraws(draws[:, chosen], values, tuple(logarithmic[column] for column in chosen))


def parse_numbers(entries: Mapping[str, Any]) -> list[UncertainNumber]:
    """Uncertain numbers of a function, from a distribution or a pair of a value and its distribution.

    A positive number whose distribution is normal stays positive.

    **Raises:** `InputError` for a distribution that cannot be read, or lacks its value.
    """
    numbers = []
    for name, entry in entries.items():
        value, text = (math.nan, entry) if isinstance(entry, str) else (float(entry[0]), entry[1])
        if math.isnan(value):
            family, *ends = text.split()
            if family in ("lognormal", "normal", JOINT):
                raise InputError(f'uncertainty of {name}: "{text}" needs a value, as in (5.0, "{text}").')
            value = 0.5
            if family != "beta":
                with contextlib.suppress(IndexError, ValueError):  # the parser of distributions names the error
                    value = 0.5 * (float(ends[0]) + float(ends[1]))
        distribution = parse_distribution(text, name, "1", value)
        lowest = 0.0 if distribution.family == "normal" and value > 0.0 else -math.inf
        numbers.append(UncertainNumber(name, value, "1", distribution, (lowest, math.inf)))
    return numbers


def sobol_points(count: int, dimensions: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points as integers of 32 bits, which the random bits of each replicate shift."""
    from scipy.stats import qmc  # takes longer to import than a scenario to evaluate, which draws nothing

    points = qmc.Sobol(dimensions, scramble=True, rng=seed).random(count)
    return np.minimum(np.floor(points * 2.0**32), 2.0**32 - 1.0).astype(np.uint32)


def uniform(seed: Any, replicate: Any, point: Any) -> Float[Array, " factors"]:
    """Numbers between 0 and 1 of a sample: its Sobol point with the digital shift of its replicate."""
    point = jnp.asarray(point).astype(jnp.uint32)
    key = jax.random.fold_in(jax.random.key(seed), jnp.asarray(replicate).astype(jnp.uint32))
    shifted = point ^ jax.random.bits(key, point.shape, jnp.uint32)
    return ((shifted >> (32 - BITS)).astype(float) + 0.5) * 2.0**-BITS


class SampledModel(eqx.Module):
    """A model at the sample (`replicate`, `point`) of its uncertain numbers.

    With `from_b`, `point` holds the coordinates of two independent samples A and B, and the model is taken at A with
    some factors of B, for each of which `from_b` is one, else zero [Saltelli et al. 2010].
    """

    model: Callable[..., Any]
    sampler: NumberSampler
    seed: Any = eqx.field(converter=np.uint32)

    def __call__(self, replicate: Any, point: Any, from_b: Any = None) -> Any:
        """Outputs of one sample."""
        shares, count = uniform(self.seed, replicate, point), len(self.sampler.factors)
        numbers = self.sampler(shares[:count])
        if from_b is not None:
            resampled = jnp.asarray(from_b)[np.array(self.sampler.owners, int)] > 0.5
            numbers = jnp.where(resampled, self.sampler(shares[count:]), numbers)
        return self.model(**self.sampler.named(numbers))
