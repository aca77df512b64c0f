"""Constants that fit measurements best, and their errors on groups of measurements that were held out.

Robust least squares of logarithmic errors with priors, in float64. All starts, held-out groups and resamples are lanes
of one batched Levenberg-Marquardt search. 96 resamples of `calibrate power` take it 0.04 s, and
`scipy.optimize.least_squares`, one after another with compiled errors and slopes, 1.3 s to the same objectives;
`optimistix.least_squares` took 84 s instead of 4 s for all searches of 400 rows.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from energymodel.calibration.constant_priors import (
    ConstantPriors,
    Errors,
    JointPrior,
    Lanes,
    Matrix,
    Outputs,
    Slopes,
    Values,
    Vector,
    coordinate_bounds,
    joint_prior,
    values_of,
)
from energymodel.calibration.robust_loss import FitOptions, Loss, estimate_noise, information, robust_error
from energymodel.runtime.compilation import compiler_options

ErrorFunction = Callable[[Values, Any], Float[Array, "rows outputs"]]
"""Errors of a model on a table: `ln(predicted / measured)`, by row and output. A function at the top of a module."""

LANES = 16  # of one batched search
FEWEST_ROWS = 64  # of a compiled program; tables are padded to a power of two
ROUNDS = 3  # of fit and estimate of the noise
LEFT = 1e-6  # of the objective that a converged search may leave to gain
FIRST_DAMPING, LESS, MORE, HIGHEST_DAMPING = 1e-3, 0.2, 5.0, 1e12


class FitProblem(NamedTuple):
    """A model, what was measured, and what is known of the constants."""

    errors: ErrorFunction
    constants: ConstantPriors
    table: Any  # measurements, a pytree of arrays with one entry for each row
    weights: ArrayLike | None = None  # of the rows [1]; 0 leaves one out. By default all count the same
    noise: float = 0.05  # first guess of the standard deviation of an error [1]
    options: FitOptions = FitOptions()
    prior: JointPrior | None = None  # of the coordinates, if not that of the constants


class LaneOptima(NamedTuple):
    """Where searches ended, one lane each."""

    coordinates: Lanes
    objective: Float[np.ndarray, " lanes"]  # half the weighed sum of squares
    converged: Bool[np.ndarray, " lanes"]
    errors: Float[np.ndarray, "lanes rows outputs"]
    slopes: Float[np.ndarray, "lanes rows outputs n"]

    def lane(self, index: int) -> "LaneOptima":
        """One of them, without the axis of lanes."""
        return LaneOptima(*(leaf[index] for leaf in self))


class FitResult(NamedTuple):
    """Fitted constants."""

    problem: FitProblem
    prior: JointPrior
    values: Values
    coordinates: Vector
    covariance: Matrix  # of the coordinates by Laplace's approximation, prior included
    weights: Errors
    noise: Outputs  # standard deviation of an error
    scale: Outputs  # the one that weighed the errors in the search
    freedom: float  # measurements less constants that they determine; infinite where nothing was fitted
    errors: Errors
    slopes: Slopes
    objective: float
    converged: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Of all values in order, with labels."""
        return self.prior.names

    def information(self, slopes: Slopes) -> Matrix:
        """Fisher information of the coordinates in the data at slopes, as in `covariance`."""
        thresholds = self.problem.options.threshold * self.scale / self.noise
        return information(slopes, self.weights, self.noise, thresholds)

    def at(self, table: Any, points: Lanes | None = None) -> "LaneOptima":
        """Errors and slopes on another table, at the fit or other points; the program of the fit takes so many rows at
        a time.
        """
        points = self.coordinates[None] if points is None else points
        rows, size = table_shape(self.problem, table)[0], program_rows(len(self.errors))
        parts = []
        for begin in range(0, rows, size):
            taken = slice(begin, begin + size)
            some = jax.tree.map(lambda leaf, taken=taken: leaf[taken] if np.shape(leaf)[:1] == (rows,) else leaf, table)
            parts.append(evaluate_lanes(self.problem._replace(table=some), self.prior, points, self.scale, size))
        errors, slopes = (np.concatenate([getattr(part, name) for part in parts], 1) for name in ("errors", "slopes"))
        return parts[0]._replace(errors=errors, slopes=slopes)


