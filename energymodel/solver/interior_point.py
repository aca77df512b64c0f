"""How are small dense constrained problems solved, thousands at a time: an elastic primal-dual interior point.

    minimize  f(x) + rho sum(t) [+ rho sum(s) over equalities]
    subject to  c(x) + s - t = 0,  s >= 0,  t >= 0,  lower <= x <= upper

The rows `c` are inequalities `c <= 0` first, then equalities `c = 0`, for which the slack `s` costs as much as the
violation `t`. Multipliers then live in `0 <= y <= rho` (inequalities) and `-rho <= y <= rho` (equalities), so that
an infeasible problem ends at the lowest violation with bounded multipliers instead of diverging. Steps are Mehrotra's
predictor and corrector [Mehrotra 1992; Nocedal & Wright 2006, ch. 19], the elastic form is the l1 penalty of
[Fletcher 1987, ch. 12], inertia correction, scaling and the safeguard of the multipliers follow [Wachter & Biegler
2006]. The step lengths are tried all at once, so that the body has no branches and one lane of a batch costs what it
costs alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from energymodel.solver.box import Box
from energymodel.solver.derivatives import derivatives, differenced_derivatives
from energymodel.solver.flat_problem import FlatProblem, FlatSolution
from energymodel.solver.line_search import Found, line_search
from energymodel.solver.newton_system import (
    Aim,
    Iterate,
    NewtonSystem,
    longest_steps,
    newton_system,
    predictor_corrector,
)
from energymodel.solver.options import SolverOptions, reachable_tolerance
from energymodel.solver.solution import RESULTS

# Constants of the method, where not argued for at their place, are those of [Wachter & Biegler 2006].
_DUAL_SPREAD = 1e10  # the multiplier times its slack stays within this factor of the barrier [eq. 16]
PUSH = 1e-2  # relative distance of a cold start from its bounds [section 3.6]
WARM_PUSH = 1e-4
_CONFLICT_SHARE = 1e-3  # share of the penalty that a multiplier must carry to belong to a conflict
_STEEPEST = 100.0  # largest gradient of a row at the start [section 3.8]; multipliers beyond it relax the test [eq. 6]
_PENALTY = 100.0  # rho, the price of violating a scaled constraint
_RAISE = 1e4  # of the penalty, when a search ends in a violation: one more search decides
_HIGHEST_PENALTY = 1e6  # at which a violation means that the problem is infeasible
_FAR = 1e10  # scaled variables and objective that no sensible problem has; its square for the objective alone


class InteriorPointState(NamedTuple):
    """A search between two iterations, in scaled units: everything needed to go on."""

    x: Float[Array, " n"]
    slack: Float[Array, " mm"]  # s, then t
    y: Float[Array, " m"]
    dual: Float[Array, " nn"]  # of the lower, then of the upper bounds
    penalty: Float[Array, ""]
    damping: Float[Array, ""]
    scale: Float[Array, " k"]
    values: Float[Array, " k"]
    residual: Float[Array, ""]
    warm: Bool[Array, ""]
    pushed: Bool[Array, ""]  # off a stationary point that was no minimum
    iteration: Int[Array, ""]
    result: RESULTS


def scaled_box(problem: FlatProblem) -> Box:
    """Bounds of the scaled variables."""
    return Box(problem.lower / problem.scale, problem.upper / problem.scale)


def init(problem: FlatProblem, options: SolverOptions) -> InteriorPointState:
    """InteriorPointState before the first evaluation."""
    rows, dtype, box = problem.rows, problem.x0.dtype, scaled_box(problem)
    x = box.inside(problem.x0 / problem.scale, PUSH if problem.warm is None else WARM_PUSH)
    y, dual = jnp.zeros(rows, dtype), jnp.zeros(2 * x.size, dtype)
    if problem.warm is not None:
        y, lower_dual, upper_dual = problem.warm
        dual = jnp.concatenate([lower_dual * problem.scale, upper_dual * problem.scale])
    zero = jnp.zeros((), dtype)
    ordered = jnp.all(problem.lower <= problem.upper)
    return InteriorPointState(
        x=x,
        slack=jnp.ones(2 * rows, dtype),
        y=y,
        dual=dual,
        penalty=zero + _PENALTY,
        damping=zero,
        scale=jnp.ones(1 + rows, dtype),
        values=jnp.zeros(1 + rows, dtype),
        residual=zero + jnp.inf,
        warm=jnp.asarray(problem.warm is not None),
        pushed=jnp.asarray(False),
        iteration=jnp.asarray(-1, jnp.int32),
        result=RESULTS.where(ordered, RESULTS.running, RESULTS.bounds_cross),
    )


def unfinished(state: InteriorPointState, limit: int | Array) -> Bool[Array, "..."]:
    """Whether a search has iterations to make."""
    return (state.result == RESULTS.running) & (state.iteration < limit)


def postprocess(problem: FlatProblem, options: SolverOptions, state: InteriorPointState) -> FlatSolution:
    """Undo the scaling, and say how the search ended."""
    scale, box = problem.scale, scaled_box(problem)
    n, m, penalty, y = state.x.size, state.y.size, state.penalty, state.y
    u, v = _slack_prices(state, problem.equality)
    compliance = state.slack[:m] / jnp.where(u > 0, u, 1.0) + state.slack[m:] / v
    late = (state.result == RESULTS.running) & (state.iteration >= options.max_iterations)
    result = RESULTS.where(late, RESULTS.out_of_iterations, state.result)
    # At the lowest violation the objective no longer counts: the multipliers are a certificate that the rows which
    # carry them cannot hold together [Farkas 1902].
    infeasible, share = result == RESULTS.infeasible, _CONFLICT_SHARE * penalty
    lower_dual, upper_dual = state.dual[:n], state.dual[n:]
    to_dual = state.scale[1:] / state.scale[0]
    return FlatSolution(
        x=jnp.clip(state.x * scale, problem.lower, problem.upper),
        value=state.values[0],
        rows=state.values[1:],
        y=y * to_dual,
        lower_dual=lower_dual / (state.scale[0] * scale),
        upper_dual=upper_dual / (state.scale[0] * scale),
        compliance=compliance / (to_dual * state.scale[1:]),
        conflict=infeasible & (jnp.abs(y) > share),
        lower_conflict=infeasible & (lower_dual > share) & (box.below | ~box.free),
        upper_conflict=infeasible & (upper_dual > share) & (box.above | ~box.free),
        iterations=jnp.maximum(state.iteration, 0),
        residual=state.residual,
        result=result,
    )


def _slack_prices(state: InteriorPointState, equality: Bool[Array, " m"]) -> tuple[Array, Array]:
    """Multipliers u and v of the slacks s and t, the distances of y from the ends of its range."""
    # A multiplier next to the end of its range is known only to rounding, and so is its distance from there.
    y, penalty, least = state.y, state.penalty, jnp.finfo(state.y.dtype).eps * state.penalty
    return jnp.where(equality, jnp.maximum(y + penalty, least), y), jnp.maximum(penalty - y, least)


def _first_multipliers(
    state: InteriorPointState, box: Box, equality: Array, values: Array, jacobian: Array, hessian: Array
) -> InteriorPointState:
    """Scales, slacks and multipliers from the derivatives at the starting point."""
    # Rows steeper than 100 are scaled down, rows that are flat and small are scaled up. Curvature speaks for an
    # objective that starts at a stationary point.
    slope = jnp.max(jnp.abs(jacobian), axis=1)
    size = jnp.maximum(slope, jnp.abs(values).at[0].set(jnp.max(jnp.abs(hessian))))
    small = (size > jnp.finfo(size.dtype).tiny) & (size < 1.0)
    scale = jnp.where(small, 1.0 / jnp.where(small, size, 1.0), _STEEPEST / jnp.maximum(slope, _STEEPEST))
    rows, rho, gap = (scale * values)[1:], state.penalty, box.distances(state.x)
    barrier, least = jnp.where(state.warm, 1e-4, 0.1), jnp.where(state.warm, 1e-3, 0.1)
    # The slacks of an equality solve s - t = -row with both products at the barrier [Wachter & Biegler 2006, eq. 33].
    half = (barrier / rho - jnp.abs(rows)) / 2
    short = half + jnp.sqrt(half**2 + barrier / rho * jnp.abs(rows) / 2)
    long = short + jnp.abs(rows)
    s = jnp.where(equality, jnp.where(rows > 0, short, long), jnp.maximum(-rows, least))
    t = jnp.where(equality, jnp.where(rows > 0, long, short), 2 * barrier / rho)
    # Where the multipliers of a neighbor are given, they are kept a little inside their range.
    fresh = jnp.where(state.warm, 1e-2, 1.0) * jnp.concatenate([jnp.minimum(barrier / s, rho / 2), barrier / gap])
    old = jnp.concatenate([state.y / scale[1:], state.dual]) * scale[0]
    m = rows.size
    y = jnp.where(
        equality, jnp.clip(old[:m], -0.9 * rho, 0.9 * rho), jnp.minimum(jnp.maximum(old[:m], fresh[:m]), 0.9 * rho)
    )
    dual = jnp.where(box.bounded, jnp.maximum(old[m:], fresh[m:]), 0.0)
    return state._replace(slack=jnp.concatenate([s, t]), y=y, dual=dual, scale=scale)


def step(problem: FlatProblem, options: SolverOptions, state: InteriorPointState) -> InteriorPointState:
    """One iteration: linearize and judge where the search is; if it goes on, step along a direction."""
    tolerance, first = reachable_tolerance(options, state.x.dtype), state.iteration < 0
    state, at = _linearize(problem, options, state)
    system = newton_system(at, state.damping)
    verdict = _judge(system, state, options, tolerance)
    aim = predictor_corrector(system, tolerance)
    found = line_search(lambda x: state.scale * problem.values(x * problem.scale), system, aim)
    stepped = _advance(problem, state, system, aim, found)
    stay = first | (verdict.result != RESULTS.running) | verdict.raise_penalty | verdict.push
    stepped = jax.tree.map(lambda a, b: jnp.where(stay, a, b), state, stepped)
    # A fixed variable has for multiplier whatever its gradient leaves.
    free, fixed = at.free, jnp.maximum(jnp.concatenate([at.pull, -at.pull]), 0.0)
    raised = jnp.minimum(at.penalty * _RAISE, _HIGHEST_PENALTY)
    return stepped._replace(
        x=jnp.where(verdict.push, _downhill(system), stepped.x),
        dual=jnp.where(jnp.concatenate([free, free]), stepped.dual, fixed),
        penalty=jnp.where(verdict.raise_penalty, raised, at.penalty),
        residual=jnp.where(at.finite & ~first, verdict.residual, jnp.inf),
        pushed=state.pushed | verdict.push,
        iteration=state.iteration + jnp.where(verdict.result == RESULTS.running, 1, 0),
        result=verdict.result,
    )


def _linearize(
    problem: FlatProblem, options: SolverOptions, state: InteriorPointState
) -> tuple[InteriorPointState, Iterate]:
    """The problem to second order at the state, which first gets its scales and multipliers from it."""
    box, equality, one = scaled_box(problem), problem.equality, jnp.ones(1, state.x.dtype)
    first = state.iteration < 0
    weights = state.scale * jnp.concatenate([one, jnp.where(first, 0.0, state.y)])
    expand = derivatives if options.hessian == "exact" else differenced_derivatives
    values, jacobian, W = expand(lambda x: problem.values(x * problem.scale), state.x, weights)
    finite = jnp.isfinite(jnp.sum(values) + jnp.sum(jacobian) + jnp.sum(W))
    fresh = _first_multipliers(state, box, equality, values, jacobian, W)
    state = jax.tree.map(lambda a, b: jnp.where(first, a, b), fresh, state)._replace(values=values)

    y, rho, free, m = state.y, state.penalty, box.free, state.y.size
    jacobian = state.scale[:, None] * jacobian
    pull = jnp.concatenate([one, y]) @ jacobian
    costs = [jnp.where(equality, rho, 0.0), jnp.broadcast_to(rho, m), jnp.zeros(2 * state.x.size, y.dtype)]
    return state, Iterate(
        box=box,
        free=free,
        x=state.x,
        y=y,
        penalty=rho,
        f=state.scale[0] * values[0],
        c=state.scale[1:] * values[1:],
        gradient=pull - y @ jacobian[1:],
        pull=pull,
        J=jacobian[1:] * free,
        W=W * free * free[:, None],
        gap=jnp.concatenate([state.slack, box.distances(state.x)]),
        price=jnp.concatenate([*_slack_prices(state, equality), jnp.where(box.bounded, state.dual, 0.0)]),
        costs=jnp.concatenate(costs),
        finite=finite,
    )


class _Verdict(NamedTuple):
    """What is to be done where the search is: end with a result, raise the penalty, leave a saddle, or go on."""

    residual: Float[Array, ""]
    result: RESULTS
    raise_penalty: Bool[Array, ""]
    push: Bool[Array, ""]


def _judge(system: NewtonSystem, state: InteriorPointState, options: SolverOptions, tolerance: float) -> _Verdict:
    """Verdict from the Karush-Kuhn-Tucker residual, in which products of elastic slacks are weighed by their cost."""
    at, n, m, first = system.at, state.x.size, state.y.size, state.iteration < 0
    dual, violation = at.price[2 * m :], at.violation
    reduced = (at.pull - dual[:n] + dual[n:]) * at.free
    reduced = reduced / jnp.maximum(1.0, jnp.max(jnp.abs(at.y), initial=0.0) / _STEEPEST)
    residual = jnp.max(jnp.abs(jnp.concatenate([reduced, at.r, at.products / jnp.maximum(1.0, at.costs)])))
    converged = at.finite & ~first & (residual <= tolerance)
    feasible, exhausted = violation <= 10 * tolerance, at.penalty >= _HIGHEST_PENALTY
    reached = RESULTS.where(residual <= options.tolerance, RESULTS.successful, RESULTS.rounded)
    violated = RESULTS.where(exhausted, RESULTS.infeasible, RESULTS.running)
    ended = RESULTS.where(feasible, reached, violated)
    # A descent without end: the objective falls out of sight, or falls far while x goes far where no bound stops it.
    far = jnp.max(jnp.where(jnp.where(at.x > 0, at.box.above, at.box.below), 0.0, jnp.abs(at.x)))
    endless = (at.f < -(_FAR**2)) | ((at.f < -_FAR) & (far > _FAR))
    lack = jnp.maximum(violation, jnp.max(jnp.abs(at.r), initial=0.0))
    fallen = ~first & endless & (lack <= 1e-6 * jnp.maximum(1.0, jnp.max(jnp.abs(at.x))))
    result = RESULTS.where(fallen, RESULTS.unbounded, RESULTS.running)
    result = RESULTS.where(at.finite, RESULTS.where(converged, ended, result), RESULTS.non_finite)
    # A search that starts where the gradient vanishes would end there, be it on a summit: off it, once.
    push = converged & feasible & system.saddle & ~state.pushed
    return _Verdict(
        residual=residual,
        result=RESULTS.where(push, RESULTS.running, result),
        raise_penalty=converged & (result == RESULTS.running),
        push=push,
    )


def _advance(
    problem: FlatProblem, state: InteriorPointState, system: NewtonSystem, aim: Aim, found: Found
) -> InteriorPointState:
    """The state at the end of a line search."""
    at, m, equality, moved = system.at, state.y.size, problem.equality, found.alpha > 0
    # A step cut to less than a sixth means that the quadratic model misleads along a flat direction: damp it.
    damping = jnp.where(system.damping < 1e-6, 0.0, system.damping / 4)
    damping = jnp.where(found.long, damping, jnp.clip(10 * system.damping, 1e-4, 1e8))
    x = jnp.where(moved, jnp.clip(found.trial.x, at.box.lower, at.box.upper), at.x)
    slack = jnp.where(moved, found.trial.slack, state.slack)
    # A free slack takes up what its row leaves.
    filled = jnp.where(equality | (found.alpha <= 0), 0.0, slack[m:] - found.trial.c)
    slack = jnp.concatenate([jnp.maximum(slack[:m], filled), slack[m:]])
    # No price may stray far from what its gap and the barrier ask for.
    asked = aim.barrier / jnp.concatenate([slack, at.box.distances(x)])
    low, high = asked / _DUAL_SPREAD, asked * _DUAL_SPREAD
    price = jnp.clip(at.price + found.beta * aim.direction.price, low, high)
    y = jnp.where(equality, at.y + found.beta * aim.direction.y, price[:m])
    y = jnp.clip(y, at.penalty - high[m : 2 * m], at.penalty - low[m : 2 * m])
    return state._replace(x=x, slack=slack, y=y, dual=price[2 * m :], damping=damping)


def _downhill(system: NewtonSystem) -> Float[Array, " n"]:
    """A point a little off a stationary one, along a direction of low curvature: two inverse iterations."""
    at, none = system.at, jnp.zeros_like(system.at.c)
    downhill = system.solve(system.solve(jnp.cos(jnp.arange(at.x.size, dtype=at.x.dtype)), none)[0], none)[0]
    downhill = downhill / jnp.max(jnp.abs(downhill))
    room = longest_steps(0.5, at.gap[2 * at.c.size :], at.box.changes(downhill))
    return at.x + 0.1 * room * downhill
