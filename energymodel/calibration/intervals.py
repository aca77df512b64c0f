"""Intervals of fitted constants, constants that the data do not determine, and the measurement that helps most.

Laplace's approximation takes the objective for a parabola. That of a time or a latency is none: the smaller it is, the
less the data say of it, so that the lower end lies much further away than the upper. The posterior density of one
constant, found by walking along it, knows of that. Resampled groups are the third way.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import integrate, interpolate, stats

from energymodel.calibration.constant_priors import Vector, coordinate_bounds, flat_values, joint_prior
from energymodel.calibration.least_squares import FitResult, minimize_lanes
from energymodel.calibration.robust_loss import tempering

LEVEL = 0.9  # share of cases in which an interval holds the constant
LOWEST_GAIN = 0.5  # of the prior's variance, that data must remove
WIDEST_SHARE = 0.5  # of the range of a constant between two bounds
FIRST_STEP, GROWTH = 0.7, 1.5  # of a walk away from the fit [Laplace's standard deviation; 1]
MOST_ROUNDS = 16
TAIL = 0.002  # of Student's distribution, where a walk ends
FINE = 2001  # points of integration
WALK: dict[str, Any] = {"tolerance": 1e-4, "steps": 30}


class Intervals(NamedTuple):
    """Lower and upper end of each constant, in the order of `FitResult.names`."""

    lower: Vector
    upper: Vector


def laplace_intervals(fitted: FitResult, level: float = LEVEL) -> Intervals:
    """Confidence intervals by Laplace's approximation, `z +- t sqrt(C_zz)` [MacKay 2003, ch. 27], in the units of the
    constants.

    t is Student's quantile at the freedom of the fit. Too narrow where errors are far from linear in a coordinate:
    `outer_intervals` are not. The ends are taken in the coordinate of a constant, so that they stay within its physical
    range.
    """
    return Intervals(*flat_values(fitted.problem.constants, _laplace_ends(fitted, level)))


def _laplace_ends(fitted: FitResult, level: float) -> Float[np.ndarray, "2 n"]:
    half = stats.t.ppf(0.5 + 0.5 * level, fitted.freedom) * np.sqrt(np.diag(fitted.covariance))
    ends = np.stack([fitted.coordinates - half, fitted.coordinates + half])
    return np.clip(ends, *coordinate_bounds(fitted.problem.constants))


def bootstrap(
    fitted: FitResult, groups: Sequence[Any] | np.ndarray, count: int = 200, **options: Any
) -> Float[np.ndarray, "count n"]:
    """Constants refitted to groups drawn with replacement [Efron 1979], in their units; draws are lanes of one search.

    Rows of a group share what the model leaves out, so groups are drawn, not rows. `quantiles` makes intervals of them;
    below some ten groups they are too narrow. `options` change those of the fit.
    """
    problem = fitted.problem._replace(options=fitted.problem.options._replace(**options))
    names, member = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    generator = np.random.default_rng(problem.options.seed)
    draws = generator.multinomial(len(names), np.full(len(names), 1.0 / len(names)), count)
    # A row that is drawn k times counts k times: its weight multiplies the error, of which the square is taken.
    lanes = np.sqrt(draws[:, member].astype(np.float64))[:, :, None] * fitted.weights[None]
    starts = np.repeat(fitted.coordinates[None], count, axis=0)
    optima = minimize_lanes(problem, fitted.prior, starts, lanes, fitted.scale)
    return flat_values(problem.constants, optima.coordinates)


def quantiles(draws: Float[np.ndarray, "count n"], level: float = LEVEL) -> Intervals:
    """Percentile intervals of draws."""
    return Intervals(*np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0))


def informed(fitted: FitResult) -> Bool[np.ndarray, " n"]:
    """Whether the data take half of the variance of the kind's prior from a coordinate, by Laplace's approximation."""
    prior = joint_prior(fitted.problem.constants)
    return 1.0 - np.diag(fitted.covariance) / prior.spread**2 >= LOWEST_GAIN


def undetermined(fitted: FitResult, ends: Intervals | None = None) -> tuple[str, ...]:
    """Names of the constants that the data do not determine, by their intervals, by default Laplace's.

    Such a constant keeps more than half of the variance of the kind's prior (whatever earlier measurements added), or
    its interval is wider than a factor of `ConstantPrior.widest` (than half of its range, if that has two ends).
    """
    each = [constant for constant in fitted.problem.constants.values() for _ in range(constant.size)]
    base, top, widest = np.array([(constant.lower, constant.upper, constant.widest) for constant in each]).T
    lower, upper = ends or laplace_intervals(fitted)
    with np.errstate(invalid="ignore"):  # of constants without bounds, which no width makes undetermined
        factor = np.log(np.maximum(upper - base, 1e-300)) - np.log(np.maximum(lower - base, 1e-300))
        too_wide = np.where(
            np.isfinite(top), upper - lower > WIDEST_SHARE * (top - base), np.isfinite(base) & (factor > np.log(widest))
        )
    return tuple(name for name, poor in zip(fitted.names, ~informed(fitted) | too_wide, strict=True) if poor)


def outer_intervals(fitted: FitResult, level: float = LEVEL) -> Intervals:
    """At each end whichever reaches further, Laplace's interval or that of the posterior density.

    Neither alone holds every constant in 85 % of repetitions [docs/calibration.md]. Constants that the data do not
    inform keep Laplace's interval.
    """
    walked, plain = posterior_intervals(fitted, informed(fitted), level), laplace_intervals(fitted, level)
    return Intervals(np.minimum(walked.lower, plain.lower), np.maximum(walked.upper, plain.upper))


def posterior_intervals(fitted: FitResult, which: Bool[np.ndarray, " n"], level: float = LEVEL) -> Intervals:
    """Credible intervals of one constant each, all others integrated by Laplace's method [Tierney & Kadane 1986].

    `p(z_i) ~ (1 + D / v)^(-(v + 1) / 2) det(H)^(-1/2)`, with D twice the objective above its minimum while z_i is held
    and all others are best, H the information of the others there, and v the freedom. The loss counts by
    `robust_loss.tempering`, so that D is that of normal errors. All walks away from the fit are lanes of one search;
    coordinates not in `which` get Laplace's interval. Ends are in the units of the constants.
    """
    ends = _laplace_ends(fitted, level)
    chosen = np.flatnonzero(which)
    for index, walk in zip(chosen, _walks(fitted, chosen) if len(chosen) else (), strict=True):
        low, high = _central_share(walk, fitted.freedom, level)
        ends[:, index] = min(low, fitted.coordinates[index]), max(high, fitted.coordinates[index])
    return Intervals(*flat_values(fitted.problem.constants, ends))


def _walks(fitted: FitResult, chosen: np.ndarray) -> list[np.ndarray]:
    """By constant: coordinates in order, objectives, and `ln det H` of the others, out into the tail."""
    options = fitted.problem.options._replace(**WALK)
    problem = fitted.problem._replace(options=options)
    weights = np.sqrt(tempering(fitted.noise, fitted.scale, options.threshold, options.loss)) * fitted.weights[None]

    def searched(starts: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By side of a constant: where all others are best while it is held, the objective, and the information."""
        optima = minimize_lanes(problem, fitted.prior, starts, weights, fitted.scale, held=held)
        data = np.stack([fitted.information(slopes) for slopes in optima.slopes])
        return optima.coordinates, optima.objective, data + fitted.prior.information

    def volume(information: np.ndarray, index: int) -> float:
        return float(np.linalg.slogdet(np.delete(np.delete(information, index, 0), index, 1))[1])

    count, sigma = len(fitted.names), np.sqrt(np.diag(fitted.covariance))
    far = float(stats.t.isf(TAIL, fitted.freedom)) ** 2
    (center,), (lowest,), middle = searched(fitted.coordinates[None], np.zeros((1, count)))
    walked = {index: [(center[index], lowest, volume(middle[0], index))] for index in chosen.tolist()}
    along, sign = np.repeat(chosen, 2), np.tile([-1.0, 1.0], len(chosen))
    coordinates, information = np.repeat(center[None], len(along), 0), np.repeat(middle, len(along), 0)
    for step in FIRST_STEP * GROWTH ** np.arange(MOST_ROUNDS):
        columns = np.linalg.inv(information)[np.arange(len(along)), :, along]
        # How all coordinates follow one that moves by 1, times how far that moves.
        shift = columns / columns[np.arange(len(along)), along][:, None] * (sign * step * sigma[along])[:, None]
        coordinates, objective, information = searched(coordinates + shift, np.eye(count)[along])
        goes_on = np.isfinite(objective)
        for side in np.flatnonzero(goes_on):
            index = int(along[side])
            walked[index].append((coordinates[side, index], objective[side], volume(information[side], index)))
        goes_on &= 2.0 * (objective - lowest) < far
        if not np.any(goes_on):
            break
        along, sign, coordinates, information = (column[goes_on] for column in (along, sign, coordinates, information))
    return [np.array(sorted(walk)).T for walk in walked.values()]


