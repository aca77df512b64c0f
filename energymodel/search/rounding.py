"""Which whole replicas and whole micro-batches lie nearest to a relaxed optimum, and which plans are these?"""

import heapq
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import Lattice, take
from energymodel.search.problem import Criteria, DesignProblem, Formulation
from energymodel.search.relaxation import OPTIONS, evaluate_points, solve_relaxed
from energymodel.search.training_run import TrainingRun
from energymodel.solver import RESULTS, Solution, result_is
from energymodel.system.evaluate import evaluate, learning_of, parameters_in_loss
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.pipeline_rules import multiple_count
from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.torus_shapes import torus_chips, torus_fault

GROUP = 16  # layouts that are rounded at once
REACH = 3  # micro-batches and replicas up and down that the last search looks at
ITERATIONS = 16  # of a start at the relaxed optimum: what takes longer is infeasible
TOLERATED = 1e-7  # violation of a limit in the logarithm that rounding may leave
WHOLE = 1e-6
OPTIMAL = 1e-4  # a rounded plan this close to the relaxed optimum of its lane is optimal [1, in the logarithm]
TOGETHER = 8  # plans that one program evaluates: a search needs one of them, or dozens


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
        """Place of its layout in the lattice."""
        return self.counts.lane


class RelaxedLanes(NamedTuple):
    """Relaxed optima to be rounded: the layout, the criteria and the solution of each lane."""

    lattice: Lattice
    criteria: Criteria
    solution: Solution


def round_layouts(problem: DesignProblem, lanes: RelaxedLanes, usable: np.ndarray) -> list[RoundedPlan]:
    """Best realizable plan of each layout whose relaxed optimum can still win, best first; empty if there is none.

    The relaxed optimum of a layout bounds its realizable plans from below, so layouts are rounded in the order of
    their bounds until the next bound is above the best plan found. Trials have few iterations; the best of them has all
    if it needs them.
    """
    solution = lanes.solution
    order = np.argsort(np.where(usable, solution.value, np.inf), kind="stable")[: int(np.sum(usable))]
    best: dict[int, RoundedPlan] = {}
    for first in range(0, len(order), GROUP):
        group = order[first : first + GROUP]
        incumbent = min((plan.value for plan in best.values()), default=math.inf)
        if float(solution.value[group[0]]) > incumbent and len(best) > 1:
            break
        trials = [
            counts for lane in group for counts in nearby_counts(problem, lanes.lattice, int(lane), solution.x[lane], 1)
        ]
        _keep_best(best, solve_at_counts(problem, lanes, trials))
    tried: set[WholeCounts] = set()
    while best:
        winner = min(best.values(), key=lambda plan: plan.value)
        trials = [
            counts
            for counts in nearby_counts(problem, lanes.lattice, winner.lane, winner.point, REACH)
            if counts not in tried
        ]
        tried.update(trials)
        found = solve_at_counts(problem, lanes, trials)
        if not any(plan.value < winner.value for plan in found):
            break
        _keep_best(best, found)
    if best:
        winner = min(best.values(), key=lambda plan: plan.value)
        if not winner.converged:
            again = solve_at_counts(problem, lanes, [winner.counts], OPTIONS.max_iterations)
            best |= {plan.lane: plan for plan in again if plan.converged}
    return sorted(best.values(), key=lambda plan: plan.value)


def _keep_best(best: dict[int, RoundedPlan], found: list[RoundedPlan]) -> None:
    for plan in found:
        if plan.lane not in best or plan.value < best[plan.lane].value:
            best[plan.lane] = plan


def round_points(
    problem: DesignProblem, lanes: RelaxedLanes, owner: Int[np.ndarray, " lanes"], candidates: Sequence[int]
) -> list[RoundedPlan]:
    """Best realizable plan of each point of a front, in the order of the points.

    **Arguments:**

    - `owner`: the point of each lane.
    - `candidates`: lanes that are rounded.
    """
    solution = lanes.solution
    trials = [
        counts for lane in candidates for counts in nearby_counts(problem, lanes.lattice, lane, solution.x[lane], 1)
    ]
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
        for plan in solve_at_counts(problem, lanes, trials):
            point = int(owner[plan.lane])
            if point not in best or plan.value < best[point].value:
                best[point] = plan
        waiting = {
            point: heap
            for point, heap in waiting.items()
            if heap and (point not in best or heap[0][0] < best[point].value - OPTIMAL)
        }
    # A plan whose own search reached the iteration limit is as good as its lane's bound, if it is as close to it.
    return [
        plan._replace(converged=plan.converged or bool(plan.value <= solution.value[plan.lane] + OPTIMAL))
        for _, plan in sorted(best.items())
    ]