def fit(problem: FitProblem) -> FitResult:
    """Find the constants of the lowest robust squares, `min sum rho(w e / s) + sum ((z - z_0) / s_0)^2 / 2`.

    The search begins from several points at once. The noise s of each output is then estimated from the errors of the
    best, and the search repeated from there. Intervals follow from `covariance`, see `intervals.laplace_intervals`.
    """
    options, prior, weights = problem.options, problem.prior or joint_prior(problem.constants), _weights(problem)
    # The prior's median, and draws from the prior, no wider than a factor e.
    draws = np.random.default_rng(options.seed).standard_normal((options.starts, len(prior.mean)))
    draws[0] = 0.0
    scale, starts = np.full(weights.shape[1], float(problem.noise)), prior.mean + draws * np.minimum(prior.spread, 1.0)
    rounds = ROUNDS if options.estimate_noise else 1
    while True:
        optima = minimize_lanes(problem, prior, starts, weights[None], scale)
        best = optima.lane(int(np.argmin(optima.objective)))
        estimate = estimate_noise(best.errors, best.slopes, weights, prior.information, scale)
        estimate = estimate.pooled(problem.noise, options.noise_counts)
        rounds -= 1
        if rounds == 0:
            return _result(problem, best, weights, estimate.noise, scale, estimate.freedom + options.noise_freedom)
        scale = estimate.noise
        starts = np.where(np.isfinite(optima.coordinates), optima.coordinates, prior.mean)


def unfitted(problem: FitProblem) -> FitResult:
    """The constants that the prior has, in the form of a fit: what is known where nothing was measured yet."""
    prior, weights = problem.prior or joint_prior(problem.constants), _weights(problem)
    noise = np.full(weights.shape[1], float(problem.noise))
    optima = evaluate_lanes(problem, prior, prior.mean[None], noise)._replace(converged=np.ones(1, bool))
    return _result(problem, optima.lane(0), weights, noise, noise, np.inf)


def _result(
    problem: FitProblem, lane: LaneOptima, weights: np.ndarray, noise: np.ndarray, scale: np.ndarray, freedom: float
) -> FitResult:
    """A lane as a fit; infinite freedom says that the data have no information."""
    prior = problem.prior or joint_prior(problem.constants)
    data = information(lane.slopes, weights, noise, problem.options.threshold * scale / noise)
    with jax.enable_x64(True):
        values = values_of(problem.constants, lane.coordinates)
    return FitResult(
        problem=problem,
        prior=prior,
        values={name: np.asarray(value) for name, value in values.items()},
        coordinates=lane.coordinates,
        covariance=np.linalg.inv(prior.information + (0.0 if np.isinf(freedom) else data)),
        weights=weights,
        noise=noise,
        scale=scale,
        freedom=freedom,
        errors=lane.errors,
        slopes=lane.slopes,
        objective=float(lane.objective),
        converged=bool(lane.converged),
    )


def held_out_errors(
    fitted: FitResult, groups: Sequence[Any] | np.ndarray, trained_on: ArrayLike | None = None
) -> Errors:
    """Errors by row and output on each group of rows of a fit to all other groups; the fits are lanes of one search.

    The noise of the fit is kept; the searches begin from the prior's median and from the fit. Groups never split rows
    that share a cause. Rows of a held-out group may be fitted nevertheless where they are `trained_on`, such as the one
    profile that a transfer starts from.
    """
    groups = np.asarray(groups)
    names = list(dict.fromkeys(groups.tolist()))
    held = np.stack([groups == name for name in names])
    allowed = np.zeros(len(groups), bool) if trained_on is None else np.asarray(trained_on, bool)
    lanes = np.repeat(np.where((held & ~allowed)[:, :, None], 0.0, fitted.weights[None]), 2, axis=0)
    starts = np.tile(np.stack([fitted.prior.mean, fitted.coordinates]), (len(names), 1))
    optima = minimize_lanes(fitted.problem, fitted.prior, starts, lanes, fitted.scale)
    best = np.argmin(optima.objective.reshape(-1, 2), axis=1)
    lane_of_row = (2 * np.arange(len(names)) + best)[np.argmax(held, axis=0)]
    return optima.errors[lane_of_row, np.arange(len(groups))]


