"""Second searches in the best layouts: near ties, a batch that follows the progress of a run, and power by stage.

A young model learns as much from a small batch as from a large one; what a step costs besides its tokens argues for
large ones. The best compromise grows with the critical batch, `B(x) = sqrt(phi B_h B_n(x))` (docs/physics.md A0.12).
A rank of a pipeline that has less work than the slowest may run at a lower clock and end with it [Chung et al. 2024].
Layouts are found with one batch and one clock. In the best of them the batch at knots of progress and the power caps of
the stages are then variables beside the others, within limits that hold at every knot. Whole micro-batches at each knot
follow, and the rest is solved again.

Where an objective is flat, its exact optimum may cost a lot of something else: the fastest plan cools throttled chips
for the last tenth of a percent. Another search therefore minimizes the energy (the money, where energy is the
objective)

    min { g(x) : c(x) <= 0, f(x) <= (1 + tolerance) f* }        [epsilon-constraint: Haimes et al. 1971]

in all layouts whose relaxed optimum lies within the tolerance, by the programs that the first search compiled.
"""

import dataclasses
import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from energymodel.scenarios.clock_scale import CLOCK
from energymodel.scenarios.question import BATCH, STAGE_POWER
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layout_search import spread_starts
from energymodel.search.layouts import take
from energymodel.search.problem import DesignProblem, row_of_objective
from energymodel.search.relaxation import SETTLED, LayoutSearch, converged, evaluate_points, solve_relaxed, violation
from energymodel.search.result import Additions, NearTie, Optimum, Refinement
from energymodel.search.rounding import (
    TOLERATED,
    Lanes,
    RoundedPlan,
    at_counts,
    evaluated_plan,
    realized,
    round_layouts,
    solve_at_counts,
)
from energymodel.search.training_run import TrainingRun
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value, parse_objective
from energymodel.system.plan import EvenPower, StagePower, TrainingPlan
from energymodel.system.plan_rules import multiple_count

FIRST_STEP, LAST_STEP, MOST_STEPS = 0.05, 1e-5, 100  # of the compass search, in logarithms
LAYOUTS = 4  # best ones that are refined, or all that may be the best
RISES = (1.0, 2.0, 4.0)  # batch at the end of a start over that at its beginning
ROUNDINGS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.round, np.floor, np.ceil)
MOST_LAYOUTS = 128  # layouts that are searched, those with the best objective
STARTS = 32  # over all bounds, of the plans of the first search that are searched again
RESTARTED = 2  # plans of the first search that are searched again at their counts
EVALUATED = 4  # plans of which the cheapest is taken, if they are equal in what is saved
MEANINGLESS = 1e-6  # a share of what is saved that is not worth a line
EQUAL = 1e-4  # in the logarithm: two plans that differ by less are equal


class EvaluatedPlan(NamedTuple):
    """A plan with what it yields and costs, the solver's vector of it, and whether its search converged."""

    plan: TrainingPlan
    outcome: TrainingOutcome
    point: Float[np.ndarray, " n"]
    converged: bool = True

    def over(self, other: "EvaluatedPlan", name: str) -> float:
        """Ratio of an objective to that of another plan [1]."""
        return float(objective_value(self.outcome, name) / objective_value(other.outcome, name))


