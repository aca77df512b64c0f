"""Which constants fit measurements best, and how well do they predict groups of measurements that were held out?

Least squares of logarithmic errors with a robust loss and priors, in float64. All starts, all held-out groups and all
resamples are lanes of one batched Levenberg-Marquardt search.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from scipy import stats

from energymodel.calibration.constants import Constants, Prior, Values, flat_values, prior_of, values_of
from energymodel.compilation import compiler_options
from energymodel.numerics import Numeric

Errors = Callable[[Values, Any], Float[Array, "rows outputs"]]
"""Errors of a model on a table: `ln(predicted / measured)`, by row and output. A function at the top of a module."""

Loss = Literal["pseudo-huber", "huber", "squares"]
LANES = 16  # of one batched search
LEAST_ROWS = 64  # of a compiled program; tables are padded to a power of two
ROUNDS = 3  # of fit and estimate of the noise
CLIP = 2.0  # [noise] at which errors are clipped where the noise is estimated robustly
CLIPPINGS = 50
LEAST_NOISE = 1e-6  # of an error: measurements are not more exact
LEFT = 1e-6  # of the objective that a converged search may leave to gain
FIRST_DAMPING, LESS, MORE, MOST_DAMPING = 1e-3, 0.2, 5.0, 1e12


class Options(NamedTuple):
    """How errors are weighed and how long the search lasts.

    - `loss`: how errors far above the noise count: linearly ("huber", and smoothly so "pseudo-huber") or in full.
    - `threshold`: where linear counting begins [noise].
    - `estimate_noise`: find the noise of each output from the errors; else keep what was given.
    - `starts`: points from which the search begins, the first is the prior's median.
    - `steps`: at most, of a search.
    - `tolerance`: share of the objective that a search may leave to gain.
    - `seed`: of starts and resamples.
    """

    loss: Loss = "pseudo-huber"
    threshold: float = 2.0
    estimate_noise: bool = True
    starts: int = 8
    steps: int = 200
    tolerance: float = 1e-9
    seed: int = 0


class Solution(NamedTuple):
    """Where searches ended, one lane each: coordinates, half the weighed sum of squares, whether they converged, and
    the errors there by row and output with their slopes by coordinate.
    """

    coordinates: Float[np.ndarray, "lanes n"]
    objective: Float[np.ndarray, " lanes"]
    converged: Any
    errors: Float[np.ndarray, "lanes rows outputs"]
    slopes: Float[np.ndarray, "lanes rows outputs n"]


class Fit(NamedTuple):
    """Fitted constants.

    - `values`: of the constants, in their units.
    - `names`: of all values in order, with labels.
    - `coordinates`: where the range of a constant is all real numbers.
    - `covariance`: of the coordinates, by Laplace's approximation, prior included.
    - `noise`: standard deviation of an error, by output; `scale`: the one that weighed the errors in the search.
    - `freedom`: measurements less constants that they determine.
    - `errors`: of the fit, by row and output.
    - `prior`: that was used.
    - `objective`, `converged`: of the search; `starts_agreeing`: share of starts that ended there.
    """

    values: Values
    names: tuple[str, ...]
    prior: Prior
    coordinates: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    noise: Float[np.ndarray, " outputs"]
    scale: Float[np.ndarray, " outputs"]
    freedom: float
    errors: Float[np.ndarray, "rows outputs"]
    objective: float
    converged: bool
    starts_agreeing: float


def robust_error(error: Float[Array, "..."], threshold: Numeric, loss: Loss) -> Float[Array, "..."]:
    """What has a square twice the loss of an error, `r -> sign(r) sqrt(2 rho(r))` [Huber 1964].

    Huber: `rho = r^2 / 2` up to the threshold k, `k |r| - k^2 / 2` beyond. Pseudo-Huber: `k^2 (sqrt(1 + (r/k)^2) - 1)`.

    **Arguments:**

    - `error`: r, in units of the noise [1].
    - `threshold`: k [1].
    - `loss`: which rho.

    **Returns:** transformed error [1].
    """
    if loss == "squares":
        return error
    if loss == "pseudo-huber":
        return error * jnp.sqrt(2.0 / (1.0 + jnp.sqrt(1.0 + (error / threshold) ** 2)))
    size = jnp.abs(error)
    far = size > threshold
    linear = jnp.sqrt(2.0 * threshold * jnp.where(far, size, threshold) - threshold**2)
    return jnp.where(far, jnp.sign(error) * linear, error)


def fit(
    errors: Errors,
    constants: Constants,
    table: Any,
    *,
    weights: ArrayLike | None = None,
    noise: ArrayLike = 0.05,
    options: Options | None = None,
    prior: Prior | None = None,
) -> Fit:
    """Find the constants of least robust squares, `min sum rho(w e / s) + sum ((z - z_0) / s_0)^2 / 2`.

    The search begins from several points at once. The noise s of each output is then estimated from the errors of the
    best, and the search repeated from there. Intervals follow from `covariance`, see `uncertainty.intervals`.

    **Arguments:**

    - `errors`: errors of the model, see `Errors`.
    - `constants`: what is fitted, with priors and ranges.
    - `table`: passed to `errors`: measurements, a pytree of arrays with one entry for each row.
    - `weights`: of the rows (or rows and outputs) [1]; 0 leaves one out.
    - `noise`: first guess of the standard deviation of an error [1], of all outputs or each.
    - `prior`: of the coordinates, if not that of the constants, such as `constants.updated_prior`.

    **Returns:** the fit, in NumPy float64.
    """
    options = options or Options()
    prior = prior or prior_of(constants)
    shape = _shape_of(errors, constants, table)
    full = weights_of(weights, shape)
    scale = np.broadcast_to(np.asarray(noise, np.float64), shape[1:])
    found = search(errors, constants, table, _starts(prior, options), full[None], scale, options, prior=prior)
    best, estimate = _best(found), _estimate(found, full, scale, prior, options)
    for _ in range(ROUNDS - 1 if options.estimate_noise else 0):
        scale = estimate.noise
        starts = np.where(np.isfinite(found.coordinates), found.coordinates, prior.mean)
        found = search(errors, constants, table, starts, full[None], scale, options, prior=prior)
        best, estimate = _best(found), _estimate(found, full, scale, prior, options)
    objective = found.objective
    return Fit(
        values=_named(constants, flat(constants, found.coordinates[best : best + 1])[0]),
        names=prior.names,
        prior=prior,
        coordinates=found.coordinates[best],
        covariance=estimate.covariance,
        noise=estimate.noise,
        scale=scale,
        freedom=estimate.freedom,
        errors=found.errors[best],
        objective=float(objective[best]),
        converged=bool(found.converged[best]),
        starts_agreeing=float(np.mean(objective < objective[best] + 1e-3 * max(1.0, objective[best]))),
    )


def held_out_errors(
    errors: Errors,
    constants: Constants,
    table: Any,
    groups: Sequence[Any] | np.ndarray,
    fitted: Fit,
    *,
    weights: ArrayLike | None = None,
    trained_on: ArrayLike | None = None,
    options: Options | None = None,
) -> Float[np.ndarray, "rows outputs"]:
    """Errors on each group of rows of a fit to all other groups; all of these fits are lanes of one search.

    **Arguments:**

    - `errors`, `constants`, `table`, `weights`: as given to `fit`.
    - `groups`: of the rows; never split rows that share a cause.
    - `fitted`: what `fit` returned, whose noise is kept; the searches begin from the prior's median and from there.
    - `trained_on`: whether a row of a held-out group may be fitted nevertheless, such as the one profile that a
      transfer starts from.

    **Returns:** errors by row and output.
    """
    options = options or Options()
    groups = np.asarray(groups)
    names = list(dict.fromkeys(groups.tolist()))
    full = weights_of(weights, fitted.errors.shape)
    held = np.stack([groups == name for name in names])
    allowed = np.zeros(len(groups), bool) if trained_on is None else np.asarray(trained_on, bool)
    lanes = np.repeat(np.where((held & ~allowed)[:, :, None], 0.0, full[None]), 2, axis=0)
    starts = np.tile(np.stack([fitted.prior.mean, fitted.coordinates]), (len(names), 1))
    found = search(errors, constants, table, starts, lanes, fitted.scale, options, prior=fitted.prior)
    objective = found.objective.reshape(-1, 2)
    lane_of_row = (2 * np.arange(len(names)) + np.argmin(objective, axis=1))[np.argmax(held, axis=0)]
    return found.errors[lane_of_row, np.arange(len(groups))]


def search(
    errors: Errors,
    constants: Constants,
    table: Any,
    starts: Float[np.ndarray, "lanes n"],
    weights: Float[np.ndarray, "lanes_or_one rows outputs"],
    noise: Float[np.ndarray, " outputs"],
    options: Options,
    size: int = 0,
    prior: Prior | None = None,
    held: Float[np.ndarray, "lanes n"] | None = None,
) -> Solution:
    """Run one search from each start, with the weights of its lane (or the same for all), some lanes at a time.

    Every fit of one model, of any number of lanes and up to a power of two rows, is one compiled program; `size` is the
    least number of rows that it has, so that a smaller table needs no program of its own. Coordinates of a lane that
    are `held` stay where they start.
    """
    held = np.zeros(starts.shape) if held is None else held
    with jax.enable_x64(True):
        prior, rows = prior or prior_of(constants), weights.shape[1]
        known = (prior.mean, prior.whiten)
        padded = max(LEAST_ROWS, 1 << (max(rows, size) - 1).bit_length())
        frozen = tuple((name, one._replace(median=0.0, spread=0.0)) for name, one in constants.items())
        program = _program(_search_lanes, 3)
        table = jax.tree.map(partial(_padded, rows=rows, size=padded), table)
        knobs = (options.threshold, float(options.steps), options.tolerance)
        parts = []
        for begin in range(0, len(starts), LANES):
            lanes = np.minimum(np.arange(begin, begin + LANES), len(starts) - 1)
            given = np.zeros((LANES, padded, weights.shape[2]))
            given[:, :rows] = weights[lanes if len(weights) > 1 else np.zeros(LANES, int)]
            found = program(errors, frozen, options.loss, starts[lanes], given, held[lanes], noise, known, knobs, table)
            parts.append([np.asarray(leaf) for leaf in found])
        z, objective, converged, error, slopes = (
            np.concatenate(part)[: len(starts)] for part in zip(*parts, strict=True)
        )
    objective = np.where(np.isfinite(objective), objective, np.inf)
    return Solution(z, objective, converged, error[:, :rows], slopes[:, :rows])


def _best(found: Solution) -> int:
    return int(np.argmin(found.objective))


def _padded(leaf: Any, rows: int, size: int) -> Any:
    """A column with its first entry repeated to a size; what is no column is left alone."""
    leaf = np.asarray(leaf)
    if leaf.ndim == 0 or len(leaf) != rows:
        return leaf
    return np.concatenate([leaf, np.repeat(leaf[:1], size - rows, axis=0)])


@cache
def _program(function: Callable[..., Any], static: int) -> Callable[..., Any]:
    """The function compiled, its first arguments as constants of the program."""
    return jax.jit(function, static_argnums=tuple(range(static)), compiler_options=compiler_options())


class _State(NamedTuple):
    """Of one search: the best point with its objective, errors and slopes, what is tried next, and how far it is."""

    point: Array
    objective: Array
    errors: Array
    slopes: Array
    trial: Array
    damping: Array
    left: Array
    steps: Array


def _search_lanes(
    errors: Errors,
    constants: Any,
    loss: Loss,
    starts: Any,
    weights: Any,
    held: Any,
    noise: Any,
    prior: Any,
    knobs: Any,
    table: Any,
) -> tuple[Array, Array, Array, Array, Array]:
    """Levenberg-Marquardt searches [Nocedal & Wright 2006, sec. 10.3]; errors and slopes are evaluated in one place."""
    mean, whiten = prior
    information = whiten.T @ whiten
    threshold, most_steps, tolerance = knobs
    named = dict(constants)

    def evaluate(z: Array) -> tuple[Array, Array]:
        def both(z: Array) -> tuple[Array, Array]:
            error = errors(values_of(named, z), table)
            return error, error

        slopes, error = jax.jacfwd(both, has_aux=True)(z)
        return error, slopes

    def lane(start: Array, weights: Array, held: Array) -> tuple[Array, Array, Array, Array, Array]:
        def transformed(error: Array) -> tuple[Any, Any]:
            scaled = jnp.where(weights > 0, error / noise, 0.0)
            value, slope = jax.jvp(lambda one: robust_error(one, threshold, loss), (scaled,), (jnp.ones_like(scaled),))
            return weights * value, jnp.where(weights > 0, weights * slope / noise, 0.0)

        def step(state: _State) -> _State:
            error, slopes = evaluate(state.trial)
            distance = whiten @ (state.trial - mean)
            objective = 0.5 * (jnp.sum(transformed(error)[0] ** 2) + jnp.sum(distance**2))
            fresh = state.steps == 0
            better = fresh | (objective < state.objective)

            def pick(new: Array, old: Array) -> Array:
                return jnp.where(better, new, old)

            point, objective = pick(state.trial, state.point), pick(objective, state.objective)
            error, slopes = pick(error, state.errors), pick(slopes, state.slopes)
            damping = jnp.where(fresh, FIRST_DAMPING, state.damping * jnp.where(better, LESS, MORE))
            value, weight = transformed(error)
            rows = jnp.where(weights[..., None] > 0, slopes * weight[..., None], 0.0).reshape(-1, slopes.shape[-1])
            free = 1.0 - held
            gradient = free * (rows.T @ value.ravel() + information @ (point - mean))
            matrix = jnp.outer(free, free) * (rows.T @ rows + information) + jnp.diag(held)
            diagonal = jnp.diag(jnp.diag(matrix))
            left = 0.5 * gradient @ jnp.linalg.solve(matrix, gradient)
            trial = point - jnp.linalg.solve(matrix + damping * diagonal, gradient)
            return _State(point, objective, error, slopes, trial, damping, left, state.steps + 1.0)

        def lasts(state: _State) -> Array:
            wanted = (state.left > tolerance * (1.0 + state.objective)) & (state.damping < MOST_DAMPING)
            return (state.steps == 0) | (wanted & (state.steps <= most_steps))

        shape = weights.shape
        infinite = jnp.asarray(jnp.inf)
        first = _State(
            start, infinite, jnp.zeros(shape), jnp.zeros((*shape, len(mean))), start, jnp.asarray(0.0), infinite,
            jnp.asarray(0.0),
        )  # fmt: skip
        state = jax.lax.while_loop(lasts, step, first)
        return state.point, state.objective, state.left <= LEFT * (1.0 + state.objective), state.errors, state.slopes

    return jax.vmap(lane)(starts, weights, held)


def linearized(
    errors: Errors, constants: Constants, coordinates: Float[np.ndarray, " n"], table: Any, size: int = 0
) -> tuple[Float[np.ndarray, "rows outputs"], Float[np.ndarray, "rows outputs n"]]:
    """Errors and their slopes by coordinate: a search of no steps."""
    shape = _shape_of(errors, constants, table)
    at = search(
        errors, constants, table, coordinates[None], np.ones((1, *shape)), np.ones(shape[1]), Options(steps=0), size
    )
    return at.errors[0], at.slopes[0]


def _starts(prior: Prior, options: Options) -> Float[np.ndarray, "starts n"]:
    """The prior's median, and draws from the prior, no wider than a factor e."""
    generator = np.random.default_rng(options.seed)
    draws = generator.standard_normal((options.starts, len(prior.mean))) * np.minimum(prior.spread, 1.0)
    draws[0] = 0.0
    return prior.mean + draws


