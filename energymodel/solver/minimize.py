"""What is the best point within limits, what is each limit worth, and how does the answer move with the data?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from energymodel.solver import interior_point as ip
from energymodel.solver.interior_point import SolverOptions
from energymodel.solver.lane import Answer, Lane, solve
from energymodel.solver.oracles import ask

__all__ = ["RESULTS", "PerConstraint", "Solution", "SolverOptions", "Values", "minimize"]


class RESULTS(eqx.Enumeration):
    """How a search ended; each message says what to do next. The order is that of the codes of `interior_point`."""

    running = "The search has not ended. Go on from x with the multipliers found so far."
    successful = "The optimality conditions hold to the tolerance."
    infeasible = (
        "No point near here satisfies all constraints: x violates them least (in the sum of scaled violations). "
        "Relax the constraints marked in `conflict` by what their slacks lack, or start elsewhere."
    )
    out_of_iterations = (
        "The iterations ran out before the optimality conditions held. Raise max_iterations, start elsewhere, scale "
        "variables and constraints to order one, replace kinks (abs, max, where) by smooth functions or constraints, "
        "or add bounds if the objective has no minimum."
    )
    non_finite = (
        "The objective, a constraint or one of their derivatives is not finite at x. Start where all are finite, and "
        "guard the inputs of square roots, logarithms and divisions with jnp.where."
    )
    bounds_cross = "A lower bound lies above its upper bound, or a bound is NaN. Correct the bounds."
    interrupted = "The search was interrupted. Go on from x with the multipliers found so far."
    unbounded = (
        "The objective falls without end within the constraints; x is far out on the way down. Add bounds, or check "
        "the sign of the objective."
    )
    rounded = (
        "The optimality conditions hold as well as this precision can tell, which is less than the tolerance: see "
        "`residual`. Accept that, or search in float64 (jax.enable_x64)."
    )


class Values(NamedTuple):
    """Objective and constraints from one function, where they share a model that should be evaluated once."""

    objective: Any
    inequalities: Any = None
    equalities: Any = None


class PerConstraint(eqx.Module):
    """One entry per constraint, in the shapes in which the constraints came."""

    inequalities: PyTree
    equalities: PyTree
    lower: PyTree
    upper: PyTree


class Solution(eqx.Module):
    """The end of a search.

    - `x`: best point, like `x0`; `value`: objective there.
    - `multipliers`: `-d value / d limit`, in units of the objective per unit of the constraint: relaxing `g <= 0` to
      `g <= e` lowers the value by `e` times its multiplier; moving a lower bound up by `e` raises it by `e` times that
      of the bound. Zero for limits that do not bind; of either sign for equalities.
    - `slacks`: room left, `-g`, `x - lower`, `upper - x`, negative where violated; for equalities `-h`.
    - `conflict`: constraints that exclude each other, all false unless the result is `infeasible`.
    - `iterations`: Newton steps [1]; `residual`: largest violation of the optimality conditions of the scaled
      problem [1]; `result`: a member of `RESULTS`.
    """

    x: PyTree
    value: Float[Array | np.ndarray, "..."]
    multipliers: PerConstraint
    slacks: PerConstraint
    conflict: PerConstraint
    iterations: Int[Array | np.ndarray, "..."]
    residual: Float[Array | np.ndarray, "..."]
    result: Any

    @property
    def stats(self) -> dict[str, Any]:
        """Iterations and residual by name, as Optimistix reports them."""
        return {"iterations": self.iterations, "residual": self.residual}


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
    method: str = "interior-point",
    throw: bool = False,
) -> Solution:
    """Minimize `f(x)` subject to `g(x) <= 0`, `h(x) = 0`, `lower <= x <= upper` [Nocedal & Wright 2006, ch. 19].

    Finds a local minimum of a smooth problem of 2 to about 60 variables and as many constraints. It is pure: it
    works under `jit`, `vmap` and differentiation, whose derivatives are those of the optimality conditions. Gradients
    are scaled automatically; still pose the problem in quantities [1] of order one (logarithms, ratios to limits),
    and its multipliers are elasticities.

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
    - `method`: `"interior-point"`; or, to check it, `"ipopt"` or `"slsqp"`, which run on the host without
      transformations and need the extra `oracles` [see `oracles.ask`].
    - `throw`: raise the message of the result unless it is `successful` or `rounded`.

    **Returns:** `Solution`.

    **Raises:** `ValueError` for an `x0` without numbers, an objective that is no scalar, bounds unlike `x0`, a method
    unknown or traced; `ImportError` where the package of the method is missing.
    """
    options = SolverOptions() if options is None else options
    task = prepare(objective, x0, args, bounds, inequalities, equalities, warm)
    sizes = {"inequalities": task.inequalities, "rows": task.rows, "options": options}
    if method == "interior-point":
        answer = solve(task.problem, task.lane, **sizes)
    else:
        answer = ask(method, task.problem, task.lane, **sizes)
    solution = task.solution(answer)
    if throw:
        usable = (solution.result == RESULTS.successful) | (solution.result == RESULTS.rounded)
        solution = solution.result.error_if(solution, ~usable)
    return solution


class Task(NamedTuple):
    """A problem over flat vectors, and the shapes that lead back to the caller's pytrees."""

    problem: Callable[[Array], Array]
    lane: Lane
    inequalities: int
    rows: int
    x_like: PyTree
    inequalities_like: PyTree
    equalities_like: PyTree

    def solution(self, answer: Answer) -> Solution:
        """Give an answer the shapes in which the problem came."""
        m, lane = self.inequalities, self.lane

        def per_constraint(rows: Array, lower: Array, upper: Array) -> PerConstraint:
            return PerConstraint(
                unravel(rows[:m], self.inequalities_like),
                unravel(rows[m:], self.equalities_like),
                unravel(lower, self.x_like),
                unravel(upper, self.x_like),
            )

        return Solution(
            x=unravel(answer.x, self.x_like),
            value=answer.value,
            multipliers=per_constraint(answer.y, answer.lower_dual, answer.upper_dual),
            slacks=per_constraint(-answer.rows, answer.x - lane.lower, lane.upper - answer.x),
            conflict=per_constraint(answer.conflict, answer.lower_conflict, answer.upper_conflict),
            iterations=answer.iterations,
            residual=answer.residual,
            result=result_of(answer.status),
        )


