"""Whole replicas and whole micro-batches near relaxed optima, and the plans with these counts."""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import Lattice, take
from energymodel.search.problem import Criteria, DesignProblem
from energymodel.search.relaxation import OPTIONS, LayoutSearch, evaluate_points, solve_relaxed
from energymodel.solver import RESULTS, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TokenBudget, TrainingPlan
from energymodel.system.plan_rules import multiple_count, torus_chips, torus_fault
from energymodel.system.training_system import TrainingSystem

GROUP = 16  # layouts that are rounded at once
REACH = 3  # micro-batches and replicas up and down that the last search looks at
ITERATIONS = 16  # of a start at the relaxed optimum: what takes longer is infeasible
TOLERATED = 1e-7  # violation of a limit in the logarithm that rounding may leave
WHOLE = 1e-6
OPTIMAL = 1e-4  # a rounded plan this close to the relaxed optimum of its lane is optimal [1, in the logarithm]


class WholeCounts(NamedTuple):
    """Replicas and micro-batches per replica of the layout of a lane."""

    lane: int
    data: int
    microbatches: int


class RoundedPlan(NamedTuple):
    """A realizable plan: its counts, the solver's vector, the logarithm of the objective, and how the solver ended."""

    counts: WholeCounts
    point: Float[np.ndarray, " n"]
    value: float
    converged: bool

    @property
    def lane(self) -> int:
        """Index of its layout in the lattice."""
        return self.counts.lane


class Lanes(NamedTuple):
    """Searches side by side: layouts, starts, bounds, and the tokens that a batch is a multiple of."""

    layouts: Lattice
    start: Float[np.ndarray, "lanes n"]
    bounds: tuple[Float[np.ndarray, "lanes n"], Float[np.ndarray, "lanes n"]]
    unit: Float[np.ndarray, " lanes"]


def round_layouts(problem: DesignProblem, lanes: LayoutSearch, usable: np.ndarray) -> list[RoundedPlan]:
    """Best realizable plan of each layout whose relaxed optimum can still win, best first; empty if there is none.

    The relaxed optimum of a layout bounds its realizable plans from below, so layouts are rounded in the order of
    their bounds until the next bound is above the best plan found. Trials have few iterations; the best of them has all
    if it needs them.
    """
    value = lanes.solution.value
    best: dict[int, RoundedPlan] = {}
    order = np.argsort(np.where(usable, value, np.inf), kind="stable")[: int(np.sum(usable))]
    for first in range(0, len(order), GROUP):
        if len(best) > 1 and float(value[order[first]]) > _lowest(best).value:
            break
        _add_better(best, solve_at_counts(problem, lanes, _counts_at(problem, lanes, order[first : first + GROUP])))
    tried: set[WholeCounts] = set()
    while best:
        winner = _lowest(best)
        around = nearby_counts(problem, lanes.lattice, winner.lane, winner.point, REACH)
        trials = [counts for counts in around if counts not in tried]
        tried.update(trials)
        plans = solve_at_counts(problem, lanes, trials)
        if not any(plan.value < winner.value for plan in plans):
            if not winner.converged:
                plans = solve_at_counts(problem, lanes, [winner.counts], OPTIONS.max_iterations)
                best |= {plan.lane: plan for plan in plans if plan.converged}
            break
        _add_better(best, plans)
    return sorted(best.values(), key=lambda plan: plan.value)


def _lowest(best: dict[int, RoundedPlan]) -> RoundedPlan:
    return min(best.values(), key=lambda plan: plan.value)


def _add_better(best: dict[int, RoundedPlan], plans: list[RoundedPlan], owner: np.ndarray | None = None) -> None:
    """Put plans where they are better than those of the same lane, or of the same owner of lanes."""
    for plan in plans:
        key = plan.lane if owner is None else int(owner[plan.lane])
        if key not in best or plan.value < best[key].value:
            best[key] = plan


def _counts_at(problem: DesignProblem, lanes: LayoutSearch, index: Sequence[int] | np.ndarray) -> list[WholeCounts]:
    """The counts next to the optima of some lanes."""
    points = lanes.solution.x
    return [c for lane in map(int, index) for c in nearby_counts(problem, lanes.lattice, lane, points[lane], 1)]


