"""Which constants fit measurements best, and how well do they predict groups of measurements that were held out?

Least squares of logarithmic errors with a robust loss and priors, in float64. All starts, all held-out groups and all
resamples are lanes of one batched Levenberg-Marquardt search.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, ArrayLike, Float

from energymodel.calibration.constants import Constants, Values, flat_values, prior_of, values_of
from energymodel.compilation import compiler_options

Errors = Callable[[Values, Any], Float[Array, "rows outputs"]]
"""Errors of a model on a table: `ln(predicted / measured)`, by row and output. A function at the top of a module."""

Loss = Literal["pseudo-huber", "huber", "squares"]
LANES = 16  # of one batched search
ROUNDS = 3  # of fit and estimate of the noise
CLIP = 2.0  # [noise] at which errors are clipped where the noise is estimated robustly
CLIPPINGS = 50
LEAST_NOISE = 1e-6  # of an error: measurements are not more exact
LEFT = 1e-6  # of the objective that a converged search may leave to gain


class Options(NamedTuple):
    """How errors are weighed and how long the search lasts.

    - `loss`: how errors far above the noise count: linearly ("huber", and smoothly so "pseudo-huber") or in full.
    - `threshold`: where linear counting begins [noise].
    - `estimate_noise`: find the noise of each output from the errors; else keep what was given.
    - `starts`: points from which the search begins, the first is the prior's median.
    - `steps`: at most, of a search.
    - `tolerance`: of a step, relative.
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
    """Where searches ended, one lane each: coordinates, half the weighed sum of squares, and whether they converged."""

    coordinates: Float[np.ndarray, "lanes n"]
    objective: Float[np.ndarray, " lanes"]
    converged: Any


class Fit(NamedTuple):
    """Fitted constants.

    - `values`: of the constants, in their units.
    - `names`: of all values in order, with labels.
    - `coordinates`: where the range of a constant is all real numbers.
    - `covariance`: of the coordinates, by Laplace's approximation, prior included.
    - `noise`: standard deviation of an error, by output; `scale`: the one that weighed the errors in the search.
    - `freedom`: measurements less constants that they determine.
    - `errors`: of the fit, by row and output.
    - `objective`, `converged`: of the search; `starts_agreeing`: share of starts that ended there.
    """

    values: Values
    names: tuple[str, ...]
    coordinates: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    noise: Float[np.ndarray, " outputs"]
    scale: Float[np.ndarray, " outputs"]
    freedom: float
    errors: Float[np.ndarray, "rows outputs"]
    objective: float
    converged: bool
    starts_agreeing: float


def robust_error(error: Float[Array, "..."], threshold: float, loss: Loss) -> Float[Array, "..."]:
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
) -> Fit:
    """Find the constants of least robust squares, `min sum rho(w e / s) + sum ((z - z_0) / s_0)^2 / 2`.

    The search begins from several points at once. The noise s of each output is then estimated from the errors of the
    best, and the search repeated from there. Intervals follow from `covariance`, see `uncertainty.intervals`.

    **Arguments:**

    - `errors`: errors of the model, see `Errors`.
    - `constants`: what is fitted, with priors and ranges.
    - `table`: passed to `errors`: measurements, a pytree of arrays.
    - `weights`: of the rows (or rows and outputs) [1]; 0 leaves one out.
    - `noise`: first guess of the standard deviation of an error [1], of all outputs or each.

    **Returns:** the fit, in NumPy float64.
    """
    options = options or Options()
    with jax.enable_x64(True):
        shape = _shape_of(errors, constants, table)
        full = weights_of(weights, shape)
        first = np.broadcast_to(np.asarray(noise, np.float64), shape[1:])
        run = _program(fit_lanes, 3)
        raw = run(errors, tuple(constants.items()), options, jnp.asarray(full), jnp.asarray(first), table)
        raw = FitArrays(*map(np.asarray, raw))
    return Fit(
        values=_named(constants, flat(constants, raw.coordinates[None])[0]),
        names=prior_of(constants).names,
        coordinates=raw.coordinates,
        covariance=raw.covariance,
        noise=raw.noise,
        scale=raw.scale,
        freedom=float(raw.freedom),
        errors=raw.errors,
        objective=float(raw.objective),
        converged=bool(raw.converged),
        starts_agreeing=float(raw.starts_agreeing),
    )


