"""Slopes of the predicted time of a step by the constants that are fitted to step times."""

import math
from collections.abc import Mapping
from functools import cache, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import ConstantPrior, Values
from energymodel.calibration.predicted_step import predict_row, with_constants
from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.clusters import KIND
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, StepConstant
from energymodel.system.training_system import TrainingSystem

SAME = 1e-4  # relative difference of a number that nobody changed
ROWS = 128  # of the compiled program; longer tables take it several times


def constants_at(coordinates: Float[Array | np.ndarray, " constants"]) -> Values:
    """Values of the constants at coordinates, by path in a system."""
    return {
        path: prior_of(constant).value(jnp.asarray(z))
        for (path, constant), z in zip(STEP_CONSTANTS.items(), coordinates, strict=True)
    }


def prior_of(constant: StepConstant, coordinate: float | None = None, deviation: float = 1.0) -> ConstantPrior:
    """A constant as one that is fitted, with a median at a coordinate and a standard deviation of it."""
    z = constant.middle if coordinate is None else coordinate
    spread = deviation * (constant.slope(z) if math.isfinite(constant.upper) else 1.0)
    return ConstantPrior(constant.value(z), spread, 0.0, constant.upper, constant.unit, widest=10.0)


def log_step_time(coordinates: Float[Array, " constants"], system: TrainingSystem, row: Mapping[str, Any]) -> Array:
    """Logarithm of the time of a step on a system with the constants at coordinates."""
    return jnp.log(predict_row(with_constants(system, constants_at(coordinates)), row).step_time.total)


@cache
def _program() -> Any:
    def with_slopes(coordinates: Array, system: TrainingSystem, rows: Mapping[str, Array]) -> tuple[Array, Array]:
        def at_row(row: Mapping[str, Array]) -> tuple[Array, Array]:
            value, push = jax.linearize(lambda z: log_step_time(z, system, row), coordinates)
            return value, jax.vmap(push)(jnp.eye(len(STEP_CONSTANTS)))

        return jax.vmap(at_row)(rows)

    return jax.jit(with_slopes, compiler_options=compiler_options())


def log_step_times(
    coordinates: Float[np.ndarray, " constants"], system: TrainingSystem, rows: Mapping[str, np.ndarray]
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, "rows constants"]]:
    """Logarithms of the times of steps, and their slopes by coordinate, in float64."""
    count = len(next(iter(rows.values())))
    values, slopes = np.zeros(count), np.zeros((count, len(STEP_CONSTANTS)))
    with jax.enable_x64(True):
        for begin in range(0, count, ROWS):
            places = np.arange(begin, min(count, begin + ROWS))
            part = {name: np.asarray(column, np.float64)[np.resize(places, ROWS)] for name, column in rows.items()}
            leaves = jax.device_get(_program()(coordinates, system, part))
            values[places], slopes[places] = (leaf[: len(places)] for leaf in leaves)
    return values, slopes


class KnownConstants(NamedTuple):
    """What a scenario knows of the constants of its cluster together.

    `scatter` is the standard deviation of the logarithm of a step time whose constants are known.
    """

    coordinates: Coordinates
    scatter: float


def known_constants(scenario: Scenario) -> KnownConstants | None:
    """The constants of a fitted cluster, or of the population; nothing where the scenario states neither.

    Numbers that were changed since, by `--set` or in Python, are known exactly.
    """
    table = scenario.tables.get("calibration", {}).get(KIND)
    if table is None or "slopes" not in table or tuple(table["names"]) != NAMES:
        return None
    paths = [path.split(".") for path in NAMES]
    values = np.array([float(reduce(getattr, path, scenario.system)) for path in paths])
    changed = ~np.isclose(values, table["values"], rtol=SAME)
    mean = np.asarray(table["coordinates"], np.float64)
    for at in np.flatnonzero(changed & (values > 0.0)).tolist():
        mean[at] = STEP_CONSTANTS[NAMES[at]].coordinate(float(values[at]))
    covariance = np.where(changed[:, None] | changed, 0.0, np.asarray(table["covariance"], np.float64))
    return KnownConstants(Coordinates(mean, covariance), float(table["scatter"]))


def step_time_spread(
    constants: KnownConstants, system: TrainingSystem, rows: Mapping[str, np.ndarray]
) -> Float[np.ndarray, " rows"]:
    """Standard deviation of the logarithm of step times, `sqrt(g^T C g + s^2)` [Taylor 1997, sec. 3.7].

    C is the covariance of the coordinates, g are the slopes at their mean, s is the scatter.

    **Arguments:**

    - `rows`: the columns of `layout_table.INPUTS`.
    """
    _, slopes = log_step_times(constants.coordinates.mean, system, rows)
    return np.sqrt(np.einsum("ri,ij,rj->r", slopes, constants.coordinates.covariance, slopes) + constants.scatter**2)
