"""Distributions of uncertain numbers, read from texts such as "lognormal 0.3", with their quantiles."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaincinv, ndtr, ndtri

from energymodel.errors import InputError, suggest
from energymodel.ranges import check_number
from energymodel.readers.expressions import data_file, refuse
from energymodel.scenarios.files import ROOT, names
from energymodel.units import convert, format_quantity

JOINT = "joint"
SMALLEST = float(np.finfo(np.float64).tiny)
WEAK_CORRELATION = 0.3  # below it, one number of a joint distribution may be varied alone


class Family(NamedTuple):
    """A family of distributions; its functions take a share or a number, the value, and the family's own numbers."""

    numbers: tuple[str, ...]
    example: str
    quantile: Callable[[Any, float, tuple[float, ...]], Any]
    below: Callable[[Any, float, tuple[float, ...]], Any]


FAMILIES = {
    "lognormal": Family(
        ("SIGMA",),
        "lognormal 0.3",
        lambda share, value, n: value * np.exp(n[0] * ndtri(share)),
        lambda number, value, n: ndtr(np.log(max(number / value, SMALLEST)) / n[0]),
    ),
    "normal": Family(
        ("SIGMA",),
        "normal 5 K",
        lambda share, value, n: value + n[0] * ndtri(share),
        lambda number, value, n: ndtr((number - value) / n[0]),
    ),
    "uniform": Family(
        ("LOW", "HIGH"),
        "uniform 90 120 W",
        lambda share, _, n: n[0] + (n[1] - n[0]) * share,
        lambda number, _, n: np.clip((number - n[0]) / (n[1] - n[0]), 0.0, 1.0),
    ),
    "beta": Family(
        ("A", "B"),
        "beta 8 2",
        lambda share, _, n: betaincinv(n[0], n[1], share),
        lambda number, _, n: betainc(n[0], n[1], np.clip(number, 0.0, 1.0)),
    ),
}
LARGEST = {"lognormal": 20.0, "beta": 1e9}
"""Parameters beyond which draws overflow: e^20 is a factor of 5e8 in a standard deviation."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclasses.dataclass(frozen=True)
class NumberDistribution:
    """How uncertain a number is around its value in the scenario.

    - `lognormal SIGMA`: the value is the median, SIGMA the standard deviation of the logarithm [1].
    - `normal SIGMA`: the value is the mean, SIGMA the standard deviation in the unit of the number.
    - `uniform LOW HIGH`: in the unit of the number.
    - `beta A B`: a share between 0 and 1 with density proportional to `x^(A-1) (1-x)^(B-1)`.
    - `joint NAME`: known together with the other numbers of that name. It has quantiles of its own, those of its
      `deviations` (of the logarithm where `logarithmic`), if its draws are hardly correlated with the others.
    """

    family: str
    numbers: tuple[float, ...]
    name: str = ""
    deviations: tuple[float, ...] = ()
    logarithmic: bool = False

    @property
    def is_joint(self) -> bool:
        """Whether the number is drawn together with others."""
        return self.family == JOINT

    @property
    def has_quantiles(self) -> bool:
        """Whether the number may be varied alone."""
        return not self.is_joint or bool(self.deviations)

    def quantiles(self, value: float, shares: Sequence[float] | np.ndarray) -> Float[np.ndarray, " shares"]:
        """Values below which the number lies with these probabilities [definition of each family].

        **Arguments:**

        - `value`: the number in the scenario.
        - `shares`: probabilities between 0 and 1 [1].

        **Returns:** quantiles, in the unit of `value`.

        **Raises:** `ValueError` for a number that is known only together with others.
        """
        if not self.has_quantiles:
            raise ValueError(f"The numbers of the joint distribution {self.name} have no quantiles of their own.")
        if self.is_joint:
            moved = np.quantile(self.deviations, shares)
            return np.asarray(value * np.exp(moved) if self.logarithmic else value + moved, np.float64)
        quantile = FAMILIES[self.family].quantile
        return np.asarray(quantile(np.asarray(shares, np.float64), value, self.numbers), np.float64)

    def below(self, number: float, value: float) -> float:
        """Probability that an uncertain number lies below another [definition of each family].

        **Arguments:**

        - `number`: the other one, in the unit of `value`.
        - `value`: the uncertain number in the scenario, above zero if its logarithm is uncertain.

        **Returns:** probability [1].
        """
        return float(FAMILIES[self.family].below(number, value, self.numbers))


def parse_distribution(text: str, path: str, unit: str, value: float) -> NumberDistribution:
    """Read what a scenario says of a number's uncertainty.

    The numbers of `normal` and `uniform` are in `unit`, the SI unit of the path, unless a unit follows them.

    **Raises:** `InputError` for an unknown family, too few or bad numbers, or a range that excludes the value.
    """
    where = f'uncertainty of {path}: "{text}"'
    family, _, rest = text.strip().partition(" ")
    words = rest.split()
    if family == JOINT:
        if len(words) != 1:
            raise InputError(f'{where} needs the name of the joint distribution, such as "joint chinchilla".')
        return NumberDistribution(JOINT, (), words[0], *_marginal(words[0], path.rpartition(".")[2], path))
    if family not in FAMILIES:
        raise InputError(f"{where} is no known distribution. {suggest(family, (*FAMILIES, JOINT))}")
    needed, example = FAMILIES[family].numbers, FAMILIES[family].example
    count = next((i for i, word in enumerate(words) if not _NUMBER.fullmatch(word)), len(words))
    written = " ".join(words[count:])
    if count != len(needed):
        raise InputError(f'{where} needs {" and ".join(needed)} after the word {family}, such as "{example}".')
    if written and family not in ("normal", "uniform"):
        raise InputError(f'{where}: the numbers of {family} have no unit, as in "{example}".')
    numbers = tuple(float(word) for word in words[:count])
    if written:
        numbers = tuple(convert(value, written, unit, where, difference=family == "normal") for value in numbers)
    most, quantity = LARGEST.get(family, math.inf), format_quantity(value, unit)
    words = {"family": family, "numbers": numbers, "median": value, "unit": unit, "most": most, "quantity": quantity}
    functions = {"all": all, "abs": abs, "min": min, "max": max, "infinite": math.inf}
    refuse(data_file(__file__, "checks.toml")["distribution"], {**functions, **words, "where": where})
    return NumberDistribution(family, numbers)


def distribution_of(component: Any, path: str, text: str, unit: str, value: float) -> NumberDistribution:
    """The distribution of a number at a dotted path below a component, such as a scenario.

    **Raises:** `InputError` as `parse_distribution`, and for a uniform one with values that the number cannot have.
    """
    distribution = parse_distribution(text, path, unit, value)
    if distribution.family == "uniform":
        check_number(component, path, distribution.numbers, f'uncertainty of {path}: "{text}"')
    return distribution


@cache
def read_joint(name: str) -> tuple[tuple[str, ...], tuple[bool, ...], Float[np.ndarray, "draws numbers"]]:
    """Draws of a joint distribution as deviations: names of its numbers, whether of their logarithm, the draws.

    **Raises:** `InputError` that suggests the nearest name if there is none.
    """
    if name not in names(JOINT):
        raise InputError(f'uncertainty: unknown joint distribution "{name}". {suggest(name, names(JOINT))}')
    with (ROOT / JOINT / f"{name}.csv").open(encoding="utf-8") as file:
        header, draws = file.readline().strip().split(","), np.loadtxt(file, delimiter=",", ndmin=2)
    numbers = tuple(column.removeprefix("log ") for column in header)
    return numbers, tuple(column.startswith("log ") for column in header), draws


@cache
def _marginal(name: str, number: str, path: str) -> tuple[tuple[float, ...], bool]:
    """Deviations of one number of a joint distribution, none if they are correlated with those of the others."""
    numbers, logarithmic, draws = read_joint(name)
    if number not in numbers:
        raise InputError(f'uncertainty of {path}: "joint {name}" holds only {", ".join(numbers)}.')
    index = numbers.index(number)
    others = np.delete(np.corrcoef(draws.T)[index], index)
    weak = bool(np.all(np.abs(others) < WEAK_CORRELATION))
    return (tuple(draws[:, index].tolist()) if weak else ()), logarithmic[index]
