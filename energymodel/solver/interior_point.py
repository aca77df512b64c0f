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
from energymodel.solver.options import SolverOptions, reachable_tolerance
from energymodel.solver.solution import RESULTS

# Constants of the method, where not argued for at their place, are those of [Wachter & Biegler 2006].
_ARMIJO = 1e-4
_DUAL_SPREAD = 1e10  # the multiplier times its slack stays within this factor of the barrier [eq. 16]
PUSH = 1e-2  # relative distance of a cold start from its bounds [section 3.6]
WARM_PUSH = 1e-4
_CONFLICT_SHARE = 1e-3  # share of the penalty that a multiplier must carry to belong to a conflict
_STEEPEST = 100.0  # largest gradient of a row at the start [section 3.8]; multipliers beyond it relax the test [eq. 6]
_PENALTY = 100.0  # rho, the price of violating a scaled constraint
_RAISE = 1e4  # of the penalty, when a search ends in a violation: one more search decides
_HIGHEST_PENALTY = 1e6  # at which a violation means that the problem is infeasible
_TRIALS = 6  # step lengths tried at once
_FAR = 1e10  # scaled variables and objective that no sensible problem has; its square for the objective alone
_LOWEST_TRUST = 0.1  # an affine step shorter than this spoils Mehrotra's corrector
DAMPINGS = (0.0, 1e-4, 1e-2, 0.1, 1.01)  # of the infinity norm of the Hessian: the last makes it positive definite


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
    least = jnp.finfo(y.dtype).eps * penalty
    u, v = jnp.where(problem.equality, jnp.maximum(y + penalty, least), y), jnp.maximum(penalty - y, least)
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


def factorize(
    matrix: Array, size: Array, free: Array, damping: Array
) -> tuple[Float[Array, "n n"], Float[Array, ""], Bool[Array, ""]]:
    """First good Cholesky factor among increasing dampings, all tried at once, and the damping it took.

    Also whether some direction bends downwards by more than a hundredth of the largest bend.
    """
    dampings = jnp.maximum(damping, jnp.asarray(DAMPINGS, matrix.dtype))
    factors = jnp.linalg.cholesky(matrix + jnp.diag(size * free) * dampings[:, None, None])
    # A pivot that is nothing but rounding stands for a direction in which the matrix does not bend at all.
    pivots = jnp.diagonal(factors, axis1=1, axis2=2) ** 2
    least = jnp.finfo(matrix.dtype).eps * (jnp.abs(jnp.diag(matrix)) + size * free * dampings[:, None])
    good = jnp.all(pivots > least, axis=1)
    first = jnp.argmax(good)
    diagonal = jnp.diag(jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(matrix)), jnp.where(size > 0, size, 1.0))))
    return jnp.where(good[first], factors[first], diagonal), dampings[jnp.where(good[first], first, -1)], ~good[2]


def _reach(shrink: Array | float, value: Array, change: Array) -> Array:
    """Longest steps in [0, 1], one per line, that leave every entry at least `(1 - shrink)` of itself."""
    falling = change < 0
    return jnp.min(jnp.where(falling, -shrink * value / jnp.where(falling, change, -1.0), 1.0), axis=-1, initial=1.0)


