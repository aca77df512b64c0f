"""Which values may a constant take, and what was known about it before any measurement?

A constant is fitted in a coordinate z that runs over all real numbers, so that no fit, interval or sample leaves its
physical range: `value = lower + e^z` above one bound, `lower + (upper - lower) sigmoid(z)` between two.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import sigmoid

Values = dict[str, Float[Array | np.ndarray, "..."]]


class Constant(NamedTuple):
    """A constant to be fitted: its prior, its physical range and its unit.

    - `median`: most likely value before the measurements.
    - `spread`: standard deviation of the prior; of `ln(value - lower)` where only the lower bound is finite (so 0.3 is
      30 % for a positive constant), else in the unit of the constant.
    - `lower`, `upper`: physical range; the constant stays inside.
    - `widest`: factor from end to end of the interval of a constant that counts as determined.
    - `labels`: one value for each of these (a workload, a device); a single value if there are none.
    """

    median: float
    spread: float
    lower: float = 0.0
    upper: float = np.inf
    unit: str = "1"
    labels: tuple[str, ...] = ()
    widest: float = 4.0

    @property
    def bounded(self) -> bool:
        """Whether both ends of the range are finite."""
        return bool(np.isfinite(self.lower) and np.isfinite(self.upper))

    @property
    def size(self) -> int:
        """Count of values."""
        return max(1, len(self.labels))


class Prior(NamedTuple):
    """What is known of every coordinate: mean and standard deviation by the name of its constant, and `whiten`, a root
    of the inverse covariance, which turns distances from the mean into independent ones of variance one.
    """

    names: tuple[str, ...]
    mean: Float[np.ndarray, " n"]
    spread: Float[np.ndarray, " n"]
    whiten: Float[np.ndarray, "n n"]

    @property
    def information(self) -> Float[np.ndarray, "n n"]:
        """Inverse of the covariance."""
        return self.whiten.T @ self.whiten


def updated_prior(
    prior: Prior, names: Sequence[str], mean: Float[np.ndarray, " m"], covariance: Float[np.ndarray, "m m"]
) -> Prior:
    """A prior in which coordinates of some names are known from earlier measurements, with their correlations.

    **Arguments:**

    - `prior`: of all coordinates; those without earlier measurements keep it.
    - `names`: of the coordinates that were measured; those that `prior` lacks are left out.
    - `mean`, `covariance`: of these.

    **Raises:** `ValueError` if the covariance is not one.
    """
    known = [place for place, name in enumerate(names) if name in prior.names]
    at = np.array([prior.names.index(names[place]) for place in known], int)
    total = np.diag(prior.spread**2)
    center = prior.mean.copy()
    total[np.ix_(at, at)] = np.asarray(covariance)[np.ix_(known, known)]
    center[at] = np.asarray(mean)[known]
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(total))
    except np.linalg.LinAlgError:
        raise ValueError("the covariance of the prior is not positive definite.") from None
    return Prior(prior.names, center, np.sqrt(np.diag(total)), whiten)


Constants = Mapping[str, Constant]


def prior_of(constants: Constants) -> Prior:
    """Prior of all coordinates, in the order of the constants.

    **Raises:** `ValueError` for a median outside its range, or a spread that is not positive and finite.
    """
    names: list[str] = []
    mean: list[float] = []
    spread: list[float] = []
    for name, one in constants.items():
        if not one.lower < one.median < one.upper:
            raise ValueError(f"{name}: the prior's median {one.median:g} is not within {one.lower:g} to {one.upper:g}.")
        if not 0.0 < one.spread < np.inf:
            raise ValueError(f"{name}: the prior's spread must be positive and finite, not {one.spread:g}.")
        if one.bounded:
            below, above = one.median - one.lower, one.upper - one.median
            middle, width = np.log(below / above), one.spread * (below + above) / (below * above)
        elif np.isfinite(one.lower):
            middle, width = np.log(one.median - one.lower), one.spread
        else:
            middle, width = one.median, one.spread
        names += [f"{name}[{label}]" for label in one.labels] if one.labels else [name]
        mean += [float(middle)] * one.size
        spread += [float(width)] * one.size
    return Prior(tuple(names), np.asarray(mean), np.asarray(spread), np.diag(1.0 / np.asarray(spread)))


def values_of(constants: Constants, coordinates: Float[Array | np.ndarray, " n"]) -> Values:
    """Values of the constants at coordinates, in their units; an array over the labels where there are some."""
    values: Values = {}
    place = 0
    for name, one in constants.items():
        z = jnp.asarray(coordinates)[place : place + one.size]
        place += one.size
        if one.bounded:
            value = one.lower + (one.upper - one.lower) * sigmoid(z)
        elif np.isfinite(one.lower):
            value = one.lower + jnp.exp(z)
        else:
            value = z
        values[name] = value if one.labels else value[0]
    return values


def flat_values(constants: Constants, coordinates: Float[Array | np.ndarray, " n"]) -> Float[Array, " n"]:
    """Values of the constants in the order of the coordinates."""
    return jnp.concatenate([jnp.atleast_1d(value) for value in values_of(constants, coordinates).values()])