def nearby_counts(
    problem: DesignProblem, lattice: Lattice, lane: int, point: Float[np.ndarray, " n"], reach: int
) -> list[WholeCounts]:
    """Realizable counts around a point: chips in whole nodes, experts that divide, micro-batches for the schedule."""
    layout, given = jax.tree.map(lambda leaf: float(leaf[lane]), lattice), problem.given
    group = round(layout.tensor * layout.pipeline * layout.context)
    node = round(float(given.system.node.chips))
    replica = layout.microbatch * float(given.system.workload.sequence)
    fewest, multiple = round(float(layout.fewest_microbatches)), multiple_count(given.system, layout)
    expert_step = _quotient(round(layout.expert), round(layout.context))
    step = math.lcm(_quotient(node, group), expert_step)
    chips, batch = (_value(problem, path, point) for path in ("plan.chips", "plan.batch"))
    if problem.index("plan.chips") is None:
        data = [round(chips / group)] if abs(chips / group - round(chips / group)) < WHOLE else []
        data = [d for d in data if d >= 1 and d % expert_step == 0]
    else:
        low, high = problem.bounds["plan.chips"]
        middle = math.floor(chips / (group * step) + WHOLE)
        data = [d * step for d in range(middle - reach + 1, middle + reach + 1)]
        if group * step > high:  # fewer chips than a node
            data = [d for d in range(1, math.floor(high / group) + 1) if (d * group) <= node]
        if any(torus_fault(given.system, float(d * group)) for d in data):  # the nearest that can be built
            data = [round(whole / group) for whole in torus_chips(given.system, chips, high, group)]
            data = [d for d in data if d % expert_step == 0]
        data = [d for d in data if d >= 1 and low * (1 - WHOLE) <= d * group <= high * (1 + WHOLE)]
    counts = []
    for d in data:
        exact = batch / (d * replica)
        if problem.index("plan.batch") is None:
            nearest = multiple * round(exact / multiple)
            whole = [nearest] if abs(exact - nearest) < WHOLE * exact else []
        else:
            low, high = problem.bounds["plan.batch"]
            middle = math.floor(exact / multiple + WHOLE)
            nearby = [m * multiple for m in range(middle - reach + 1, middle + reach + 1)]
            whole = [m for m in nearby if low * (1 - WHOLE) <= m * d * replica <= high * (1 + WHOLE)]
        counts += [WholeCounts(lane, d, m) for m in whole if m >= fewest]
    return counts


def _quotient(whole: int, part: int) -> int:
    return whole // math.gcd(whole, part)


def _value(problem: DesignProblem, path: str, point: Float[np.ndarray, " n"]) -> float:
    place = problem.index(path)
    return problem.given.number(path) if place is None else float(np.exp(point[place]))


class _Placed(NamedTuple):
    """Trials as lanes: layouts, starts and bounds, with chips and batch where the counts put them."""

    layouts: Lattice
    start: Float[np.ndarray, "trials n"]
    bounds: tuple[Float[np.ndarray, "trials n"], Float[np.ndarray, "trials n"]]


def _place(problem: DesignProblem, lanes: RelaxedLanes, trials: list[WholeCounts]) -> _Placed:
    index = np.array([counts.lane for counts in trials])
    layouts = take(lanes.lattice, index)
    start = np.array(lanes.solution.x)[index]
    lower, upper = problem.boxes(len(trials))
    group = np.asarray(layouts.tensor) * np.asarray(layouts.pipeline) * np.asarray(layouts.context)
    data = np.array([counts.data for counts in trials])
    tokens = np.asarray(layouts.microbatch) * float(problem.given.system.workload.sequence)
    fixed = {
        "plan.chips": group * data,
        "plan.batch": tokens * data * np.array([counts.microbatches for counts in trials]),
    }
    for path, values in fixed.items():
        place = problem.index(path)
        if place is not None:
            start[:, place] = lower[:, place] = upper[:, place] = np.log(values)
    place = problem.index("plan.spares")
    if place is not None:
        coordinate = problem.formulation.coordinate
        nodes = problem.formulation.value("plan.spares", start[:, place])
        low, high = problem.bounds["plan.spares"]
        whole = np.clip(np.round(nodes), math.ceil(low - WHOLE), max(math.floor(high + WHOLE), math.ceil(low - WHOLE)))
        start[:, place] = lower[:, place] = upper[:, place] = coordinate("plan.spares", whole)
    return _Placed(layouts, start, (lower, upper))


