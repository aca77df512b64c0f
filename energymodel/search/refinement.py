"""What do numbers add that only the best layouts are searched for: batch and clock over progress, power by stage?

A young model learns as much from a small batch as from a large one; what a step costs besides its tokens argues for
large ones. The best compromise grows with the critical batch, `B(x) = sqrt(phi B_h B_n(x))` (docs/physics.md A0.12).
A rank of a pipeline that has less work than the slowest may run at a lower clock and end with it [Chung et al. 2024].
Layouts are found with one batch and one clock. In the best of them batch and clock at knots of progress and the power
caps of the stages are then variables beside the others, within limits that hold at every knot. Whole micro-batches at
each knot follow, and the rest is solved again.
"""

import dataclasses
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.question import STAGE_POWER
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layout_search import LayoutSearch
from energymodel.search.layouts import Lattice, take
from energymodel.search.problem import Criteria, DesignProblem, Formulation
from energymodel.search.relaxation import OPTIONS, evaluate_points, violation
from energymodel.search.result import Additions, Optimum, Refinement
from energymodel.search.rounding import TOLERATED, RoundedPlan
from energymodel.search.training_run import TrainingRun
from energymodel.solver import RESULTS, Solution, minimize_first_order, minimize_many, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.pipeline_rules import multiple_count
from energymodel.system.plan import EvenPower, StagePower, SteadyClock, TokenBudget, TrainingPlan

FIRST_STEP, LAST_STEP, MOST_STEPS = 0.05, 1e-5, 100  # of the compass search, in logarithms
LAYOUTS = 4  # best ones that are refined
DENSE = 40  # variables above which second derivatives cost more than they save
RISES = (1.0, 2.0, 4.0)  # batch at the end of a start over that at its beginning
ROUNDINGS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.round, np.floor, np.ceil)
BATCH, CHIPS, CLOCK = "plan.batch", "plan.chips", "plan.clock"


class _Lanes(NamedTuple):
    """Searches side by side: layouts, starts, bounds, and the tokens that a batch is a multiple of."""

    layouts: Lattice
    start: Float[np.ndarray, "lanes n"]
    bounds: tuple[Float[np.ndarray, "lanes n"], Float[np.ndarray, "lanes n"]]
    unit: Float[np.ndarray, " lanes"]


class _End(NamedTuple):
    """Where the best lane ended."""

    lane: int
    point: Float[np.ndarray, " n"]
    converged: bool


class _Found(NamedTuple):
    """The best plan of a refinement, exactly evaluated, and its variables by path."""

    value: float
    converged: bool
    plan: TrainingPlan
    outcome: TrainingOutcome
    chosen: dict[str, float]


def refine(
    scenario: Scenario,
    problem: DesignProblem,
    searched: LayoutSearch,
    rounded: list[RoundedPlan],
    optimum: Optimum,
    tell: Callable[[str], None],
) -> Optimum:
    """The optimum with a batch at knots and power by stage where that is better; `refinements` say what each saves.

    Where several are asked for, each is searched alone as well, and the best of all is the answer.

    **Arguments:**

    - `searched`, `rounded`: layouts and realizable plans of the search with one batch and one clock, best first.
    - `optimum`: the answer of that search.
    """
    question = scenario.optimize
    every = Additions(question.knots, question.clock_knots, question.stages)
    alone = [Additions(**{name: getattr(every, name)}) for name in every._fields if getattr(every, name)]
    asked = [*alone, every] if len(alone) > 1 else alone
    plain, plain_outcome = _unrefined(optimum)
    plain_value = float(objective_value(plain_outcome, problem.minimize))
    best, gains = None, []
    for added in asked:
        tell(f"searching {added.names}")
        found = _refined(scenario, problem, added, searched, rounded[:LAYOUTS])
        saved = 0.0 if found is None else max(0.0, plain_value - found.value)
        gains.append(Refinement(added, saved, found is not None and found.converged, plain, plain_outcome))
        if found is not None and saved > 0.0 and (best is None or found.value < best.value):
            best = found
    gains[-1] = dataclasses.replace(gains[-1], saving=max(gain.saving for gain in gains))
    refined = dataclasses.replace(optimum, refinements=tuple(gains))
    if best is None:
        return refined
    rest = optimum.baseline_value - best.value - sum(optimum.saving.values())
    cause = {every.names: rest} if optimum.saving else {}
    return dataclasses.replace(
        refined,
        plan=best.plan,
        outcome=best.outcome,
        value=best.value,
        found={**optimum.found, **best.chosen},
        near_tie=None,
        saving={**optimum.saving, **cause},
    )