def _central_share(walk: np.ndarray, freedom: float, level: float) -> tuple[float, float]:
    """Ends of the central share of a density known at the points of a walk."""
    coordinate, objective, logarithm = walk
    lowest = int(np.argmin(objective))
    side = np.where(np.arange(len(coordinate)) < lowest, -1.0, 1.0)
    distance = np.sqrt(np.maximum(2.0 * (objective - objective[lowest]), 0.0))
    fine = np.interp(np.linspace(0.0, len(coordinate) - 1.0, FINE), np.arange(len(coordinate)), coordinate)
    volume = np.interp(fine, coordinate, logarithm - logarithm[lowest])
    root = interpolate.PchipInterpolator(coordinate, side * distance)(fine)
    density = -0.5 * (freedom + 1.0) * np.log1p(root**2 / freedom) - 0.5 * volume
    total = integrate.cumulative_trapezoid(np.exp(density - np.max(density)), fine, initial=0.0)
    low, high = np.interp([0.5 - 0.5 * level, 0.5 + 0.5 * level], total / total[-1], fine)
    return float(low), float(high)


def common_factor(fitted: FitResult, level: float = LEVEL) -> tuple[tuple[float, float, float], ...]:
    """Factor by which the fit moves the first output of all measured rows, with its interval after and before.

    `exp(mean(e - e_0))` of the errors e at the fit and e_0 at the mean of the prior. Its logarithm has the standard
    deviation `sqrt(g^T C g)`, with the mean g of their slopes and the covariance C of the coordinates in either case.
    """
    used, points = fitted.weights[:, 0] > 0, np.stack([fitted.coordinates, fitted.prior.mean])
    at = fitted.at(fitted.problem.table, points)
    middle, g = np.mean(at.errors[:, used, 0], axis=1), np.mean(at.slopes[:, used, 0], axis=1)
    variances = g[0] @ fitted.covariance @ g[0], g[1] @ np.linalg.inv(fitted.prior.information) @ g[1]
    half = stats.t.ppf(0.5 + 0.5 * level, (fitted.freedom, np.inf)) * np.sqrt(variances)
    moved = middle - middle[1]
    return tuple(zip(*np.exp([moved, moved - half, moved + half]).tolist(), strict=True))


