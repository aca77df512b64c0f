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

from energymodel.solver import interior_point as ip
from energymodel.solver.interior_point import SolverOptions
from energymodel.solver.lane import Answer, Lane

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
    numbers = _numbers(problem, lane, rows, options)
    if not np.all(numbers.lower <= numbers.upper):
        nothing = np.zeros(rows), np.zeros_like(numbers.lower), np.zeros_like(numbers.lower)
        return _answer(numbers, inequalities, options, End(np.asarray(lane.x0), *nothing, 0, ip.BOUNDS_CROSS))
    start = np.clip(np.asarray(lane.x0), numbers.lower, numbers.upper)
    return _answer(numbers, inequalities, options, _PEERS[method](numbers, start, inequalities, rows, options))


def _numbers(problem: Callable[[Array], Array], lane: Lane, rows: int, options: SolverOptions) -> Numbers:
    def weighted(x: Array, weights: Array) -> Array:
        return weights @ problem(x)

    size = np.size(lane.x0)
    differentiate = jax.jacfwd if size <= rows else jax.jacrev
    values, slopes = jax.jit(lambda x: problem(x)), jax.jit(differentiate(lambda x: problem(x)))
    exact = jax.jit(jax.hessian(weighted))

    def jacobian(x: np.ndarray) -> np.ndarray:
        return np.asarray(slopes(jnp.asarray(x)))

    def differences(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        steps = np.diag(np.cbrt(np.finfo(x.dtype).eps) * np.maximum(np.abs(x), 1.0))
        pairs = [weights @ (jacobian(x + step) - jacobian(x - step)) / (2.0 * np.sum(step)) for step in steps]
        return 0.5 * (np.array(pairs) + np.array(pairs).T)

    def hessian(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(exact(jnp.asarray(x), jnp.asarray(weights)))

    return Numbers(
        rows=lambda x: np.asarray(values(jnp.asarray(x))),
        jacobian=jacobian,
        hessian=differences if options.hessian == "differences" else hessian,
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
    """[Wachter & Biegler 2006] from CasADi's wheel, with second derivatives; its multipliers have our signs."""
    casadi = _need("casadi", "ipopt")
    size = start.size
    columns = {"x": size, "p": 0, "lam_f": 1, "lam_g": rows}

    def callback(
        name: str, inputs: tuple[str, ...], shapes: list[tuple[int, int]], function: Callable[..., Any]
    ) -> Any:
        """A function of dense matrices for CasADi, which the caller must keep alive."""

        class Callback(casadi.Callback):
            def get_n_in(self) -> int:
                return len(inputs)

            def get_n_out(self) -> int:
                return len(shapes)

            def get_sparsity_in(self, place: int) -> Any:
                return casadi.Sparsity.dense(columns[inputs[place]], 1)

            def get_sparsity_out(self, place: int) -> Any:
                return casadi.Sparsity.dense(*shapes[place])

            def eval(self, arguments: list[Any]) -> list[Any]:
                return list(function(*(np.asarray(argument).ravel() for argument in arguments)))

        made = Callback()
        made.construct(name, {})
        return made

    def hessian(x: np.ndarray, _: np.ndarray, factor: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        return [np.triu(numbers.hessian(x, np.concatenate([factor, y])))]

    point = ("x", "p")
    made = [
        callback("values", ("x",), [(1, 1), (rows, 1)], lambda x: np.split(numbers.rows(x), [1])),
        callback("grad_f", point, [(1, 1), (size, 1)], lambda x, _: (numbers.rows(x)[0], numbers.jacobian(x)[0])),
        callback(
            "jac_g", point, [(rows, 1), (rows, size)], lambda x, _: (numbers.rows(x)[1:], numbers.jacobian(x)[1:])
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
    search = casadi.nlpsol(
        "search", "ipopt", {"x": x, "f": f, "g": g},
        {**derivatives, **quiet, "ipopt": {"print_level": 0, "sb": "yes", **settings}},
    )  # fmt: skip
    least = np.where(np.arange(rows) < inequalities, -np.inf, 0.0)
    end = search(x0=start, lbx=numbers.lower, ubx=numbers.upper, lbg=least, ubg=np.zeros(rows))
    codes = {
        "Solve_Succeeded": ip.SUCCESSFUL,
        "Solved_To_Acceptable_Level": None,
        "Infeasible_Problem_Detected": ip.INFEASIBLE,
        "Search_Direction_Becomes_Too_Small": None,
        "Diverging_Iterates": ip.UNBOUNDED,
        "User_Requested_Stop": ip.INTERRUPTED,
        "Invalid_Number_Detected": ip.NON_FINITE,
    }
    stats = search.stats()
    status = codes.get(stats["return_status"], ip.OUT_OF_ITERATIONS)
    dual = np.asarray(end["lam_x"]).ravel()  # of both bounds: positive at the upper
    y, x = np.asarray(end["lam_g"]).ravel(), np.asarray(end["x"]).ravel()
    return End(x, y, np.maximum(-dual, 0.0), np.maximum(dual, 0.0), stats["iter_count"], status)


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
