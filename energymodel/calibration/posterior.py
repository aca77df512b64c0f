"""Between which ends does a fitted constant lie, where errors are not linear in its coordinate?

Laplace's approximation takes the objective for a parabola. That of a time or a latency is none: the smaller it is, the
less the data say of it, so that the lower end lies much further away than the upper.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float
from scipy import integrate, interpolate, stats

from energymodel.calibration.constants import Constants
from energymodel.calibration.least_squares import (
    Errors,
    Fit,
    Options,
    efficient_information,
    search,
    tempering,
    weights_of,
)
from energymodel.calibration.uncertainty import LEVEL, Interval, informed, intervals, laplace_ends

FIRST_STEP, GROWTH = 0.7, 1.5  # of a walk away from the fit [Laplace's standard deviation; 1]
MOST_ROUNDS = 16
TAIL = 0.002  # of Student's distribution, where a walk ends
FINE = 2001  # points of integration
WALK: dict[str, Any] = {"tolerance": 1e-4, "steps": 30}


class _Point(NamedTuple):
    """Where all coordinates are best while one is held, by side of a constant."""

    at: Float[np.ndarray, "sides n"]
    objective: Float[np.ndarray, " sides"]
    information: Float[np.ndarray, "sides n n"]


def outer_intervals(
    errors: Errors,
    constants: Constants,
    table: Any,
    fitted: Fit,
    *,
    weights: ArrayLike | None = None,
    options: Options | None = None,
    level: float = LEVEL,
) -> Interval:
    """At each end whichever reaches further, Laplace's interval or that of the posterior density.

    Neither alone holds every constant in 85 % of repetitions [docs/calibration.md]. Constants that the data do not
    inform keep Laplace's interval. Arguments are those of `posterior_intervals`.
    """
    which = informed(constants, fitted)
    walked = posterior_intervals(
        errors, constants, table, fitted, weights=weights, options=options, which=which, level=level
    )
    return walked.outer(intervals(constants, fitted, level))


def posterior_intervals(
    errors: Errors,
    constants: Constants,
    table: Any,
    fitted: Fit,
    *,
    weights: ArrayLike | None = None,
    options: Options | None = None,
    which: Bool[np.ndarray, " n"] | None = None,
    level: float = LEVEL,
) -> Interval:
    """Credible intervals of one constant each, all others integrated by Laplace's method [Tierney & Kadane 1986].

    `p(z_i) ~ (1 + D / v)^(-(v + 1) / 2) det(H)^(-1/2)`, with D twice the objective above its least while z_i is held
    and all others are best, H the information of the others there, and v the freedom. The loss counts by
    `least_squares.tempering`, so that D is that of normal errors. All walks away from the fit are lanes of one search.

    **Arguments:**

    - `errors`, `constants`, `table`, `weights`, `options`, `fitted`: as for `least_squares.held_out_errors`.
    - `which`: coordinates that are walked along; the others get Laplace's interval.
    - `level`: share of cases in which an interval holds the constant [1].

    **Returns:** the ends, in the units of the constants.
    """
    options = (options or Options())._replace(**WALK)
    best, sigma, count = fitted.coordinates, np.sqrt(np.diag(fitted.covariance)), len(fitted.names)
    full = weights_of(weights, fitted.errors.shape)
    weight = np.sqrt(tempering(fitted, options)) * full[None]

    def searched(starts: np.ndarray, held: np.ndarray) -> _Point:
        found = search(
            errors, constants, table, starts, weight, fitted.scale, options, prior=fitted.prior, held=held
        )  # fmt: skip
        information = np.stack([efficient_information(slopes, full, fitted, options) for slopes in found.slopes])
        return _Point(found.coordinates, found.objective, information + fitted.prior.information)

    chosen = np.flatnonzero(np.ones(count, bool) if which is None else which).tolist()
    lower, upper = ends = laplace_ends(fitted, level)
    if len(chosen) == 0:
        return ends.in_units(constants)
    walks = _walks(searched, best, sigma, chosen, float(stats.t.isf(TAIL, fitted.freedom)) ** 2)
    for one, (place, objective, logarithm) in zip(chosen, walks, strict=True):
        low, high = _quantiles(place, objective, logarithm, fitted.freedom, level)
        lower[one], upper[one] = min(low, best[one]), max(high, best[one])
    return ends.in_units(constants)


def _walks(searched: Any, best: np.ndarray, sigma: np.ndarray, chosen: list[int], far: float) -> list[Any]:
    """By constant: coordinates in order, objectives, and `ln det H` of the others, out to where D exceeds `far`."""
    count = len(best)
    middle = searched(best[None], np.zeros((1, count)))
    center, least = middle.at[0], middle.objective[0]
    places = {one: [(center[one], least, _others(middle.information[0], one))] for one in chosen}
    along, sign = np.repeat(chosen, 2), np.tile([-1.0, 1.0], len(chosen))
    at, information = np.repeat(center[None], len(along), 0), np.repeat(middle.information, len(along), 0)
    for step in FIRST_STEP * GROWTH ** np.arange(MOST_ROUNDS):
        held = np.eye(count)[along]
        shift = np.stack(
            [
                _direction(matrix, one) * way * step * sigma[one]
                for matrix, one, way in zip(information, along.tolist(), sign, strict=True)
            ]
        )
        found = searched(at + shift, held)
        goes_on = np.isfinite(found.objective)
        for side in np.flatnonzero(goes_on):
            one = int(along[side])
            places[one].append((found.at[side, one], found.objective[side], _others(found.information[side], one)))
        goes_on &= 2.0 * (found.objective - least) < far
        if not np.any(goes_on):
            break
        along, sign, at, information = along[goes_on], sign[goes_on], found.at[goes_on], found.information[goes_on]
    return [np.array(sorted(places[one])).T for one in chosen]


def _direction(information: np.ndarray, one: int) -> np.ndarray:
    """How all coordinates follow one that moves by 1."""
    column = np.linalg.inv(information)[:, one]
    return column / column[one]


def _others(information: np.ndarray, one: int) -> float:
    kept = np.delete(np.delete(information, one, 0), one, 1)
    return float(np.linalg.slogdet(kept)[1])


def _quantiles(
    place: np.ndarray, objective: np.ndarray, logarithm: np.ndarray, freedom: float, level: float
) -> tuple[float, float]:
    """Ends of the central share of a density known at a few places."""
    least = int(np.argmin(objective))
    side = np.where(np.arange(len(place)) < least, -1.0, 1.0)
    root = interpolate.PchipInterpolator(place, side * np.sqrt(np.maximum(2.0 * (objective - objective[least]), 0.0)))
    fine = np.interp(np.linspace(0.0, len(place) - 1.0, FINE), np.arange(len(place)), place)
    volume = np.interp(fine, place, logarithm - logarithm[least])
    density = -0.5 * (freedom + 1.0) * np.log1p(root(fine) ** 2 / freedom) - 0.5 * volume
    total = integrate.cumulative_trapezoid(np.exp(density - np.max(density)), fine, initial=0.0)
    ends = np.interp([0.5 - 0.5 * level, 0.5 + 0.5 * level], total / total[-1], fine)
    return float(ends[0]), float(ends[1])