def refine(
    searched: LayoutSearch, rounded: list[RoundedPlan], optimum: Optimum, tell: Callable[[str], None]
) -> Optimum:
    """The optimum with a batch at knots and power by stage where that is better; `refinements` hold what each saves.

    Where both are asked for, each is searched alone as well, and the best of all is the answer.

    **Arguments:**

    - `searched`, `rounded`: layouts and realizable plans of the search with one batch and one clock, best first.
    - `optimum`: the answer of that search.
    """
    question, tie, minimize = optimum.scenario.optimize, optimum.near_tie, optimum.minimize
    both = Additions(question.knots, question.stages)
    plain, plain_outcome = (optimum.plan, optimum.outcome) if tie is None else (tie.plan, tie.outcome)
    plain_value = float(objective_value(plain_outcome, minimize))
    best, winner, gains = plain_value, None, []
    for added in both.searches:
        tell(f"searching {added.names}")
        refined = _with_variables(optimum.scenario, searched.problem, added)
        plan = _refined(refined, searched, rounded[: max(LAYOUTS, len(optimum.choice.ranked))])
        value = plain_value if plan is None else float(objective_value(plan.outcome, minimize))
        gain = max(0.0, plain_value - value), plan is not None and plan.converged
        gains.append(Refinement(added, *gain, plain, plain_outcome))
        if plan is not None and value < best:
            best, winner = value, (refined.formulation, plan)
    gains[-1] = dataclasses.replace(gains[-1], saving=max(gain.saving for gain in gains))
    optimum = dataclasses.replace(optimum, refinements=tuple(gains))
    if winner is None:
        return optimum
    formulation, plan = winner
    values = map(formulation.value, formulation.paths, plan.point[formulation.knots :])
    rest = optimum.baseline_value - best - sum(optimum.saving.values())
    return dataclasses.replace(
        optimum,
        plan=plan.plan,
        outcome=plan.outcome,
        value=best,
        found={**optimum.found, **dict(zip(formulation.paths, map(float, values), strict=True))},
        near_tie=None,
        saving={**optimum.saving, both.names: rest} if optimum.saving else {},
    )


def _refined(refined: DesignProblem, searched: LayoutSearch, rounded: list[RoundedPlan]) -> EvaluatedPlan | None:
    """The best realizable plan with additions, exactly evaluated; none if no lane keeps the limits."""
    knots = refined.formulation.knots
    end = first = _best_end(refined, _starts(refined, searched, rounded))
    if end is not None and knots:
        end = _best_end(refined, _at_whole_microbatches(refined, *end[:2]))
    if end is None or first is None:
        return None
    lane, point, _ = end
    system, plan = refined.formulation.at(point, lane.layouts, refined.criteria, refined.run)
    batches = np.exp(point[:knots]) if knots else np.reshape(plan.batch, (1,))
    exact = np.round(batches / lane.unit) * lane.unit, np.round(plan.chips)
    plan = eqx.tree_at(lambda plan: (plan.batch, plan.chips), plan, exact)
    return EvaluatedPlan(*evaluated_plan(refined, system, plan), point, first[2])


def _with_variables(scenario: Scenario, problem: DesignProblem, added: Additions) -> DesignProblem:
    """The problem with knots before its other variables, and with caps of stages in place of the clock."""
    run, bounds, left_out = problem.run, dict(problem.bounds), {BATCH} if added.knots else set()
    if added.stages:
        left_out.add(CLOCK)
        clock = np.asarray(bounds.get(CLOCK, (0.0, run.plan.clock))[1], np.float64)
        power, cap = scenario.plan.power, run.plan.power_cap
        power = power if isinstance(power, StagePower) else StagePower(cap, cap, cap)
        run = TrainingRun(run.system, jax.tree.map(np.asarray, dataclasses.replace(run.plan, clock=clock, power=power)))
        bounds |= {path: scenario.optimize.vary[path] for path in added.stages}
    paths = (*(path for path in problem.formulation.paths if path not in left_out), *added.stages)
    formulation = dataclasses.replace(problem.formulation, paths=paths, knots=added.knots)
    return dataclasses.replace(problem, formulation=formulation, run=run, bounds=bounds)


def _starts(refined: DesignProblem, searched: LayoutSearch, rounded: list[RoundedPlan]) -> Lanes:
    """Starts in each layout with the chips of its best realizable plan: from that plan, and with a rising batch."""
    problem, knots = searched.problem, refined.formulation.knots
    rises = RISES if knots else RISES[:1]
    plans = [plan for plan in rounded for _ in rises]
    points, counts = np.array([plan.point for plan in plans]), [plan.counts for plan in plans]
    busy = [float(realized(searched, plan)[1].power_busy) for plan in rounded]
    busy = np.log(np.repeat(busy, len(rises)))
    own = [problem.index(path) for path in refined.formulation.paths]
    start = np.reshape([busy if index is None else points[:, index] for index in own], (len(own), len(plans))).T
    lower, upper = refined.boxes(len(plans))
    capped = np.array([index is None for index in own])
    lanes = at_counts(refined, searched.lattice, counts, np.where(capped, np.clip(start, lower, upper), start))
    if not knots:
        return lanes
    fewest = np.array([float(take(lanes.layouts, np.array(i)).fewest_microbatches) for i in range(len(plans))])
    low, high = problem.bounds.get(BATCH, (0.0, np.inf))
    smallest = lanes.unit * fewest
    ends = np.log(np.maximum(low, smallest))[:, None], np.log(np.minimum(np.maximum(high, smallest), 1e30))[:, None]
    rise = np.log(np.tile(rises, len(rounded)))[:, None] * (np.linspace(0.0, 1.0, knots) - 0.5)
    own_batches = lanes.unit * np.array([count.microbatches for count in counts])
    batches = np.clip(np.log(own_batches)[:, None] + rise, *ends)
    lower, upper = (
        np.hstack([np.repeat(end, knots, axis=1), side]) for end, side in zip(ends, lanes.bounds, strict=True)
    )
    return lanes._replace(start=np.hstack([batches, lanes.start]), bounds=(lower, upper))