def _unrefined(optimum: Optimum) -> tuple[TrainingPlan, TrainingOutcome]:
    """The exact optimum with one batch and one clock, where the answer is another plan within the tolerance."""
    tie = optimum.near_tie
    return (tie.plan, tie.outcome) if tie is not None else (optimum.plan, optimum.outcome)


def _refined(
    scenario: Scenario, problem: DesignProblem, added: Additions, searched: LayoutSearch, rounded: list[RoundedPlan]
) -> _Found | None:
    """The best realizable plan with such additions."""
    refined = _with_variables(scenario, problem, added)
    lanes = _lanes(problem, refined, searched, rounded)
    ends = _ends(refined, lanes, added.stages)
    if added.knots and ends is not None:
        converged = ends.converged
        lanes = _at_whole_microbatches(refined, lanes, ends.lane, ends.point)
        ends = _ends(refined, lanes, added.stages)
        ends = None if ends is None else ends._replace(converged=converged)
    return None if ends is None else _found(scenario, refined, lanes, ends)


def _ends(problem: DesignProblem, lanes: _Lanes, stages: tuple[str, ...]) -> _End | None:
    """The best end of all lanes that keeps the limits; none if no lane does."""
    solution = _solve(problem, lanes)
    points, values = np.asarray(solution.x), np.asarray(solution.value)
    fits = np.isfinite(values) & (violation(solution) <= TOLERATED)
    converged = result_is(solution.result, RESULTS.successful)
    if stages:
        points, values, ended = _compass(problem, lanes, points, np.where(fits, values, np.inf), len(stages))
        converged = converged | ended
        fits = np.isfinite(values)
    if not fits.any():
        return None
    lane = int(np.argmin(np.where(fits, values, np.inf)))
    return _End(lane, points[lane], bool(converged[lane]))


