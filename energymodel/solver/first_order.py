"""Augmented Lagrangian for problems too large for second derivatives, such as schedules of hundreds of knots.

Gradients alone, from one reverse sweep however many variables there are: the augmented Lagrangian [Hestenes 1969;
Powell 1969; Rockafellar 1973] turns constraints into a sequence of smooth problems, MINUIT's change of variables
[James & Roos 1975] keeps each inside its bounds, and the L-BFGS of optax [Liu & Nocedal 1989] minimizes them. The
dense solver of `minimize` needs a tenth of the evaluations where its Hessian is affordable, up to about 60
variables.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from energymodel.solver.box import Box
from energymodel.solver.flat_problem import FlatProblem, FlatSolution, flatten
from energymodel.solver.newton_system import select
from energymodel.solver.search_state import PUSH
from energymodel.solver.solution import RESULTS, Solution, reachable_tolerance

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


class FirstOrderOptions(eqx.Module):
    """Options of the first-order search, for quantities of order one as well.

    - `tolerance`: largest residual of the optimality conditions [1]; float32 stops at about 7e-5.
    - `max_iterations`: evaluations of the problem and its gradient before giving up [1].
    """

    tolerance: float = eqx.field(default=1e-7, static=True)
    max_iterations: int = eqx.field(default=5000, static=True)


class UnboundedVariables(NamedTuple):
    """Variables z without bounds in place of x in a box: `x = middle + half sin(k z)`, or
    `low + s (sqrt(z^2+1) - 1)` with one bound, or `s z` with none [James & Roos 1975, sec. 3]. An active bound is an
    ordinary minimum in z.
    """

    box: Box
    scale: Float[Array, " n"]

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        low, high, free = self.box.below, self.box.above, self.box.free
        both, single = low & high, low ^ high
        start = jnp.where(low | ~free, self.box.lower, jnp.where(high, self.box.upper, 0.0))
        half = jnp.where(both, 0.5 * (self.box.upper - self.box.lower), 1.0)
        return both, single, start, half

    def z(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Unbounded variables of a point inside."""
        both, single, start, half = self._parts()
        share = jnp.clip(jnp.where(both, (x - start) / half - 1.0, 0.0), -1.0, 1.0)
        above = jnp.where(single, jnp.abs(x - start) / self.scale + 1.0, 1.0)
        root = jnp.sqrt(jnp.maximum(above**2 - 1.0, 0.0))
        return jnp.where(both, jnp.arcsin(share) * half / self.scale, jnp.where(single, root, (x - start) / self.scale))

    def x(self, z: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The point, and its slope `dx/dz`."""
        both, single, start, half = self._parts()
        angle = jnp.where(both, z * self.scale / half, 0.0)
        root = jnp.sqrt(z**2 + 1.0)
        sign = jnp.where(self.box.above, -1.0, 1.0)
        elsewhere = self.scale * jnp.where(single, sign * (root - 1.0), z)
        x = jnp.where(both, start + half * (1.0 + jnp.sin(angle)), start + elsewhere)
        slope = self.scale * jnp.where(both, jnp.cos(angle), jnp.where(single, sign * z / root, 1.0))
        free = self.box.free
        return jnp.where(free, x, self.box.lower), jnp.where(free, slope, 0.0)


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
    unbounded = UnboundedVariables(Box(problem.lower, problem.upper), problem.scale)
    tolerance = reachable_tolerance(options.tolerance, problem.x0.dtype)
    method = _AugmentedLagrangian(problem, unbounded, tolerance)
    state = jax.lax.while_loop(
        lambda state: (state.result == RESULTS.running) & (state.iteration < options.max_iterations),
        method.step,
        method.init(),
    )
    solution = problem.shaped(_flat_solution(method, state))
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


class _AugmentedLagrangian(NamedTuple):
    """The method on a problem: rounds of L-BFGS at fixed multipliers and penalty, one evaluation a step."""

    problem: FlatProblem
    unbounded: UnboundedVariables
    tolerance: float

    @property
    def lbfgs(self) -> Any:  # its types know nothing of arrays
        import optax

        return optax.scale_by_lbfgs(_MEMORY)

    def init(self) -> _FirstOrderState:
        problem, box = self.problem, self.unbounded.box
        z = self.unbounded.z(box.inside(problem.x0, PUSH))
        none = jnp.zeros(problem.rows, z.dtype)

        def number(value: float) -> Array:
            return jnp.asarray(value, z.dtype)

        return _FirstOrderState(
            z=z,
            values=jnp.zeros(1 + problem.rows, z.dtype),
            slope=jnp.zeros_like(z),
            merit=number(0.0),
            direction=jnp.zeros_like(z),
            length=number(0.0),
            memory=self.lbfgs.init(z),
            y=none,
            estimate=none,
            penalty=number(_PENALTY),
            wanted=number(self.tolerance if problem.rows == 0 else max(self.tolerance, _LOOSEST)),
            violation=number(np.inf),
            fresh=jnp.ones((), bool),
            stuck=jnp.zeros((), bool),
            residual=number(np.inf),
            iteration=jnp.zeros((), jnp.int32),
            result=RESULTS.where(jnp.all(box.lower <= box.upper), RESULTS.running, RESULTS.bounds_cross),
        )

    def step(self, state: _FirstOrderState) -> _FirstOrderState:
        """One evaluation: accept its point or shorten the step, and end the round where it is stationary."""
        (moved, stretch), old_stretch = self.evaluate(state), self.unbounded.x(state.z)[1]
        finite = jnp.isfinite(moved.merit) & jnp.all(jnp.isfinite(moved.slope))
        fall = jnp.vdot(state.slope * old_stretch, state.direction)
        new_fall = jnp.vdot(moved.slope * stretch, state.direction)
        accepted = finite & (state.fresh | _passes(moved.merit, new_fall, state, fall))
        # Nothing is known of a point that opens a round unless everything there is finite.
        broken = state.fresh & ~finite
        shorter = self.shorten(state, moved.merit, fall, finite)
        state = select(accepted, self.accept(moved, state, stretch, old_stretch), shorter)
        at, box = self.unbounded.x(state.z)[0], self.unbounded.box
        stationarity = jnp.max(jnp.abs(at - jnp.clip(at - state.slope, box.lower, box.upper)), initial=0.0)
        state = state._replace(result=RESULTS.where(broken, RESULTS.non_finite, state.result))
        ended = ((accepted & (stationarity <= state.wanted)) | state.stuck) & ~broken
        state = select(ended, self.next_round(state, stationarity), state)
        return state._replace(iteration=state.iteration + 1)

    def evaluate(self, state: _FirstOrderState) -> tuple[_FirstOrderState, Float[Array, " n"]]:
        """The end of a step and dx/dz there; the merit is `f + sum (e^2 - y^2) / (2 penalty)`, e the estimate of y."""
        z = state.z + state.length * state.direction
        x, stretch = self.unbounded.x(z)
        values, pull = jax.vjp(self.problem.values, x)
        estimate = state.y + state.penalty * values[1:]
        estimate = jnp.where(self.problem.equality, estimate, jnp.maximum(estimate, 0.0))
        (slope,) = pull(jnp.concatenate([jnp.ones((1,), z.dtype), estimate]))
        merit = values[0] + 0.5 * jnp.sum(estimate**2 - state.y**2) / state.penalty
        return state._replace(z=z, values=values, slope=slope, merit=merit, estimate=estimate), stretch

    def accept(
        self, new: _FirstOrderState, old: _FirstOrderState, stretch: Array, old_stretch: Array
    ) -> _FirstOrderState:
        """Go on from the new point along the direction of L-BFGS."""
        gradient = new.slope * stretch
        move, change = new.z - old.z, gradient - old.slope * old_stretch
        curved = jnp.vdot(move, change) > _CURVATURE * jnp.linalg.norm(move) * jnp.linalg.norm(change)
        memory = select(curved & ~old.fresh, old.memory, self.lbfgs.init(new.z))
        direction, memory = self.lbfgs.update(gradient, memory, new.z)
        full, false = jnp.ones_like(new.length), jnp.zeros((), bool)
        return new._replace(direction=-direction, memory=memory, length=full, fresh=false, stuck=false)

    def shorten(self, state: _FirstOrderState, merit: Array, fall: Array, finite: Array) -> _FirstOrderState:
        """A shorter step, at the minimum of a parabola; after a failed search, the gradient; after that, give up."""
        bend = merit - state.merit - state.length * fall
        parabola = -0.5 * fall * state.length**2 / jnp.where(bend > 0, bend, 1.0)
        usable = finite & (bend > 0)
        length = jnp.where(usable, jnp.clip(parabola, 0.1 * state.length, 0.5 * state.length), 0.2 * state.length)
        shorter = state._replace(length=length)
        gradient = state.slope * self.unbounded.x(state.z)[1]
        direction, memory = self.lbfgs.update(gradient, self.lbfgs.init(state.z), state.z)
        again = state._replace(direction=-direction, memory=memory, length=jnp.ones_like(state.length))
        failed = state._replace(stuck=jnp.ones((), bool))
        first = state.memory.count <= 1
        return select(length >= _SHORTEST, shorter, select(first, failed, again))

    def next_round(self, state: _FirstOrderState, stationarity: Array) -> _FirstOrderState:
        """Take over the multipliers; raise the penalty if the violation has not fallen; judge the point."""
        c, y, equality, tolerance = state.values[1:], state.estimate, self.problem.equality, self.tolerance
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
            length=jnp.zeros_like(state.length),
            fresh=jnp.ones((), bool),
            stuck=jnp.zeros((), bool),
            result=RESULTS.where(residual <= tolerance, RESULTS.successful, result),
        )


def _passes(merit: Array, new_fall: Array, state: _FirstOrderState, fall: Array) -> Bool[Array, ""]:
    """Armijo's test, or its form in slopes where rounding hides differences of values [Hager & Zhang 2005, eq. 4.1]."""
    enough = merit <= state.merit + _ARMIJO * state.length * fall
    rounding = 10.0 * float(jnp.finfo(merit.dtype).eps)
    level = merit <= state.merit + rounding * jnp.abs(state.merit)
    return enough | (level & (new_fall <= (2.0 * _ARMIJO - 1.0) * fall))


def _flat_solution(method: _AugmentedLagrangian, state: _FirstOrderState) -> FlatSolution:
    """The end of a search, with the multipliers of the bounds."""
    box = method.unbounded.box
    x = jnp.clip(method.unbounded.x(state.z)[0], box.lower, box.upper)
    slope, c = state.slope, state.values[1:]
    broken = jnp.where(method.problem.equality, jnp.abs(c), c) > method.tolerance
    # The fixed variables carry the whole slope as the multiplier of both their bounds.
    low = jnp.where(box.free, box.below & (slope > x - box.lower), slope > 0)
    high = jnp.where(box.free, box.above & (-slope > box.upper - x), slope < 0)
    duals = jnp.where(low, slope, 0.0), jnp.where(high, -slope, 0.0)
    return FlatSolution(
        x=x,
        value=state.values[0],
        rows=c,
        multipliers=jnp.concatenate([state.estimate, *duals]),
        compliance=jnp.zeros_like(c),
        conflict=jnp.pad((state.result == RESULTS.infeasible) & broken, (0, 2 * x.size)),
        iterations=state.iteration,
        residual=state.residual,
        result=RESULTS.where(state.result == RESULTS.running, RESULTS.out_of_iterations, state.result),
    )