def next_measurement(fitted: FitResult, candidates: Any, targets: Any = None) -> tuple[int, float]:
    """Which of some candidate rows would sharpen the model most, were it measured, and its gain [Box & Lucas 1959].

    Adding a row with slopes J changes the covariance C to `C - C J^T (s^2 + J C J^T)^-1 J C`. The gain is the share by
    which that reduces the mean of `J C J^T` over the targets [1]: the uncertainty of predictions, not of constants that
    nothing depends on.

    **Arguments:**

    - `candidates`: a table like the measured one, with any finite numbers in place of measurements.
    - `targets`: another such table; by default all candidates.
    """
    slopes, covariance = fitted.at(candidates).slopes[0], fitted.covariance
    aims = slopes if targets is None else fitted.at(targets).slopes[0]
    spread = np.einsum("rai,ij,rbj->rab", slopes, covariance, slopes)
    total = np.einsum("qai,ij,qaj->", aims, covariance, aims)
    crossing = np.einsum("ij,rbj->rib", covariance, slopes)
    weight = np.linalg.inv(np.diag(fitted.noise**2) + spread)
    # How much less uncertain target q would be if row r were measured.
    shift = np.einsum("qai,rib->rqab", aims, crossing)
    gains = np.einsum("rqab,rbc,rqac->r", shift, weight, shift) / total
    return int(np.argmax(gains)), float(np.max(gains))
