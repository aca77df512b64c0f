"""Verdict on a search: the optimality conditions, and what they cannot tell.

Three things look like a minimum and are none: a summit or a saddle where the search started, a path along which the
objective falls ever more slowly, and a point in units so far from those of the solution that nothing seems to matter.
Each is looked for before a search is called successful. Whether any point is feasible is asked without the objective.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from energymodel.solver.flat_problem import FlatProblem
from energymodel.solver.newton_system import Aim, NewtonSystem, only_if
from energymodel.solver.search_state import PENALTY, STEEPEST, InteriorPointState, present_size, row_scales
from energymodel.solver.solution import RESULTS, SolverOptions

PROBES = 8  # directions that are tried before a point of doubtful curvature is a minimum
RAISE = 1e4  # of the penalty, where a feasible point is known and the objective still pulls away from it
_HIGHEST_PENALTY = 1e10
_RESCALES = 16
_LOOKS = 4  # of new sizes and looks without damping, after which a point is judged with it
_FAR = 1e10  # scaled objective that no sensible problem has; its square alone is enough
_FARTHEST = 1e14  # of its first size, that a variable goes on a path without end
_GROWN = 1e4  # scaled variables beyond it get new sizes
_CHANGED = 8.0  # factor by which sizes must change for a new start to be worth it
_STALLED = 100  # iterations after which a start counts as failed
_STEADY = 0.98  # of the last step: a Newton step that is no shorter is not on its way to a minimum
_DRIFT = 8  # steps in a row which make that certain
_FLAT = 1e-8  # curvature, in units of the largest or of the objective, that may be that of the barrier alone
_VISIBLE = 1e-6  # of the variables: shorter steps are none
_HOLDS = 1e-6  # of the terms of a row, by which it may be violated far away
_CLOSEST = 1e-12  # distance from a point with finite derivatives at which a search gives up
_NOISE = 1e3  # rounding errors of its terms, below which a slope is none
_PROMISED = 100.0  # tolerances of the objective, that a step promises from a point that is no minimum
_MATTERS = 1e-8  # of the objective or of the terms of a row, in the units of the problem


class Verdict(NamedTuple):
    """What is to be done where the search is: end with a result, or one of the other things, or go on."""

    residual: Float[Array, ""]
    result: RESULTS
    raise_penalty: Bool[Array, ""]
    damped: Bool[Array, ""]  # look again without damping
    probe: Bool[Array, ""]  # look for a lower point near a stationary one
    restart: Bool[Array, ""]  # with sizes of the variables as they are here
    warm: Bool[Array, ""]  # and with the multipliers
    level: Bool[Array, ""]  # and with rows scaled by their slopes
    weight: Float[Array, ""]  # of the objective, from here on
    penalty: Float[Array, ""]
    size: Float[Array, " n"]
    drift: Int[Array, ""]
    stride: Float[Array, ""]


def judge(
    problem: FlatProblem, system: NewtonSystem, aim: Aim, state: InteriorPointState, options: SolverOptions, tol: float
) -> Verdict:
    """What to do where a search is. Nothing is judged before the first scales are known."""
    at, judged, entire = system.at, system.at.finite & ~state.fresh, state.weight > 0
    residual, drawn = _residual(system)
    converged = judged & (residual <= tol)
    lack = jnp.where(problem.equality, jnp.abs(at.c), jnp.maximum(at.c, 0.0))
    terms = jnp.abs(at.J) @ jnp.abs(at.x)  # what the terms of a row may add up to
    violation = jnp.max(lack, initial=0.0)
    feasible = (at.violation <= 2 * tol) & (violation <= 10 * tol)
    path = _path(problem, system, aim, state)
    optimal = converged & entire & feasible & (path.drift < 2)
    tried = state.iteration - state.begun >= _STALLED
    grown = jnp.max(jnp.abs(at.x)) > _GROWN
    units = only_if(
        converged | path.fallen | tried | grown | ~entire,  # else nothing below asks for them
        lambda at: _units(problem, system._replace(at=at), aim, state, lack, terms, tol, shrink=optimal | tried),
        _Units(state.size, *5 * (jnp.zeros((), bool),)),
        at,
    )
    may_restart = state.rescaled < _RESCALES
    may_rescale = units.changed & may_restart

    # Ends without a minimum, and what must come before an end.
    holds = jnp.max(lack / jnp.maximum(1.0, terms), initial=0.0) <= _HOLDS
    ends = (converged & path.endless) | (judged & entire & path.fallen)
    stuck = converged & ~entire & ~feasible
    damped = state.damping > 0  # a damped step hides what a valley still has to give
    probe = (optimal & ~damped | stuck) & _doubtful(system, state) & ~drawn
    rescale = optimal & ~probe & units.wrong & (units.changed | units.coarse) & may_restart
    level = stuck & ~probe & may_rescale
    renew = judged & (~converged | (path.drift >= 2)) & (tried | grown) & may_rescale
    # Without the objective, once: is any point feasible? With it again, and a penalty that holds the search there.
    alone = converged | (path.fallen & ~holds) | (tried & (violation > tol))
    alone = alone & judged & entire & ~feasible & (state.penalty <= PENALTY)
    given_up, alone = alone & ~state.patient, alone & state.patient
    together = judged & ~entire & (violation <= tol)
    exhausted = state.penalty >= _HIGHEST_PENALTY
    pulled = converged & entire & ~feasible & ~alone & (path.drift < 2)
    conflict = (stuck & ~probe & ~level & ~together) | (pulled & exhausted) | given_up
    doubted = optimal & ~probe & ~rescale & (damped & (state.rescaled < _LOOKS) | units.promises)
    lost = optimal & ~probe & ~may_rescale & units.broken & units.changed | doubted & tried
    broken = ~at.finite & (state.fresh | (jnp.max(jnp.abs(at.x - state.last)) <= _CLOSEST))

    reached = RESULTS.where(residual <= options.tolerance, RESULTS.successful, RESULTS.rounded)
    result = RESULTS.where(optimal & ~probe & ~rescale & ~doubted & ~lost, reached, RESULTS.running)
    for ended, how in (
        (conflict, RESULTS.infeasible),
        (lost, RESULTS.out_of_iterations),
        (ends & holds, RESULTS.unbounded),
        (broken, RESULTS.non_finite),
    ):
        result = RESULTS.where(ended, how, result)
    running = result == RESULTS.running
    weight = jnp.where(alone, 0.0, jnp.where(together, 1.0, state.weight))
    return Verdict(
        residual=residual,
        result=result,
        raise_penalty=pulled & ~exhausted & running,
        damped=doubted & running,
        probe=probe & running,
        restart=(alone | together | rescale | level | renew) & running,
        warm=rescale,
        level=(~entire | state.level) & ~together,
        weight=jnp.where(running, weight, state.weight),
        penalty=jnp.where(together, jnp.maximum(state.penalty, PENALTY * RAISE), state.penalty),
        size=units.size,
        drift=path.drift,
        stride=path.stride,
    )


def _residual(system: NewtonSystem) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Karush-Kuhn-Tucker residual, in which products of elastic slacks are weighed by their cost.

    And whether some variable touches a bound that draws it: where only rounding separates the two, as on the edge of a
    square root, no multiplier can be told, nor any curvature.
    """
    at, n, m = system.at, system.at.x.size, system.at.c.size
    dual = at.price[2 * m :]
    drawn = at.box.touched(at.x) & (jnp.concatenate([at.pull, -at.pull]) > 0)
    reduced = (at.pull - dual[:n] + dual[n:]) * at.free
    reduced = reduced / jnp.maximum(1.0, jnp.max(jnp.abs(at.y), initial=0.0) / STEEPEST)
    reduced = reduced / jnp.maximum(1.0, jnp.maximum(dual[:n], dual[n:]) / STEEPEST**2)
    reduced = jnp.where(drawn[:n] | drawn[n:], 0.0, reduced)
    products = at.products / jnp.maximum(1.0, at.costs)
    products = products.at[2 * m :].set(jnp.where(drawn, 0.0, products[2 * m :]))
    return jnp.max(jnp.abs(jnp.concatenate([reduced, at.r, products]))), jnp.any(drawn)


