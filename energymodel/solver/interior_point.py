"""Interior point for small dense constrained problems, elastic and primal-dual, thousands at a time.

    minimize  f(x) + rho sum(t) [+ rho sum(s) over equalities]
    subject to  c(x) + s - t = 0,  s >= 0,  t >= 0,  lower <= x <= upper

The rows `c` are inequalities `c <= 0` first, then equalities `c = 0`, for which the slack `s` costs as much as the
violation `t`. Multipliers then live in `0 <= y <= rho` (inequalities) and `-rho <= y <= rho` (equalities), so that
an infeasible problem ends at the lowest violation with bounded multipliers instead of diverging. Steps are Mehrotra's
predictor and corrector [Mehrotra 1992; Nocedal & Wright 2006, ch. 19], the elastic form is the l1 penalty of
[Fletcher 1987, ch. 12], inertia correction, scaling and the safeguard of the multipliers follow [Wachter & Biegler
2006]. Damping and line search try the likeliest first: a batch tries the next only if one of its lanes needs it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from energymodel.runtime.placement import accelerated
from energymodel.solver.flat_problem import (
    FlatProblem,
    FlatSolution,
    derivatives,
    difference_points,
    differenced,
    jacobian_at,
)
from energymodel.solver.line_search import LineSearch, LineSearchEnd, line_search
from energymodel.solver.newton_system import (
    Aim,
    Direction,
    Iterate,
    NewtonSystem,
    longest_steps,
    newton_system,
    only_if,
    predictor_corrector,
    select,
)
from energymodel.solver.search_state import InteriorPointState, first_multipliers, scaled_box, started_anew
from energymodel.solver.solution import RESULTS, SolverOptions, reachable_tolerance
from energymodel.solver.verdict import PROBES, RAISE, Verdict, judge

# Constants of the method, where not argued for at their place, are those of [Wachter & Biegler 2006].
_DUAL_SPREAD = 1e10  # the multiplier times its slack stays within this factor of the barrier [eq. 16]
_MANY, _FEW = 4096, 16  # lanes of which the last sixteenth does not wait in a batch of all
_CONFLICT_SHARE = 1e-3  # share of the penalty that a multiplier must carry to belong to a conflict


def unfinished(state: InteriorPointState, limit: int | Array) -> Bool[Array, "..."]:
    """Whether a search has iterations to make."""
    return (state.result == RESULTS.running) & (state.iteration < limit)


def postprocess(problem: FlatProblem, options: SolverOptions, state: InteriorPointState) -> FlatSolution:
    """Undo the scaling, and say how the search ended."""
    box, m, penalty, y = scaled_box(problem, state.size), state.y.size, state.penalty, state.y
    u, v = _slack_prices(state, problem.equality)
    compliance = state.slack[:m] / jnp.where(u > 0, u, 1.0) + state.slack[m:] / v
    late = (state.result == RESULTS.running) & (state.iteration >= options.max_iterations)
    result = RESULTS.where(late, RESULTS.out_of_iterations, state.result)
    # At the lowest violation the objective no longer counts: the multipliers are a certificate that the rows which
    # carry them cannot hold together [Farkas 1902].
    acting = jnp.concatenate([jnp.ones(m, bool), box.below | ~box.free, box.above | ~box.free])
    carrying = jnp.concatenate([jnp.abs(y), state.dual]) > _CONFLICT_SHARE * penalty
    to_dual = state.scale[1:] / state.scale[0]
    return FlatSolution(
        x=jnp.clip(state.x * state.size, problem.lower, problem.upper),
        value=state.values[0],
        rows=state.values[1:],
        multipliers=jnp.concatenate([y * to_dual, state.dual / (state.scale[0] * jnp.tile(state.size, 2))]),
        compliance=compliance / (to_dual * state.scale[1:]),
        conflict=(result == RESULTS.infeasible) & carrying & acting,
        iterations=jnp.maximum(state.iteration, 0),
        residual=state.residual,
        result=result,
    )


def _slack_prices(state: InteriorPointState, equality: Bool[Array, " m"]) -> tuple[Array, Array]:
    """Multipliers u and v of the slacks s and t, the distances of y from the ends of its range."""
    # A multiplier next to the end of its range is known only to rounding, and so is its distance from there.
    y, penalty, least = state.y, state.penalty, jnp.finfo(state.y.dtype).eps * state.penalty
    return jnp.where(equality, jnp.maximum(y + penalty, least), y), jnp.maximum(penalty - y, least)


class Attempt(NamedTuple):
    """An iteration before its line search."""

    state: InteriorPointState
    first: Bool[Array, ""]  # it gave the state its scales
    alive: Bool[Array, ""]  # there is a direction to go
    system: NewtonSystem
    aim: Aim
    verdict: Verdict
    along: Direction  # that of the aim, or a probe

    @property
    def stay(self) -> Bool[Array, ""]:
        """Whether variables and multipliers stay what they are."""
        return ~self.alive | (self.verdict.result != RESULTS.running) | self.verdict.raise_penalty

    def scaled(self, values: Float[Array, " k"]) -> Float[Array, " k"]:
        """Objective and rows in the units of the search."""
        return self.state.scale.at[0].multiply(self.state.weight) * values

    def search(self, problem: FlatProblem) -> LineSearch:
        """The line search."""
        verdict, tried = self.verdict, self.aim._replace(direction=self.along)
        needed = ~self.stay & (verdict.probe | ~verdict.restart)
        return line_search(self.system, tried, problem.equality, verdict.probe, needed)


def step(problem: FlatProblem, options: SolverOptions, state: InteriorPointState) -> InteriorPointState:
    """One iteration: linearize and judge where the search is; if it goes on, step along a direction."""

    def values(x: Array) -> Array:
        return problem.values(x * state.size)

    if options.hessian == "exact":
        expanded = derivatives(values, state.x, weights(state))
    else:
        around = jax.vmap(partial(jacobian_at, values))(difference_points(state.x))
        expanded = differenced(*around, weights(state))
    attempt = begin(problem, options, state, *expanded)
    return finish(problem, state, attempt, attempt.search(problem).run(lambda x: attempt.scaled(values(x))))


def weights(state: InteriorPointState) -> Float[Array, " k"]:
    """What the Hessian of an iteration weighs objective and rows by."""
    rows = jnp.where(state.fresh, 0.0, state.y)
    return state.scale * jnp.concatenate([jnp.where(state.fresh, 1.0, state.weight)[None], rows])


def begin(
    problem: FlatProblem, options: SolverOptions, state: InteriorPointState, values: Array, jacobian: Array, W: Array
) -> Attempt:
    """The first half of an iteration, from the derivatives where the search is, by its scaled variables."""
    tolerance, first = reachable_tolerance(options.tolerance, state.x.dtype), state.fresh
    state, at = _linearize(problem, state, values, jacobian, W)
    alive = (state.result == RESULTS.running) & at.finite & ~first
    system = newton_system(at, state.damping, alive, state.tries)
    aim = predictor_corrector(system, tolerance)
    verdict = judge(problem, system, aim, state, options, tolerance)
    along = only_if(
        verdict.probe, lambda factor: _probe(system._replace(factor=factor), state), aim.direction, system.factor
    )
    return Attempt(state, first, alive, system, aim, verdict, along)


def finish(
    problem: FlatProblem, before: InteriorPointState, attempt: Attempt, end: LineSearchEnd
) -> InteriorPointState:
    """The second half of an iteration, which begins anew where another damping is to be tried."""
    state, first, _, system, aim, verdict, _ = attempt
    at = system.at
    stepped = select(attempt.stay | verdict.probe, state, _advance(problem, state, system, aim, end))
    # A fixed variable has for multiplier whatever its gradient leaves.
    free, fixed = at.free, jnp.maximum(jnp.concatenate([at.pull, -at.pull]), 0.0)
    # Where derivatives are not finite, as on the edge of a square root, halfway back.
    back = ~at.finite & ~first
    stepped = stepped._replace(
        x=jnp.where(back, 0.5 * (at.x + state.last), stepped.x),
        last=jnp.where(back, state.last, at.x),
        dual=jnp.where(jnp.concatenate([free, free]), stepped.dual, fixed),
        penalty=jnp.where(verdict.raise_penalty, at.penalty * RAISE, verdict.penalty),
        damping=jnp.where(verdict.damped, 0.0, stepped.damping),
        weight=verdict.weight,
        residual=jnp.where(at.finite & ~first, verdict.residual, jnp.inf),
        drift=verdict.drift,
        stride=verdict.stride,
        probes=jnp.where(verdict.probe, jnp.where(end.alpha != 0, 0, state.probes + 1), state.probes),
        fresh=jnp.asarray(False),
        iteration=state.iteration + jnp.where(verdict.result == RESULTS.running, 1, 0),
        result=verdict.result,
    )
    lower = verdict.probe & (end.alpha != 0)
    x, size = jnp.where(lower, end.x, at.x), jnp.where(lower, state.size, verdict.size)
    rescaled = state.rescaled + jnp.where(verdict.restart | lower | verdict.damped, 1, 0)
    level = verdict.level & ~lower

    def restarted(at: InteriorPointState, x: Array) -> InteriorPointState:
        anew = started_anew(problem, at, x, size, warm=verdict.warm & ~lower, level=level)
        # A lower point beside one where no point seemed feasible may lead to a feasible one.
        return anew._replace(weight=jnp.where(lower, 1.0, anew.weight), rescaled=rescaled)

    stepped = stepped._replace(tries=jnp.zeros_like(state.tries), rescaled=rescaled)
    moved = only_if(verdict.restart | lower, restarted, stepped, stepped, x)
    return select(system.again, before._replace(tries=before.tries + 1), moved)


def iterate(
    step: Callable[[PyTree, InteriorPointState], InteriorPointState],
    lanes: PyTree,
    state: InteriorPointState,
    limit: int | Array,
) -> InteriorPointState:
    """Iterate lanes together until all end or reach the limit; on an accelerator the last few by themselves."""

    def run(lanes: PyTree, state: InteriorPointState, few: int) -> InteriorPointState:
        def turn(lane: PyTree, state: InteriorPointState) -> InteriorPointState:
            return select(unfinished(state, limit), step(lane, state), state)

        return jax.lax.while_loop(
            lambda state: jnp.sum(unfinished(state, limit)) > few, lambda state: jax.vmap(turn)(lanes, state), state
        )

    count = state.iteration.size
    few = count // _FEW if accelerated() and count >= _MANY else 0
    state = run(lanes, state, few)
    if not few:
        return state
    index = jnp.nonzero(unfinished(state, limit), size=few, fill_value=count)[0]
    part, left = jax.tree.map(lambda leaf: leaf[jnp.minimum(index, count - 1)], (lanes, state))
    return jax.tree.map(lambda into, new: into.at[index].set(new, mode="drop"), state, run(part, left, 0))


def _linearize(
    problem: FlatProblem, state: InteriorPointState, values: Array, jacobian: Array, W: Array
) -> tuple[InteriorPointState, Iterate]:
    """The problem to second order at the state, which first gets its scales and multipliers from it."""
    box, equality, first = scaled_box(problem, state.size), problem.equality, state.fresh
    finite = jnp.isfinite(jnp.sum(values) + jnp.sum(jacobian) + jnp.sum(W))
    start = partial(first_multipliers, state, box, equality)
    state = only_if(first, start, state, values, jacobian, W)
    state = state._replace(values=values)

    y, rho, free, m = state.y, state.penalty, box.free, state.y.size
    jacobian = (state.scale * jnp.concatenate([state.weight[None], jnp.ones(m, y.dtype)]))[:, None] * jacobian
    pull = jacobian[0] + y @ jacobian[1:]
    costs = [jnp.where(equality, rho, 0.0), jnp.broadcast_to(rho, m), jnp.zeros(2 * state.x.size, y.dtype)]
    return state, Iterate(
        box=box,
        free=free,
        x=state.x,
        y=y,
        penalty=rho,
        f=state.weight * state.scale[0] * values[0],
        c=state.scale[1:] * values[1:],
        gradient=jacobian[0],
        pull=pull,
        J=jacobian[1:] * free,
        W=W * free * free[:, None],
        gap=jnp.concatenate([state.slack, box.distances(state.x)]),
        price=jnp.concatenate([*_slack_prices(state, equality), jnp.where(box.bounded, state.dual, 0.0)]),
        costs=jnp.concatenate(costs),
        finite=finite,
    )


def _advance(
    problem: FlatProblem, state: InteriorPointState, system: NewtonSystem, aim: Aim, end: LineSearchEnd
) -> InteriorPointState:
    """The state at the end of a line search."""
    at, m, equality, moved = system.at, state.y.size, problem.equality, end.alpha > 0
    # A step cut to less than a sixth means that the quadratic model misleads along a flat direction: damp it.
    damping = jnp.where(system.damping < 1e-6, 0.0, system.damping / 4)
    damping = jnp.where(end.long, damping, jnp.clip(10 * system.damping, 1e-4, 1e8))
    x = jnp.where(moved, at.box.strictly(end.x), at.x)
    slack = jnp.where(moved, end.slack, state.slack)
    # A free slack takes up what its row leaves.
    filled = jnp.where(equality | (end.alpha <= 0), 0.0, slack[m:] - end.c)
    slack = jnp.concatenate([jnp.maximum(slack[:m], filled), slack[m:]])
    # No price may stray far from what its gap and the barrier ask for.
    asked = aim.barrier / jnp.concatenate([slack, at.box.distances(x)])
    low, high = asked / _DUAL_SPREAD, asked * _DUAL_SPREAD
    price = jnp.clip(at.price + end.beta * aim.direction.price, low, high)
    y = jnp.where(equality, at.y + end.beta * aim.direction.y, price[:m])
    y = jnp.clip(y, at.penalty - high[m : 2 * m], at.penalty - low[m : 2 * m])
    return state._replace(x=x, slack=slack, y=y, dual=price[2 * m :], damping=damping)


def _probe(system: NewtonSystem, state: InteriorPointState) -> Direction:
    """A direction along which a stationary point may be no minimum: of low curvature.

    The first is what two inverse iterations make of a generic vector; then axes, the origin and other vectors follow,
    since where the second derivatives vanish too, nothing tells which way is down. The last go, where the objective
    bends downwards, as far as that may change it by its size.
    """
    at, n, none = system.at, state.x.size, jnp.zeros_like(system.at.c)
    count, places = state.probes, jnp.arange(n)
    generic = jnp.cos((1.0 + 1.7 * count) * places + 0.9 * count)
    axis = jnp.where(places == (count // 2) % n, 1.0, 0.0)
    once = system.solve(jnp.where(count % 2 == 1, axis, generic).astype(at.x.dtype), none)[0]
    along = jnp.where(count == 0, system.solve(once, none)[0], jnp.where(count == 2, at.x, once))
    along = along / jnp.maximum(jnp.max(jnp.abs(along)), jnp.finfo(along.dtype).tiny)
    bend, far = along @ at.W @ along, jnp.max(jnp.abs(at.x))
    bent = (bend < 0) & (count >= PROBES // 2)
    length = jnp.sqrt(jnp.maximum(state.scale[0], jnp.abs(at.f)) / jnp.where(bent, -bend, 1.0))
    along = along * jnp.where(bent, length, jnp.where((count == 2) & (far > 0), far, jnp.maximum(1.0, far)))
    changes = at.box.changes(along)
    gap = at.gap[2 * at.c.size :]
    room = jnp.minimum(longest_steps(0.9, gap, changes), longest_steps(0.9, gap, -changes))
    return Direction(room * along, none, jnp.zeros_like(at.gap), jnp.zeros_like(at.price))