def program_rows(rows: int) -> int:
    """Rows of the program that a table is padded to."""
    return max(FEWEST_ROWS, 1 << (rows - 1).bit_length())


def minimize_lanes(
    problem: FitProblem,
    prior: JointPrior,
    starts: Lanes,
    weights: Float[np.ndarray, "lanes_or_one rows outputs"],
    scale: Outputs,
    *,
    held: Lanes | None = None,
    fewest_rows: int = FEWEST_ROWS,
) -> LaneOptima:
    """Run one search from each start, with the weights of its lane (or the same for all), some lanes at a time.

    Every fit of one model, of any number of lanes and up to a power of two rows, is one compiled program; `held` is 1
    for coordinates of a lane that stay where they start, and a table of `fewest_rows` or less uses their program.
    """
    options, rows = problem.options, weights.shape[1]
    held = np.zeros(starts.shape) if held is None else held
    padded = program_rows(max(rows, fewest_rows))
    limits = (prior.mean, prior.whiten, *coordinate_bounds(problem.constants))
    frozen = tuple((name, constant._replace(median=0.0, spread=0.0)) for name, constant in problem.constants.items())
    knobs = (options.threshold, float(options.steps), options.tolerance)
    parts = []

    def filled(leaf: Any) -> Any:
        """A column with its first entry repeated to the rows of the program; what is no column is left alone."""
        leaf = np.asarray(leaf)
        is_column = leaf.ndim > 0 and len(leaf) == rows
        return np.concatenate([leaf, np.repeat(leaf[:1], padded - rows, axis=0)]) if is_column else leaf

    with jax.enable_x64(True):
        table = jax.tree.map(filled, problem.table)
        for begin in range(0, len(starts), LANES):
            lanes = np.minimum(np.arange(begin, begin + LANES), len(starts) - 1)
            counted = np.zeros((LANES, padded, weights.shape[2]))
            counted[:, :rows] = weights[lanes if len(weights) > 1 else np.zeros(LANES, int)]
            leaves = _program()(
                problem.errors, frozen, options.loss, starts[lanes], counted, held[lanes], scale, limits, knobs, table
            )
            parts.append([np.asarray(leaf) for leaf in leaves])
    z, objective, converged, errors, slopes = (np.concatenate(part)[: len(starts)] for part in zip(*parts, strict=True))
    objective = np.where(np.isfinite(objective), objective, np.inf)
    return LaneOptima(z, objective, converged, errors[:, :rows], slopes[:, :rows])


def evaluate_lanes(
    problem: FitProblem, prior: JointPrior, points: Lanes, scale: Outputs, fewest_rows: int = FEWEST_ROWS
) -> LaneOptima:
    """Errors and slopes at points: searches of no steps, by the program of the searches; see `minimize_lanes`."""
    still = problem._replace(options=problem.options._replace(steps=0))
    weights = np.ones((1, *table_shape(problem, problem.table)))
    return minimize_lanes(still, prior, points, weights, scale, held=np.ones(points.shape), fewest_rows=fewest_rows)


@cache
def _program() -> Callable[..., Any]:
    """The search compiled; model, constants and loss are part of the program."""
    return jax.jit(_search_lanes, static_argnums=(0, 1, 2), compiler_options=compiler_options())


class _SearchState(NamedTuple):
    """The best point of one lane, and what is tried next."""

    point: Array
    objective: Array
    errors: Array
    slopes: Array
    trial: Array
    damping: Array
    left: Array
    steps: Array


