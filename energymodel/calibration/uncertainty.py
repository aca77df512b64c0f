"""How sure are fitted constants, which of them do the data not determine, and which measurement would help most?"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float
from scipy import stats

from energymodel.calibration.constants import Constants, prior_of
from energymodel.calibration.least_squares import (
    Errors,
    Fit,
    Options,
    flat,
    linearized,
    search,
    weights_of,
)

LEVEL = 0.9
LEAST_GAIN = 0.5  # of the prior's variance, that data must remove
WIDEST_SHARE = 0.5  # of the range of a constant between two bounds


class Interval(NamedTuple):
    """Lower and upper end, by constant in the order of `Fit.names`."""

    lower: Float[np.ndarray, " n"]
    upper: Float[np.ndarray, " n"]

    def outer(self, other: "Interval") -> "Interval":
        """At each end whichever reaches further: two approximations that both tend to be too narrow."""
        return Interval(np.minimum(self.lower, other.lower), np.maximum(self.upper, other.upper))

    def in_units(self, constants: Constants) -> "Interval":
        """The same ends as values of the constants, if these are coordinates."""
        return Interval(*flat(constants, np.stack(self)))


class NextMeasurement(NamedTuple):
    """The candidate that would help most.

    - `row`: of the candidates.
    - `gain`: share by which it would reduce the mean variance of the model's logarithm over all candidates [1].
    - `gains`: of all candidates.
    """

    row: int
    gain: float
    gains: Float[np.ndarray, " rows"]


def intervals(constants: Constants, fitted: Fit, level: float = LEVEL) -> Interval:
    """Confidence intervals by Laplace's approximation, `z +- t sqrt(C_zz)` [MacKay 2003, ch. 27].

    t is Student's quantile at the freedom of the fit. Too narrow where errors are far from linear in a coordinate:
    `posterior.outer_intervals` are not. The ends are taken in the coordinate of a constant, so that they
    stay within its physical range.

    **Arguments:**

    - `constants`, `fitted`: as given to and returned by `least_squares.fit`.
    - `level`: share of repetitions in which an interval holds the constant [1].

    **Returns:** the ends, in the units of the constants.
    """
    return laplace_ends(fitted, level).in_units(constants)


def laplace_ends(fitted: Fit, level: float = LEVEL) -> Interval:
    """`z +- t sqrt(C_zz)`, in coordinates; see `intervals`."""
    half = stats.t.ppf(0.5 + 0.5 * level, fitted.freedom) * np.sqrt(np.diag(fitted.covariance))
    return Interval(fitted.coordinates - half, fitted.coordinates + half)


def bootstrap(
    errors: Errors,
    constants: Constants,
    table: Any,
    groups: Sequence[Any] | np.ndarray,
    fitted: Fit,
    *,
    count: int = 200,
    weights: ArrayLike | None = None,
    options: Options | None = None,
) -> Float[np.ndarray, "count n"]:
    """Constants refitted to groups drawn with replacement [Efron 1979]; every draw is a lane of one search.

    Rows of a group share what the model leaves out, so groups are drawn, not rows. `quantiles` makes intervals of them;
    below some ten groups they are too narrow.

    **Arguments:**

    - `errors`, `constants`, `table`, `weights`, `fitted`: as for `least_squares.held_out_errors`.
    - `groups`: of the rows.
    - `count`: of draws.

    **Returns:** values by draw and constant, in the units of the constants.
    """
    options = options or Options()
    groups = np.asarray(groups)
    names, member = np.unique(groups.astype(str), return_inverse=True)
    draws = np.random.default_rng(options.seed).multinomial(len(names), np.full(len(names), 1.0 / len(names)), count)
    full = weights_of(weights, fitted.errors.shape)
    # A row that is drawn k times counts k times: its weight multiplies the error, of which the square is taken.
    lanes = np.sqrt(draws[:, member].astype(np.float64))[:, :, None] * full[None]
    starts = np.repeat(fitted.coordinates[None], count, axis=0)
    return flat(
        constants,
        search(errors, constants, table, starts, lanes, fitted.scale, options, prior=fitted.prior).coordinates,
    )


def quantiles(draws: Float[np.ndarray, "count n"], level: float = LEVEL) -> Interval:
    """Percentile intervals of draws."""
    lower, upper = np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    return Interval(lower, upper)


def informed(constants: Constants, fitted: Fit) -> Bool[np.ndarray, " n"]:
    """Whether the data take half of the variance of the kind's prior from a coordinate, by Laplace's approximation."""
    return 1.0 - np.diag(fitted.covariance) / prior_of(constants).spread ** 2 >= LEAST_GAIN


def undetermined(
    constants: Constants, fitted: Fit, level: float = LEVEL, ends: Interval | None = None
) -> tuple[str, ...]:
    """Names of the constants that the data do not determine.

    Such a constant keeps more than half of the variance of the kind's prior (whatever earlier measurements added), or
    its interval is wider than a factor of `Constant.widest` (than half of its range, if that has two ends): `ends`, or
    that of `intervals`.
    """
    prior = prior_of(constants)
    factor = np.concatenate([np.full(one.size, one.widest) for one in constants.values()])
    lower, upper = ends or intervals(constants, fitted, level)
    base = np.concatenate([np.full(one.size, one.lower) for one in constants.values()])
    top = np.concatenate([np.full(one.size, one.upper) for one in constants.values()])
    wide = np.where(
        np.isfinite(top),
        upper - lower > WIDEST_SHARE * np.where(np.isfinite(top), top - base, 1.0),
        np.where(
            np.isfinite(base),
            np.log(np.maximum(upper - base, 1e-300)) - np.log(np.maximum(lower - base, 1e-300)) > np.log(factor),
            False,
        ),
    )
    return tuple(name for name, poor in zip(prior.names, ~informed(constants, fitted) | wide, strict=True) if poor)


def next_measurement(
    errors: Errors, constants: Constants, fitted: Fit, candidates: Any, size: int = 0
) -> NextMeasurement:
    """Which of some candidate rows would sharpen the model most, were it measured [Box & Lucas 1959].

    Adding a row with slopes J changes the covariance C to `C - C J^T (s^2 + J C J^T)^-1 J C`. The gain is the share by
    which that reduces the mean of `J C J^T` over all candidates: the uncertainty of predictions, not of constants that
    nothing depends on.

    **Arguments:**

    - `errors`, `constants`, `fitted`: as given to and returned by `least_squares.fit`.
    - `candidates`: a table like the measured one, with any finite numbers in place of measurements.
    - `size`: rows of the measured table, whose compiled program is then used.

    **Returns:** the best row, its gain and all gains.
    """
    slopes, covariance = linearized(errors, constants, fitted.coordinates, candidates, size)[1], fitted.covariance
    spread = np.einsum("rai,ij,rbj->rab", slopes, covariance, slopes)
    total = np.einsum("raa->", spread)
    crossing = np.einsum("ij,rbj->rib", covariance, slopes)
    weight = np.linalg.inv(np.diag(fitted.noise**2) + spread)
    # How much less uncertain row q would be if row r were measured.
    shift = np.einsum("qai,rib->rqab", slopes, crossing)
    gains = np.einsum("rqab,rbc,rqac->r", shift, weight, shift) / total
    best = int(np.argmax(gains))
    return NextMeasurement(best, float(gains[best]), gains)