def round_points(
    problem: DesignProblem, lanes: LayoutSearch, owner: Int[np.ndarray, " lanes"], candidates: Sequence[int]
) -> list[RoundedPlan]:
    """Best realizable plan of each point of a front, in the order of the points.

    **Arguments:**

    - `owner`: the point of each lane.
    - `candidates`: lanes that are rounded.
    """
    trials = _counts_at(problem, lanes, candidates)
    if not trials:
        return []
    # In the order of the values that they promise, until that is hardly better than what a point has. To first order
    # that is the Lagrangian of the lane: the other variables stay at the relaxed optimum, where their slope is zero.
    index = np.array([counts.lane for counts in trials])
    fixed, criteria = at_counts(problem, lanes.lattice, trials, lanes.solution.x[index]), take(lanes.criteria, index)
    values = evaluate_points(problem, fixed.start[:, None], fixed.layouts, criteria)
    rows = lanes.solution.multipliers.inequalities[index] * values.inequalities[:, 0]
    waiting: dict[int, list[tuple[float, WholeCounts]]] = {}
    for promised, counts in zip(values.objective[:, 0] + np.sum(rows, axis=1), trials, strict=True):
        heapq.heappush(waiting.setdefault(int(owner[counts.lane]), []), (float(promised), counts))
    best: dict[int, RoundedPlan] = {}
    while waiting:
        trials, full = [], -(-len(waiting) // OPTIONS.chunk) * OPTIONS.chunk
        while len(trials) < full and any(waiting.values()):  # a chunk that is not full takes as long
            for heap in waiting.values():
                if heap and len(trials) < full:
                    trials.append(heapq.heappop(heap)[1])
        _add_better(best, solve_at_counts(problem, lanes, trials), owner)
        waiting = {
            point: heap
            for point, heap in waiting.items()
            if heap and (point not in best or heap[0][0] < best[point].value - OPTIMAL)
        }
    # A plan whose own search reached the iteration limit is as good as its lane's bound, if it is as close to it.
    return [
        plan._replace(converged=plan.converged or bool(plan.value <= lanes.solution.value[plan.lane] + OPTIMAL))
        for _, plan in sorted(best.items())
    ]


def nearby_counts(
    problem: DesignProblem, lattice: Lattice, lane: int, point: Float[np.ndarray, " n"], reach: int
) -> list[WholeCounts]:
    """Realizable counts around a point: chips in whole nodes, experts that divide, micro-batches for the schedule."""
    layout, system = jax.tree.map(lambda leaf: float(leaf[lane]), lattice), problem.run.system
    group, node = round(layout.tensor * layout.pipeline * layout.context), round(float(system.node.chips))
    replica = layout.microbatch * float(system.workload.sequence)
    fewest, multiple = round(float(layout.fewest_microbatches)), multiple_count(system, layout)
    expert_step = _quotient(round(layout.expert), round(layout.context))
    indices = [(path, problem.index(path)) for path in ("plan.chips", "plan.batch")]
    chips, batch = (problem.run.number(path) if i is None else float(np.exp(point[i])) for path, i in indices)
    chip_range, batch_range = (None if i is None else problem.bounds[path] for path, i in indices)
    if chip_range is None:
        data = [round(chips / group)] if abs(chips / group - round(chips / group)) < WHOLE else []
        data = [d for d in data if d % expert_step == 0]
    else:
        low, high = chip_range
        step = math.lcm(_quotient(node, group), expert_step)
        data = _multiples(chips / group, step, reach)
        if group * step > high:  # fewer chips than a node
            data = [d for d in range(1, math.floor(high / group) + 1) if d * group <= node]
        if any(torus_fault(system, float(d * group)) for d in data):  # the nearest that can be built
            data = [round(buildable / group) for buildable in torus_chips(system, chips, high, group)]
            data = [d for d in data if d % expert_step == 0]
        data = [d for d in data if low * (1 - WHOLE) <= d * group <= high * (1 + WHOLE)]
    counts = []
    for d in [d for d in data if d >= 1]:
        exact = batch / (d * replica)
        if batch_range is None:
            nearest = multiple * round(exact / multiple)
            microbatches = [nearest] if abs(exact - nearest) < WHOLE * exact else []
        else:
            low, high = batch_range[0] * (1 - WHOLE), batch_range[1] * (1 + WHOLE)
            microbatches = [m for m in _multiples(exact, multiple, reach) if low <= m * d * replica <= high]
        counts += [WholeCounts(lane, d, m) for m in microbatches if m >= fewest]
    return counts


def _multiples(value: float, step: int, reach: int) -> list[int]:
    """Multiples of a step around a value: so many not above it, and as many above."""
    middle = math.floor(value / step + WHOLE)
    return [count * step for count in range(middle - reach + 1, middle + reach + 1)]


def _quotient(total: int, part: int) -> int:
    return total // math.gcd(total, part)


def at_counts(
    problem: DesignProblem, lattice: Lattice, trials: Sequence[WholeCounts], start: Float[np.ndarray, "trials n"]
) -> Lanes:
    """Lanes that begin at some points, with chips, batch and spare nodes fixed to whole counts."""
    lanes, data, microbatches = np.array(trials).T
    layouts, formulation = take(lattice, lanes), problem.formulation
    unit = data * np.asarray(layouts.microbatch) * float(problem.run.system.workload.sequence)
    group = np.asarray(layouts.tensor) * np.asarray(layouts.pipeline) * np.asarray(layouts.context)
    start, (lower, upper) = np.array(start), problem.boxes(len(trials))
    fixed = {"plan.chips": group * data, "plan.batch": unit * microbatches}
    spares = problem.index("plan.spares")
    if spares is not None:
        low, high = problem.bounds["plan.spares"]
        low = math.ceil(low - WHOLE)
        nodes = np.round(formulation.value("plan.spares", start[:, spares]))
        fixed["plan.spares"] = np.clip(nodes, low, max(math.floor(high + WHOLE), low))
    for path, values in fixed.items():
        index = problem.index(path)
        if index is not None:
            start[:, index] = lower[:, index] = upper[:, index] = formulation.coordinate(path, values)
    return Lanes(layouts, start, (lower, upper), unit)


def solve_at_counts(
    problem: DesignProblem,
    lanes: LayoutSearch,
    trials: list[WholeCounts],
    iterations: int = ITERATIONS,
    start: Float[np.ndarray, "trials n"] | None = None,
) -> list[RoundedPlan]:
    """Solve for the other variables at given counts, by the criteria of the lane; what breaks a limit is dropped.

    The searches begin at the optima of the lanes unless other points are given.
    """
    if not trials:
        return []
    index = np.array([counts.lane for counts in trials])
    fixed = at_counts(problem, lanes.lattice, trials, lanes.solution.x[index] if start is None else start)
    criteria, warm = take((lanes.criteria, lanes.solution.multipliers), index)
    solution = solve_relaxed(
        problem, fixed.layouts, fixed.start, criteria, bounds=fixed.bounds, warm=warm, iterations=iterations
    )
    converged = result_is(solution.result, RESULTS.successful)
    feasible = (np.min(solution.slacks.inequalities, axis=-1) >= -TOLERATED) & np.isfinite(solution.value)
    return [
        RoundedPlan(trials[i], solution.x[i], float(solution.value[i]), bool(converged[i]))
        for i in np.flatnonzero(feasible)
    ]


def plans_at(
    scenario: Scenario,
    problem: DesignProblem,
    points: Sequence[np.ndarray] | Float[np.ndarray, "plans n"],
    layouts: Lattice,
    criteria: Criteria | None = None,
    counts: Sequence[WholeCounts] | None = None,
) -> list[tuple[TrainingPlan, TrainingOutcome]]:
    """Plan and outcome of each point, in its layout and by its criteria, or those of the problem.

    Where counts are given, chips and batch are exactly theirs, not exponentials of logarithms.
    """
    plans = []
    for index, point in enumerate(points):
        layout, limits = take((layouts, criteria), np.array(index))
        system, plan = problem.formulation.at(point, layout, limits or problem.criteria, problem.run)
        if counts is not None:
            plan = with_counts(plan, system, counts[index])
        plans.append(evaluated_plan(scenario, system, plan))
    return plans


def with_counts(plan: TrainingPlan, system: TrainingSystem, counts: WholeCounts) -> TrainingPlan:
    """A plan with exactly these counts."""
    layout = plan.layout
    chips = np.round(float(layout.tensor * layout.pipeline * layout.context)) * counts.data
    replica = np.round(float(layout.microbatch) * float(system.workload.sequence))
    batch = np.full(np.shape(plan.batch), replica * (counts.data * counts.microbatches))
    return eqx.tree_at(lambda plan: (plan.chips, plan.batch), plan, (np.asarray(chips), batch))


def evaluated_plan(
    scenario: Scenario, system: TrainingSystem, plan: TrainingPlan
) -> tuple[TrainingPlan, TrainingOutcome]:
    """A plan with its outcome; its goal is in tokens if that of the scenario is."""
    system, plan = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system, plan))
    evaluate_numbers, structure = evaluate_once.of_numbers(system, plan)
    outcome = jax.tree.unflatten(structure, map(np.asarray, evaluate_numbers(jax.tree.leaves((system, plan)))))
    if isinstance(scenario.plan.goal, TokenBudget):
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(outcome.tokens))
    return plan, outcome
