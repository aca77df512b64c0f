"""How is a problem solved that is too large for second derivatives: a schedule of hundreds of knots, a clock per layer?

Gradients alone, from one reverse sweep however many variables there are: the augmented Lagrangian [Hestenes 1969;
Powell 1969; Rockafellar 1973] turns constraints into a sequence of smooth problems, MINUIT's change of variables
[James & Roos 1975] keeps each inside its bounds, and the L-BFGS of optax [Liu & Nocedal 1989] minimizes them. The
dense solver of `solve.minimize` needs a tenth of the evaluations where its Hessian is affordable, up to about 60
variables.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from energymodel.solver import interior_point as ip
from energymodel.solver.interior_point import Box
from energymodel.solver.lane import Answer, Lane
from energymodel.solver.minimize import RESULTS, Solution, prepare

_ARMIJO = 1e-4
_SHORTEST = 1e-12  # step length below which a line search has failed
_CURVATURE = 1e-8  # least cosine of step and change of gradient that L-BFGS may learn from [Li & Fukushima 2001]
_VIOLATION_DROP = (
    0.25  # a round that leaves more of the violation raises the penalty [Birgin & Martinez 2014, alg. 4.1]
)
_PENALTY_RAISE = 10.0
_INNER_DROP = 0.1
_LOOSEST = 1e-2  # stationarity asked of the first round, in units of a problem of order one


class FirstOrderOptions(eqx.Module):
    """How hard to try. The defaults suit problems whose quantities are of order one (logarithms, ratios).

    - `tolerance`: largest residual of the optimality conditions [1]; float32 stops at about 7e-5.
    - `max_iterations`: evaluations of the problem and its gradient before giving up [1].
    - `penalty`: first price of a squared violation [1]; raised up to `maximum_penalty` where rounds do not reduce it.
    - `memory`: pairs of steps and gradients that L-BFGS remembers [1].
    """

    tolerance: float = eqx.field(default=1e-7, static=True)
    max_iterations: int = eqx.field(default=5000, static=True)
    penalty: float = eqx.field(default=10.0, static=True)
    maximum_penalty: float = eqx.field(default=1e8, static=True)
    memory: int = eqx.field(default=20, static=True)

    def reachable(self, dtype: np.dtype) -> float:
        """Residual that rounding allows to reach, `max(tolerance, eps^0.6)`."""
        return max(self.tolerance, float(np.finfo(dtype).eps) ** 0.6)


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
    task = prepare(objective, x0, args, bounds, inequalities, equalities, None)
    answer = _solve(task.problem, task.inequalities, task.rows, task.lane, options)
    solution = task.solution(answer)
    if throw:
        solution = solution.result.error_if(solution, solution.result != RESULTS.successful)
    return solution


class _Inside(NamedTuple):
    """Variables without bounds for variables with bounds: `x = middle + half sin(k z)`, or `low + s (sqrt(z^2+1) - 1)`
    with one bound, or `s z` with none [James & Roos 1975, sec. 3]. An active bound is an ordinary minimum in z.
    """

    box: Box
    scale: Float[Array, " n"]

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        low, high, free = self.box.below, self.box.above, self.box.free
        both, one = low & high, low ^ high
        start = jnp.where(low | ~free, self.box.lower, jnp.where(high, self.box.upper, 0.0))
        half = jnp.where(both, 0.5 * (self.box.upper - self.box.lower), 1.0)
        return both, one, start, half

    def z(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Unbounded variables of a point inside."""
        both, one, start, half = self._parts()
        share = jnp.clip(jnp.where(both, (x - start) / half - 1.0, 0.0), -1.0, 1.0)
        above = jnp.where(one, jnp.abs(x - start) / self.scale + 1.0, 1.0)
        root = jnp.sqrt(jnp.maximum(above**2 - 1.0, 0.0))
        return jnp.where(both, jnp.arcsin(share) * half / self.scale, jnp.where(one, root, (x - start) / self.scale))

    def x(self, z: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The point, and its slope `dx/dz`."""
        both, one, start, half = self._parts()
        angle = jnp.where(both, z * self.scale / half, 0.0)
        root = jnp.sqrt(z**2 + 1.0)
        sign = jnp.where(self.box.above, -1.0, 1.0)
        x = jnp.where(
            both,
            start + half * (1.0 + jnp.sin(angle)),
            start + self.scale * jnp.where(one, sign * (root - 1.0), z),
        )
        slope = self.scale * jnp.where(both, jnp.cos(angle), jnp.where(one, sign * z / root, 1.0))
        free = self.box.free
        return jnp.where(free, x, self.box.lower), jnp.where(free, slope, 0.0)


class _State(NamedTuple):
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
    status: Int[Array, ""]


def _solve(
    problem: Callable[[Array], Array], inequalities: int, rows: int, lane: Lane, options: FirstOrderOptions
) -> Answer:
    import optax

    dtype, size = lane.x0.dtype, lane.x0.size
    tolerance = options.reachable(dtype)
    box = Box(lane.lower, lane.upper)
    inside = _Inside(box, lane.scale())
    equality = jnp.arange(rows) >= inequalities
    lbfgs = optax.scale_by_lbfgs(options.memory)
    rounding = 10.0 * float(jnp.finfo(dtype).eps)

    def number(value: float) -> Array:
        return jnp.asarray(value, dtype)

    def preconditioned(gradient: Array, memory: Any, z: Array) -> tuple[Any, Any]:
        return lbfgs.update(gradient, memory, z)

    def turn(state: _State) -> _State:
        z = state.z + state.length * state.direction
        x, stretch = inside.x(z)
        values, pull = jax.vjp(problem, x)
        estimate = state.y + state.penalty * values[1:]
        estimate = jnp.where(equality, estimate, jnp.maximum(estimate, 0.0))
        (slope,) = pull(jnp.concatenate([jnp.ones((1,), dtype), estimate]))
        merit = values[0] + 0.5 * jnp.sum(estimate**2 - state.y**2) / state.penalty
        finite = jnp.isfinite(merit) & jnp.all(jnp.isfinite(slope))

        # Armijo's test, or its form in slopes where rounding hides differences of values [Hager & Zhang 2005, eq. 4.1].
        old_stretch = inside.x(state.z)[1]
        fall = jnp.vdot(state.slope * old_stretch, state.direction)
        new_fall = jnp.vdot(slope * stretch, state.direction)
        enough = merit <= state.merit + _ARMIJO * state.length * fall
        level = merit <= state.merit + rounding * jnp.abs(state.merit)
        flat = level & (new_fall <= (2.0 * _ARMIJO - 1.0) * fall)
        accepted = finite & (state.fresh | enough | flat)

        moved = state._replace(z=z, values=values, slope=slope, merit=merit, estimate=estimate)
        state = _select(accepted, _after_step(moved, state, stretch, old_stretch), _shorter(state, merit, fall, finite))
        at, _ = inside.x(state.z)
        stationarity = jnp.max(jnp.abs(at - jnp.clip(at - state.slope, box.lower, box.upper)), initial=0.0)
        # Nothing is known of a point that opens a round unless everything there is finite.
        broken = state.fresh & ~finite
        state = state._replace(status=jnp.where(broken, ip.NON_FINITE, state.status).astype(jnp.int32))
        ended = ((accepted & (stationarity <= state.wanted)) | state.stuck) & ~broken
        state = _select(ended, _next_round(state, stationarity), state)
        return state._replace(iteration=state.iteration + 1)

    def _after_step(new: _State, old: _State, stretch: Array, old_stretch: Array) -> _State:
        gradient = new.slope * stretch
        step, change = new.z - old.z, gradient - old.slope * old_stretch
        curved = jnp.vdot(step, change) > _CURVATURE * jnp.linalg.norm(step) * jnp.linalg.norm(change)
        memory = _select(curved & ~old.fresh, old.memory, lbfgs.init(new.z))
        direction, memory = preconditioned(gradient, memory, new.z)
        false = jnp.zeros((), bool)
        return new._replace(direction=-direction, memory=memory, length=number(1.0), fresh=false, stuck=false)

    def _shorter(state: _State, merit: Array, fall: Array, finite: Array) -> _State:
        """A shorter step, at the minimum of a parabola; after a failed search, the gradient; after that, give up."""
        bend = merit - state.merit - state.length * fall
        parabola = -0.5 * fall * state.length**2 / jnp.where(bend > 0, bend, 1.0)
        usable = finite & (bend > 0)
        length = jnp.where(usable, jnp.clip(parabola, 0.1 * state.length, 0.5 * state.length), 0.2 * state.length)
        shorter = state._replace(length=length)
        gradient = state.slope * inside.x(state.z)[1]
        direction, memory = preconditioned(gradient, lbfgs.init(state.z), state.z)
        again = state._replace(direction=-direction, memory=memory, length=number(1.0))
        failed = state._replace(stuck=jnp.ones((), bool))
        first = state.memory.count <= 1
        return _select(length >= _SHORTEST, shorter, _select(first, failed, again))

    def _next_round(state: _State, stationarity: Array) -> _State:
        """Take over the multipliers; raise the penalty if the violation has not fallen; judge the point."""
        c, y = state.values[1:], state.estimate
        violation = jnp.max(jnp.abs(jnp.where(equality, c, jnp.maximum(c, -state.y / state.penalty))), initial=0.0)
        gap = jnp.max(jnp.abs(jnp.where(equality, c, jnp.minimum(-c, y))), initial=0.0)
        residual = jnp.maximum(stationarity, gap)
        lazy = violation > _VIOLATION_DROP * state.violation
        penalty = jnp.where(lazy & (violation > tolerance), state.penalty * _PENALTY_RAISE, state.penalty)
        broken = jnp.max(jnp.where(equality, jnp.abs(c), c), initial=-jnp.inf) > jnp.sqrt(tolerance)
        over = penalty > options.maximum_penalty
        halted = state.stuck & (state.wanted <= tolerance) & ~lazy
        status = jnp.where(
            residual <= tolerance,
            ip.SUCCESSFUL,
            jnp.where(over & broken, ip.INFEASIBLE, jnp.where(over | halted, ip.OUT_OF_ITERATIONS, ip.RUNNING)),
        )
        return state._replace(
            y=y,
            penalty=jnp.minimum(penalty, options.maximum_penalty),
            wanted=jnp.maximum(state.wanted * _INNER_DROP, tolerance),
            violation=violation,
            residual=residual,
            direction=jnp.zeros_like(state.z),
            length=number(0.0),
            fresh=jnp.ones((), bool),
            stuck=jnp.zeros((), bool),
            status=status.astype(jnp.int32),
        )

    z = inside.z(box.inside(lane.x0, ip.PUSH))
    ordered = jnp.all(lane.lower <= lane.upper)
    none = jnp.zeros(rows, dtype)
    state = _State(
        z=z,
        values=jnp.zeros(1 + rows, dtype),
        slope=jnp.zeros(size, dtype),
        merit=number(0.0),
        direction=jnp.zeros_like(z),
        length=number(0.0),
        memory=lbfgs.init(z),
        y=none,
        estimate=none,
        penalty=number(options.penalty),
        wanted=number(tolerance if rows == 0 else max(tolerance, _LOOSEST)),
        violation=number(np.inf),
        fresh=jnp.ones((), bool),
        stuck=jnp.zeros((), bool),
        residual=number(np.inf),
        iteration=jnp.zeros((), jnp.int32),
        status=jnp.where(ordered, ip.RUNNING, ip.BOUNDS_CROSS).astype(jnp.int32),
    )
    state = jax.lax.while_loop(
        lambda state: (state.status == ip.RUNNING) & (state.iteration < options.max_iterations), turn, state
    )
    return _answer(state, inside, box, equality, lane, tolerance)


def _answer(
    state: _State, inside: _Inside, box: Box, equality: Bool[Array, " m"], lane: Lane, tolerance: float
) -> Answer:
    x = jnp.clip(inside.x(state.z)[0], lane.lower, lane.upper)
    slope, c = state.slope, state.values[1:]
    running = state.status == ip.RUNNING
    infeasible = state.status == ip.INFEASIBLE
    broken = jnp.where(equality, jnp.abs(c), c) > tolerance
    # The fixed variables carry the whole slope as the multiplier of both their bounds.
    low = jnp.where(box.free, box.below & (slope > x - box.lower), slope > 0)
    high = jnp.where(box.free, box.above & (-slope > box.upper - x), slope < 0)
    none = jnp.zeros_like(low)
    return Answer(
        x=x,
        value=state.values[0],
        rows=c,
        y=state.estimate,
        lower_dual=jnp.where(low, slope, 0.0),
        upper_dual=jnp.where(high, -slope, 0.0),
        compliance=jnp.zeros_like(c),
        conflict=infeasible & broken,
        lower_conflict=none,
        upper_conflict=none,
        iterations=state.iteration,
        residual=state.residual,
        status=jnp.where(running, ip.OUT_OF_ITERATIONS, state.status).astype(jnp.int32),
    )


def _select(choice: Bool[Array, ""], yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), yes, no)
