"""Which values do uncertain numbers take?

Independent uniform numbers, one for each factor, become the values of a model. A factor is one number, or all numbers
that are known only jointly.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr
from scipy.stats import qmc

from energymodel.errors import InputError, suggest
from energymodel.presets.distributions import FAMILIES, Distribution, parse_distribution
from energymodel.presets.files import ROOT, names

JOINT = "joint"
SHARES = ("efficiency", "utilization", "fraction", "overlap", "minimum_clock", "cubic_share")
"""Ends of the names of numbers that lie between 0 and 1, whatever their distribution says."""
BITS = 23  # of a uniform number: with a half added float32 holds it exactly
NODES = 2049  # of a tabulated quantile function, equally spaced in standard deviations
FARTHEST = 6.0  # standard deviations
LOG, ADD, BETWEEN, TABLE = range(4)


@dataclasses.dataclass(frozen=True)
class Known:
    """An uncertain number: its value in the scenario, its unit, and what is known of it."""

    path: str
    value: float
    unit: str
    distribution: Distribution

    @property
    def ends(self) -> tuple[float, float]:
        """Physical ends: a positive number stays positive, a share below one."""
        name = self.path.rpartition(".")[2]
        is_share = self.unit == "1" and name.endswith(SHARES) and 0.0 <= self.value <= 1.0
        return (0.0 if self.value > 0.0 else -np.inf), (1.0 if is_share else np.inf)

    @property
    def cut(self) -> tuple[float, float]:
        """Probabilities below both ends, between which the number is drawn."""
        low, high = self.ends
        family, scale = self.distribution.family, self.distribution.numbers[:1]
        if family == "lognormal" and self.value > 0.0:
            return 0.0, float(ndtr(np.log(high / self.value) / scale[0]))
        if family == "normal":
            return float(ndtr((low - self.value) / scale[0])), float(ndtr((high - self.value) / scale[0]))
        return 0.0, 1.0


class JointDraws(eqx.Module):
    """Draws of numbers that are known only together, as deviations from their values.

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


class Uncertain(eqx.Module):
    """Uncertain numbers as functions of independent uniform ones.

    - `factors`: names of the factors: paths, then "joint NAME".
    - `paths`: of the independent numbers, then of those of each joint distribution.
    - `owners`: place of the factor of each number.
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
        """All numbers, in the order of `paths`, in SI.

        **Arguments:**

        - `uniform`: one number between 0 and 1 for each factor.
        """
        independent = len(self.kinds)
        kinds, value, scale = np.array(self.kinds, int), jnp.asarray(self.value), jnp.asarray(self.scale)
        share = self.start + self.span * uniform[:independent]
        share = jnp.clip(share, 2.0**-BITS / 2.0, 1.0 - 2.0**-BITS / 2.0)
        deviation = jnp.sqrt(2.0).astype(share.dtype) * jax.lax.erf_inv(2.0 * share - 1.0)
        number = jnp.where(kinds == LOG, value * jnp.exp(jnp.where(kinds == LOG, scale * deviation, 0.0)), value)
        number = jnp.where(kinds == ADD, value + scale * deviation, number)
        number = jnp.where(kinds == BETWEEN, value + scale * share, number)
        for row, place in enumerate(np.flatnonzero(kinds == TABLE)):
            number = number.at[place].set(_looked_up(jnp.asarray(self.tables)[row], deviation[place]))
        more = [one for place, joint in enumerate(self.joints) for one in joint(uniform[independent + place])]
        return jnp.concatenate([number, jnp.stack(more)]) if more else number

    def named(self, numbers: Float[Array, " numbers"]) -> dict[str, Float[Array, ""]]:
        """Numbers by path."""
        return {path: numbers[place] for place, path in enumerate(self.paths)}


def _looked_up(table: Array, deviation: Array) -> Array:
    place = (deviation + FARTHEST) * ((NODES - 1) / (2.0 * FARTHEST))
    low = jnp.clip(jnp.floor(place), 0.0, NODES - 2.0)
    index, weight = low.astype(jnp.int32), jnp.clip(place - low, 0.0, 1.0)
    return table[index] * (1.0 - weight) + table[index + 1] * weight


def uncertain(known: Sequence[Known]) -> Uncertain:
    """Numbers with their distributions, ready to be drawn.

    **Raises:** `InputError` for a joint distribution that nothing is known of.
    """
    alone = [one for one in known if not one.distribution.is_joint]
    groups: dict[str, list[Known]] = {}
    for one in known:
        if one.distribution.is_joint:
            groups.setdefault(one.distribution.name, []).append(one)
    kinds, rows, tables = [], [], []
    nodes = ndtr(np.linspace(-FARTHEST, FARTHEST, NODES))
    for one in alone:
        family, numbers = one.distribution.family, one.distribution.numbers
        start, end = one.cut
        kind = {"lognormal": LOG, "normal": ADD, "uniform": BETWEEN}.get(family, TABLE)
        value, scale = (numbers[0], numbers[1] - numbers[0]) if kind == BETWEEN else (one.value, numbers[0])
        kinds.append(kind)
        rows.append((value, scale, start, end - start))
        if kind == TABLE:
            tables.append(FAMILIES[family].quantile(nodes, one.value, numbers))
    joints = tuple(joint_draws(name, members) for name, members in groups.items())
    owners = [*range(len(alone)), *(len(alone) + place for place, group in enumerate(groups.values()) for _ in group)]
    columns = np.array(rows, np.float64).reshape(-1, 4).T
    return Uncertain(
        factors=(*(one.path for one in alone), *(f"{JOINT} {name}" for name in groups)),
        paths=(*(one.path for one in alone), *(one.path for group in groups.values() for one in group)),
        owners=tuple(owners),
        kinds=tuple(kinds),
        value=columns[0], scale=columns[1], start=columns[2], span=columns[3],
        tables=np.array(tables, np.float64).reshape(-1, NODES),
        joints=joints,
    )  # fmt: skip


@cache
def _joint_table(name: str) -> tuple[list[str], np.ndarray]:
    """Names of the columns and draws of a joint distribution."""
    if name not in names(JOINT):
        raise InputError(f'uncertainty: unknown joint distribution "{name}". {suggest(name, names(JOINT))}')
    with (ROOT / JOINT / f"{name}.csv").open(encoding="utf-8") as file:
        return file.readline().strip().split(","), np.loadtxt(file, delimiter=",", ndmin=2)


def joint_draws(name: str, members: Sequence[Known]) -> JointDraws:
    """Draws of a joint distribution for the numbers that name it, by the last part of their paths.

    **Raises:** `InputError` for an unknown distribution, or a number that it does not hold.
    """
    header, draws = _joint_table(name)
    columns = {column.removeprefix("log "): place for place, column in enumerate(header)}
    fields = [one.path.rpartition(".")[2] for one in members]
    for one, field in zip(members, fields, strict=True):
        if field not in columns:
            raise InputError(f'uncertainty of {one.path}: "joint {name}" holds only {", ".join(columns)}.')
    chosen = [columns[field] for field in fields]
    return JointDraws(
        draws[:, chosen],
        np.array([one.value for one in members], np.float64),
        tuple(header[place].startswith("log ") for place in chosen),
    )


def parse_numbers(given: Mapping[str, Any]) -> list[Known]:
    """Uncertain numbers of a function: text for `uniform` and `beta`, else a value and text.

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
        found.append(Known(name, value, "1", parse_distribution(text, name, "1", value)))
    return found


