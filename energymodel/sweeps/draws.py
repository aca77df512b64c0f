"""Which values do uncertain numbers take?

Independent uniform numbers, one for each factor, become the values of a model. A factor is one number, or all numbers
of a joint distribution.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
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
NODES = 2049  # of a tabulated quantile function, equally spaced in standard deviations
MAX_DEVIATION = 6.0  # standard deviations
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

    def __call__(self, uniform: Float[Array, ""]) -> list[Any]:
        """The numbers of one draw, chosen by a uniform number."""
        count = self.deviations.shape[0]
        draw = jnp.asarray(self.deviations)[jnp.minimum((uniform * count).astype(jnp.int32), count - 1)]
        return [
            value * jnp.exp(draw[place]) if logarithmic else value + draw[place]
            for place, (value, logarithmic) in enumerate(zip(jnp.asarray(self.values), self.logarithmic, strict=True))
        ]


class NumberSampler(eqx.Module):
    """Uncertain numbers as functions of independent uniform ones.

    - `factors`: names of the factors: paths, then "joint NAME".
    - `paths`: of the independent numbers, then of those of each joint distribution; `owners` are the places of their
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
        for row, place in enumerate(np.flatnonzero(kinds == TABLE)):
            number = number.at[place].set(_interpolated(jnp.asarray(self.tables)[row], deviation[place]))
        more = [one for place, joint in enumerate(self.joints) for one in joint(uniform[independent + place])]
        return jnp.concatenate([number, jnp.stack(more)]) if more else number

    def named(self, numbers: Float[Array, " numbers"]) -> dict[str, Float[Array, ""]]:
        """Numbers by path."""
        return {path: numbers[place] for place, path in enumerate(self.paths)}


def _interpolated(table: Array, deviation: Array) -> Array:
    place = (deviation + MAX_DEVIATION) * ((NODES - 1) / (2.0 * MAX_DEVIATION))
    low = jnp.clip(jnp.floor(place), 0.0, NODES - 2.0)
    index, weight = low.astype(jnp.int32), jnp.clip(place - low, 0.0, 1.0)
    return table[index] * (1.0 - weight) + table[index + 1] * weight


def number_sampler(numbers: Sequence[UncertainNumber]) -> NumberSampler:
    """A sampler of numbers by their distributions.

    **Raises:** `InputError` for an unknown joint distribution, or a number that it does not hold.
    """
    alone = [one for one in numbers if not one.distribution.is_joint]
    groups: dict[str, list[UncertainNumber]] = {}
    for one in numbers:
        if one.distribution.is_joint:
            groups.setdefault(one.distribution.name, []).append(one)
    kinds, rows, tables = [], [], []
    for one in alone:
        family, parameters = one.distribution.family, one.distribution.numbers
        start, end = one.probabilities()
        kind = {"lognormal": LOG, "normal": ADD, "uniform": BETWEEN}.get(family, TABLE)
        value, scale = (parameters[0], parameters[1] - parameters[0]) if kind == BETWEEN else (one.value, parameters[0])
        kinds.append(kind)
        rows.append((value, scale, start, end - start))
        if kind == TABLE:
            shares = ndtr(np.linspace(-MAX_DEVIATION, MAX_DEVIATION, NODES))
            tables.append(FAMILIES[family].quantile(shares, one.value, parameters))
    grouped = [one for group in groups.values() for one in group]
    owners = [len(alone) + place for place, group in enumerate(groups.values()) for _ in group]
    value, scale, start, span = np.array(rows, np.float64).reshape(-1, 4).T
    return NumberSampler(
        (*(one.path for one in alone), *(f"{JOINT} {name}" for name in groups)),
        tuple(one.path for one in (*alone, *grouped)),
        (*range(len(alone)), *owners),
        tuple(kinds),
        value,
        scale,
        start,
        span,
        np.array(tables, np.float64).reshape(-1, NODES),
        tuple(joint_draws(name, members) for name, members in groups.items()),
    )


def joint_draws(name: str, members: Sequence[UncertainNumber]) -> JointDraws:
    """Draws of a joint distribution for some numbers, by the last part of their paths.

    **Raises:** `InputError` for an unknown distribution, or a number that it does not hold.
    """
    columns, logarithmic, draws = read_joint(name)
    for one in members:
        if one.path.rpartition(".")[2] not in columns:
            raise InputError(f'uncertainty of {one.path}: "joint {name}" holds only {", ".join(columns)}.')
    chosen = [columns.index(one.path.rpartition(".")[2]) for one in members]
    return JointDraws(
        draws[:, chosen],
        np.array([one.value for one in members], np.float64),
        tuple(logarithmic[place] for place in chosen),
    )


def parse_numbers(given: Mapping[str, Any]) -> list[UncertainNumber]:
    """Uncertain numbers of a function, from a distribution or a pair of a value and its distribution.

    A positive number whose distribution is normal stays positive.

    **Raises:** `InputError` for a distribution that cannot be read, or lacks its value.
    """
    found = []
    for name, entry in given.items():
        if isinstance(entry, str):
            family, numbers = entry.partition(" ")[0], entry.split()[1:]
            if family in ("lognormal", "normal", JOINT):
                raise InputError(f'uncertainty of {name}: "{entry}" needs a value, as in (5.0, "{entry}").')
            value, text = (0.5 if family == "beta" else _middle(numbers)), entry
        else:
            value, text = float(entry[0]), entry[1]
        distribution = parse_distribution(text, name, "1", value)
        lowest = 0.0 if distribution.family == "normal" and value > 0.0 else -math.inf
        found.append(UncertainNumber(name, value, "1", distribution, (lowest, math.inf)))
    return found


def _middle(numbers: Sequence[str]) -> float:
    try:
        return 0.5 * (float(numbers[0]) + float(numbers[1]))
    except (IndexError, ValueError):
        return 0.0  # the parser of distributions names the error