def _doubtful(system: NewtonSystem, state: InteriorPointState) -> Bool[Array, ""]:
    """Whether curvature leaves open what a stationary point is, and not all directions have been tried."""
    lowest, largest = jnp.min(jnp.diagonal(system.factor) ** 2), jnp.max(jnp.sum(jnp.abs(system.at.W), axis=1))
    # Pivots hold the damping, too.
    flat = lowest <= jnp.maximum(_FLAT * jnp.maximum(1.0, largest), 10 * system.damping * largest)
    untried = (state.probes < PROBES) & (state.rescaled < _RESCALES)
    return (system.saddle | flat) & untried


class _Path(NamedTuple):
    """How a search moves: steps in a row that did not become shorter, and the length of this one."""

    drift: Int[Array, ""]
    stride: Float[Array, ""]
    endless: Bool[Array, ""]  # it converges to nothing: steps go on while the objective hardly falls any more
    fallen: Bool[Array, ""]  # the objective is lower than that of any sensible problem


def _path(problem: FlatProblem, system: NewtonSystem, aim: Aim, state: InteriorPointState) -> _Path:
    """Newton steps shrink on their way to a minimum, be it a flat one; along an endless descent they do not."""
    at, n, m, entire = system.at, state.x.size, state.y.size, state.weight > 0
    dx, units, dual = aim.direction.x, state.size / problem.scale, at.price[2 * m :]
    stride, fall = jnp.max(jnp.abs(dx * units)), -at.pull @ dx
    # A variable that wanders off because nothing holds it gains by the barrier of its bound alone.
    descends = fall > 2 * jnp.abs((dual[:n] - dual[n:]) @ dx)
    visible = stride >= _VISIBLE * jnp.maximum(1.0, jnp.max(jnp.abs(at.x * units)))
    steady = entire & descends & visible & (stride >= _STEADY * state.stride)
    drift = jnp.where(state.fresh, state.drift, jnp.where(steady, state.drift + 1, 0))
    far = jnp.max(jnp.where(jnp.where(at.x > 0, at.box.above, at.box.below), 0.0, jnp.abs(at.x) * units))
    value = jnp.maximum(1.0, jnp.abs(at.f) / state.scale[0])
    vanished = jnp.abs(fall) / state.scale[0] <= jnp.finfo(at.x.dtype).eps * value
    return _Path(
        drift=drift,
        stride=jnp.where(state.fresh, state.stride, stride),
        endless=(drift >= _DRIFT) & (vanished | (far > _FARTHEST)),
        fallen=(at.f < -(_FAR**2)) | ((at.f < -_FAR) & (far > _FARTHEST)),
    )