def _middle(numbers: Sequence[str]) -> float:
    try:
        return 0.5 * (float(numbers[0]) + float(numbers[1]))
    except (IndexError, ValueError):
        return 0.0  # the reader of distributions says what is wrong


def lanes(count: int, factors: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points as integers of 32 bits, which a random number of each block shifts."""
    points = qmc.Sobol(factors, scramble=True, rng=seed).random(count)
    return np.minimum(np.floor(points * 2.0**32), 2.0**32 - 1.0).astype(np.uint32)


def uniform(seed: Any, block: Any, lane: Any) -> Float[Array, " factors"]:
    """Numbers between 0 and 1 of a sample: its point of a Sobol set with the digital shift of its block.

    Blocks are independent and each sample is uniform, so that estimates have no bias and the spread between blocks
    gives their errors [L'Ecuyer & Lemieux 2002].
    """
    lane = jnp.asarray(lane).astype(jnp.uint32)
    key = jax.random.fold_in(jax.random.key(seed), jnp.asarray(block).astype(jnp.uint32))
    shifted = lane ^ jax.random.bits(key, lane.shape, jnp.uint32)
    return ((shifted >> (32 - BITS)).astype(float) + 0.5) * 2.0**-BITS


class Sampled(eqx.Module):
    """A model at sample number (`block`, `lane`) of its uncertain numbers."""

    model: Callable[..., Any]
    numbers: Uncertain
    seed: Any = eqx.field(converter=np.uint32)

    def __call__(self, block: Any, lane: Any) -> Any:
        """Outputs of one sample."""
        return self.model(**self.numbers.named(self.numbers(uniform(self.seed, block, lane))))


class Exchanged(eqx.Module):
    """A model at one of two independent samples, or at the first with one factor of the second [Saltelli et al. 2010].

    `lane` holds the uniform numbers of both; `exchange` says by factor which of them counts.
    """

    model: Callable[..., Any]
    numbers: Uncertain
    seed: Any = eqx.field(converter=np.uint32)

    def __call__(self, block: Any, lane: Any, exchange: Any) -> Any:
        """Outputs of one sample."""
        count = len(self.numbers.factors)
        both = uniform(self.seed, block, lane)
        first, second = self.numbers(both[:count]), self.numbers(both[count:])
        chosen = jnp.asarray(exchange)[np.array(self.numbers.owners, int)] > 0.5
        return self.model(**self.numbers.named(jnp.where(chosen, second, first)))
