"""The best point within limits, the worth of each limit, and how both move with the data."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from energymodel.solver import interior_point as ip
from energymodel.solver.box import Box
from energymodel.solver.flat_problem import FlatProblem, FlatSolution, Values, derivatives, flatten
from energymodel.solver.search_state import init
from energymodel.solver.solution import RESULTS, PerConstraint, Solution, SolverOptions

MOST_OPERATIONS = 4000
"""Operations whose exact Hessian compiles in a few minutes at most."""

__all__ = ["RESULTS", "PerConstraint", "Solution", "SolverOptions", "Values", "minimize"]


def minimize(
    objective: Callable[..., Any],
    x0: PyTree,
    *,
    args: tuple = (),
    bounds: tuple[PyTree, PyTree] | None = None,
    inequalities: Callable[..., PyTree] | None = None,
    equalities: Callable[..., PyTree] | None = None,
    options: SolverOptions | None = None,
    warm: PerConstraint | None = None,
    throw: bool = False,
) -> Solution:
    """Minimize `f(x)` subject to `g(x) <= 0`, `h(x) = 0`, `lower <= x <= upper` [Nocedal & Wright 2006, ch. 19].

    Finds a local minimum of a smooth problem of 2 to about 60 variables and as many constraints. It is pure: it
    works under `jit`, `vmap` and differentiation, whose derivatives are those of the optimality conditions. Gradients
    and variables are scaled automatically; still pose the problem in quantities [1] of order one (logarithms, ratios to
    limits), and its multipliers are elasticities.

    Before it says `successful`, the search tries other directions where the curvature does not show a minimum, follows
    steps that do not become shorter, and checks the result in the units of the problem. It says `infeasible` only
    where the constraints alone, without the objective, have no feasible point near; by less than 1e-7 of their scale it
    cannot tell.

    **Arguments:**

    - `objective`: `f(x, *args)`, a scalar, or `Values(f, g, h)` from one evaluation of a shared model. It may close
      over traced values.
    - `x0`: start, any pytree of numbers; need not be feasible.
    - `args`: further arguments of all functions. The solution may be differentiated with respect to them, to what
      the functions close over, and to the bounds.
    - `bounds`: `(lower, upper)`, each `None`, a number, or a pytree like `x0` or a prefix of it, which may hold
      `None` and infinities. Equal bounds fix a variable.
    - `inequalities`, `equalities`: `g(x, *args)` and `h(x, *args)`, any pytree of arrays.
    - `options`: `SolverOptions`.
    - `warm`: `multipliers` of a neighboring solution, whose `x` is `x0`: saves about half of the iterations.
    - `throw`: raise the message of the result unless it is `successful` or `rounded`.

    **Returns:** `Solution`.

    **Raises:** `ValueError` for an `x0` without numbers, an objective that is no scalar, bounds unlike `x0`, and
    functions of more than 4,000 operations with exact Hessians.
    """
    options = SolverOptions() if options is None else options
    problem = flatten(objective, x0, args, bounds, inequalities, equalities, warm)
    if options.hessian == "exact" and (operations := problem.operations) > MOST_OPERATIONS:
        raise ValueError(
            f"minimize: objective and constraints have {operations:,} operations; exact Hessians of more than "
            f"{MOST_OPERATIONS:,} take minutes and gigabytes to compile. Write sums over data as operations on "
            'arrays (jax.vmap, jnp.sum), or use SolverOptions(hessian="differences") or minimize_first_order.'
        )
    solution = problem.shaped(_solve(problem, options=options))
    if throw:
        usable = (solution.result == RESULTS.successful) | (solution.result == RESULTS.rounded)
        solution = solution.result.error_if(solution, ~usable)
    return solution


@eqx.filter_custom_jvp
def _solve(problem: FlatProblem, *, options: SolverOptions) -> FlatSolution:
    """Search one problem; `vmap` runs chunks of lanes one after another, each until its lanes end."""
    dynamic, static = eqx.partition(problem, eqx.is_array)

    def solved(dynamic: PyTree) -> FlatSolution:
        problem = eqx.combine(dynamic, static)
        state = jax.lax.while_loop(
            lambda state: ip.unfinished(state, options.max_iterations),
            lambda state: ip.step(problem, options, state),
            init(problem),
        )
        return ip.postprocess(problem, options, state)

    chunked = jax.custom_batching.custom_vmap(solved)

    @chunked.def_vmap
    def _(lanes: int, batched: Any, dynamic: PyTree) -> tuple[FlatSolution, PyTree]:
        (batched,) = (batched,) if not isinstance(batched, list) else batched
        moving, shared = eqx.partition(dynamic, batched)

        def own(moving: PyTree) -> FlatProblem:
            return eqx.combine(moving, shared, static)

        def together(moving: PyTree) -> FlatSolution:
            state = jax.vmap(lambda lane: init(own(lane)))(moving)
            state = ip.iterate(
                lambda lane, state: ip.step(own(lane), options, state), moving, state, options.max_iterations
            )
            return jax.vmap(lambda lane, state: ip.postprocess(own(lane), options, state))(moving, state)

        solution = _in_chunks(together, moving, lanes, options.together(problem.x0.size))
        return solution, jax.tree.map(lambda _: True, solution)

    return chunked(dynamic)


def _in_chunks(function: Callable[[PyTree], PyTree], lanes: PyTree, count: int, chunk: int) -> PyTree:
    """`function(lanes)` by equal chunks of at most `chunk` lanes; copies of the last lane fill up the last."""
    chunks = -(-count // chunk)
    if chunks == 1:
        return function(lanes)
    width = -(-count // chunks)
    index = jnp.minimum(jnp.arange(chunks * width), count - 1).reshape(chunks, width)
    result = jax.lax.map(lambda i: function(jax.tree.map(lambda leaf: leaf[i], lanes)), index)
    return jax.tree.map(lambda leaf: leaf.reshape(chunks * width, *leaf.shape[2:])[:count], result)


@_solve.def_jvp
def _solve_jvp(primals: Any, tangents: Any, *, options: SolverOptions) -> tuple[FlatSolution, FlatSolution]:
    """Derivatives of a solution by the implicit function theorem: its optimality conditions hold for all data.

    One linear system with the Jacobian of those conditions gives them [Fiacco 1983, ch. 3]; the derivative of the
    optimal value needs not even that [envelope theorem].
    """
    (problem,), (d_problem,) = primals, tangents
    solution = _solve(problem, options=options)
    x, m = solution.x, problem.rows
    y, zl, zu = jnp.split(solution.multipliers, [m, m + x.size])
    box = Box(*jax.lax.stop_gradient((problem.lower, problem.upper)))
    stiff = jnp.where(box.bounded, jnp.concatenate([zl, zu]) / box.distances(x), 0.0)
    stiff_low, stiff_high = jnp.split(jax.lax.stop_gradient(stiff), 2)
    d_lower, d_upper = (jnp.zeros_like(x) if d is None else d for d in (d_problem.lower, d_problem.upper))
    d_lower = jnp.where(jnp.isfinite(box.lower), d_lower, 0.0)
    d_upper = jnp.where(jnp.isfinite(box.upper), d_upper, 0.0)
    weights = jnp.concatenate([jnp.ones((1,), x.dtype), y])

    # How the data alone move values and stationarity, at the point where the search ended.
    def sweep(problem: FlatProblem) -> tuple[Array, Array]:
        values, pull = jax.vjp(problem.values, x)
        return values, pull(weights)[0]

    d_values, d_pull = jnp.zeros_like(weights), jnp.zeros_like(x)
    if jax.tree.leaves(d_problem.functions):
        _, moved = eqx.filter_jvp(sweep, (problem,), (d_problem,))  # none of what the data do not move
        d_values, d_pull = (still if d is None else d for d, still in zip(moved, (d_values, d_pull), strict=True))

    # W dx + J' dy = -d_pull (with the bounds' stiffness),  J dx - compliance dy = -d_rows; fixed variables follow.
    _, jacobian, W = derivatives(problem.values, x, weights)
    J, free = jacobian[1:], box.free
    top = jnp.concatenate([W + jnp.diag(stiff_low + stiff_high), J.T], axis=1)
    fixed = jnp.concatenate([jnp.eye(x.size, dtype=x.dtype), jnp.zeros_like(J.T)], axis=1)
    bottom = jnp.concatenate([J, -jnp.diag(solution.compliance)], axis=1)
    matrix = jnp.concatenate([jnp.where(free[:, None], top, fixed), bottom])
    right = jnp.concatenate(
        [jnp.where(free, stiff_low * d_lower + stiff_high * d_upper - d_pull, d_lower), -d_values[1:]]
    )
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(matrix), axis=1))
    size = jnp.where(size > 0, size, 1.0)
    moves = jnp.linalg.solve(matrix / size[:, None], right / size)
    dx, dy = moves[: x.size], moves[x.size :]
    d_gradient = W @ dx + J.T @ dy + d_pull
    d_zl = jnp.where(free, -stiff_low * (dx - d_lower), jnp.where(zl > 0, d_gradient, 0.0))
    d_zu = jnp.where(free, stiff_high * (dx - d_upper), jnp.where(zu > 0, -d_gradient, 0.0))
    return solution, jax.tree.map(lambda _: None, solution)._replace(
        x=dx,
        value=weights @ d_values + zl @ d_lower - zu @ d_upper,
        rows=d_values[1:] + J @ dx,
        multipliers=jnp.concatenate([dy, d_zl, d_zu]),
    )