def _shape_of(errors: Errors, constants: Constants, table: Any) -> tuple[int, int]:
    with jax.enable_x64(True):
        middle = prior_of(constants).mean
        return jax.eval_shape(lambda z: errors(values_of(constants, z), table), jnp.asarray(middle)).shape


def weights_of(weights: ArrayLike | None, shape: tuple[int, ...]) -> Float[np.ndarray, "rows outputs"]:
    """Weights by row and output, from none, weights of the rows, or both."""
    given = np.ones(shape) if weights is None else np.asarray(weights, np.float64)
    return np.broadcast_to(given[:, None] if given.ndim == 1 else given, shape).copy()


class _Estimate(NamedTuple):
    """What errors and slopes at the best point say: noise by output, freedom, and covariance of the coordinates."""

    noise: np.ndarray
    freedom: float
    covariance: np.ndarray


def _estimate(found: Solution, weights: np.ndarray, scale: np.ndarray, prior: Prior, options: Options) -> _Estimate:
    best = _best(found)
    errors, slopes, robust = found.errors[best], found.slopes[best], options.loss != "squares"
    count = np.sum(weights > 0)
    noise = scale
    for _ in range(ROUNDS):
        freedom = max(1.0, count - _determined(slopes, weights, noise, prior.information))
        noise = _noise_of(errors, weights, freedom, robust=robust)
    freedom = max(1.0, count - _determined(slopes, weights, noise, prior.information))
    information = _information(slopes, weights, noise, _thresholds(scale, noise, options))
    covariance = np.linalg.inv(information + prior.information)
    return _Estimate(noise, float(freedom), covariance)


