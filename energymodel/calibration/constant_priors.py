"""Ranges and priors of fitted constants, and the coordinates in which they are fitted.

A constant is fitted in a coordinate z that runs over all real numbers, so that no fit, interval or sample leaves its
physical range: `value = lower + e^z` above one bound, `lower + (upper - lower) sigmoid(z)` between two.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import sigmoid
from energymodel.readers.expressions import data_file

Values = dict[str, Float[Array | np.ndarray, "..."]]  # values of constants by name, in their units
Rows = Float[Array | np.ndarray, " rows"]  # a column of measurements
Vector = Float[np.ndarray, " n"]  # by coordinate
Matrix = Float[np.ndarray, "n n"]
Lanes = Float[np.ndarray, "lanes n"]  # coordinates of several searches
Outputs = Float[np.ndarray, " outputs"]
Errors = Float[np.ndarray, "rows outputs"]
Slopes = Float[np.ndarray, "rows outputs n"]  # of errors by coordinate


class ConstantPrior(NamedTuple):
    """A constant to be fitted: its prior, its physical range and its unit.

    The spread is the standard deviation of `ln(value - lower)` where only the lower bound is finite (so 0.3 is 30 % for
    a positive constant), else that of the value.
    """

    median: float
    spread: float
    lower: float = 0.0
    upper: float = np.inf
    unit: str = "1"
    labels: tuple[str, ...] = ()  # one value for each of these (a workload, a device); a single one if there are none
    widest: float = 4.0  # factor from end to end of the interval of a constant that counts as determined
    clipped: bool = False  # a positive one with a lognormal prior may lie on its bounds: z is `ln(value)`, clipped

    @property
    def bounded(self) -> bool:
        """Whether the coordinate approaches two finite ends of the range."""
        return bool(np.isfinite(self.lower) and np.isfinite(self.upper)) and not self.clipped

    @property
    def size(self) -> int:
        """Count of values."""
        return max(1, len(self.labels))

    def coordinate(self, value: float) -> float:
        """Coordinate of a value within the range, infinite at its ends."""
        if self.clipped or not np.isfinite(self.lower):
            return float(np.log(value)) if self.clipped else value
        with np.errstate(divide="ignore"):
            return float(np.log(value - self.lower) - (np.log(self.upper - value) if self.bounded else 0.0))

    def coordinate_prior(self) -> tuple[float, float]:
        """Mean and standard deviation of the coordinate."""
        below, above = self.median - self.lower, self.upper - self.median
        scale = (below + above) / (below * above) if self.bounded else 1.0
        return self.coordinate(self.median), self.spread * scale

    def value(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Value at a coordinate, in the unit of the constant."""
        if self.bounded:
            return self.lower + (self.upper - self.lower) * sigmoid(z)
        if self.clipped:
            return jnp.exp(z)
        return self.lower + jnp.exp(z) if np.isfinite(self.lower) else z


ConstantPriors = Mapping[str, ConstantPrior]
DECLARED: Mapping[str, ConstantPriors] = {
    kind: {name: ConstantPrior(**fields) for name, fields in table.items()}
    for kind, table in data_file(__file__, "constants.toml").items()
}
"""Priors of `constants.toml`, by kind."""


class JointPrior(NamedTuple):
    """What is known of every coordinate: mean and standard deviation by the name of its constant."""

    names: tuple[str, ...]
    mean: Vector
    spread: Vector
    whiten: Matrix  # a root of the inverse covariance

    @property
    def information(self) -> Matrix:
        """Inverse of the covariance."""
        return self.whiten.T @ self.whiten

    @staticmethod
    def of(names: Sequence[str], mean: Vector, covariance: Matrix) -> "JointPrior":
        """The prior of a covariance.

        **Raises:** `numpy.linalg.LinAlgError` for one that is not positive definite.
        """
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        return JointPrior(tuple(names), mean, np.sqrt(np.diag(covariance)), whiten)


def joint_prior(constants: ConstantPriors) -> JointPrior:
    """Prior of all coordinates, in the order of the constants.

    **Raises:** `ValueError` for a median outside its range, or a spread that is not positive and finite.
    """
    names: list[str] = []
    rows: list[tuple[float, float]] = []
    for name, prior in constants.items():
        if not prior.lower < prior.median < prior.upper:
            bounds = f"{prior.lower:g} to {prior.upper:g}"
            raise ValueError(f"{name}: the prior's median {prior.median:g} is not within {bounds}.")
        if not 0.0 < prior.spread < np.inf:
            raise ValueError(f"{name}: the prior's spread must be positive and finite, not {prior.spread:g}.")
        names += [f"{name}[{label}]" for label in prior.labels] or [name]
        rows += [prior.coordinate_prior()] * prior.size
    mean, spread = np.array(rows).T
    return JointPrior(tuple(names), mean, spread, np.diag(1.0 / spread))


def updated_prior(
    prior: JointPrior, names: Sequence[str], mean: Float[np.ndarray, " m"], covariance: Float[np.ndarray, "m m"]
) -> JointPrior:
    """A prior in which coordinates of some names are known from earlier measurements, with their correlations.

    The others keep theirs; names that the prior lacks are left out.

    **Raises:** `ValueError` if the covariance is not positive definite.
    """
    rows = [row for row, name in enumerate(names) if name in prior.names]
    at = np.array([prior.names.index(names[row]) for row in rows], int)
    total, center = np.linalg.inv(prior.information), prior.mean.copy()
    total[np.ix_(at, at)] = np.asarray(covariance)[np.ix_(rows, rows)]
    center[at] = np.asarray(mean)[rows]
    try:
        return JointPrior.of(prior.names, center, total)
    except np.linalg.LinAlgError:
        raise ValueError("the covariance of the prior is not positive definite.") from None


def numbered(labels: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Numbers of labels in the order in which they first appear."""
    order = {label: number for number, label in enumerate(dict.fromkeys(np.asarray(labels).tolist()))}
    return np.array([order[label] for label in np.asarray(labels).tolist()])


def coordinate_bounds(constants: ConstantPriors) -> tuple[Vector, Vector]:
    """Bounds of the coordinates: infinite but for those of clipped constants."""
    ends = [
        np.log([constant.lower, constant.upper]) if constant.clipped else [-np.inf, np.inf]
        for constant in constants.values()
        for _ in range(constant.size)
    ]
    return np.array(ends)[:, 0], np.array(ends)[:, 1]


def values_of(constants: ConstantPriors, coordinates: Float[Array | np.ndarray, "*lanes n"]) -> Values:
    """Values of the constants at coordinates, in their units; an array over the labels where there are some."""
    values, begin = Values(), 0
    for name, constant in constants.items():
        value = constant.value(jnp.asarray(coordinates)[..., begin : begin + constant.size])
        begin += constant.size
        values[name] = value if constant.labels else value[..., 0]
    return values


def flat_values(
    constants: ConstantPriors, coordinates: Float[Array | np.ndarray, "*lanes n"]
) -> Float[np.ndarray, "*lanes n"]:
    """Values of the constants in the order of the coordinates, in NumPy float64."""
    with jax.enable_x64(True):
        values = values_of(constants, coordinates)
        parts = [values[name] if constant.labels else values[name][..., None] for name, constant in constants.items()]
        return np.concatenate(parts, axis=-1)
