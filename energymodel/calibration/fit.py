"""Which constants of a cluster agree best with measured steps, how sure are they, and what do they predict elsewhere?

Errors are logarithms of predicted over measured time. The loss is Cauchy's, which forgives runs that something else
slowed; constants are searched in logarithms within their physical range, from many starts and for all held-out groups
at once.
"""

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.predict import predict_row
from energymodel.calibration.table import INPUTS, Layouts
from energymodel.compilation import compiler_options
from energymodel.system.training_system import TrainingSystem

ITERATIONS = 25
LANES = 4
INTERVAL = 1.96  # standard deviations: 95 %
START_SPREAD = 0.3


class Constant(NamedTuple):
    """A constant to fit: its dotted path in the system, where to start, how sure that is, and its physical range."""

    path: str
    value: float
    spread: float
    low: float
    high: float


class Fit(NamedTuple):
    """Fitted constants with 95 % intervals, and the log error of each row in the fit and when its group is held out.

    Intervals end where the physical range of a constant does; `spread`, the standard deviations of the logarithms, does
    not know of it.
    """

    constants: Sequence[Constant]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spread: np.ndarray
    residual: np.ndarray
    held_out: np.ndarray

    def __str__(self) -> str:
        lines = zip(self.constants, self.values, self.low, self.high, strict=True)
        return "\n".join(f"  {one.path} = {value:.4g} [{low:.4g}, {high:.4g}]" for one, value, low, high in lines)


def with_constants(system: TrainingSystem, constants: Sequence[Constant], values: Any) -> TrainingSystem:
    """The system with constants replaced at their paths."""
    paths = [one.path.split(".") for one in constants]

    def leaves(tree: TrainingSystem) -> list[Any]:
        return [reduce(getattr, path, tree) for path in paths]

    return eqx.tree_at(leaves, system, [values[index] for index in range(len(paths))])


class State(NamedTuple):
    """Where a search stands; `fresh` before its first evaluation."""

    point: Array
    value: Array
    damping: Array
    residual: Array
    slopes: Array
    fresh: Array


class Problem(NamedTuple):
    """Rows, their logarithmic measurement, and the constants in logarithms with center, spread and range."""

    system: TrainingSystem
    rows: Mapping[str, Array]
    measured: Array
    center: Array
    spread: Array
    low: Array
    high: Array
    width: Array


def fit(
    system: TrainingSystem, table: Layouts, constants: Sequence[Constant], groups: Sequence[Any], *,
    starts: int = 8, width: float = 0.1, seed: int = 0,
    quantity: str = "step_time_s",
) -> Fit:  # fmt: skip
    """Fit constants of a cluster to measured step times, and again without each group.

    **Arguments:**

    - `system`: the cluster with all other constants.
    - `table`: rows with `step_time_s`.
    - `constants`: what to fit.
    - `groups`: one label for each row; rows of one label are held out together.
    - `starts`: random starts of the fit to all rows.
    - `width`: error beyond which a row loses its weight [1].
    - `seed`: of the starts.
    - `quantity`: the measured column, `step_time_s` or `memory_b`.

    **Returns:** `Fit`.
    """
    with jax.enable_x64(True):
        center = np.log([one.value for one in constants])
        rows = np.arange(_padded(len(table))) % len(table)
        real = np.arange(len(rows)) < len(table)
        problem = Problem(
            system,
            {column.name: jnp.asarray(table.columns[column.name][rows]) for column in INPUTS},
            jnp.log(jnp.asarray(table.columns[quantity][rows])),
            jnp.asarray(center),
            jnp.asarray([one.spread for one in constants]),
            jnp.log(jnp.asarray([one.low for one in constants])),
            jnp.log(jnp.asarray([one.high for one in constants])),
            jnp.asarray(width),
        )
        paths = tuple(one.path for one in constants)
        noise = np.random.default_rng(seed).normal(size=(starts, len(constants)))
        noise[0] = 0.0
        first = center + START_SPREAD * np.asarray(problem.spread) * noise
        run = _search(quantity)
        points, losses, _, _ = _in_lanes(run, problem, paths, first, np.tile(1.0 * real, (starts, 1)))
        best = points[int(np.nanargmin(losses))]
        labels, member = np.unique(np.asarray(groups), return_inverse=True)
        others = member[rows][None, :] != np.arange(len(labels))[:, None]
        kept = real * np.concatenate([np.ones((1, len(rows))), others])
        points, _, covariance, errors = _in_lanes(run, problem, paths, np.tile(best, (len(kept), 1)), kept)
    spread = np.sqrt(np.diagonal(covariance[0]))
    sigma, best = INTERVAL * spread, points[0]
    return Fit(
        constants, np.exp(best), np.exp(np.maximum(best - sigma, problem.low)),
        np.exp(np.minimum(best + sigma, problem.high)), spread,
        errors[0, : len(table)], errors[1 + member, np.arange(len(table))],
    )  # fmt: skip


