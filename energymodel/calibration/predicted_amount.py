"""How much does a fitted curve say that a setting takes that was not measured, and how sure is that?"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from energymodel.calibration.intervals import LEVEL
from energymodel.calibration.least_squares import FitResult, evaluate_lanes


class PredictedAmount(NamedTuple):
    """Tokens or samples to the target of a group at a batch, with a 90 % interval, all in one unit."""

    group: str
    batch: float
    amount: float
    low: float
    high: float
    unit: str


def predicted_amounts(
    fitted: FitResult,
    table: Any,
    groups: Sequence[str],
    batches: Sequence[float],
    unit: str,
    left: np.ndarray | float = 0.0,
) -> tuple[PredictedAmount, ...]:
    """Predictions at settings, with what is uncertain in the constants and the scatter of one measurement.

    The ends are the model's at the constants that move a setting most for their likelihood, `z +- t C J / sqrt(J C J)`
    [Hasofer & Lind 1974], so that they keep the shape of the curve; the scatter adds in squares.

    **Arguments:**

    - `table`: like the measured one, with 1 in place of the measured amounts.
    - `groups`, `batches`: of its rows.
    - `left`: variance of the logarithm at these settings that is in no constant.
    """
    problem = fitted.problem._replace(table=table)
    at_fit = evaluate_lanes(problem, fitted.prior, fitted.coordinates[None], fitted.scale)
    middle, slopes = at_fit.errors[0, :, 0], at_fit.slopes[0, :, 0]
    quantile = stats.t.ppf(0.5 + 0.5 * LEVEL, fitted.freedom)
    spread = np.sqrt(np.einsum("ri,ij,rj->r", slopes, fitted.covariance, slopes))
    shift = quantile * slopes @ fitted.covariance / spread[:, None]
    ends_of_walks = np.concatenate([fitted.coordinates - shift, fitted.coordinates + shift])
    moved = evaluate_lanes(problem, fitted.prior, ends_of_walks, fitted.scale)
    place = np.arange(len(batches))
    ends = moved.errors[:, :, 0].reshape(2, len(batches), -1)[:, place, place] - middle
    reach = np.hypot(ends, quantile * np.sqrt(fitted.noise[0] ** 2 + left))
    columns = (np.exp(middle + change) for change in (0.0, -reach[0], reach[1]))
    return tuple(
        PredictedAmount(group, float(batch), float(amount), float(low), float(high), unit)
        for group, batch, amount, low, high in zip(groups, batches, *columns, strict=True)
    )
