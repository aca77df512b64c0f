"""The setting whose measurement would sharpen predictions most."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.calibration.least_squares import FitResult, evaluate_lanes, program_rows, table_shape


class NextMeasurement(NamedTuple):
    """The candidate that would help most.

    - `row`: of the candidates.
    - `gain`: share by which it would reduce the mean variance of the model's logarithm over all candidates [1].
    - `gains`: of all candidates.
    """

    row: int
    gain: float
    gains: Float[np.ndarray, " rows"]


def next_measurement(fitted: FitResult, candidates: Any) -> NextMeasurement:
    """Which of some candidate rows would sharpen the model most, were it measured [Box & Lucas 1959].

    Adding a row with slopes J changes the covariance C to `C - C J^T (s^2 + J C J^T)^-1 J C`. The gain is the share by
    which that reduces the mean of `J C J^T` over all candidates: the uncertainty of predictions, not of constants that
    nothing depends on.

    **Arguments:**

    - `candidates`: a table like the measured one, with any finite numbers in place of measurements.
    """
    slopes, covariance = linearized(fitted, candidates)[1], fitted.covariance
    spread = np.einsum("rai,ij,rbj->rab", slopes, covariance, slopes)
    total = np.einsum("raa->", spread)
    crossing = np.einsum("ij,rbj->rib", covariance, slopes)
    weight = np.linalg.inv(np.diag(fitted.noise**2) + spread)
    # How much less uncertain row q would be if row r were measured.
    shift = np.einsum("qai,rib->rqab", slopes, crossing)
    gains = np.einsum("rqab,rbc,rqac->r", shift, weight, shift) / total
    best = int(np.argmax(gains))
    return NextMeasurement(best, float(gains[best]), gains)


def linearized(
    fitted: FitResult, table: Any
) -> tuple[Float[np.ndarray, "rows outputs"], Float[np.ndarray, "rows outputs n"]]:
    """Errors and their slopes by coordinate at a fit, on another table; the program of the fit takes so many rows at a
    time.
    """
    rows, size = table_shape(fitted.problem, table)[0], program_rows(len(fitted.errors))
    parts = []
    for begin in range(0, rows, size):

        def taken(leaf: Any, begin: int = begin) -> Any:
            """Some entries of a column; what is no column is left alone."""
            leaf = np.asarray(leaf)
            return leaf if leaf.ndim == 0 or len(leaf) != rows else leaf[begin : begin + size]

        some = fitted.problem._replace(table=jax.tree.map(taken, table))
        parts.append(evaluate_lanes(some, fitted.prior, fitted.coordinates[None], fitted.scale, fewest_rows=size))
    errors, slopes = (np.concatenate([getattr(part, name)[0] for part in parts]) for name in ("errors", "slopes"))
    return errors, slopes