def _huber_moments(threshold: Any) -> tuple[Any, Any]:
    """`E[psi^2]` and `E[psi']` of Huber's psi at a threshold, for a standard normal error."""
    k = np.minimum(threshold, 40.0)
    inside = 2.0 * stats.norm.cdf(k) - 1.0
    return inside - 2.0 * k * stats.norm.pdf(k) + k**2 * (1.0 - inside), inside


def _noise_of(errors: np.ndarray, weights: np.ndarray, freedom: float, *, robust: bool) -> np.ndarray:
    """Standard deviation of the errors by output; robustly, with errors clipped at twice of it."""
    count = np.maximum(np.sum(weights > 0, axis=0), 1)
    share = np.sum(weights > 0) / freedom
    squares = np.where(weights > 0, weights**2 * errors**2, 0.0)
    scale = np.sqrt(np.sum(squares, axis=0) / count * share)
    if robust:
        expected = _huber_moments(CLIP)[0]
        for _ in range(CLIPPINGS):
            scale = np.sqrt(np.sum(np.minimum(squares, (CLIP * scale) ** 2), axis=0) / count * share / expected)
    return np.maximum(scale, LEAST_NOISE)


def _information(
    slopes: np.ndarray, weights: np.ndarray, noise: np.ndarray, thresholds: np.ndarray
) -> Float[np.ndarray, "n n"]:
    """Fisher information of the coordinates in the data, less what a robust loss loses of it [Huber 1964]."""
    variance, slope = _huber_moments(thresholds)
    scaled = np.where(weights[:, :, None] > 0, slopes, 0.0) * (weights / noise * slope / np.sqrt(variance))[:, :, None]
    rows = scaled.reshape(-1, slopes.shape[-1])
    return rows.T @ rows


