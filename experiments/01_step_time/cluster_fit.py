"""Constants of a cluster fitted to its measured steps, with intervals and held-out errors.

Cauchy's loss of logarithmic errors forgives runs that something else slowed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import ConstantPrior, Values
from energymodel.calibration.kinds.step_time import MeasuredSteps, step_time_errors
from energymodel.calibration.layout_table import INPUTS
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult, fit, held_out_errors
from energymodel.calibration.step_prediction import predict_row, with_constants
from energymodel.readers.table import Measurements
from energymodel.system.training_system import TrainingSystem

WIDTH = 0.1  # error beyond which a row loses its weight
INTERVAL = 1.96  # standard deviations: 95 %


def memory_errors(values: Values, steps: MeasuredSteps) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the memory of tensors on the fullest chip."""
    system = with_constants(steps.system, values)
    predicted = jax.vmap(lambda row: predict_row(system, row).allocated)(steps.rows)
    return jnp.log(predicted / steps.measured)[:, None]


ERRORS = {"step_time_s": step_time_errors, "memory_b": memory_errors}


class ClusterConstant(NamedTuple):
    """A constant to fit: its dotted path in the system, where to start, how sure that is, and its physical range."""

    path: str
    value: float
    spread: float
    low: float
    high: float


class ClusterFit(NamedTuple):
    """Fitted constants with 95 % intervals, and the log error of each row in the fit and when its group is held out.

    Intervals end where the physical range of a constant does; `spread`, the standard deviations of the logarithms, does
    not know of it.
    """

    constants: Sequence[ClusterConstant]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spread: np.ndarray
    residual: np.ndarray
    held_out: np.ndarray

    @property
    def by_path(self) -> dict[str, float]:
        """Values by the path of their constant."""
        return {constant.path: float(value) for constant, value in zip(self.constants, self.values, strict=True)}

    def __str__(self) -> str:
        lines = zip(self.constants, self.values, self.low, self.high, strict=True)
        return "\n".join(
            f"  {constant.path} = {value:.4g} [{low:.4g}, {high:.4g}]" for constant, value, low, high in lines
        )


def fit_cluster(
    system: TrainingSystem,
    table: Measurements,
    constants: Sequence[ClusterConstant],
    groups: Sequence[Any],
    quantity: str = "step_time_s",
) -> ClusterFit:
    """Fit constants of a cluster to measured step times (or memory), and again without each group.

    **Arguments:**

    - `system`: the cluster with all other constants.
    - `groups`: one label for each row; rows of one label are held out together.
    - `quantity`: the measured column, `step_time_s` or `memory_b`.
    """
    rows = {column.name: table.columns[column.name] for column in INPUTS}
    problem = FitProblem(
        ERRORS[quantity],
        {
            constant.path: ConstantPrior(constant.value, constant.spread, constant.low, constant.high, clipped=True)
            for constant in constants
        },
        MeasuredSteps(system, rows, table.columns[quantity]),
        noise=WIDTH,
        options=FitOptions(loss="cauchy", threshold=1.0, estimate_noise=False, starts=4, steps=100),
    )
    fitted = fit(problem)
    spread = _spread(fitted)
    best, low, high = (
        fitted.coordinates,
        np.log([constant.low for constant in constants]),
        np.log([constant.high for constant in constants]),
    )
    return ClusterFit(
        constants,
        np.exp(best),
        np.exp(np.maximum(best - INTERVAL * spread, low)),
        np.exp(np.minimum(best + INTERVAL * spread, high)),
        spread,
        fitted.errors[:, 0],
        held_out_errors(fitted, groups)[:, 0],
    )


def _spread(result: FitResult) -> np.ndarray:
    """Standard deviations of the coordinates: from the weighed squares, with the scatter of the errors that count."""
    errors, slopes = result.errors[:, 0], result.slopes[:, 0]
    weight = 1.0 / (1.0 + (errors / WIDTH) ** 2)
    matrix = slopes.T @ (weight[:, None] * slopes) / WIDTH**2 + result.prior.information
    freedom = max(1.0, len(errors) - len(matrix))
    scatter = np.sum(weight * errors**2) / WIDTH**2 / freedom
    return np.sqrt(np.diag(np.linalg.inv(matrix)) * scatter)
