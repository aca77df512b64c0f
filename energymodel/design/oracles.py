"""What do independent solvers say of the same problem: Ipopt and SLSQP behind the interface of `minimize`.

They run on the host, one problem at a time, with derivatives from JAX: cross-checks, not search.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from energymodel.design import interior_point as ip
from energymodel.design.interior_point import SolverOptions
from energymodel.design.search import Answer, Lane

_ACTIVE = 1e-6  # relative distance below which a bound is taken to hold a variable
_STALLED = 100.0  # residual [tolerance] at which the end of a search that rounding stopped counts as a solution


class End(NamedTuple):
    """Where a peer stopped: x, multipliers of rows, lower and upper bounds, iterations, and one of the codes.

    No code means that it could not improve any more: the residual tells whether that is a solution.
    """

    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " m"]
    lower_dual: Float[np.ndarray, " n"]
    upper_dual: Float[np.ndarray, " n"]
    iterations: int
    status: int | None


class Numbers(NamedTuple):
    """The problem as functions of NumPy vectors: rows, their Jacobian, and the Hessian of their weighted sum."""

    rows: Callable[[np.ndarray], np.ndarray]
    jacobian: Callable[[np.ndarray], np.ndarray]
    hessian: Callable[[np.ndarray, np.ndarray], np.ndarray]
    lower: np.ndarray
    upper: np.ndarray


def ask(
    method: str, problem: Callable[[Array], Array], lane: Lane, *, inequalities: int, rows: int, options: SolverOptions
) -> Answer:
    """Answer of a peer in the form and signs of `search.solve`; the residual is that of the unscaled problem.

    **Arguments:** `method`: "ipopt" [Wachter & Biegler 2006] or "slsqp" [Kraft 1988]; the others as in `search.solve`.

    **Raises:** `ValueError` for another method or under a JAX transformation; `ImportError` naming the extra.
    """
    if method not in _PEERS:
        raise ValueError(f'minimize: unknown method "{method}". Choose "interior-point", "ipopt" or "slsqp".')
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((problem, lane))):
        raise ValueError(
            f'minimize: method="{method}" runs on the host and cannot be traced. Call it outside jit, vmap and grad, '
            'or use method="interior-point".'
        )
    numbers = _numbers(problem, lane)
    if not np.all(numbers.lower <= numbers.upper):
        nothing = np.zeros(rows), np.zeros_like(numbers.lower), np.zeros_like(numbers.lower)
        return _answer(numbers, inequalities, options, End(np.asarray(lane.x0), *nothing, 0, ip.BOUNDS_CROSS))
    start = np.clip(np.asarray(lane.x0), numbers.lower, numbers.upper)
    return _answer(numbers, inequalities, options, _PEERS[method](numbers, start, inequalities, rows, options))


def _numbers(problem: Callable[[Array], Array], lane: Lane) -> Numbers:
    def weighted(x: Array, weights: Array) -> Array:
        return weights @ problem(x)

    rows, jacobian = jax.jit(lambda x: problem(x)), jax.jit(jax.jacobian(lambda x: problem(x)))
    hessian = jax.jit(jax.hessian(weighted))
    return Numbers(
        rows=lambda x: np.asarray(rows(jnp.asarray(x))),
        jacobian=lambda x: np.asarray(jacobian(jnp.asarray(x))),
        hessian=lambda x, weights: np.asarray(hessian(jnp.asarray(x), jnp.asarray(weights))),
        lower=np.asarray(lane.lower),
        upper=np.asarray(lane.upper),
    )


def _answer(numbers: Numbers, inequalities: int, options: SolverOptions, end: End) -> Answer:
    """Residual, conflict and the multipliers of fixed variables, which each peer treats in its own way."""
    values, jacobian = numbers.rows(end.x), numbers.jacobian(end.x)
    pull = np.concatenate([np.ones(1), end.y]) @ jacobian
    fixed = numbers.lower == numbers.upper
    lower_dual = np.where(fixed, np.maximum(pull, 0.0), end.lower_dual)
    upper_dual = np.where(fixed, np.maximum(-pull, 0.0), end.upper_dual)
    equality = np.arange(end.y.size) >= inequalities
    lack = np.where(equality, np.abs(values[1:]), np.maximum(values[1:], 0.0))
    room = [np.where(np.isfinite(b), np.abs(end.x - b), 0.0) for b in (numbers.lower, numbers.upper)]
    residuals = [pull - lower_dual + upper_dual, lack, np.where(equality, 0.0, end.y * values[1:])]
    residual = np.max(np.abs(np.concatenate([*residuals, lower_dual * room[0], upper_dual * room[1]])))
    status = end.status
    if status is None:
        status = ip.SUCCESSFUL if residual <= _STALLED * options.tolerance else ip.OUT_OF_ITERATIONS
    if not np.isfinite(residual) and status != ip.BOUNDS_CROSS:
        status = ip.NON_FINITE
    infeasible = status == ip.INFEASIBLE
    nowhere = jnp.zeros(end.x.size, bool)
    return Answer(
        x=jnp.asarray(end.x),
        value=jnp.asarray(values[0]),
        rows=jnp.asarray(values[1:]),
        y=jnp.asarray(end.y),
        lower_dual=jnp.asarray(lower_dual),
        upper_dual=jnp.asarray(upper_dual),
        compliance=jnp.zeros(end.y.size),
        conflict=jnp.asarray(infeasible & (lack > 10 * options.tolerance)),
        lower_conflict=nowhere,
        upper_conflict=nowhere,
        iterations=jnp.asarray(end.iterations),
        residual=jnp.asarray(residual),
        status=jnp.asarray(status, jnp.int32),
    )


def _ipopt(numbers: Numbers, start: np.ndarray, inequalities: int, rows: int, options: SolverOptions) -> End:
    """[Wachter & Biegler 2006], with the exact Hessian; its multipliers have our signs."""
    cyipopt = _need("cyipopt", "ipopt")
    size = start.size
    triangle = np.tril_indices(size)
    steps = [0]

    class Problem:
        """Callbacks by the names that Ipopt wants."""

        def objective(self, x: np.ndarray) -> float:
            return float(numbers.rows(x)[0])

        def gradient(self, x: np.ndarray) -> np.ndarray:
            return numbers.jacobian(x)[0]

        def constraints(self, x: np.ndarray) -> np.ndarray:
            return numbers.rows(x)[1:]

        def jacobian(self, x: np.ndarray) -> np.ndarray:
            return numbers.jacobian(x)[1:].ravel()

        def hessianstructure(self) -> tuple[np.ndarray, np.ndarray]:
            return triangle

        def hessian(self, x: np.ndarray, y: np.ndarray, factor: float) -> np.ndarray:
            return numbers.hessian(x, np.concatenate([[factor], y]))[triangle]

        def intermediate(self, mode: int, iteration: int, *_: Any) -> bool:
            steps[0] = iteration
            return True

    least = np.where(np.arange(rows) < inequalities, -np.inf, 0.0)
    search = cyipopt.Problem(size, rows, Problem(), numbers.lower, numbers.upper, least, np.zeros(rows))
    settings = {"tol": options.tolerance, "acceptable_tol": options.tolerance, "max_iter": options.max_iterations}
    for name, value in {"print_level": 0, "sb": "yes", **settings}.items():
        search.add_option(name, value)
    x, info = search.solve(start)
    codes = {
        0: ip.SUCCESSFUL,
        1: None,
        2: ip.INFEASIBLE,
        3: None,
        4: ip.UNBOUNDED,
        5: ip.INTERRUPTED,
        -13: ip.NON_FINITE,
    }
    status = codes.get(info["status"], ip.OUT_OF_ITERATIONS)
    return End(x, info["mult_g"], info["mult_x_L"], info["mult_x_U"], steps[0], status)


def _slsqp(numbers: Numbers, start: np.ndarray, inequalities: int, rows: int, options: SolverOptions) -> End:
    """[Kraft 1988]: quasi-Newton, so that it often ends short of `tolerance`; the multipliers of bounds are ours."""
    optimize = _need("scipy.optimize", "slsqp")
    kinds = [("eq", slice(1 + inequalities, 1 + rows), 1.0), ("ineq", slice(1, 1 + inequalities), -1.0)]
    answer = optimize.minimize(
        lambda x: float(numbers.rows(x)[0]),
        start,
        jac=lambda x: numbers.jacobian(x)[0],
        bounds=np.stack([numbers.lower, numbers.upper], axis=1),
        constraints=[
            {
                "type": kind,
                "fun": lambda x, part=part, sign=sign: sign * numbers.rows(x)[part],
                "jac": lambda x, part=part, sign=sign: sign * numbers.jacobian(x)[part],
            }
            for kind, part, sign in kinds
            if part.stop > part.start
        ],
        method="SLSQP",
        options={"maxiter": options.max_iterations, "ftol": options.tolerance**1.5},
    )
    found = np.asarray(answer.multipliers, float)
    y = np.concatenate([found[rows - inequalities :], -found[: rows - inequalities]])
    x = np.clip(answer.x, numbers.lower, numbers.upper)
    pull = np.concatenate([np.ones(1), y]) @ numbers.jacobian(x)
    near = [np.abs(x - b) <= _ACTIVE * np.maximum(1.0, np.abs(b)) for b in (numbers.lower, numbers.upper)]
    # No descent from a point outside the constraints (8) is a least violation; elsewhere rounding may have stopped it.
    lack = np.where(np.arange(rows) < inequalities, numbers.rows(x)[1:], np.abs(numbers.rows(x)[1:]))
    outside = answer.status == 8 and np.max(lack, initial=0.0) > _STALLED * options.tolerance
    codes = {0: ip.SUCCESSFUL, 4: ip.INFEASIBLE, 8: ip.INFEASIBLE if outside else None, 9: None}
    status = codes.get(answer.status, ip.OUT_OF_ITERATIONS)
    lower_dual, upper_dual = np.where(near, np.maximum([pull, -pull], 0.0), 0.0)
    return End(x, y, lower_dual, upper_dual, answer.nit, status)


def _need(module: str, method: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f'minimize: method="{method}" needs {module.partition(".")[0]}. Install it with '
            'pip install "energymodel[oracles]".'
        ) from error


_PEERS = {"ipopt": _ipopt, "slsqp": _slsqp}
