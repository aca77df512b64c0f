"""Whole replicas and whole micro-batches near relaxed optima, and the plans with these counts."""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from energymodel.performance.pipeline_bubble import microbatch_multiple
from energymodel.search.layouts import take
from energymodel.search.problem import Criteria, DesignProblem
from energymodel.search.relaxation import OPTIONS, LayoutSearch, converged, evaluate_points, solve_relaxed
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import Lattice
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import ParallelLayout, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import multiple_count, torus_chips, torus_fault
from energymodel.system.training_system import TrainingSystem

GROUP = 16  # layouts that are rounded at once
REACH = 3  # micro-batches and replicas up and down that the last search looks at, and the first where one has no plan
ITERATIONS = 16  # of a start at the relaxed optimum: what takes longer is infeasible
TOLERATED = 1e-7  # violation of a limit in the logarithm that rounding may leave
WHOLE = 1e-6
OPTIMAL = 1e-4  # a rounded plan this close to the relaxed optimum of its lane is optimal [1, in the logarithm]


class WholeCounts(NamedTuple):
    """Replicas and micro-batches per replica of the layout of a lane, and whether other counts are rounded up."""

    lane: int
    data: int
    microbatches: int
    up: bool = False


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


def round_layouts(lanes: LayoutSearch, usable: np.ndarray) -> list[RoundedPlan]:
    """Best realizable plan of each layout whose relaxed optimum can still win, best first; empty if there is none.

    The relaxed optimum of a layout bounds its realizable plans from below, so layouts are rounded in the order of
    their bounds until the next bound is above the best plan found. Trials have few iterations; the best of them has all
    if it needs them.
    """
    bounds = np.where(usable, lanes.solution.value, np.inf)
    order = np.argsort(bounds, kind="stable")[: int(np.sum(usable))]
    best: dict[int, RoundedPlan] = {}
    for first in range(0, len(order), GROUP):
        if len(best) > 1 and float(bounds[order[first]]) > min(plan.value for plan in best.values()):
            break
        best |= round_lanes(lanes, np.arange(len(usable)), order[first : first + GROUP])
    best = best or round_lanes(lanes, np.arange(len(usable)), order[:GROUP], REACH)
    tried: set[WholeCounts] = set()
    while best:
        winner = min(best.values(), key=lambda plan: plan.value)
        around = nearby_counts(lanes.problem, lanes.lattice, winner.lane, winner.point, REACH)
        trials = [counts for counts in around if counts not in tried]
        tried.update(trials)
        better = [plan for plan in solve_at_counts(lanes, trials) if plan.value < winner.value]
        if not better and not winner.converged:
            again = solve_at_counts(lanes, [winner.counts], OPTIONS.max_iterations)
            best |= {plan.lane: plan for plan in again if plan.converged}
        if not better:
            break
        best[winner.lane] = min(better, key=lambda plan: plan.value)
    return sorted(best.values(), key=lambda plan: plan.value)


def round_lanes(
    lanes: LayoutSearch, owner: Int[np.ndarray, " lanes"], candidates: Int[np.ndarray, " some"], reach: int = 1
) -> dict[int, RoundedPlan]:
    """Best realizable plan next to the relaxed optima of some lanes, by the owner of a lane: a layout, or a level.

    Trials come in the order of the values that they promise, until that is hardly better than what an owner has. To
    first order that is the Lagrangian of the lane: the other variables stay at the relaxed optimum, where their slope
    is zero.
    """
    problem, lattice, points = lanes.problem, lanes.lattice, lanes.solution.x
    trials = [c for lane in map(int, candidates) for c in nearby_counts(problem, lattice, lane, points[lane], reach)]
    if not trials:
        return {}
    index = np.array([counts.lane for counts in trials])
    fixed, criteria = at_counts(problem, lattice, trials, points[index]), take(lanes.criteria, index)
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
        for plan in solve_at_counts(lanes, trials):
            key = int(owner[plan.lane])
            best[key] = min(best.get(key, plan), plan, key=lambda plan: plan.value)
        waiting = {
            key: heap
            for key, heap in waiting.items()
            if heap and (key not in best or heap[0][0] < best[key].value - OPTIMAL)
        }
    return best