class FitArrays(NamedTuple):
    """What `fit_lanes` returns: the numbers of a `Fit`."""

    coordinates: Any
    covariance: Any
    noise: Any
    scale: Any
    freedom: Any
    errors: Any
    objective: Any
    converged: Any
    starts_agreeing: Any


def fit_lanes(errors: Errors, constants: Any, options: Options, weights: Any, noise: Any, table: Any) -> FitArrays:
    """See `fit`; pure, so that it can be mapped over tables, weights or first guesses of the noise.

    `constants` are the items of the mapping.
    """
    named = dict(constants)
    prior = prior_of(named)
    starts = jnp.asarray(_starts(prior, options))
    count = jnp.sum(weights > 0)
    robust = options.loss != "squares"

    def estimates(z: Array) -> tuple[Array, Array, Array, Array]:
        error, jacobian = _linearized(errors, constants, z, table)

        def refine(_: Any, scale: Array) -> Array:
            freedom = jnp.maximum(1.0, count - _determined(jacobian, weights, scale, prior.spread))
            return _noise_of(error, weights, freedom, robust=robust)

        scale = jax.lax.fori_loop(0, ROUNDS, refine, noise)
        freedom = jnp.maximum(1.0, count - _determined(jacobian, weights, scale, prior.spread))
        return error, jacobian, scale, freedom

    def one_round(carry: tuple[Array, Array, Array], _: Any) -> tuple[tuple[Array, Array, Array], Any]:
        lanes, scale, _ = carry
        found = _search_lanes(errors, constants, options, lanes, weights, scale, prior[1:], table, axis=None)
        lanes, objective, _ = found
        objective = jnp.where(jnp.isfinite(objective), objective, jnp.inf)
        best = jnp.argmin(objective)
        estimated = estimates(lanes[best])[2] if options.estimate_noise else scale
        return (jnp.where(jnp.isfinite(lanes), lanes, starts), estimated, scale), (found, best)

    (_, _, scale), (found, best) = jax.lax.scan(
        one_round, (starts, noise, noise), None, length=ROUNDS if options.estimate_noise else 1
    )
    lanes, objectives, converged = jax.tree.map(lambda leaf: leaf[-1], found)
    best = best[-1]
    z, objective = lanes[best], objectives[best]
    error, jacobian, estimate, freedom = estimates(z)
    thresholds = (options.threshold if robust else jnp.inf) * scale / estimate
    information = _information(jacobian, weights, estimate, thresholds)
    return FitArrays(
        coordinates=z,
        covariance=jnp.linalg.inv(information + jnp.diag(prior.spread**-2.0)),
        noise=estimate,
        scale=scale,
        freedom=freedom,
        errors=error,
        objective=objective,
        converged=converged[best],
        starts_agreeing=jnp.mean(objectives < objective + 1e-3 * jnp.maximum(1.0, objective)),
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
    with jax.enable_x64(True):
        prior = prior_of(constants)
        full = weights_of(weights, fitted.errors.shape)
        held = np.stack([groups == name for name in names])
        allowed = np.zeros(len(groups), bool) if trained_on is None else np.asarray(trained_on, bool)
        lanes = np.where((held & ~allowed)[:, :, None], 0.0, full[None])
        starts = np.stack([prior.mean, fitted.coordinates])
        pairs = [(start, lane) for lane in lanes for start in starts]
        found = search(
            errors,
            constants,
            table,
            np.stack([start for start, _ in pairs]),
            np.stack([lane for _, lane in pairs]),
            fitted.scale,
            options,
        )
        best = _best_of(found, len(names))
        of_lanes = _program(_errors_of_lanes, 2)
        predicted = np.asarray(of_lanes(errors, tuple(constants.items()), jnp.asarray(best), table))
        lane_of_row = np.argmax(held, axis=0)
        return predicted[lane_of_row, np.arange(len(groups))]


def search(
    errors: Errors,
    constants: Constants,
    table: Any,
    starts: Float[np.ndarray, "lanes n"],
    weights: Float[np.ndarray, "lanes_or_one rows outputs"],
    noise: Float[np.ndarray, " outputs"],
    options: Options,
) -> Solution:
    """Run one search from each start, with the weights of its lane (or the same for all), some lanes at a time."""
    prior = prior_of(constants)
    frozen = tuple(constants.items())
    parts = []
    for begin in range(0, len(starts), LANES):
        lanes = np.minimum(np.arange(begin, begin + LANES), len(starts) - 1)  # always as many, so compiled once
        given = jnp.asarray(weights[lanes if len(weights) > 1 else np.zeros(LANES, int)])
        found = _program(_search_lanes, 3)(
            errors, frozen, options, jnp.asarray(starts[lanes]), given, jnp.asarray(noise), prior[1:], table
        )
        parts.append([np.asarray(leaf) for leaf in found])
    return Solution(*(np.concatenate(part)[: len(starts)] for part in zip(*parts, strict=True)))


@cache
def _program(function: Callable[..., Any], static: int) -> Callable[..., Any]:
    """The function compiled, its first arguments as constants of the program."""
    return jax.jit(function, static_argnums=tuple(range(static)), compiler_options=compiler_options())


def _search_lanes(
    errors: Errors,
    constants: Any,
    options: Options,
    starts: Any,
    weights: Any,
    noise: Any,
    prior: Any,
    table: Any,
    axis: int | None = 0,
) -> tuple[Array, Array, Array]:
    mean, spread = prior
    named = dict(constants)
    solver = optx.LevenbergMarquardt(
        rtol=options.tolerance, atol=options.tolerance, linear_solver=lx.Normal(lx.Cholesky())
    )

    def lane(start: Array, weights: Array) -> tuple[Array, Array, Array]:
        def weighed(z: Array, _: Any = None) -> Array:
            scaled = robust_error(errors(values_of(named, z), table) / noise, options.threshold, options.loss)
            return jnp.concatenate([jnp.where(weights > 0, weights * scaled, 0.0).ravel(), (z - mean) / spread])

        z = optx.least_squares(weighed, solver, start, max_steps=options.steps, throw=False).value
        residual, jacobian = weighed(z), jax.jacfwd(weighed)(z)
        objective = 0.5 * jnp.sum(residual**2)
        gradient = jacobian.T @ residual
        left = 0.5 * gradient @ jnp.linalg.solve(jacobian.T @ jacobian, gradient)
        return z, objective, left <= LEFT * (1.0 + objective)

    return jax.vmap(lane, in_axes=(0, axis))(starts, weights)


def linearized(
    errors: Errors, constants: Constants, coordinates: Float[np.ndarray, " n"], table: Any
) -> tuple[Float[Array, "rows outputs"], Float[Array, "rows outputs n"]]:
    """Errors and their slopes by coordinate."""
    return _program(_linearized, 2)(errors, tuple(constants.items()), jnp.asarray(coordinates), table)


def _linearized(errors: Errors, constants: Any, z: Array, table: Any) -> tuple[Array, Array]:
    def function(z: Array) -> Array:
        return errors(values_of(dict(constants), z), table)

    return function(z), jax.jacfwd(function)(z)


def _errors_of_lanes(errors: Errors, constants: Any, lanes: Array, table: Any) -> Array:
    return jax.vmap(lambda z: errors(values_of(dict(constants), z), table))(lanes)


def _best_of(found: Solution, lanes: int) -> Float[np.ndarray, "lanes n"]:
    objective = np.where(np.isfinite(found.objective), found.objective, np.inf).reshape(lanes, -1)
    coordinates = found.coordinates.reshape(lanes, objective.shape[1], -1)
    return coordinates[np.arange(lanes), np.argmin(objective, axis=1)]


def _starts(prior: Any, options: Options) -> Float[np.ndarray, "starts n"]:
    """The prior's median, and draws from the prior, no wider than a factor e."""
    generator = np.random.default_rng(options.seed)
    draws = generator.standard_normal((options.starts, len(prior.mean))) * np.minimum(prior.spread, 1.0)
    draws[0] = 0.0
    return prior.mean + draws


def _shape_of(errors: Errors, constants: Constants, table: Any) -> tuple[int, int]:
    middle = prior_of(constants).mean
    return jax.eval_shape(lambda z: errors(values_of(constants, z), table), jnp.asarray(middle)).shape


def weights_of(weights: ArrayLike | None, shape: tuple[int, ...]) -> Float[np.ndarray, "rows outputs"]:
    """Weights by row and output, from none, weights of the rows, or both."""
    given = np.ones(shape) if weights is None else np.asarray(weights, np.float64)
    return np.broadcast_to(given[:, None] if given.ndim == 1 else given, shape).copy()


def _huber_moments(threshold: Any) -> tuple[Array, Array]:
    """`E[psi^2]` and `E[psi']` of Huber's psi at a threshold, for a standard normal error."""
    k = jnp.asarray(threshold)
    finite = jnp.isfinite(k)
    k = jnp.where(finite, k, 40.0)
    inside = 2.0 * jax.scipy.stats.norm.cdf(k) - 1.0
    return inside - 2.0 * k * jax.scipy.stats.norm.pdf(k) + k**2 * (1.0 - inside), inside


def _noise_of(errors: Any, weights: Any, freedom: Any, *, robust: bool) -> Array:
    """Standard deviation of the errors by output; robustly, with errors clipped at twice of it."""
    count = jnp.maximum(jnp.sum(weights > 0, axis=0), 1)
    share = jnp.sum(weights > 0) / freedom
    squares = weights**2 * errors**2
    scale = jnp.sqrt(jnp.sum(squares, axis=0) / count * share)
    if robust:
        expected = _huber_moments(CLIP)[0]

        def clip(_: Any, scale: Array) -> Array:
            return jnp.sqrt(jnp.sum(jnp.minimum(squares, (CLIP * scale) ** 2), axis=0) / count * share / expected)

        scale = jax.lax.fori_loop(0, CLIPPINGS, clip, scale)
    return jnp.maximum(scale, LEAST_NOISE)


def _information(jacobian: Any, weights: Any, noise: Any, thresholds: Any) -> Float[Array, "n n"]:
    """Fisher information of the coordinates in the data, less what a robust loss loses of it [Huber 1964]."""
    variance, slope = _huber_moments(thresholds)
    scaled = jacobian * (weights / noise * slope / jnp.sqrt(variance))[:, :, None]
    rows = scaled.reshape(-1, jacobian.shape[-1])
    return rows.T @ rows


def _determined(jacobian: Any, weights: Any, noise: Any, spread: Any) -> Array:
    """Effective count of constants that the data determine, `tr(H (H + S^-1)^-1)`."""
    information = _information(jacobian, weights, noise, jnp.full(jnp.shape(noise), jnp.inf))
    return jnp.trace(jnp.linalg.solve(information + jnp.diag(spread**-2.0), information))


def flat(constants: Constants, lanes: Float[np.ndarray, "lanes n"]) -> Float[np.ndarray, "lanes n"]:
    """Values of all constants in the order of `Fit.names`, in NumPy float64."""
    with jax.enable_x64(True):
        return np.asarray(_program(_flat, 1)(tuple(constants.items()), jnp.asarray(lanes)))


def _flat(constants: Any, lanes: Array) -> Array:
    return jax.vmap(lambda z: flat_values(dict(constants), z))(lanes)


def _named(constants: Constants, flat_: Float[np.ndarray, " n"]) -> Values:
    values: Values = {}
    place = 0
    for name, one in constants.items():
        part = flat_[place : place + one.size]
        place += one.size
        values[name] = part if one.labels else np.asarray(part[0])
    return values
