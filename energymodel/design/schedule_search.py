"""How should the batch follow the progress of a run, with everything else that varies, in the best layouts?

A young model learns as much from a small batch as from a large one; what a step costs besides its tokens argues for
large ones. The best compromise grows with the critical batch, `B(x) = sqrt(phi B_h B_n(x))` (docs/physics.md A0.12).
Layouts are found with a constant batch. In the best of them the batch at each knot of progress is then a variable
beside the others, within limits that hold at every knot. Whole micro-batches at each knot follow, and the rest is
solved again.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from energymodel.compilation import Compiled
from energymodel.design.layout_search import LayoutSearch
from energymodel.design.layouts import Lattice, take
from energymodel.design.problem import Criteria, DesignProblem, Formulation
from energymodel.design.relaxation import OPTIONS, violation
from energymodel.design.result import Optimum, ScheduleGain
from energymodel.design.rounding import TOLERATED, RoundedPlan
from energymodel.design.training_run import TrainingRun
from energymodel.presets.scenario import Scenario
from energymodel.solver import RESULTS, Solution, minimize_first_order, minimize_many
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.pipeline_rules import multiple_count
from energymodel.system.plan import TokenBudget, TrainingPlan

LAYOUTS = 4  # best ones in which a schedule is searched
DENSE = 40  # variables above which second derivatives cost more than they save
RISES = (1.0, 2.0, 4.0)  # batch at the end of a start over that at its beginning
ROUNDINGS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.round, np.floor, np.ceil)
BATCH, CHIPS = "plan.batch", "plan.chips"


class _Lanes(NamedTuple):
    """Searches of a schedule side by side: layouts, starts, bounds, and the tokens that a batch is a multiple of."""

    layouts: Lattice
    start: Float[np.ndarray, "lanes n"]
    bounds: tuple[Float[np.ndarray, "lanes n"], Float[np.ndarray, "lanes n"]]
    unit: Float[np.ndarray, " lanes"]


def with_schedule(
    scenario: Scenario, problem: DesignProblem, searched: LayoutSearch, rounded: list[RoundedPlan], optimum: Optimum
) -> Optimum:
    """The optimum with a batch at each knot where that is better; `schedule` says what it saves.

    **Arguments:**

    - `searched`, `rounded`: layouts and realizable plans of the search with a constant batch, best first.
    - `optimum`: the answer with a constant batch.
    """
    knots = scenario.optimize.knots
    others = tuple(path for path in problem.formulation.paths if path != BATCH)
    formulation = dataclasses.replace(problem.formulation, paths=others, knots=knots)
    lanes = _lanes(problem, formulation, searched, rounded[:LAYOUTS])
    relaxed = _solve(problem, formulation, lanes)
    usable = np.isfinite(relaxed.value) & (violation(relaxed) <= TOLERATED)
    if not usable.any():
        return _kept(optimum, knots, converged=False)
    best = int(np.argmin(np.where(usable, relaxed.value, np.inf)))
    whole = _at_whole_microbatches(problem, formulation, lanes, best, relaxed.x[best])
    found = _solve(problem, formulation, whole)
    fits = np.isfinite(found.value) & (violation(found) <= TOLERATED)
    if not fits.any():
        return _kept(optimum, knots, converged=False)
    lane = int(np.argmin(np.where(fits, found.value, np.inf)))
    return _optimum(scenario, problem, formulation, optimum, whole, found, lane, relaxed, best)


def _constant(optimum: Optimum) -> tuple[TrainingPlan, TrainingOutcome]:
    """The exact optimum with a constant batch, where the answer is another plan within the tolerance."""
    tie = optimum.near_tie
    return (tie.plan, tie.outcome) if tie is not None else (optimum.plan, optimum.outcome)


def _kept(optimum: Optimum, knots: int, *, converged: bool) -> Optimum:
    return dataclasses.replace(optimum, schedule=ScheduleGain(knots, 0.0, converged, *_constant(optimum)))


def _lanes(
    problem: DesignProblem, formulation: Formulation, searched: LayoutSearch, rounded: list[RoundedPlan]
) -> _Lanes:
    """A constant start and rising ones in each layout, with the chips that its best realizable plan has."""
    knots, places = formulation.knots, [problem.formulation.paths.index(path) for path in formulation.paths]
    index = np.repeat([one.lane for one in rounded], len(RISES))
    layouts = take(searched.lattice, index)
    counts = [one.counts for one in rounded for _ in RISES]
    group = np.round(np.asarray(layouts.tensor * layouts.pipeline * layouts.context))
    tokens = np.asarray(layouts.microbatch) * float(problem.given.system.workload.sequence)
    unit = np.array([one.data for one in counts]) * tokens
    fewest = np.array([float(take(layouts, np.array(i)).fewest_microbatches) for i in range(len(index))])
    constant = unit * np.array([one.microbatches for one in counts])
    low, high = problem.bounds.get(BATCH, (0.0, np.inf))
    lowest, highest = np.maximum(low, unit * fewest), np.maximum(high, unit * fewest)
    rise = np.log(np.tile(RISES, len(rounded)))[:, None] * (np.linspace(0.0, 1.0, knots) - 0.5)
    batches = np.clip(np.log(constant)[:, None] + rise, np.log(lowest)[:, None], np.log(highest)[:, None])
    rest = np.stack([one.point[places] for one in rounded for _ in RISES])
    lower, upper = (side[:, places] for side in problem.boxes(len(index)))
    if CHIPS in formulation.paths:
        place = formulation.paths.index(CHIPS)
        exact = np.log(group * np.array([one.data for one in counts]))
        rest[:, place] = lower[:, place] = upper[:, place] = exact
    sides = tuple(
        np.concatenate([np.repeat(np.log(ends)[:, None], knots, axis=1), side], axis=1)
        for ends, side in ((lowest, lower), (np.minimum(highest, 1e30), upper))
    )
    return _Lanes(layouts, np.concatenate([batches, rest], axis=1), (sides[0], sides[1]), unit)


def _at_whole_microbatches(
    problem: DesignProblem, formulation: Formulation, lanes: _Lanes, lane: int, point: Float[np.ndarray, " n"]
) -> _Lanes:
    """The schedule of a lane with whole micro-batches at each knot: the nearest ones, those below, those above."""
    knots, layout = formulation.knots, jax.tree.map(lambda leaf: leaf[lane], lanes.layouts)
    multiple = multiple_count(problem.given.system, layout)
    unit, fewest = lanes.unit[lane] * multiple, float(layout.fewest_microbatches) / multiple
    exact = np.exp(point[:knots]) / unit
    batches = np.log(np.stack([np.maximum(rounding(exact), np.ceil(fewest)) for rounding in ROUNDINGS]) * unit)
    index = np.full(len(ROUNDINGS), lane)
    start = np.tile(point, (len(ROUNDINGS), 1))
    lower, upper = (side[index] for side in lanes.bounds)
    start[:, :knots] = lower[:, :knots] = upper[:, :knots] = batches
    return _Lanes(take(lanes.layouts, index), start, (lower, upper), lanes.unit[index])


def _solve(problem: DesignProblem, formulation: Formulation, lanes: _Lanes) -> Solution:
    """All lanes: by the interior point, or by a first-order method where there are many variables."""
    criteria = problem.repeated_criteria(len(lanes.start))
    if lanes.start.shape[1] <= DENSE:
        return minimize_many(
            formulation,
            lanes.start,
            (lanes.layouts, criteria),
            shared=(problem.given,),
            bounds=lanes.bounds,
            options=OPTIONS,
        )
    found = [
        jax.tree.map(
            np.asarray,
            _first_order(
                formulation,
                lanes.start[lane],
                *(jax.tree.map(lambda leaf, lane=lane: leaf[lane], one) for one in (lanes.layouts, criteria)),
                problem.given,
                tuple(side[lane] for side in lanes.bounds),
            ),
        )
        for lane in range(len(lanes.start))
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def _minimize_first_order(
    formulation: Formulation,
    start: Any,
    layout: Lattice,
    criteria: Criteria,
    given: TrainingRun,
    bounds: tuple[Any, Any],
) -> Solution:
    return minimize_first_order(formulation, start, args=(layout, criteria, given), bounds=bounds)


_first_order = Compiled(_minimize_first_order, once=True)


def _optimum(
    scenario: Scenario,
    problem: DesignProblem,
    formulation: Formulation,
    optimum: Optimum,
    lanes: _Lanes,
    solution: Solution,
    lane: int,
    relaxed: Solution,
    best: int,
) -> Optimum:
    """The answer with the schedule of a lane, exactly evaluated; the constant batch stays if it is as good."""
    layout, criteria = (jax.tree.map(lambda leaf: np.asarray(leaf)[lane], lanes.layouts), problem.criteria)
    system, plan = jax.tree.map(np.asarray, formulation.at(solution.x[lane], layout, criteria, problem.given))
    data = np.round(np.exp(solution.x[lane][: formulation.knots]) / lanes.unit[lane])
    plan = eqx.tree_at(lambda one: one.batch, plan, data * lanes.unit[lane])
    if CHIPS in formulation.paths:
        plan = eqx.tree_at(lambda one: one.chips, plan, np.round(plan.chips))
    outcome = jax.tree.map(np.asarray, evaluate_once(system, plan))
    if isinstance(scenario.plan.goal, TokenBudget):
        plan = eqx.tree_at(lambda one: one.goal, plan, TokenBudget(outcome.tokens))
    value = float(objective_value(outcome, problem.minimize))
    converged = bool(np.asarray(relaxed.result == RESULTS.successful)[best])
    constant, constant_outcome = _constant(optimum)
    saving = float(objective_value(constant_outcome, problem.minimize)) - value
    if saving <= 0.0:
        return _kept(optimum, formulation.knots, converged=converged)
    rest_of_saving = optimum.baseline_value - value - sum(optimum.saving.values())
    rest = solution.x[lane][formulation.knots :]
    chosen = {
        path: float(one if path in formulation.affine else np.exp(one))
        for path, one in zip(formulation.paths, rest, strict=True)
    }
    return dataclasses.replace(
        optimum,
        plan=plan,
        outcome=outcome,
        value=value,
        found={**optimum.found, **chosen},
        near_tie=None,
        saving={**optimum.saving, "batch schedule": rest_of_saving} if optimum.saving else {},
        schedule=ScheduleGain(formulation.knots, saving, converged, constant, constant_outcome),
    )