def _search_lanes(
    errors: ErrorFunction,
    constants: tuple[tuple[str, Any], ...],
    loss: Loss,
    starts: Array,
    weights: Array,
    held: Array,
    scale: Array,
    limits: tuple[Array, Array, Array, Array],
    knobs: tuple[Array, Array, Array],
    table: Any,
) -> tuple[Array, Array, Array, Array, Array]:
    """Levenberg-Marquardt searches [Nocedal & Wright 2006, sec. 10.3]; errors and slopes are evaluated in one place."""
    (mean, whiten, low, high), (threshold, most_steps, tolerance) = limits, knobs
    prior = whiten.T @ whiten

    def evaluate(z: Array) -> tuple[Array, Array]:
        error = errors(values_of(dict(constants), z), table)
        return error, error

    def search(start: Array, weights: Array, held: Array) -> tuple[Array, Array, Array, Array, Array]:
        def weighed(error: Array) -> tuple[Array, Array]:
            """Robust errors, and their slopes by error."""
            counts = weights > 0
            scaled = jnp.where(counts, error / scale, 0.0)
            value, slope = jax.jvp(lambda r: robust_error(r, threshold, loss), (scaled,), (jnp.ones_like(scaled),))
            return weights * value, jnp.where(counts, weights * slope / scale, 0.0)

        def normal_equations(z: Array, error: Array, slopes: Array) -> tuple[Array, Array]:
            """Gradient and Gauss-Newton matrix by the coordinates that are free."""
            value, weight = weighed(error)
            rows = jnp.where(weights[..., None] > 0, slopes * weight[..., None], 0.0).reshape(-1, slopes.shape[-1])
            gradient = rows.T @ value.ravel() + prior @ (z - mean)
            # A coordinate that presses against its bound stays there.
            pressed = ((z <= low) & (gradient > 0.0)) | ((z >= high) & (gradient < 0.0))
            free = jnp.where(pressed, 0.0, 1.0 - held)
            return free * gradient, jnp.outer(free, free) * (rows.T @ rows + prior) + jnp.diag(1.0 - free)

        def step(state: _SearchState) -> _SearchState:
            """Evaluate the trial, keep it if it is better, and try the next by Levenberg and Marquardt."""
            slopes, error = jax.jacfwd(evaluate, has_aux=True)(state.trial)
            distance = whiten @ (state.trial - mean)
            objective, first = 0.5 * (jnp.sum(weighed(error)[0] ** 2) + jnp.sum(distance**2)), state.steps == 0
            better = first | (objective < state.objective)
            new, old = (state.trial, objective, error, slopes), state[:4]
            point, objective, error, slopes = (jnp.where(better, *pair) for pair in zip(new, old, strict=True))
            damping = jnp.where(first, FIRST_DAMPING, state.damping * jnp.where(better, LESS, MORE))
            gradient, matrix = normal_equations(point, error, slopes)
            left = 0.5 * gradient @ jnp.linalg.solve(matrix, gradient)
            damped = matrix + damping * jnp.diag(jnp.diag(matrix))
            trial = jnp.clip(point - jnp.linalg.solve(damped, gradient), low, high)
            return _SearchState(point, objective, error, slopes, trial, damping, left, state.steps + 1.0)

        def lasts(state: _SearchState) -> Array:
            gains = (state.left > tolerance * (1.0 + state.objective)) & (state.damping < HIGHEST_DAMPING)
            return (state.steps == 0) | (gains & (state.steps <= most_steps))

        z, infinite, zero = jnp.clip(start, low, high), jnp.asarray(jnp.inf), jnp.asarray(0.0)
        no_errors, no_slopes = jnp.zeros(weights.shape), jnp.zeros((*weights.shape, z.size))
        begin = _SearchState(z, infinite, no_errors, no_slopes, z, zero, infinite, zero)
        state = jax.lax.while_loop(lasts, step, begin)
        # At a kink of the model no step gains anything.
        converged = (state.left <= LEFT * (1.0 + state.objective)) | (state.damping >= HIGHEST_DAMPING)
        return state.point, state.objective, converged, state.errors, state.slopes

    return jax.vmap(search)(starts, weights, held)


def table_shape(problem: FitProblem, table: Any) -> tuple[int, int]:
    """Rows and outputs of a table."""
    with jax.enable_x64(True):
        middle = jnp.asarray(joint_prior(problem.constants).mean)
        return jax.eval_shape(lambda z: problem.errors(values_of(problem.constants, z), table), middle).shape


def _weights(problem: FitProblem) -> Errors:
    weights = np.asarray(1.0 if problem.weights is None else problem.weights, np.float64)
    return np.broadcast_to(weights[..., None], table_shape(problem, problem.table)).copy()
