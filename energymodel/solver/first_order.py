"""How is a problem solved that is too large for second derivatives: a schedule of hundreds of knots, a clock per layer?

Gradients alone, from one reverse sweep however many variables there are: the augmented Lagrangian [Hestenes 1969;
Powell 1969; Rockafellar 1973] turns constraints into a sequence of smooth problems, MINUIT's change of variables
[James & Roos 1975] keeps each inside its bounds, and the L-BFGS of optax [Liu & Nocedal 1989] minimizes them. The
dense solver of `minimize` needs a tenth of the evaluations where its Hessian is affordable, up to about 60
variables.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from energymodel.solver.box import Box, UnboundedVariables
from energymodel.solver.flat_problem import FlatProblem, FlatSolution, flatten
from energymodel.solver.interior_point import PUSH
from energymodel.solver.options import FirstOrderOptions, reachable_tolerance
from energymodel.solver.solution import RESULTS, Solution

_ARMIJO = 1e-4
_SHORTEST = 1e-12  # step length below which a line search has failed
_CURVATURE = 1e-8  # lowest cosine of step and change of gradient that L-BFGS may learn from [Li & Fukushima 2001]
# A round that leaves more of the violation raises the penalty [Birgin & Martinez 2014, alg. 4.1].
_VIOLATION_DROP = 0.25
_PENALTY = 10.0  # first price of a squared violation
_PENALTY_RAISE = 10.0
_HIGHEST_PENALTY = 1e8
_MEMORY = 20  # pairs of steps and gradients that L-BFGS remembers
_INNER_DROP = 0.1
_LOOSEST = 1e-2  # stationarity asked of the first round, in units of a problem of order one


def minimize_first_order(
    objective: Callable[..., Any],
    x0: PyTree,
    *,
    args: tuple = (),
    bounds: tuple[PyTree, PyTree] | None = None,
    inequalities: Callable[..., PyTree] | None = None,
    equalities: Callable[..., PyTree] | None = None,
    options: FirstOrderOptions | None = None,
    throw: bool = False,
) -> Solution:
    """Minimize `f(x)` subject to `g(x) <= 0`, `h(x) = 0`, `lower <= x <= upper` [Nocedal & Wright 2006, alg. 17.4].

    For what `minimize` is too large for: time and memory of an iteration grow with the variables as those of one
    gradient do. Works under `jit` and `vmap`; it is not differentiable. Rows are not scaled: pose them, as the
    objective, in quantities [1] of order one (logarithms, ratios to limits).

    **Arguments:**

    - `objective`, `x0`, `args`, `bounds`, `inequalities`, `equalities`, `throw`: as in `minimize`.
    - `options`: `FirstOrderOptions`.

    **Returns:** `Solution` as of `minimize`; `iterations` counts evaluations with gradient, `residual` is the largest
    of `|x - P(x - grad L)|`, `|h|` and `|min(-g, y)|` with P the projection onto the bounds.

    **Raises:** `ValueError` for an `x0` without numbers, an objective that is no scalar, bounds unlike `x0`.
    """
    options = FirstOrderOptions() if options is None else options
    problem = flatten(objective, x0, args, bounds, inequalities, equalities, None)
    solution = problem.shaped(_augmented_lagrangian(problem, options))
    if throw:
        solution = solution.result.error_if(solution, solution.result != RESULTS.successful)
    return solution


class _FirstOrderState(NamedTuple):
    """A search between two evaluations."""

    z: Float[Array, " n"]
    values: Float[Array, " k"]
    slope: Float[Array, " n"]  # of the augmented Lagrangian, with respect to x
    merit: Float[Array, ""]
    direction: Float[Array, " n"]
    length: Float[Array, ""]
    memory: Any
    y: Float[Array, " m"]
    estimate: Float[Array, " m"]  # multipliers that the present point suggests
    penalty: Float[Array, ""]
    wanted: Float[Array, ""]  # stationarity that ends the round
    violation: Float[Array, ""]  # at the end of the last round
    fresh: Bool[Array, ""]  # the next evaluation opens a round
    stuck: Bool[Array, ""]  # the last line search failed along the gradient, too
    residual: Float[Array, ""]
    iteration: Int[Array, ""]
    result: RESULTS


def _augmented_lagrangian(problem: FlatProblem, options: FirstOrderOptions) -> FlatSolution:
    import optax

    dtype, rows, equality = problem.x0.dtype, problem.rows, problem.equality
    tolerance = reachable_tolerance(options, dtype)
    box = Box(problem.lower, problem.upper)
    unbounded = UnboundedVariables(box, problem.scale)
    lbfgs: Any = optax.scale_by_lbfgs(_MEMORY)  # its types know nothing of arrays
    rounding = 10.0 * float(jnp.finfo(dtype).eps)

    def number(value: float) -> Array:
        return jnp.asarray(value, dtype)

    def step(state: _FirstOrderState) -> _FirstOrderState:
        z = state.z + state.length * state.direction
        x, stretch = unbounded.x(z)
        values, pull = jax.vjp(problem.values, x)
        estimate = state.y + state.penalty * values[1:]
        estimate = jnp.where(equality, estimate, jnp.maximum(estimate, 0.0))
        (slope,) = pull(jnp.concatenate([jnp.ones((1,), dtype), estimate]))
        merit = values[0] + 0.5 * jnp.sum(estimate**2 - state.y**2) / state.penalty
        finite = jnp.isfinite(merit) & jnp.all(jnp.isfinite(slope))

        # Armijo's test, or its form in slopes where rounding hides differences of values [Hager & Zhang 2005, eq. 4.1].
        old_stretch = unbounded.x(state.z)[1]
        fall = jnp.vdot(state.slope * old_stretch, state.direction)
        new_fall = jnp.vdot(slope * stretch, state.direction)
        enough = merit <= state.merit + _ARMIJO * state.length * fall
        level = merit <= state.merit + rounding * jnp.abs(state.merit)
        flat = level & (new_fall <= (2.0 * _ARMIJO - 1.0) * fall)
        accepted = finite & (state.fresh | enough | flat)

        moved = state._replace(z=z, values=values, slope=slope, merit=merit, estimate=estimate)
        state = _select(accepted, accept(moved, state, stretch, old_stretch), shorten(state, merit, fall, finite))
        at, _ = unbounded.x(state.z)
        stationarity = jnp.max(jnp.abs(at - jnp.clip(at - state.slope, box.lower, box.upper)), initial=0.0)
        # Nothing is known of a point that opens a round unless everything there is finite.
        broken = state.fresh & ~finite
        state = state._replace(result=RESULTS.where(broken, RESULTS.non_finite, state.result))
        ended = ((accepted & (stationarity <= state.wanted)) | state.stuck) & ~broken
        state = _select(ended, next_round(state, stationarity), state)
        return state._replace(iteration=state.iteration + 1)

    def accept(new: _FirstOrderState, old: _FirstOrderState, stretch: Array, old_stretch: Array) -> _FirstOrderState:
        gradient = new.slope * stretch
        move, change = new.z - old.z, gradient - old.slope * old_stretch
        curved = jnp.vdot(move, change) > _CURVATURE * jnp.linalg.norm(move) * jnp.linalg.norm(change)
        memory = _select(curved & ~old.fresh, old.memory, lbfgs.init(new.z))
        direction, memory = lbfgs.update(gradient, memory, new.z)
        false = jnp.zeros((), bool)
        return new._replace(direction=-direction, memory=memory, length=number(1.0), fresh=false, stuck=false)

    def shorten(state: _FirstOrderState, merit: Array, fall: Array, finite: Array) -> _FirstOrderState:
        """A shorter step, at the minimum of a parabola; after a failed search, the gradient; after that, give up."""
        bend = merit - state.merit - state.length * fall
        parabola = -0.5 * fall * state.length**2 / jnp.where(bend > 0, bend, 1.0)
        usable = finite & (bend > 0)
        length = jnp.where(usable, jnp.clip(parabola, 0.1 * state.length, 0.5 * state.length), 0.2 * state.length)
        shorter = state._replace(length=length)
        gradient = state.slope * unbounded.x(state.z)[1]
        direction, memory = lbfgs.update(gradient, lbfgs.init(state.z), state.z)
        again = state._replace(direction=-direction, memory=memory, length=number(1.0))
        failed = state._replace(stuck=jnp.ones((), bool))
        first = state.memory.count <= 1
        return _select(length >= _SHORTEST, shorter, _select(first, failed, again))

    def next_round(state: _FirstOrderState, stationarity: Array) -> _FirstOrderState:
        """Take over the multipliers; raise the penalty if the violation has not fallen; judge the point."""
        c, y = state.values[1:], state.estimate
        violation = jnp.max(jnp.abs(jnp.where(equality, c, jnp.maximum(c, -state.y / state.penalty))), initial=0.0)
        gap = jnp.max(jnp.abs(jnp.where(equality, c, jnp.minimum(-c, y))), initial=0.0)
        residual = jnp.maximum(stationarity, gap)
        lazy = violation > _VIOLATION_DROP * state.violation
        penalty = jnp.where(lazy & (violation > tolerance), state.penalty * _PENALTY_RAISE, state.penalty)
        broken = jnp.max(jnp.where(equality, jnp.abs(c), c), initial=-jnp.inf) > jnp.sqrt(tolerance)
        over = penalty > _HIGHEST_PENALTY
        halted = state.stuck & (state.wanted <= tolerance) & ~lazy
        result = RESULTS.where(over | halted, RESULTS.out_of_iterations, RESULTS.running)
        result = RESULTS.where(over & broken, RESULTS.infeasible, result)
        return state._replace(
            y=y,
            penalty=jnp.minimum(penalty, _HIGHEST_PENALTY),
            wanted=jnp.maximum(state.wanted * _INNER_DROP, tolerance),
            violation=violation,
            residual=residual,
            direction=jnp.zeros_like(state.z),
            length=number(0.0),
            fresh=jnp.ones((), bool),
            stuck=jnp.zeros((), bool),
            result=RESULTS.where(residual <= tolerance, RESULTS.successful, result),
        )

    z = unbounded.z(box.inside(problem.x0, PUSH))
    ordered = jnp.all(problem.lower <= problem.upper)
    none = jnp.zeros(rows, dtype)
    state = _FirstOrderState(
        z=z,
        values=jnp.zeros(1 + rows, dtype),
        slope=jnp.zeros_like(z),
        merit=number(0.0),
        direction=jnp.zeros_like(z),
        length=number(0.0),
        memory=lbfgs.init(z),
        y=none,
        estimate=none,
        penalty=number(_PENALTY),
        wanted=number(tolerance if rows == 0 else max(tolerance, _LOOSEST)),
        violation=number(np.inf),
        fresh=jnp.ones((), bool),
        stuck=jnp.zeros((), bool),
        residual=number(np.inf),
        iteration=jnp.zeros((), jnp.int32),
        result=RESULTS.where(ordered, RESULTS.running, RESULTS.bounds_cross),
    )
    state = jax.lax.while_loop(
        lambda state: (state.result == RESULTS.running) & (state.iteration < options.max_iterations), step, state
    )
    return _flat_solution(problem, tolerance, state, unbounded.x(state.z)[0])


def _flat_solution(problem: FlatProblem, tolerance: float, state: _FirstOrderState, x: Array) -> FlatSolution:
    """The end of a search, with the multipliers of the bounds."""
    box = Box(problem.lower, problem.upper)
    x = jnp.clip(x, box.lower, box.upper)
    slope, c = state.slope, state.values[1:]
    broken = jnp.where(problem.equality, jnp.abs(c), c) > tolerance
    # The fixed variables carry the whole slope as the multiplier of both their bounds.
    low = jnp.where(box.free, box.below & (slope > x - box.lower), slope > 0)
    high = jnp.where(box.free, box.above & (-slope > box.upper - x), slope < 0)
    none = jnp.zeros_like(low)
    return FlatSolution(
        x=x,
        value=state.values[0],
        rows=c,
        y=state.estimate,
        lower_dual=jnp.where(low, slope, 0.0),
        upper_dual=jnp.where(high, -slope, 0.0),
        compliance=jnp.zeros_like(c),
        conflict=(state.result == RESULTS.infeasible) & broken,
        lower_conflict=none,
        upper_conflict=none,
        iterations=state.iteration,
        residual=state.residual,
        result=RESULTS.where(state.result == RESULTS.running, RESULTS.out_of_iterations, state.result),
    )


def _select(choice: Bool[Array, ""], yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), yes, no)