def efficient_information(
    slopes: Float[np.ndarray, "rows outputs n"],
    weights: Float[np.ndarray, "rows outputs"],
    fitted: Fit,
    options: Options,
) -> Float[np.ndarray, "n n"]:
    """Fisher information of the coordinates in the data at slopes, as in `Fit.covariance`."""
    return _information(slopes, weights, fitted.noise, _thresholds(fitted.scale, fitted.noise, options))


def tempering(fitted: Fit, options: Options) -> Float[np.ndarray, " outputs"]:
    """Factor of the loss by output, with which it is half a chi-square, `E[psi'] / E[psi^2]` [Ribatet et al. 2012].

    psi is the slope of the loss; the mean is over normal errors with the noise of the fit.
    """
    nodes, share = np.polynomial.hermite_e.hermegauss(201)
    share = share / np.sum(share)
    error = nodes[:, None] * fitted.noise / fitted.scale
    k = options.threshold
    if options.loss == "squares":
        psi, slope = error, np.ones_like(error)
    elif options.loss == "huber":
        variance, inside = _huber_moments(k * fitted.scale / fitted.noise)
        return inside / variance * (fitted.scale / fitted.noise) ** 2
    else:
        psi, slope = error / np.sqrt(1.0 + (error / k) ** 2), (1.0 + (error / k) ** 2) ** -1.5
    return (share @ slope) / (share @ psi**2)


def _thresholds(scale: np.ndarray, noise: np.ndarray, options: Options) -> np.ndarray:
    return (options.threshold if options.loss != "squares" else np.inf) * scale / noise


def _determined(slopes: np.ndarray, weights: np.ndarray, noise: np.ndarray, prior: np.ndarray) -> float:
    """Effective count of constants that the data determine, `tr(H (H + S^-1)^-1)`."""
    information = _information(slopes, weights, noise, np.full(np.shape(noise), np.inf))
    return float(np.trace(np.linalg.solve(information + prior, information)))


def flat(constants: Constants, lanes: Float[np.ndarray, "lanes n"]) -> Float[np.ndarray, "lanes n"]:
    """Values of all constants in the order of `Fit.names`, in NumPy float64."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(lambda z: flat_values(constants, z))(jnp.asarray(lanes)))


def _named(constants: Constants, flat_: Float[np.ndarray, " n"]) -> Values:
    values: Values = {}
    place = 0
    for name, one in constants.items():
        part = flat_[place : place + one.size]
        place += one.size
        values[name] = part if one.labels else np.asarray(part[0])
    return values
