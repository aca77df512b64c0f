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
from energymodel.search.relaxation import OPTIONS, evaluate_points, solve_relaxed
from energymodel.solver import RESULTS, Solution, result_is
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


class RelaxedLanes(NamedTuple):
    """Relaxed optima to be rounded: the layout, the criteria and the solution of each lane."""

    lattice: Lattice
    criteria: Criteria
    solution: Solution

    def nearby(self, problem: DesignProblem, lanes: Sequence[int] | np.ndarray) -> list[WholeCounts]:
        """The counts next to the optima of some lanes."""
        return [
            counts
            for lane in map(int, lanes)
            for counts in nearby_counts(problem, self.lattice, lane, self.solution.x[lane], 1)
        ]


class Lanes(NamedTuple):
    """Searches side by side: layouts, starts, bounds, and the tokens that a batch is a multiple of."""

    layouts: Lattice
    start: Float[np.ndarray, "lanes n"]
    bounds: tuple[Float[np.ndarray, "lanes n"], Float[np.ndarray, "lanes n"]]
    unit: Float[np.ndarray, " lanes"]


def round_layouts(problem: DesignProblem, lanes: RelaxedLanes, usable: np.ndarray) -> list[RoundedPlan]:
    """Best realizable plan of each layout whose relaxed optimum can still win, best first; empty if there is none.

    The relaxed optimum of a layout bounds its realizable plans from below, so layouts are rounded in the order of
    their bounds until the next bound is above the best plan found. Trials have few iterations; the best of them has all
    if it needs them.
    """
    value = lanes.solution.value
    best: dict[int, RoundedPlan] = {}
    order = np.argsort(np.where(usable, value, np.inf), kind="stable")[: int(np.sum(usable))]
    for first in range(0, len(order), GROUP):
        group = order[first : first + GROUP]
        if len(best) > 1 and float(value[group[0]]) > _lowest(best).value:
            break
        _add_better(best, solve_at_counts(problem, lanes, lanes.nearby(problem, group)))
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


def round_points(
    problem: DesignProblem, lanes: RelaxedLanes, owner: Int[np.ndarray, " lanes"], candidates: Sequence[int]
) -> list[RoundedPlan]:
    """Best realizable plan of each point of a front, in the order of the points.

    **Arguments:**

    - `owner`: the point of each lane.
    - `candidates`: lanes that are rounded.
    """
    trials = lanes.nearby(problem, candidates)
    if not trials:
        return []
    # In the order of the values that they promise, until that is hardly better than what a point has.
    waiting: dict[int, list[tuple[float, WholeCounts]]] = {}
    for promised, counts in zip(_first_order_values(problem, lanes, trials), trials, strict=True):
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
    group = round(layout.tensor * layout.pipeline * layout.context)
    node = round(float(system.node.chips))
    replica = layout.microbatch * float(system.workload.sequence)
    fewest, multiple = round(float(layout.fewest_microbatches)), multiple_count(system, layout)
    expert_step = _quotient(round(layout.expert), round(layout.context))
    step = math.lcm(_quotient(node, group), expert_step)
    chips, batch = (_value(problem, path, point) for path in ("plan.chips", "plan.batch"))
    if problem.index("plan.chips") is None:
        data = [round(chips / group)] if abs(chips / group - round(chips / group)) < WHOLE else []
        data = [d for d in data if d >= 1 and d % expert_step == 0]
    else:
        low, high = problem.bounds["plan.chips"]
        data = _multiples(chips / group, step, reach)
        if group * step > high:  # fewer chips than a node
            data = [d for d in range(1, math.floor(high / group) + 1) if d * group <= node]
        if any(torus_fault(system, float(d * group)) for d in data):  # the nearest that can be built
            data = [round(buildable / group) for buildable in torus_chips(system, chips, high, group)]
            data = [d for d in data if d % expert_step == 0]
        data = [d for d in data if d >= 1 and low * (1 - WHOLE) <= d * group <= high * (1 + WHOLE)]
    counts = []
    for d in data:
        exact = batch / (d * replica)
        if problem.index("plan.batch") is None:
            nearest = multiple * round(exact / multiple)
            microbatches = [nearest] if abs(exact - nearest) < WHOLE * exact else []
        else:
            low, high = problem.bounds["plan.batch"]
            microbatches = [
                m
                for m in _multiples(exact, multiple, reach)
                if low * (1 - WHOLE) <= m * d * replica <= high * (1 + WHOLE)
            ]
        counts += [WholeCounts(lane, d, m) for m in microbatches if m >= fewest]
    return counts


def _multiples(value: float, step: int, reach: int) -> list[int]:
    """Multiples of a step around a value: so many not above it, and as many above."""
    middle = math.floor(value / step + WHOLE)
    return [count * step for count in range(middle - reach + 1, middle + reach + 1)]


def _quotient(total: int, part: int) -> int:
    return total // math.gcd(total, part)


def _value(problem: DesignProblem, path: str, point: Float[np.ndarray, " n"]) -> float:
    index = problem.index(path)
    return problem.run.number(path) if index is None else float(np.exp(point[index]))


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


def _first_order_values(
    problem: DesignProblem, lanes: RelaxedLanes, trials: list[WholeCounts]
) -> Float[np.ndarray, " trials"]:
    """What the logarithm of the objective will be at given counts, to first order: the Lagrangian of the lane.

    The other variables stay where the relaxed optimum has them, where their slope is zero.
    """
    index = np.array([counts.lane for counts in trials])
    fixed = at_counts(problem, lanes.lattice, trials, lanes.solution.x[index])
    values = evaluate_points(problem, fixed.start[:, None], fixed.layouts, take(lanes.criteria, index))
    weights = lanes.solution.multipliers.inequalities[index]
    return values.objective[:, 0] + np.sum(weights * values.inequalities[:, 0], axis=1)


def solve_at_counts(
    problem: DesignProblem,
    lanes: RelaxedLanes,
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
    points: Float[np.ndarray, "plans n"],
    layouts: Lattice,
    criteria: Criteria,
    counts: Sequence[WholeCounts] | None = None,
) -> list[tuple[TrainingPlan, TrainingOutcome]]:
    """Plan and outcome of each point, in its layout and by its criteria.

    Where counts are given, chips and batch are exactly theirs, not exponentials of logarithms.
    """
    plans = []
    for index, point in enumerate(points):
        layout, limits = take((layouts, criteria), np.array(index))
        system, plan = problem.formulation.at(point, layout, limits, problem.run)
        if counts is not None:
            _, data, microbatches = counts[index]
            group = np.round(layout.tensor * layout.pipeline * layout.context)
            replica = np.round(layout.microbatch * float(system.workload.sequence))
            exact = group * data, np.full(np.shape(plan.batch), replica * (data * microbatches))
            plan = eqx.tree_at(lambda plan: (plan.chips, plan.batch), plan, exact)
        plans.append(evaluated_plan(scenario, system, plan))
    return plans


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