def nearby_counts(
    problem: DesignProblem, lattice: Lattice, lane: int, point: Float[np.ndarray, " n"], reach: int
) -> list[WholeCounts]:
    """Realizable counts around a point: chips in blocks, experts that divide, micro-batches for the schedule.

    Where any number of micro-batches is allowed, these also in multiples of the pipeline, which need less memory. A
    block is a node, or as much of it as divides the scenario's own chips, unless the question states one. Replicas
    divide a fixed batch.
    """
    layout, system = jax.tree.map(lambda leaf: float(leaf[lane]), lattice), problem.run.system
    group, node = round(layout.tensor * layout.pipeline * layout.context), round(float(system.node.chips))
    block = problem.block or math.gcd(node, round(problem.run.number("plan.chips")))
    replica, schedule = layout.microbatch * float(system.workload.sequence), (layout.interleaved, layout.dual_pipe)
    multiples = {multiple_count(system, layout), round(float(microbatch_multiple(layout.pipeline, *schedule, 1.0)))}

    def near(path: str) -> tuple[float, tuple[float, float], bool]:
        """Value of a variable, its range but for rounding, and whether it varies."""
        index = problem.index(path)
        value = problem.run.number(path) if index is None else float(np.exp(point[index]))
        low, high = (value, value) if index is None else problem.bounds[path]
        return value, (low * (1 - WHOLE), high * (1 + WHOLE)), index is not None

    chips, (fewest, most), vary_chips = near("plan.chips")
    batch, (low, high), vary_batch = near("plan.batch")
    expert_step = round(layout.expert) // math.gcd(round(layout.expert), round(layout.context))
    step = math.lcm(block // math.gcd(block, group), expert_step) if vary_chips else expert_step
    data = _multiples(chips / group, step, reach)
    if vary_chips:
        if not vary_batch:
            near_to = step, math.floor(most / group), chips / group, reach
            data = sorted({d for multiple in multiples for d in _divisors(batch / (replica * multiple), *near_to)})
        if group * step > most:  # fewer chips than a node
            data = [d for d in range(1, math.floor(most / group) + 1) if d * group <= node]
        if any(torus_fault(system, float(d * group)) for d in data):  # the nearest that can be built
            data = [round(buildable / group) for buildable in torus_chips(system, chips, most, group)]
            data = [d for d in data if d % expert_step == 0]
    return [
        WholeCounts(lane, d, m, up)
        for up in ((False, True) if problem.counts else (False,))
        for d in data
        if d >= 1 and fewest <= d * group <= most
        for m in sorted({m for multiple in multiples for m in _multiples(batch / (d * replica), multiple, reach)})
        if m >= round(float(layout.fewest_microbatches)) and low <= m * d * replica <= high
    ]


def _divisors(number: float, step: int, most: int, value: float, reach: int) -> list[int]:
    """Multiples of a step that divide a number: so many not above a value, and as many above."""
    counts = np.arange(step, most + 1, step)
    counts = counts[np.abs(number / counts - np.round(number / counts)) <= WHOLE]
    middle = int(np.searchsorted(counts, value * (1.0 + WHOLE), side="right"))
    return counts[max(0, middle - reach) : middle + reach].tolist()


def _multiples(value: float, step: int, reach: int) -> list[int]:
    """Multiples of a step around a value: so many not above it, and as many above."""
    middle = math.floor(value / step + WHOLE)
    return [count * step for count in range(middle - reach + 1, middle + reach + 1)]


def at_counts(
    problem: DesignProblem, lattice: Lattice, trials: Sequence[WholeCounts], start: Float[np.ndarray, "trials n"]
) -> Lanes:
    """Lanes that begin at some points, with chips, batch and other counts fixed to whole numbers."""
    lanes, data, microbatches, up = np.array(trials).T
    layouts, formulation = take(lattice, lanes), problem.formulation
    unit = data * np.asarray(layouts.microbatch) * float(problem.run.system.workload.sequence)
    group = np.asarray(layouts.tensor) * np.asarray(layouts.pipeline) * np.asarray(layouts.context)
    start, (lower, upper) = np.array(start), problem.boxes(len(trials))
    fixed = {"plan.chips": group * data, "plan.batch": unit * microbatches}
    for path in problem.counts:
        low, high = math.ceil(problem.bounds[path][0] - WHOLE), math.floor(problem.bounds[path][1] + WHOLE)
        values = formulation.value(path, start[:, problem.index(path)])
        values = np.where(up, np.ceil(values * (1.0 - WHOLE)), np.floor(values * (1.0 + WHOLE)))
        fixed[path] = np.clip(values, low, max(low, high))
    for path, values in fixed.items():
        index = problem.index(path)
        if index is not None:
            start[:, index] = lower[:, index] = upper[:, index] = formulation.coordinate(path, values)
    return Lanes(layouts, start, (lower, upper), unit)


def solve_at_counts(
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
    fixed = at_counts(lanes.problem, lanes.lattice, trials, lanes.solution.x[index] if start is None else start)
    criteria, warm = take((lanes.criteria, lanes.solution.multipliers), index)
    solution = solve_relaxed(
        lanes.problem, fixed.layouts, fixed.start, criteria, bounds=fixed.bounds, warm=warm, iterations=iterations
    )
    feasible = (np.min(solution.slacks.inequalities, axis=-1) >= -TOLERATED) & np.isfinite(solution.value)
    ends = zip(trials, solution.x, solution.value.tolist(), converged(solution).tolist(), strict=True)
    return [RoundedPlan(*end) for end, obeys in zip(ends, feasible, strict=True) if obeys]


def realized(lanes: LayoutSearch, plan: RoundedPlan) -> tuple[TrainingPlan, TrainingOutcome]:
    """A rounded plan with its outcome; chips and batch are exactly those of its counts."""
    layout, criteria = take((lanes.lattice, lanes.criteria), np.array(plan.lane))
    return plan_at(lanes.problem, plan.point, layout, criteria, plan.counts)


def plan_at(
    problem: DesignProblem,
    point: Float[np.ndarray, " n"],
    layout: ParallelLayout,
    criteria: Criteria | None = None,
    counts: WholeCounts | None = None,
) -> tuple[TrainingPlan, TrainingOutcome]:
    """Plan and outcome of a point in a layout, by the criteria of the problem unless others are given.

    Where counts are given, chips and batch are exactly theirs, not exponentials of logarithms.
    """
    system, plan = problem.formulation.at(point, layout, criteria or problem.criteria, problem.run)
    return evaluated_plan(problem, system, plan if counts is None else with_counts(plan, system, counts))


def with_counts(plan: TrainingPlan, system: TrainingSystem, counts: WholeCounts) -> TrainingPlan:
    """A plan with exactly these counts."""
    layout = plan.layout
    chips = np.round(float(layout.tensor * layout.pipeline * layout.context)) * counts.data
    replica = np.round(float(layout.microbatch) * float(system.workload.sequence))
    batch = np.full(np.shape(plan.batch), replica * (counts.data * counts.microbatches))
    return eqx.tree_at(lambda plan: (plan.chips, plan.batch), plan, (np.asarray(chips), batch))


def evaluated_plan(
    problem: DesignProblem, system: TrainingSystem, plan: TrainingPlan
) -> tuple[TrainingPlan, TrainingOutcome]:
    """A plan with its outcome; its goal is in tokens if that of the scenario is."""
    system, plan = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system, plan))
    evaluate_numbers, structure = evaluate_once.of_numbers(system, plan)
    outcome = jax.tree.unflatten(structure, map(np.asarray, evaluate_numbers(jax.tree.leaves((system, plan)))))
    if isinstance(problem.run.plan.goal, TokenBudget):
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(outcome.tokens))
    return plan, outcome