def _compass(
    problem: DesignProblem,
    lanes: _Lanes,
    points: Float[np.ndarray, "lanes n"],
    values: Float[np.ndarray, " lanes"],
    stages: int,
) -> tuple[Float[np.ndarray, "lanes n"], Float[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"]]:
    """Better points by steps along each variable and all diagonals of the last ones, the stages [Kolda et al. 2003].

    At the optimum several stages end together: a kink, at which Newton steps stall. Where they broke a limit, which a
    value of infinity says, the steps begin at the start of the lane.

    **Returns:** points, logarithms of the objective, and whether the smallest step found nothing better.
    """
    points = np.where(np.isfinite(values)[:, None], points, lanes.start)
    size = points.shape[1]
    diagonals = np.array(list(product((-1.0, 0.0, 1.0), repeat=stages)))
    directions = np.zeros((len(diagonals), size))
    directions[:, size - stages :] = diagonals
    directions = np.concatenate([directions, np.eye(size), -np.eye(size)])
    step = np.full(len(points), FIRST_STEP)
    for _ in range(MOST_STEPS):
        tried = np.clip(
            points[:, None] + step[:, None, None] * directions, lanes.bounds[0][:, None], lanes.bounds[1][:, None]
        )
        found = evaluate_points(problem, tried, lanes.layouts)
        fits = np.max(found.inequalities, axis=-1) <= TOLERATED
        objective = np.where(fits & np.isfinite(found.objective), found.objective, np.inf)
        best = np.argmin(objective, axis=1)
        reached = np.take_along_axis(objective, best[:, None], axis=1)[:, 0]
        better = reached < values
        points = np.where(better[:, None], tried[np.arange(len(tried)), best], points)
        values = np.where(better, reached, values)
        step = np.where(better, step, 0.5 * step)
        if np.all(step < LAST_STEP):
            break
    return points, values, step < LAST_STEP


def _with_variables(scenario: Scenario, problem: DesignProblem, added: Additions) -> DesignProblem:
    """The problem with knots before its other variables, and with caps of stages or knots in place of the clock."""
    stages = added.stages
    left_out = {BATCH} if added.knots else set()
    given, bounds = problem.given, dict(problem.bounds)
    if stages or added.clock_knots:
        left_out.add(CLOCK)
        highest = np.asarray(bounds.get(CLOCK, (0.0, given.plan.clock))[1], np.float64)
        plan = dataclasses.replace(given.plan, clock=highest)
        if stages:
            own, cap = scenario.plan.power, given.plan.power_cap
            plan = dataclasses.replace(plan, power=own if isinstance(own, StagePower) else StagePower(cap, cap, cap))
            bounds |= {path: scenario.optimize.vary[path] for path in stages}
        given = TrainingRun(given.system, jax.tree.map(np.asarray, plan))
    paths = tuple(path for path in problem.formulation.paths if path not in left_out) + stages
    formulation = dataclasses.replace(
        problem.formulation, paths=paths, knots=added.knots, clock_knots=added.clock_knots
    )
    return dataclasses.replace(problem, formulation=formulation, given=given, bounds=bounds)


def _lanes(
    problem: DesignProblem, refined: DesignProblem, searched: LayoutSearch, rounded: list[RoundedPlan]
) -> _Lanes:
    """Starts in each layout with the chips of its best realizable plan: from that plan, and with a rising batch."""
    knots, paths = refined.formulation.knots, refined.formulation.paths
    rises = RISES if knots else RISES[:1]
    counts = [one.counts for one in rounded for _ in rises]
    layouts = take(searched.lattice, np.array([one.lane for one in counts]))
    group = np.round(np.asarray(layouts.tensor * layouts.pipeline * layouts.context))
    tokens = np.asarray(layouts.microbatch) * float(problem.given.system.workload.sequence)
    unit = np.array([one.data for one in counts]) * tokens
    constant = unit * np.array([one.microbatches for one in counts])
    exact = {CHIPS: group * np.array([one.data for one in counts]), BATCH: constant}
    lower, upper = refined.boxes(len(counts))
    start = np.empty_like(lower)
    for place, path in enumerate(paths):
        known = problem.index(path)
        if path in exact:
            start[:, place] = lower[:, place] = upper[:, place] = np.log(exact[path])
        elif known is not None:
            start[:, place] = np.repeat([one.point[known] for one in rounded], len(rises))
        else:
            drawn = np.repeat([_busy_power(problem, searched, one) for one in rounded], len(rises))
            start[:, place] = np.clip(np.log(drawn), lower[:, place], upper[:, place])
    if refined.formulation.clock_knots:
        start, (lower, upper) = _with_clocks(problem, refined, rounded, start, (lower, upper), len(rises))
    if not knots:
        return _Lanes(layouts, start, (lower, upper), unit)
    fewest = np.array([float(take(layouts, np.array(i)).fewest_microbatches) for i in range(len(counts))])
    low, high = problem.bounds.get(BATCH, (0.0, np.inf))
    lowest, highest = np.maximum(low, unit * fewest), np.minimum(np.maximum(high, unit * fewest), 1e30)
    rise = np.log(np.tile(rises, len(rounded)))[:, None] * (np.linspace(0.0, 1.0, knots) - 0.5)
    batches = np.clip(np.log(constant)[:, None] + rise, np.log(lowest)[:, None], np.log(highest)[:, None])
    sides = tuple(
        np.concatenate([np.repeat(np.log(ends)[:, None], knots, axis=1), side], axis=1)
        for ends, side in ((lowest, lower), (highest, upper))
    )
    return _Lanes(layouts, np.concatenate([batches, start], axis=1), (sides[0], sides[1]), unit)


def _with_clocks(
    problem: DesignProblem,
    refined: DesignProblem,
    rounded: list[RoundedPlan],
    start: Float[np.ndarray, "lanes n"],
    bounds: tuple[Float[np.ndarray, "lanes n"], Float[np.ndarray, "lanes n"]],
    repeated: int,
) -> tuple[Float[np.ndarray, "lanes m"], tuple[Float[np.ndarray, "lanes m"], Float[np.ndarray, "lanes m"]]]:
    """Starts and bounds with the clock at knots of progress first: at all of them that of the realizable plan."""
    count, own = refined.formulation.clock_knots, float(refined.given.plan.clock)
    place, lowest = problem.index(CLOCK), float(problem.given.system.accelerator.minimum_clock)
    low = problem.bounds[CLOCK][0] if place is not None else lowest
    clocks = [own if place is None else float(np.exp(one.point[place])) for one in rounded]
    shares = np.log(np.clip(np.repeat(clocks, repeated), low, own) / own)

    def beside(first: Float[np.ndarray, " lanes"], rest: Float[np.ndarray, "lanes n"]) -> Float[np.ndarray, "lanes m"]:
        return np.concatenate([np.repeat(first[:, None], count, axis=1), rest], axis=1)

    ends = np.full(len(shares), np.log(low / own)), np.zeros(len(shares))
    return beside(shares, start), (beside(ends[0], bounds[0]), beside(ends[1], bounds[1]))


def _busy_power(problem: DesignProblem, searched: LayoutSearch, plan: RoundedPlan) -> float:
    """Power of a busy chip in a realizable plan of the search with one clock [W]."""
    layout = jax.tree.map(lambda leaf: np.asarray(leaf)[plan.lane], searched.lattice)
    system, found = problem.formulation.at(plan.point, layout, problem.criteria, problem.given)
    return float(evaluate_once(*jax.tree.map(np.asarray, (system, found))).power_busy)


def _at_whole_microbatches(problem: DesignProblem, lanes: _Lanes, lane: int, point: Float[np.ndarray, " n"]) -> _Lanes:
    """The schedule of a lane with whole micro-batches at each knot: the nearest ones, those below, those above."""
    knots, layout = problem.formulation.knots, jax.tree.map(lambda leaf: leaf[lane], lanes.layouts)
    multiple = multiple_count(problem.given.system, layout)
    unit, fewest = lanes.unit[lane] * multiple, float(layout.fewest_microbatches) / multiple
    exact = np.exp(point[:knots]) / unit
    batches = np.log(np.stack([np.maximum(rounding(exact), np.ceil(fewest)) for rounding in ROUNDINGS]) * unit)
    index = np.full(len(ROUNDINGS), lane)
    start = np.tile(point, (len(ROUNDINGS), 1))
    lower, upper = (side[index] for side in lanes.bounds)
    start[:, :knots] = lower[:, :knots] = upper[:, :knots] = batches
    return _Lanes(take(lanes.layouts, index), start, (lower, upper), lanes.unit[index])


def _solve(problem: DesignProblem, lanes: _Lanes) -> Solution:
    """All lanes: by the interior point, or by a first-order method where there are many variables."""
    criteria, formulation = problem.repeated_criteria(len(lanes.start)), problem.formulation
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


def _found(scenario: Scenario, problem: DesignProblem, lanes: _Lanes, end: _End) -> _Found:
    """The plan at the end of a lane, exactly evaluated."""
    point, lane = end.point, end.lane
    formulation, knots = problem.formulation, problem.formulation.knots
    layout = jax.tree.map(lambda leaf: np.asarray(leaf)[lane], lanes.layouts)
    system, plan = jax.tree.map(np.asarray, formulation.at(point, layout, problem.criteria, problem.given))
    batches = np.exp(point[:knots]) if knots else np.reshape(plan.batch, (1,))
    batches = np.round(batches / lanes.unit[lane]) * lanes.unit[lane]
    plan = eqx.tree_at(lambda one: (one.batch, one.chips), plan, (batches, np.round(plan.chips)))
    outcome = jax.tree.map(np.asarray, evaluate_once(system, plan))
    if isinstance(scenario.plan.goal, TokenBudget):
        plan = eqx.tree_at(lambda one: one.goal, plan, TokenBudget(outcome.tokens))
    chosen = {
        path: float(formulation.value(path, one))
        for path, one in zip(formulation.paths, point[formulation.of_schedules :], strict=True)
    }
    return _Found(
        value=float(objective_value(outcome, problem.minimize)),
        converged=end.converged,
        plan=plan,
        outcome=outcome,
        chosen=chosen,
    )


def without_refinements(scenario: Scenario, baseline: TrainingOutcome) -> Scenario:
    """The scenario as its layouts are searched: with the mean batch of a schedule, one clock and one power cap."""
    plan, question = scenario.plan, scenario.optimize
    if plan.knots > 1:
        mean = np.asarray([float(baseline.tokens) / float(baseline.steps)])
        plan = eqx.tree_at(lambda one: one.batch, plan, mean)
    if question.stages:
        plan = dataclasses.replace(plan, power=EvenPower())
    if question.clock_knots:
        plan = dataclasses.replace(plan, clock_course=SteadyClock())
    vary = {path: ends for path, ends in question.vary.items() if not path.startswith(STAGE_POWER)}
    return dataclasses.replace(
        scenario, plan=plan, optimize=dataclasses.replace(question, vary=vary, knots=0, clock_knots=0)
    )