def step(problem: FlatProblem, options: SolverOptions, state: InteriorPointState) -> InteriorPointState:
    """One iteration."""
    scale, box, equality = problem.scale, scaled_box(problem), problem.equality
    n, m, dtype = state.x.size, state.y.size, state.x.dtype
    tolerance = reachable_tolerance(options, dtype)

    def evaluate(x: Array) -> Array:
        return problem.values(x * scale)

    one, eps = jnp.ones(1, dtype), jnp.finfo(dtype).eps
    first = state.iteration < 0
    weights = state.scale * jnp.concatenate([one, jnp.where(first, 0.0, state.y)])
    expand = derivatives if options.hessian == "exact" else differenced_derivatives
    values, jacobian, W = expand(evaluate, state.x, weights)
    finite = jnp.isfinite(jnp.sum(values) + jnp.sum(jacobian) + jnp.sum(W))
    fresh = _first_multipliers(state, box, equality, values, jacobian, W)
    state = jax.tree.map(lambda a, b: jnp.where(first, a, b), fresh, state)

    # Every slack and every distance to a bound is a gap with a price: s with u, t with v, x - lower, upper - x.
    x, y, rho, free = state.x, state.y, state.penalty, box.free
    lagrangian = jnp.concatenate([one, y])
    jacobian = state.scale[:, None] * jacobian
    pull = lagrangian @ jacobian  # gradient of f + y c
    J, W = jacobian[1:] * free, W * free * free[:, None]
    f, c = state.scale[0] * values[0], state.scale[1:] * values[1:]
    cost = jnp.where(equality, rho, 0.0)
    # A multiplier next to the end of its range is known only to rounding, and so is its distance from there.
    u, v = jnp.where(equality, jnp.maximum(y + rho, eps * rho), y), jnp.maximum(rho - y, eps * rho)
    dual = jnp.where(box.bounded, state.dual, 0.0)
    gap = jnp.concatenate([state.slack, box.distances(x)])
    price = jnp.concatenate([u, v, dual])
    r = c + state.slack[:m] - state.slack[m:]
    products = gap * price

    # The condensed Newton matrix, its factor, and the direction for given complementarity targets.
    ratio = gap[: 2 * m] / price[: 2 * m]
    stiff = dual / gap[2 * m :]
    # Damping where nothing bends: a step by a hundred times the variables then lowers the objective linearly.
    flat = 1e-2 * jnp.max(jnp.abs(pull)) / jnp.maximum(1.0, jnp.max(jnp.abs(x)))
    # The lowest compliance bounds what a stiff row may round away from the rest of the matrix; what it leaves of the
    # row, compliance times dy, the next iterations take [proximal multipliers: Rockafellar 1976].
    size = jnp.max(jnp.sum(jnp.abs(W), axis=1))
    S = 1.0 / (ratio[:m] + ratio[m:] + eps**0.55 / jnp.maximum(1.0, size))
    A = W + (J.T * S) @ J + jnp.diag(stiff[:n] + stiff[n:] + ~free)
    factor, damping, saddle = factorize(A, jnp.maximum(size, flat), free, state.damping)

    # Karush-Kuhn-Tucker residual; products of elastic slacks are weighed by their cost.
    costs = jnp.concatenate([cost, jnp.broadcast_to(rho, m), jnp.zeros(2 * n, dtype)])
    reduced = (pull - dual[:n] + dual[n:]) * free
    reduced = reduced / jnp.maximum(1.0, jnp.max(jnp.abs(y), initial=0.0) / _STEEPEST)
    residual = jnp.max(jnp.abs(jnp.concatenate([reduced, r, products / jnp.maximum(1.0, costs)])))
    violation = jnp.max(jnp.where(costs > 0, gap, 0.0), initial=0.0)
    converged = finite & ~first & (residual <= tolerance)
    feasible, exhausted = violation <= 10 * tolerance, rho >= _HIGHEST_PENALTY
    reached = RESULTS.where(residual <= options.tolerance, RESULTS.successful, RESULTS.rounded)
    violated = RESULTS.where(exhausted, RESULTS.infeasible, RESULTS.running)
    ended = RESULTS.where(feasible, reached, violated)
    # A descent without end: the objective falls out of sight, or falls far while x goes far where no bound stops it.
    far = jnp.max(jnp.where(jnp.where(x > 0, box.above, box.below), 0.0, jnp.abs(x)))
    endless = (f < -(_FAR**2)) | ((f < -_FAR) & (far > _FAR))
    lack = jnp.maximum(violation, jnp.max(jnp.abs(r), initial=0.0))
    fallen = ~first & endless & (lack <= 1e-6 * jnp.maximum(1.0, jnp.max(jnp.abs(x))))
    result = RESULTS.where(fallen, RESULTS.unbounded, RESULTS.running)
    result = RESULTS.where(finite, RESULTS.where(converged, ended, result), RESULTS.non_finite)
    raised = converged & (result == RESULTS.running)
    # A search that starts where the gradient vanishes would end there, be it on a summit: off it, once.
    push = converged & feasible & saddle & ~state.pushed
    result = RESULTS.where(push, RESULTS.running, result)

    def respond(right: Array, shift: Array) -> tuple[Array, Array]:
        """Steps of x and y for a force on x and a residual of the rows."""
        dx = jax.scipy.linalg.cho_solve((factor, True), (right - J.T @ (S * shift)) * free)
        return dx, S * (J @ dx + shift)

    def direction(target: Array) -> tuple[Array, Array, Array, Array]:
        ask, push = target[: 2 * m] / price[: 2 * m], jnp.where(box.bounded, target[2 * m :] / gap[2 * m :], 0.0)
        dx, dy = respond(push[:n] - push[n:] - pull, c + ask[:m] - ask[m:])
        row_price, bound_gap = jnp.concatenate([dy, -dy]), jnp.where(box.bounded, jnp.concatenate([dx, -dx]), 0.0)
        row_gap, bound_price = ask - gap[: 2 * m] - ratio * row_price, push - dual - stiff * bound_gap
        return dx, dy, jnp.concatenate([row_gap, bound_gap]), jnp.concatenate([row_price, bound_price])

    # Mehrotra: an affine step tells how much the complementarity can fall and how far it is from linear.
    count = jnp.maximum(2 * m + jnp.sum(box.bounded), 1)
    barrier = jnp.sum(products) / count
    both = jnp.stack([gap, price])
    _, _, dgap, dprice = direction(jnp.zeros_like(gap))
    reach = _reach(1.0, both, jnp.stack([dgap, dprice]))
    predicted = (gap + reach[0] * dgap) @ (price + reach[1] * dprice) / count
    fall = predicted / jnp.where(barrier > 0, barrier, 1.0)
    target = jnp.maximum(jnp.clip(fall, 0.0, 2.0) ** 3 * barrier, 1e-3 * tolerance)
    corrector = jnp.where(jnp.min(reach) > _LOWEST_TRUST, dgap * dprice, 0.0)
    aims = jnp.clip(target - corrector, 0.1 * target, jnp.maximum(10 * target, barrier))
    dx, dy, dgap, dprice = direction(aims)
    reach = _reach(jnp.maximum(0.995, 1.0 - target), both, jnp.stack([dgap, dprice]))
    full = reach[0]

    # All step lengths at once, first straight on, then along an arc: what the rows do beyond their linear part bends
    # the step, or curved constraints would stall it [Maratos 1978; second-order correction, Nocedal & Wright 2006,
    # section 18.3]. One loop over both holds one copy of the problem, which is what compiling costs.
    weight = 1.5 * jnp.max(jnp.abs(jnp.concatenate([y, y + dy])), initial=0.0)
    alphas = full * 2.0 ** -(jnp.arange(_TRIALS, dtype=dtype) ** 1.4)

    def merit(f: Array, c: Array, gap: Array) -> Array:
        left = jnp.sum(jnp.abs(c + gap[:m] - gap[m : 2 * m]))
        return f + costs @ gap + weight * left - target * jnp.sum(jnp.log(gap))

    def attempt(arc: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        dx2, dgap2 = arc

        def move(alpha: Array) -> tuple[Array, Array, Array, Array]:
            new_x = x + alpha * dx + alpha**2 * dx2
            new = state.scale * evaluate(new_x)
            slack = (gap + alpha * dgap + alpha**2 * dgap2)[: 2 * m]
            return merit(new[0], new[1:], jnp.concatenate([slack, box.distances(new_x)])), new_x, slack, new[1:]

        moves = jax.vmap(move)(alphas)
        bend = moves[3][0] - c - full * (J @ dx)
        bend = jnp.where(jnp.isfinite(jnp.sum(bend)), bend, 0.0)
        dx2, dy2 = respond(jnp.zeros_like(x), bend)
        dgap2 = jnp.concatenate(
            [-ratio * jnp.concatenate([dy2, -dy2]), jnp.where(box.bounded, jnp.concatenate([dx2, -dx2]), 0.0)]
        )
        share = _reach(0.9, gap + full * dgap, dgap2)
        # A correction as long as the step itself is no correction.
        share = jnp.where(jnp.max(jnp.abs(dx2)) > full * jnp.max(jnp.abs(dx)), 0.0, share) / full**2
        return (share * dx2, share * dgap2), moves

    def interleave(leaf: Array) -> Array:
        return jnp.swapaxes(leaf[::-1], 0, 1).reshape(2 * _TRIALS, *leaf.shape[2:])

    _, moves = jax.lax.scan(attempt, (jnp.zeros_like(x), jnp.zeros_like(gap)), None, length=2)
    # The longest first, of two equal ones the arc.
    merits, new_xs, slacks, moved_rows = (interleave(leaf) for leaf in moves)
    alphas = jnp.repeat(alphas, 2)
    here = merit(f, c, gap)
    slope = (pull - y @ jacobian[1:]) @ dx + (costs - target / gap) @ dgap - weight * jnp.sum(jnp.abs(r))
    rounding = 20 * eps * (jnp.abs(f) + jnp.abs(here) + rho * violation + 1.0)
    usable = jnp.isfinite(merits)
    passed = usable & (merits <= here + _ARMIJO * alphas * jnp.minimum(slope, 0.0) + rounding)
    # Where none passes, the shortest step that does little harm, or no step at all.
    harmless = usable & (merits <= here + 0.1 * jnp.abs(here) + 1.0)
    some, any_harmless = jnp.any(passed), jnp.any(harmless)
    chosen = jnp.where(some, jnp.argmax(passed), alphas.size - 1 - jnp.argmax(harmless[::-1]))
    alpha = jnp.where(any_harmless, alphas[chosen], 0.0)
    beta = jnp.where(any_harmless, reach[1], 0.0)
    # A step cut to less than a fifth means that the quadratic model misleads along a flat direction: damp it.
    fallen = jnp.where(damping < 1e-6, 0.0, damping / 4)
    damping = jnp.where(some & (chosen < 6), fallen, jnp.clip(10 * damping, 1e-4, 1e8))

    new_x = jnp.where(alpha > 0, jnp.clip(new_xs[chosen], box.lower, box.upper), x)
    slack = jnp.where(alpha > 0, slacks[chosen], gap[: 2 * m])
    # A free slack takes up what its row leaves.
    filled = jnp.where(equality | (alpha <= 0), 0.0, slack[m:] - moved_rows[chosen])
    slack = jnp.concatenate([jnp.maximum(slack[:m], filled), slack[m:]])
    # No price may stray far from what its gap and the barrier ask for.
    asked = target / jnp.concatenate([slack, box.distances(new_x)])
    low, high = asked / _DUAL_SPREAD, asked * _DUAL_SPREAD
    price = jnp.clip(price + beta * dprice, low, high)
    new_y = jnp.where(equality, y + beta * dy, price[:m])
    new_y = jnp.clip(new_y, rho - high[m : 2 * m], rho - low[m : 2 * m])
    stepped = state._replace(x=new_x, slack=slack, y=new_y, dual=price[2 * m :], damping=damping)
    stay = first | (result != RESULTS.running) | raised | push
    stepped = jax.tree.map(lambda a, b: jnp.where(stay, a, b), state, stepped)
    downhill = respond(respond(jnp.cos(jnp.arange(n, dtype=dtype)), jnp.zeros_like(c))[0], jnp.zeros_like(c))[0]
    downhill = downhill / jnp.max(jnp.abs(downhill))
    room = _reach(0.5, gap[2 * m :], jnp.where(box.bounded, jnp.concatenate([downhill, -downhill]), 0.0))
    stepped = stepped._replace(x=jnp.where(push, x + 0.1 * room * downhill, stepped.x), pushed=state.pushed | push)
    # A fixed variable has for multiplier whatever its gradient leaves.
    fixed = jnp.maximum(jnp.concatenate([pull, -pull]), 0.0)
    return stepped._replace(
        dual=jnp.where(jnp.concatenate([free, free]), stepped.dual, fixed),
        penalty=jnp.where(raised, jnp.minimum(rho * _RAISE, _HIGHEST_PENALTY), rho),
        values=values,
        residual=jnp.where(finite & ~first, residual, jnp.inf),
        iteration=state.iteration + jnp.where(result == RESULTS.running, 1, 0),
        result=result,
    )
