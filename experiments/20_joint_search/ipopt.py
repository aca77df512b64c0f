"""Ipopt behind the interface of `minimize`: an independent solver of the same problem, on the host."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from energymodel.solver.flat_problem import FlatSolution, flatten
from energymodel.solver.solution import RESULTS, Solution, SolverOptions

casadi: Any = import_module("casadi")  # its stubs do not fit its callbacks
RESULT = {
    "Solve_Succeeded": RESULTS.successful,
    "Solved_To_Acceptable_Level": RESULTS.successful,
    "Infeasible_Problem_Detected": RESULTS.infeasible,
    "Diverging_Iterates": RESULTS.unbounded,
    "Invalid_Number_Detected": RESULTS.non_finite,
}
CONFLICT = 10.0  # tolerances by which a row of a conflict is violated


def ipopt(
    objective: Callable[..., Any],
    x0: PyTree,
    args: tuple = (),
    bounds: tuple[PyTree, PyTree] | None = None,
    inequalities: Callable[..., PyTree] | None = None,
    equalities: Callable[..., PyTree] | None = None,
    options: SolverOptions | None = None,
) -> Solution:
    """Solution of [Wachter & Biegler 2006], from CasADi's wheel, in the form and signs of `minimize`.

    Derivatives are exact, second ones by central differences if the options ask for it. The residual is the largest
    of gradient of the Lagrangian, violation and complementarity of the rows, unscaled.
    """
    options = SolverOptions() if options is None else options
    problem = flatten(objective, x0, args, bounds, inequalities, equalities, None)
    equality, low, high = (np.asarray(part) for part in (problem.equality, problem.lower, problem.upper))
    size, rows = problem.x0.size, problem.rows
    values = jax.jit(lambda x: problem.values(x))
    jacobian = jax.jit((jax.jacfwd if size <= rows else jax.jacrev)(lambda x: problem.values(x)))
    exact = jax.jit(jax.hessian(lambda x, weights: weights @ problem.values(x)))

    def hessian(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if options.hessian == "exact":
            return np.asarray(exact(x, weights))
        steps = np.diag(np.cbrt(np.finfo(x.dtype).eps) * np.maximum(np.abs(x), 1.0))
        slopes = [weights @ np.asarray(jacobian(x + s) - jacobian(x - s)) / (2.0 * np.sum(s)) for s in steps]
        return 0.5 * (np.array(slopes) + np.array(slopes).T)

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
                return [np.asarray(part) for part in function(*(np.asarray(a).ravel() for a in arguments))]

        made = Callback()
        made.construct(name, {})
        return made

    point = ("x", "p")
    made = [
        callback("values", ("x",), [(1, 1), (rows, 1)], lambda x: np.split(values(x), [1])),
        callback("grad_f", point, [(1, 1), (size, 1)], lambda x, _: (values(x)[0], jacobian(x)[0])),
        callback("jac_g", point, [(rows, 1), (rows, size)], lambda x, _: (values(x)[1:], jacobian(x)[1:])),
        callback(
            "hess_l",
            (*point, "lam_f", "lam_g"),
            [(size, size)],
            lambda x, _, factor, y: [np.triu(hessian(x, np.concatenate([factor, y])))],
        ),
    ]
    x = casadi.MX.sym("x", size)
    f, g = made[0](x)
    triangle = casadi.MX.sym("x", size), casadi.MX.sym("p", 0), casadi.MX.sym("s"), casadi.MX.sym("l", rows)
    upper = casadi.Function("hess_lag", list(triangle), [casadi.triu(made[3](*triangle))])
    limits = {"tol": options.tolerance, "acceptable_tol": options.tolerance, "max_iter": options.max_iterations}
    quiet = {"print_time": False, "show_eval_warnings": False, "no_nlp_grad": True, "error_on_fail": False}
    derivatives = {"grad_f": made[1], "jac_g": made[2], "hess_lag": upper}
    settings = {**derivatives, **quiet, "ipopt": {"print_level": 0, "sb": "yes", **limits}}
    search = casadi.nlpsol("search", "ipopt", {"x": x, "f": f, "g": g}, settings)
    start, least = np.clip(np.asarray(problem.x0), low, high), np.where(equality, 0.0, -np.inf)
    end = search(x0=start, lbx=low, ubx=high, lbg=least, ubg=np.zeros(rows))
    at, y, dual = (np.asarray(end[name]).ravel() for name in ("x", "lam_g", "lam_x"))
    result = RESULT.get(search.stats()["return_status"], RESULTS.out_of_iterations)
    reached, pull = np.asarray(values(at)), np.append(1.0, y) @ np.asarray(jacobian(at))
    dual = np.where(low == high, -pull, dual)  # of both bounds: positive at the upper
    lack = np.where(equality, np.abs(reached[1:]), np.maximum(reached[1:], 0.0))
    residual = np.concatenate([pull + dual, lack, np.where(equality, 0.0, y * reached[1:])])
    flat = FlatSolution(
        x=jnp.asarray(at),
        value=jnp.asarray(reached[0]),
        rows=jnp.asarray(reached[1:]),
        multipliers=jnp.concatenate([y, np.maximum(-dual, 0.0), np.maximum(dual, 0.0)]),
        compliance=jnp.zeros(rows),
        conflict=jnp.pad(bool(result == RESULTS.infeasible) & (lack > CONFLICT * options.tolerance), (0, 2 * size)),
        iterations=jnp.asarray(search.stats()["iter_count"]),
        residual=jnp.asarray(np.max(np.abs(residual))),
        result=result,
    )
    return problem.shaped(flat)