def _first_order_values(
    problem: DesignProblem, lanes: RelaxedLanes, trials: list[WholeCounts]
) -> Float[np.ndarray, " trials"]:
    """What the logarithm of the objective will be at given counts, to first order: the Lagrangian of the lane.

    The other variables stay where the relaxed optimum has them, where their slope is zero.
    """
    index = np.array([counts.lane for counts in trials])
    layouts, start, _ = _place(problem, lanes, trials)
    values = evaluate_points(problem, start[:, None], layouts, take(lanes.criteria, index))
    weights = lanes.solution.multipliers.inequalities[index]
    return values.objective[:, 0] + np.sum(weights * values.inequalities[:, 0], axis=1)


def solve_at_counts(
    problem: DesignProblem, lanes: RelaxedLanes, trials: list[WholeCounts], iterations: int = ITERATIONS
) -> list[RoundedPlan]:
    """Solve for the other variables at given counts, by the criteria of the lane; what breaks a limit is dropped."""
    if not trials:
        return []
    index = np.array([counts.lane for counts in trials])
    layouts, start, bounds = _place(problem, lanes, trials)
    warm = take(lanes.solution.multipliers, index)
    criteria = take(lanes.criteria, index)
    found = solve_relaxed(problem, layouts, start, criteria, bounds=bounds, warm=warm, iterations=iterations)
    converged = result_is(found.result, RESULTS.successful)
    worst = np.min(found.slacks.inequalities, axis=-1)
    return [
        RoundedPlan(counts, found.x[i], float(found.value[i]), bool(converged[i]))
        for i, counts in enumerate(trials)
        if worst[i] >= -TOLERATED and np.isfinite(found.value[i])
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

    Where counts are given, chips and batch are exactly theirs, not exponentials of logarithms. The goal is in tokens
    if the scenario's is: the same plan in the terms of the scenario.
    """
    group = np.round(np.asarray(layouts.tensor * layouts.pipeline * layouts.context))
    replica = np.round(np.asarray(layouts.microbatch) * np.asarray(problem.given.system.workload.sequence))
    exact = np.full((len(points), 2), np.nan)
    if counts is not None:
        data, microbatches = np.array([(one.data, one.microbatches) for one in counts]).T
        exact = np.stack([group * data, replica * (data * microbatches)], axis=1)
    goal = "tokens" if isinstance(scenario.plan.goal, TokenBudget) else "loss"
    found = []
    for first in range(0, len(points), TOGETHER):
        part = np.arange(first, min(first + TOGETHER, len(points)))
        lanes = take((points, exact, layouts, criteria), np.resize(part, TOGETHER))
        both = jax.tree.map(np.asarray, evaluate_plans(problem.formulation, goal, *lanes, problem.given))
        found += [jax.tree.map(lambda leaf, place=place: np.asarray(leaf[place]), both) for place in range(len(part))]
    return found


@partial(Compiled, once=True)
def evaluate_plans(
    formulation: Formulation,
    goal: str,
    points: Array,
    exact: Array,
    layouts: Lattice,
    criteria: Criteria,
    given: TrainingRun,
) -> tuple[TrainingPlan, TrainingOutcome]:
    """Plans and outcomes of points; chips and batch are exactly those given, where they are not NaN."""

    def one(
        point: Array, exact: Array, layout: ParallelLayout, criteria: Criteria
    ) -> tuple[TrainingPlan, TrainingOutcome]:
        system, plan = formulation.at(point, layout, criteria, given)
        found = jnp.stack([jnp.asarray(plan.chips, exact.dtype), jnp.reshape(plan.batch, ())])
        chips, batch = jnp.where(jnp.isnan(exact), found, exact)
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.batch), plan, (chips, jnp.full(jnp.shape(plan.batch), batch)))
        if goal == "tokens" and isinstance(plan.goal, TargetLoss):
            tokens = learning_of(system, plan).tokens(parameters_in_loss(system), plan.goal.loss, batch)
            plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(tokens))
        return plan, evaluate(system, plan)

    return jax.vmap(one)(points, exact, layouts, criteria)
