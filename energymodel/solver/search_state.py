"""State of an interior point between two iterations, its units, and how it starts."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from energymodel.solver.box import Box
from energymodel.solver.flat_problem import FlatProblem
from energymodel.solver.solution import RESULTS

PUSH = 1e-2  # relative distance of a cold start from its bounds [Wachter & Biegler 2006, section 3.6]
WARM_PUSH = 1e-4
STEEPEST = 100.0  # largest gradient of a row at the start [section 3.8]; multipliers beyond it relax the test [eq. 6]
PENALTY = 100.0  # rho, the price of violating a scaled constraint
_SMALLEST = 1e-14  # of a variable's first size: less is zero


class InteriorPointState(NamedTuple):
    """A search between two iterations, in scaled units: everything needed to go on."""

    x: Float[Array, " n"]
    size: Float[Array, " n"]  # of the variables, in the units of the problem
    slack: Float[Array, " mm"]  # s, then t
    y: Float[Array, " m"]
    dual: Float[Array, " nn"]  # of the lower, then of the upper bounds
    penalty: Float[Array, ""]
    weight: Float[Array, ""]  # of the objective: 1, or 0 while the search asks whether any point is feasible
    damping: Float[Array, ""]
    tries: Int[Array, ""]  # higher dampings that this iteration has taken [see `newton_system`]
    scale: Float[Array, " k"]
    values: Float[Array, " k"]
    residual: Float[Array, ""]
    warm: Bool[Array, ""]
    fresh: Bool[Array, ""]  # the next evaluation gives scales, slacks and multipliers
    patient: Bool[Array, ""]  # before it is infeasible, the search asks without the objective
    level: Bool[Array, ""]  # rows get scales from their slopes alone, however large they are
    last: Float[Array, " n"]  # x one iteration ago
    stride: Float[Array, ""]  # length of the last Newton step
    drift: Int[Array, ""]  # iterations in a row whose steps did not become shorter
    probes: Int[Array, ""]  # directions tried in vain at a point where the curvature leaves doubt
    rescaled: Int[Array, ""]  # times that the variables got new sizes, or a point a look without damping
    begun: Int[Array, ""]  # iteration of the last start
    iteration: Int[Array, ""]
    result: RESULTS


def scaled_box(problem: FlatProblem, size: Float[Array, " n"]) -> Box:
    """Bounds of the scaled variables."""
    return Box(problem.lower / size, problem.upper / size)


def init(problem: FlatProblem) -> InteriorPointState:
    """InteriorPointState before the first evaluation."""
    rows, dtype, box = problem.rows, problem.x0.dtype, scaled_box(problem, problem.scale)
    x = box.inside(problem.x0 / problem.scale, PUSH if problem.warm is None else WARM_PUSH)
    y, dual = jnp.zeros(rows, dtype), jnp.zeros(2 * x.size, dtype)
    if problem.warm is not None:
        y, dual = problem.warm[:rows], problem.warm[rows:] * jnp.tile(problem.scale, 2)
    zero, none, no = jnp.zeros((), dtype), jnp.zeros((), jnp.int32), jnp.asarray(False)
    ordered = jnp.all(problem.lower <= problem.upper)
    return InteriorPointState(
        x=x,
        size=problem.scale,
        slack=jnp.ones(2 * rows, dtype),
        y=y,
        dual=dual,
        penalty=zero + PENALTY,
        weight=zero + 1.0,
        damping=zero,
        tries=none,
        scale=jnp.ones(1 + rows, dtype),
        values=jnp.zeros(1 + rows, dtype),
        residual=zero + jnp.inf,
        warm=jnp.asarray(problem.warm is not None),
        fresh=jnp.asarray(True),
        patient=jnp.asarray(True),
        level=no,
        last=x,
        stride=zero + jnp.inf,
        drift=none,
        probes=none,
        rescaled=none,
        begun=none,
        iteration=none - 1,
        result=RESULTS.where(ordered, RESULTS.running, RESULTS.bounds_cross),
    )


def started_anew(
    problem: FlatProblem, state: InteriorPointState, x: Array, size: Array, *, warm: Array, level: Array
) -> InteriorPointState:
    """The same search from a point in other units; a warm one keeps its multipliers."""
    ratio = state.size / size
    box = scaled_box(problem, size)
    inside = jnp.where(warm, box.inside(x * ratio, WARM_PUSH), box.inside(x * ratio, PUSH))
    # Until the next evaluation multipliers are in the units of the problem, but for the sizes of variables.
    y = jnp.where(warm, state.y * state.scale[1:] / state.scale[0], 0.0)
    dual = jnp.where(warm, state.dual / state.scale[0] / jnp.concatenate([ratio, ratio]), 0.0)
    return state._replace(
        x=inside,
        last=inside,
        size=size,
        y=y,
        dual=dual,
        damping=jnp.zeros_like(state.damping),
        scale=jnp.ones_like(state.scale),
        warm=warm,
        fresh=jnp.ones_like(state.fresh),
        level=level,
        begun=state.iteration,
    )


def present_size(problem: FlatProblem, state: InteriorPointState, *, shrink: Bool[Array, " n"]) -> Float[Array, " n"]:
    """Sizes of the variables where the search is, powers of two: what one starts from need not tell where it ends.

    They shrink on request only.
    """
    box, first = scaled_box(problem, state.size), problem.scale
    least = jnp.where(shrink, _SMALLEST * first, state.size)
    far = jnp.maximum(jnp.abs(state.x) * state.size, least)
    width = problem.upper - problem.lower
    far = jnp.where((width > 0) & (width < far), width, far)
    return jnp.where(box.free, jnp.exp2(jnp.round(jnp.log2(far))), state.size)


def row_scales(
    values: Float[Array, " k"], jacobian: Float[Array, "k n"], hessian: Float[Array, "n n"], level: Bool[Array, ""]
) -> Float[Array, " k"]:
    """Factors of objective and rows.

    What is steeper than 100 is scaled down, what is flat and small is scaled up. Curvature speaks for an objective that
    starts at a stationary point.
    """
    slope = jnp.max(jnp.abs(jacobian), axis=1)
    size = jnp.where(level, slope, jnp.maximum(slope, jnp.abs(values)))
    size = size.at[0].set(jnp.maximum(slope[0], jnp.max(jnp.abs(hessian))))
    small = (size > jnp.finfo(size.dtype).tiny) & (size < 1.0)
    return jnp.where(small, 1.0 / jnp.where(small, size, 1.0), STEEPEST / jnp.maximum(slope, STEEPEST))


def first_multipliers(
    state: InteriorPointState, box: Box, equality: Array, values: Array, jacobian: Array, hessian: Array
) -> InteriorPointState:
    """Scales, slacks and multipliers from the derivatives at the starting point."""
    scale = row_scales(values, jacobian, hessian, state.level)
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