def _best_end(problem: DesignProblem, lanes: Lanes) -> tuple[Lanes, np.ndarray, bool] | None:
    """Lane and point of the best end that keeps the limits, and whether it converged; none if no lane does."""
    solution = solve_relaxed(problem, lanes.layouts, lanes.start, bounds=lanes.bounds)
    points, settled = np.asarray(solution.x), converged(solution)
    values = np.where((violation(solution) <= TOLERATED) & np.isfinite(solution.value), solution.value, np.inf)
    if stages := sum(path.startswith(STAGE_POWER) for path in problem.formulation.paths):
        points, values, still = _compass(problem, lanes, points, values, stages)
        settled = settled | still
    best = int(np.argmin(values))
    return (take(lanes, np.array(best)), points[best], bool(settled[best])) if np.isfinite(values[best]) else None


def _compass(
    problem: DesignProblem,
    lanes: Lanes,
    points: Float[np.ndarray, "lanes n"],
    values: Float[np.ndarray, " lanes"],
    stages: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Better points by steps along each variable and all diagonals of the last ones, the stages [Kolda et al. 2003].

    At the optimum several stages end together: a kink, at which Newton steps stall. Lanes that broke a limit, whose
    value is infinite, begin at their start.

    **Returns:** points, logarithms of the objective, and whether the smallest step finds nothing better.
    """
    points = np.where(np.isfinite(values)[:, None], points, lanes.start)
    size = points.shape[1]
    diagonals = np.array(list(product((-1.0, 0.0, 1.0), repeat=stages)))
    diagonals = np.hstack([np.zeros((len(diagonals), size - stages)), diagonals])
    directions = np.concatenate([diagonals, np.eye(size), -np.eye(size)])
    step, row = np.full(len(points), FIRST_STEP), np.arange(len(points))
    lower, upper = (side[:, None] for side in lanes.bounds)
    for _ in range(MOST_STEPS):
        trials = np.clip(points[:, None] + step[:, None, None] * directions, lower, upper)
        reached = evaluate_points(problem, trials, lanes.layouts)
        feasible = (np.max(reached.inequalities, axis=-1) <= TOLERATED) & np.isfinite(reached.objective)
        objective = np.where(feasible, reached.objective, np.inf)
        best = np.argmin(objective, axis=1)
        better = objective[row, best] < values
        points = np.where(better[:, None], trials[row, best], points)
        values = np.where(better, objective[row, best], values)
        step = np.where(better, step, 0.5 * step)
        if np.all(step < LAST_STEP):
            break
    return points, values, step < LAST_STEP


def _at_whole_microbatches(problem: DesignProblem, lane: Lanes, point: np.ndarray) -> Lanes:
    """The schedule of a lane with whole micro-batches at each knot: the nearest ones, those below, those above."""
    knots, multiple = problem.formulation.knots, multiple_count(problem.run.system, lane.layouts)
    unit, fewest = lane.unit * multiple, np.ceil(float(lane.layouts.fewest_microbatches) / multiple)
    counts = np.stack([np.maximum(rounding(np.exp(point[:knots]) / unit), fewest) for rounding in ROUNDINGS])
    lanes = jax.tree.map(lambda leaf: np.stack([leaf] * len(ROUNDINGS)), lane._replace(start=point))
    for array in (lanes.start, *lanes.bounds):
        array[:, :knots] = np.log(counts * unit)
    return lanes


def without_refinements(scenario: Scenario, baseline: TrainingOutcome) -> Scenario:
    """The scenario as its layouts are searched: with the mean batch of a schedule, and one power cap."""
    plan, question = scenario.plan, scenario.optimize
    if plan.knots > 1:
        mean = np.asarray([float(baseline.tokens) / float(baseline.steps)])
        plan = eqx.tree_at(lambda plan: plan.batch, plan, mean)
    if question.stages:
        plan = dataclasses.replace(plan, power=EvenPower())
    vary = {path: ends for path, ends in question.vary.items() if not path.startswith(STAGE_POWER)}
    return dataclasses.replace(scenario, plan=plan, optimize=dataclasses.replace(question, vary=vary, knots=0))


def saved_beside(minimize: str) -> str:
    """What is saved among plans that are equally good: energy, or money where energy is minimized."""
    return "money" if minimize == "energy" else "energy"


def tolerance_of(scenario: Scenario) -> float:
    """Share by which the objective may exceed the lowest [1]; none of a loss, of which half a percent is much."""
    asked = scenario.optimize
    return 0.0 if "loss" in parse_objective(asked.minimize).names() else asked.tolerance


def near_tie(
    searched: LayoutSearch, rounded: list[RoundedPlan], exact: EvaluatedPlan, tolerance: float
) -> tuple[EvaluatedPlan, NearTie | None]:
    """The plan to take, and how it compares with the exact optimum; `None` where no other plan saves anything.

    It is searched in the layouts whose relaxed optimum is within the tolerance, and from starts all over the bounds at
    the layout and counts of realizable plans within it: where a power cap binds, the objective has a kink, at which a
    single search may end. It has the chips of the exact optimum: fewer would leave chips idle that someone pays. Of
    plans that save the same, the cheapest is meant. The exact optimum stays if the other saves less, in percent, than
    it costs.
    """
    problem, saved = searched.problem, saved_beside(searched.problem.minimize)
    most = rounded[0].value + math.log1p(tolerance)
    within = problem.asking({saved: 1.0}, {row_of_objective(problem.minimize): math.exp(most - TOLERATED)})
    lattice, chips = searched.lattice, float(exact.plan.chips)
    group = lattice.tensor * lattice.pipeline * lattice.context
    if "plan.chips" in within.bounds:
        within = dataclasses.replace(within, bounds={**within.bounds, "plan.chips": (chips, chips)})
    plans = []
    lanes = np.argsort(searched.values, kind="stable")[:MOST_LAYOUTS]
    lanes = lanes[searched.values[lanes] <= most]
    if len(lanes):
        lattice = take(lattice, lanes)
        solution = solve_relaxed(within, lattice, searched.solution.x[lanes], iterations=SETTLED, patient=True)
        relaxed = LayoutSearch(within, lattice, solution)
        plans = round_layouts(relaxed, relaxed.usable)
        plans = [plan._replace(counts=plan.counts._replace(lane=int(lanes[plan.lane]))) for plan in plans]
    near = [plan for plan in rounded if plan.value <= most and plan.counts.data * group[plan.lane] == chips][:RESTARTED]
    each = STARTS // len(near)
    start = spread_starts(within, take(searched.lattice, np.array([plan.lane for plan in near])), each)
    start[: len(near)] = [plan.point for plan in near]
    searched = searched._replace(problem=within)
    plans += solve_at_counts(searched, [plan.counts for plan in near] * each, SETTLED, start)
    if not plans:
        return exact, None
    least = min(plan.value for plan in plans)
    plans = sorted((plan for plan in plans if plan.value <= least + EQUAL), key=lambda plan: plan.value)[:EVALUATED]
    evaluated = [EvaluatedPlan(*realized(searched, plan), plan.point) for plan in plans]
    other = min(evaluated, key=lambda plan: float(plan.outcome.money))
    cost, saving = other.over(exact, problem.minimize) - 1.0, 1.0 - other.over(exact, saved)
    if saving <= MEANINGLESS:
        return exact, None
    taken = saving > cost
    return other if taken else exact, NearTie(tolerance, saved, cost, saving, taken, exact.plan, exact.outcome)