class _Units(NamedTuple):
    """Sizes of the variables where a search is, beside those that it works in."""

    size: Float[Array, " n"]
    changed: Bool[Array, ""]  # a start with these sizes would be another one
    broken: Bool[Array, ""]  # in the units of the problem, a row is violated by more than its terms explain
    wrong: Bool[Array, ""]  # that, or the objective has more to gain than the residual tells
    coarse: Bool[Array, ""]  # the objective was far steeper where its scale comes from
    promises: Bool[Array, ""]  # the next step promises a lower objective


def _units(
    problem: FlatProblem,
    system: NewtonSystem,
    aim: Aim,
    state: InteriorPointState,
    lack: Float[Array, " m"],
    terms: Float[Array, " m"],
    tol: float,
    *,
    shrink: Bool[Array, ""],
) -> _Units:
    """Whether a residual that is small in the units of the start is small in those of the problem as well."""
    at, n, m = system.at, state.x.size, state.y.size
    dual, gap, rows = at.price[2 * m :], at.gap[2 * m :], state.scale[1:]
    lack, terms = lack / rows, terms / rows
    broken = jnp.max(lack / jnp.maximum(1.0, terms), initial=0.0) > 10 * _MATTERS
    # A variable that its bound holds is as large as it was, however close it comes.
    held = dual > gap * jnp.maximum(1.0, jnp.abs(jnp.tile(jnp.diag(at.W), 2)))
    size = present_size(problem, state, shrink=shrink & (broken | ~(held[:n] | held[n:])))
    worth = jnp.maximum(state.scale[0], jnp.abs(at.f))
    unseen, own = _own_sizes(system, dual, worth)
    unseen = unseen & (state.weight > 0)
    size = jnp.where(unseen, own * state.size, size)
    ratio = size / state.size
    slopes = jnp.concatenate([(at.gradient / state.scale[0])[None], at.J / rows[:, None]]) * ratio
    values = jnp.concatenate([(at.f / state.scale[0])[None], at.c / rows])
    bend = at.W * ratio * ratio[:, None] / state.scale[0]
    scale = row_scales(values, slopes, bend, (state.weight <= 0) | state.level)
    change = jnp.concatenate([ratio, scale[1:] / rows])
    fall = jnp.abs(at.pull @ aim.direction.x) + jnp.sum(at.products)
    return _Units(
        size=size,
        changed=jnp.max(jnp.maximum(change, 1.0 / change)) >= _CHANGED,
        broken=broken,
        wrong=broken | jnp.any(unseen) | (fall > _MATTERS * worth),
        coarse=scale[0] >= _CHANGED * state.scale[0],
        promises=fall > _PROMISED * tol * worth,
    )


def _own_sizes(
    system: NewtonSystem, dual: Float[Array, " nn"], worth: Float[Array, ""]
) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Variables whose Newton step alone lowers the objective by what matters, and the sizes that curvature gives them.

    Both know no units: what a start at one hides of a minimum at 1e10, whose slope there is 1e-10, they show.
    """
    at = system.at
    against = jnp.concatenate([at.pull > 0, at.pull < 0])  # bounds that hold a variable, not those that it leaves
    low, high = jnp.split(dual * against, 2)
    slope, terms = jnp.abs(at.pull - low + high), jnp.abs(at.gradient) + jnp.abs(at.y) @ jnp.abs(at.J) + low + high
    curvature = jnp.diag(at.W) + system.S @ at.J**2 + sum(jnp.split(system.stiff * against, 2))
    told = at.free & (curvature > 0) & (slope > _NOISE * jnp.finfo(slope.dtype).eps * terms)
    curvature = jnp.where(told, curvature, 1.0)
    size = jnp.exp2(jnp.round(0.5 * jnp.log2(worth / curvature)))
    return told & (slope**2 > _MATTERS * worth * curvature), size