def _padded(rows: int) -> int:
    """A power of two from 64 on, so that tables of about one size share a compiled search; the rest has no weight."""
    return max(64, 1 << (rows - 1).bit_length())


def _residual(problem: Problem, paths: tuple[str, ...], point: Array, quantity: str) -> Float[Array, " rows"]:
    constants = [Constant(path, 0.0, 0.0, 0.0, 0.0) for path in paths]
    system = with_constants(problem.system, constants, jnp.exp(point))
    prediction = jax.vmap(predict_row, in_axes=(None, 0))(system, problem.rows)
    predicted = prediction.memory if quantity == "memory_b" else prediction.step_time.total
    return jnp.log(predicted) - problem.measured


@cache
def _search(quantity: str) -> Any:
    """Compiled Levenberg-Marquardt on reweighted squares [Nocedal & Wright 2006, sec. 10.3; Holland & Welsch 1977]."""

    def one(problem: Problem, paths: tuple[str, ...], start: Array, kept: Array) -> tuple[Array, ...]:
        def loss(point: Array, residual: Array) -> Array:
            penalty = jnp.sum(((point - problem.center) / problem.spread) ** 2)
            return jnp.sum(kept * jnp.log1p((residual / problem.width) ** 2)) + penalty

        def normal(point: Array, residual: Array, slopes: Array) -> tuple[Array, Array]:
            weight = kept / (1.0 + (residual / problem.width) ** 2) / problem.width**2
            matrix = slopes.T @ (weight[:, None] * slopes) + jnp.diag(1.0 / problem.spread**2)
            return matrix, slopes.T @ (weight * residual) + (point - problem.center) / problem.spread**2

        def both(point: Array) -> tuple[Array, Array]:
            residual = _residual(problem, paths, point, quantity)
            return residual, residual

        def step(state: State, _: None) -> tuple[State, None]:
            matrix, gradient = normal(state.point, state.residual, state.slopes)
            damped = matrix + state.damping * jnp.diag(jnp.diag(matrix))
            change = jnp.clip(jnp.linalg.solve(damped, gradient), -1.0, 1.0)
            point = jnp.clip(state.point - jnp.where(state.fresh, 0.0, change), problem.low, problem.high)
            slopes, residual = jax.jacfwd(both, has_aux=True)(point)
            value = loss(point, residual)
            better = state.fresh | (value < state.value)
            damping = jnp.where(better, 0.3 * state.damping, 4.0 * state.damping)
            new = State(point, value, damping, residual, slopes, jnp.zeros_like(state.fresh))
            old = state._replace(damping=damping)
            return jax.tree.map(lambda one, other: jnp.where(better, one, other), new, old), None

        rows, size = kept.shape[0], start.shape[0]
        start = jnp.clip(start, problem.low, problem.high)
        empty = State(
            start, jnp.asarray(jnp.inf), jnp.asarray(1e-2), 0.0 * kept, jnp.zeros((rows, size)), jnp.asarray(True)
        )
        state, _ = jax.lax.scan(step, empty, None, length=ITERATIONS)
        matrix, _ = normal(state.point, state.residual, state.slopes)
        weight = 1.0 / (1.0 + (state.residual / problem.width) ** 2)
        # Variance of the errors that count, in units of the width that the matrix assumes.
        freedom = jnp.maximum(1.0, jnp.sum(kept) - size)
        scatter = jnp.sum(kept * weight * state.residual**2) / problem.width**2 / freedom
        return state.point, state.value, jnp.linalg.inv(matrix) * scatter, state.residual

    def lanes(problem: Problem, paths: tuple[str, ...], starts: Array, kept: Array) -> tuple[Array, ...]:
        return jax.vmap(lambda start, rows: one(problem, paths, start, rows))(starts, kept)

    options: Any = {"compiler_options": compiler_options()}  # handed on to `jax.jit`
    return eqx.filter_jit(lanes, **options)


def _in_lanes(run: Any, problem: Problem, paths: tuple[str, ...], starts: np.ndarray, kept: np.ndarray) -> list[Any]:
    """All searches, `LANES` at a time, so that starts and groups of any number share one program."""
    count = len(starts)
    spare = -count % LANES
    starts = np.concatenate([starts, np.repeat(starts[:1], spare, 0)])
    kept = np.concatenate([kept, np.repeat(kept[:1], spare, 0)])
    parts = [
        jax.device_get(run(problem, paths, jnp.asarray(starts[at : at + LANES]), jnp.asarray(kept[at : at + LANES])))
        for at in range(0, count, LANES)
    ]
    return [np.concatenate(columns)[:count] for columns in zip(*parts, strict=True)]