def prepare(
    objective: Callable[..., Any],
    x0: PyTree,
    args: tuple,
    bounds: tuple[PyTree, PyTree] | None,
    inequalities: Callable[..., PyTree] | None,
    equalities: Callable[..., PyTree] | None,
    warm: PerConstraint | None,
) -> Task:
    """Flatten a problem, and hoist whatever its functions close over into arrays that may be differentiated."""
    dtype = jnp.result_type(float, *jax.tree.leaves(x0))
    x_like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), dtype), x0)
    flat = ravel(x0, dtype)
    if flat.size == 0:
        raise ValueError("minimize: x0 holds no numbers, so there is nothing to choose. Give at least one variable.")
    lower, upper = (None, None) if bounds is None else bounds

    def evaluate(flat: Array) -> tuple[Array, PyTree, PyTree]:
        x = unravel(flat, x_like)
        values = objective(x, *args)
        values = values if isinstance(values, Values) else Values(values)
        g = values.inequalities if inequalities is None else (values.inequalities, inequalities(x, *args))
        h = values.equalities if equalities is None else (values.equalities, equalities(x, *args))
        # A function of its own has the shapes to itself.
        g = g[1] if inequalities is not None and values.inequalities is None else g
        h = h[1] if equalities is not None and values.equalities is None else h
        return jnp.asarray(values.objective, dtype), g, h

    converted = eqx.filter_closure_convert(evaluate, flat)
    converted = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, converted)
    f_like, g_like, h_like = jax.eval_shape(converted, flat)
    if f_like.shape != ():
        raise ValueError(
            f"minimize: the objective has shape {f_like.shape}. Return a scalar; add up or pick one entry."
        )
    g_size, h_size = (sum(leaf.size for leaf in jax.tree.leaves(like)) for like in (g_like, h_like))
    near = None
    if warm is not None:
        rows = jnp.concatenate([ravel(warm.inequalities, dtype), ravel(warm.equalities, dtype)])
        near = jax.lax.stop_gradient((rows, ravel(warm.lower, dtype), ravel(warm.upper, dtype)))
    return Task(
        problem=_Rows(converted),
        lane=Lane(jax.lax.stop_gradient(flat), _bound(lower, x_like, -jnp.inf), _bound(upper, x_like, jnp.inf), near),
        inequalities=g_size,
        rows=g_size + h_size,
        x_like=x_like,
        inequalities_like=g_like,
        equalities_like=h_like,
    )


class _Rows(eqx.Module):
    """The problem as one vector: objective, inequalities, equalities."""

    evaluate: Callable[[Array], tuple[Array, PyTree, PyTree]]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " k"]:
        value, g, h = self.evaluate(x)
        return jnp.concatenate([value[None], ravel(g, x.dtype), ravel(h, x.dtype)])


def ravel(tree: PyTree, dtype: Any) -> Float[Array, " n"]:
    """All leaves in one vector."""
    leaves = [jnp.ravel(jnp.asarray(leaf, dtype)) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate([jnp.zeros(0, dtype), *leaves])


def unravel(vector: Array, like: PyTree) -> PyTree:
    """The inverse of `ravel`, keeping the kind of numbers that the vector holds."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves], dtype=int)
    pieces = [vector[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(structure, pieces)


def _bound(bound: PyTree, x_like: PyTree, missing: float) -> Float[Array, " n"]:
    """A bound for every entry of x, from a prefix of its pytree with `None` for no bound."""

    def fill(bound: ArrayLike | None, part: PyTree) -> PyTree:
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.asarray(missing if bound is None else bound, leaf.dtype), leaf.shape),
            part,
        )

    try:
        full = jax.tree.map(fill, bound, x_like, is_leaf=lambda leaf: leaf is None)
    except ValueError as error:
        raise ValueError(
            f"minimize: a bound of structure {jax.tree.structure(bound)} does not fit x0 of structure "
            f"{jax.tree.structure(x_like)}. Give one number, or a pytree like x0 (None where there is no bound)."
        ) from error
    return ravel(full, jax.tree.leaves(x_like)[0].dtype)


def result_of(status: Int[Array, "..."]) -> Any:
    """Member of `RESULTS` for a code of `interior_point`."""
    members = {
        ip.SUCCESSFUL: RESULTS.successful,
        ip.INFEASIBLE: RESULTS.infeasible,
        ip.OUT_OF_ITERATIONS: RESULTS.out_of_iterations,
        ip.NON_FINITE: RESULTS.non_finite,
        ip.BOUNDS_CROSS: RESULTS.bounds_cross,
        ip.INTERRUPTED: RESULTS.interrupted,
        ip.UNBOUNDED: RESULTS.unbounded,
        ip.ROUNDED: RESULTS.rounded,
    }
    result: Any = RESULTS.running
    for code, member in members.items():
        result = RESULTS.where(status == code, member, result)
    return result
