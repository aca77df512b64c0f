"""Independent solvers behind the interface of `minimize`: Ipopt and SLSQP.

They run on the host, one problem at a time, with derivatives from JAX: cross-checks, not search.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float

from energymodel.solver.flat_problem import FlatProblem, FlatSolution
from energymodel.solver.solution import RESULTS, SolverOptions

_ACTIVE = 1e-6  # relative distance below which a bound is taken to hold a variable
_STALLED = 100.0  # residual [tolerance] at which the end of a search that rounding stopped counts as a solution


class OracleEnd(NamedTuple):
    """Where an oracle stopped: x, multipliers of rows, lower and upper bounds, iterations, and its result.

    No result means that it could not improve any more: the residual decides whether that is a solution.
    """

    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " m"]
    lower_dual: Float[np.ndarray, " n"]
    upper_dual: Float[np.ndarray, " n"]
    iterations: int
    result: RESULTS | None


class NumpyProblem(NamedTuple):
    """A problem as functions of NumPy vectors: values, their Jacobian, and the Hessian of their weighted sum."""

    values: Callable[[np.ndarray], np.ndarray]
    jacobian: Callable[[np.ndarray], np.ndarray]
    hessian: Callable[[np.ndarray, np.ndarray], np.ndarray]
    lower: np.ndarray
    upper: np.ndarray
    equality: np.ndarray


def solve_with_oracle(method: str, problem: FlatProblem, options: SolverOptions) -> FlatSolution:
    """Solution of "ipopt" [Wachter & Biegler 2006] or "slsqp" [Kraft 1988] in the form and signs of our own.

    The residual is that of the unscaled problem.

    **Raises:** `ValueError` for another method or under a JAX transformation; `ImportError` naming the extra.
    """
    if method not in _ORACLES:
        raise ValueError(f'minimize: unknown method "{method}". Choose "interior-point", "ipopt" or "slsqp".')
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(problem)):
        raise ValueError(
            f'minimize: method="{method}" runs on the host and cannot be traced. Call it outside jit, vmap and grad, '
            'or use method="interior-point".'
        )
    numpy_problem, x0 = _numpy_problem(problem, options), np.asarray(problem.x0)
    if np.all(numpy_problem.lower <= numpy_problem.upper):
        start = np.clip(x0, numpy_problem.lower, numpy_problem.upper)
        end = _ORACLES[method](numpy_problem, start, options)
    else:
        none = np.zeros_like(x0)
        end = OracleEnd(x0, np.zeros(problem.rows), none, none, 0, RESULTS.bounds_cross)
    return _flat_solution(numpy_problem, options, end)


def _numpy_problem(problem: FlatProblem, options: SolverOptions) -> NumpyProblem:
    differentiate = jax.jacfwd if problem.x0.size <= problem.rows else jax.jacrev
    values, slopes = jax.jit(lambda x: problem.values(x)), jax.jit(differentiate(lambda x: problem.values(x)))
    exact = jax.jit(jax.hessian(lambda x, weights: weights @ problem.values(x)))

    def jacobian(x: np.ndarray) -> np.ndarray:
        return np.asarray(slopes(jnp.asarray(x)))

    def differences(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        steps = np.diag(np.cbrt(np.finfo(x.dtype).eps) * np.maximum(np.abs(x), 1.0))
        pairs = [weights @ (jacobian(x + step) - jacobian(x - step)) / (2.0 * np.sum(step)) for step in steps]
        return 0.5 * (np.array(pairs) + np.array(pairs).T)

    def hessian(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(exact(jnp.asarray(x), jnp.asarray(weights)))

    return NumpyProblem(
        values=lambda x: np.asarray(values(jnp.asarray(x))),
        jacobian=jacobian,
        hessian=differences if options.hessian == "differences" else hessian,
        lower=np.asarray(problem.lower),
        upper=np.asarray(problem.upper),
        equality=np.asarray(problem.equality),
    )


def _flat_solution(problem: NumpyProblem, options: SolverOptions, end: OracleEnd) -> FlatSolution:
    """Residual, conflict and the multipliers of fixed variables, which each oracle treats in its own way."""
    values, equality = problem.values(end.x), problem.equality
    pull = np.concatenate([np.ones(1), end.y]) @ problem.jacobian(end.x)
    fixed = problem.lower == problem.upper
    lower_dual = np.where(fixed, np.maximum(pull, 0.0), end.lower_dual)
    upper_dual = np.where(fixed, np.maximum(-pull, 0.0), end.upper_dual)
    lack = np.where(equality, np.abs(values[1:]), np.maximum(values[1:], 0.0))
    room = [np.where(np.isfinite(b), np.abs(end.x - b), 0.0) for b in (problem.lower, problem.upper)]
    residuals = [pull - lower_dual + upper_dual, lack, np.where(equality, 0.0, end.y * values[1:])]
    residual = np.max(np.abs(np.concatenate([*residuals, lower_dual * room[0], upper_dual * room[1]])))
    result = end.result
    if result is None:
        result = RESULTS.successful if residual <= _STALLED * options.tolerance else RESULTS.out_of_iterations
    if not np.isfinite(residual) and bool(result != RESULTS.bounds_cross):
        result = RESULTS.non_finite
    conflict = bool(result == RESULTS.infeasible) & (lack > 10 * options.tolerance)
    no_bound = jnp.zeros(end.x.size, bool)
    return FlatSolution(
        x=jnp.asarray(end.x),
        value=jnp.asarray(values[0]),
        rows=jnp.asarray(values[1:]),
        y=jnp.asarray(end.y),
        lower_dual=jnp.asarray(lower_dual),
        upper_dual=jnp.asarray(upper_dual),
        compliance=jnp.zeros(end.y.size),
        conflict=jnp.asarray(conflict),
        lower_conflict=no_bound,
        upper_conflict=no_bound,
        iterations=jnp.asarray(end.iterations),
        residual=jnp.asarray(residual),
        result=result,
    )


def _ipopt(problem: NumpyProblem, start: np.ndarray, options: SolverOptions) -> OracleEnd:
    """[Wachter & Biegler 2006] from CasADi's wheel, with second derivatives; its multipliers have our signs."""
    casadi = _need("casadi", "ipopt")
    size, rows = start.size, problem.equality.size
    columns = {"x": size, "p": 0, "lam_f": 1, "lam_g": rows}

    def callback(name: str, inputs: tuple[str, ...], shapes: list[tuple[int, int]], function: Callable) -> Any:
        """A function of dense matrices for CasADi, which the caller must keep alive."""

        class Callback(casadi.Callback):
            def get_n_in(self) -> int:
                return len(inputs)

            def get_n_out(self) -> int:
                return len(shapes)

            def get_sparsity_in(self, index: int) -> Any:
                return casadi.Sparsity.dense(columns[inputs[index]], 1)

            def get_sparsity_out(self, index: int) -> Any:
                return casadi.Sparsity.dense(*shapes[index])

            def eval(self, arguments: list) -> list:
                return list(function(*(np.asarray(argument).ravel() for argument in arguments)))

        made = Callback()
        made.construct(name, {})
        return made

    def hessian(x: np.ndarray, _: np.ndarray, factor: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        return [np.triu(problem.hessian(x, np.concatenate([factor, y])))]

    point = ("x", "p")
    made = [
        callback("values", ("x",), [(1, 1), (rows, 1)], lambda x: np.split(problem.values(x), [1])),
        callback("grad_f", point, [(1, 1), (size, 1)], lambda x, _: (problem.values(x)[0], problem.jacobian(x)[0])),
        callback(
            "jac_g", point, [(rows, 1), (rows, size)], lambda x, _: (problem.values(x)[1:], problem.jacobian(x)[1:])
        ),
        callback("hess_l", (*point, "lam_f", "lam_g"), [(size, size)], hessian),
    ]
    x = casadi.MX.sym("x", size)
    f, g = made[0](x)
    triangle = casadi.MX.sym("x", size), casadi.MX.sym("p", 0), casadi.MX.sym("s"), casadi.MX.sym("l", rows)
    upper = casadi.Function("hess_lag", list(triangle), [casadi.triu(made[3](*triangle))])
    settings = {"tol": options.tolerance, "acceptable_tol": options.tolerance, "max_iter": options.max_iterations}
    derivatives = {"grad_f": made[1], "jac_g": made[2], "hess_lag": upper}
    quiet = {"print_time": False, "show_eval_warnings": False, "no_nlp_grad": True, "error_on_fail": False}
    ipopt = {"print_level": 0, "sb": "yes", **settings}
    search = casadi.nlpsol("search", "ipopt", {"x": x, "f": f, "g": g}, {**derivatives, **quiet, "ipopt": ipopt})
    lowest = np.where(problem.equality, 0.0, -np.inf)
    end = search(x0=start, lbx=problem.lower, ubx=problem.upper, lbg=lowest, ubg=np.zeros(rows))
    results = {
        "Solve_Succeeded": RESULTS.successful,
        "Solved_To_Acceptable_Level": None,
        "Infeasible_Problem_Detected": RESULTS.infeasible,
        "Search_Direction_Becomes_Too_Small": None,
        "Diverging_Iterates": RESULTS.unbounded,
        "User_Requested_Stop": RESULTS.interrupted,
        "Invalid_Number_Detected": RESULTS.non_finite,
    }
    stats = search.stats()
    result = results.get(stats["return_status"], RESULTS.out_of_iterations)
    dual = np.asarray(end["lam_x"]).ravel()  # of both bounds: positive at the upper
    y, x = np.asarray(end["lam_g"]).ravel(), np.asarray(end["x"]).ravel()
    return OracleEnd(x, y, np.maximum(-dual, 0.0), np.maximum(dual, 0.0), stats["iter_count"], result)


def _slsqp(problem: NumpyProblem, start: np.ndarray, options: SolverOptions) -> OracleEnd:
    """[Kraft 1988]: quasi-Newton, so that it often ends short of `tolerance`; the multipliers of bounds are ours."""
    optimize = _need("scipy.optimize", "slsqp")
    rows = problem.equality.size
    inequalities = rows - np.count_nonzero(problem.equality)
    kinds = [("eq", slice(1 + inequalities, 1 + rows), 1.0), ("ineq", slice(1, 1 + inequalities), -1.0)]
    end = optimize.minimize(
        lambda x: float(problem.values(x)[0]),
        start,
        jac=lambda x: problem.jacobian(x)[0],
        bounds=np.stack([problem.lower, problem.upper], axis=1),
        constraints=[
            {
                "type": kind,
                "fun": lambda x, part=part, sign=sign: sign * problem.values(x)[part],
                "jac": lambda x, part=part, sign=sign: sign * problem.jacobian(x)[part],
            }
            for kind, part, sign in kinds
            if part.stop > part.start
        ],
        method="SLSQP",
        options={"maxiter": options.max_iterations, "ftol": options.tolerance**1.5},
    )
    equal, below = np.split(np.asarray(end.multipliers, float), [rows - inequalities])
    y = np.concatenate([below, -equal])
    x = np.clip(end.x, problem.lower, problem.upper)
    pull = np.concatenate([np.ones(1), y]) @ problem.jacobian(x)
    near = [np.abs(x - b) <= _ACTIVE * np.maximum(1.0, np.abs(b)) for b in (problem.lower, problem.upper)]
    # No descent from a point outside the constraints (8) is the lowest violation; inside, rounding may have stopped it.
    lack = np.where(problem.equality, np.abs(problem.values(x)[1:]), problem.values(x)[1:])
    outside = end.status == 8 and np.max(lack, initial=0.0) > _STALLED * options.tolerance
    results = {0: RESULTS.successful, 4: RESULTS.infeasible, 8: RESULTS.infeasible if outside else None, 9: None}
    result = results.get(end.status, RESULTS.out_of_iterations)
    lower_dual, upper_dual = np.where(near, np.maximum([pull, -pull], 0.0), 0.0)
    return OracleEnd(x, y, lower_dual, upper_dual, end.nit, result)


def _need(module: str, method: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f'minimize: method="{method}" needs {module.partition(".")[0]}. Install it with '
            'pip install "energymodel[oracles]".'
        ) from error


_ORACLES = {"ipopt": _ipopt, "slsqp": _slsqp}
