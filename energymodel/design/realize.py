"""Which whole replicas and whole micro-batches lie nearest to a relaxed optimum?"""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.design.layout_search import OPTIONS, solve_lanes
from energymodel.design.layouts import Lattice, evaluate_points, take
from energymodel.design.problem import Problem, Target
from energymodel.solver.minimize import RESULTS, Solution

GROUP = 16  # layouts that are rounded at once
REACH = 3  # micro-batches and replicas up and down that the last search looks at
ITERATIONS = 16  # of a start at the relaxed optimum: what takes longer is infeasible
TOLERATED = 1e-7  # violation of a limit in the logarithm that rounding may leave
WHOLE = 1e-6


class Counts(NamedTuple):
    """Replicas and micro-batches per replica of a layout."""

    layout: int
    data: int
    microbatches: int


class Realized(NamedTuple):
    """A realizable plan: its counts, the solver's vector, the logarithm of the objective, and how the solver ended."""

    counts: Counts
    point: Float[np.ndarray, " n"]
    value: float
    converged: bool

    @property
    def layout(self) -> int:
        """Place of its layout in the lattice."""
        return self.counts.layout


def realize(problem: Problem, lattice: Lattice, solution: Solution, usable: np.ndarray) -> list[Realized]:
    """Best realizable plan of each layout whose relaxed optimum can still win, best first; empty if there is none.

    The relaxed optimum of a layout bounds its realizable plans from below, so layouts are rounded in the order of
    their bounds until the next bound is above the best plan found. Trials have few iterations; the best of them has all
    if it needs them.
    """
    order = np.argsort(np.where(usable, solution.value, np.inf), kind="stable")[: int(np.sum(usable))]
    targets = problem.targets(len(usable))
    best: dict[int, Realized] = {}
    for first in range(0, len(order), GROUP):
        group = order[first : first + GROUP]
        incumbent = min((one.value for one in best.values()), default=math.inf)
        if float(solution.value[group[0]]) > incumbent and len(best) > 1:
            break
        trials = [counts for lane in group for counts in near(problem, lattice, int(lane), solution.x[lane], 1)]
        _keep_best(best, solve_at(problem, lattice, targets, solution, trials))
    tried: set[Counts] = set()
    while best:
        winner = min(best.values(), key=lambda one: one.value)
        trials = [c for c in near(problem, lattice, winner.layout, winner.point, REACH) if c not in tried]
        tried.update(trials)
        found = solve_at(problem, lattice, targets, solution, trials)
        if not any(one.value < winner.value for one in found):
            break
        _keep_best(best, found)
    if best:
        winner = min(best.values(), key=lambda one: one.value)
        if not winner.converged:
            shown = solve_at(problem, lattice, targets, solution, [winner.counts], OPTIONS.max_iterations)
            best |= {one.layout: one for one in shown if one.converged}
    return sorted(best.values(), key=lambda one: one.value)


def _keep_best(best: dict[int, Realized], found: list[Realized]) -> None:
    for one in found:
        if one.layout not in best or one.value < best[one.layout].value:
            best[one.layout] = one


def _layout(lattice: Lattice, lane: int) -> Lattice:
    return jax.tree.map(lambda leaf: float(leaf[lane]), lattice)


def near(problem: Problem, lattice: Lattice, lane: int, point: Float[np.ndarray, " n"], reach: int) -> list[Counts]:
    """Realizable counts around a point: chips in whole nodes, experts that divide, whole micro-batches."""
    layout, given = _layout(lattice, lane), problem.given
    group = round(layout.tensor * layout.pipeline * layout.context)
    node = round(float(given.system.node.chips))
    replica = layout.microbatch * float(given.system.workload.sequence)
    step = math.lcm(_quotient(node, group), _quotient(round(layout.expert), round(layout.context)))
    chips, batch = (_value(problem, path, point) for path in ("plan.chips", "plan.batch"))
    if problem.index("plan.chips") is None:
        data = [round(chips / group)] if abs(chips / group - round(chips / group)) < WHOLE else []
        data = [d for d in data if d >= 1 and d % _quotient(round(layout.expert), round(layout.context)) == 0]
    else:
        low, high = problem.bounds["plan.chips"]
        middle = math.floor(chips / (group * step) + WHOLE)
        data = [d * step for d in range(middle - reach + 1, middle + reach + 1)]
        if group * step > high:  # fewer chips than a node
            data = [d for d in range(1, math.floor(high / group) + 1) if (d * group) <= node]
        data = [d for d in data if d >= 1 and low * (1 - WHOLE) <= d * group <= high * (1 + WHOLE)]
    counts = []
    for d in data:
        exact = batch / (d * replica)
        if problem.index("plan.batch") is None:
            whole = [round(exact)] if abs(exact - round(exact)) < WHOLE * exact else []
        else:
            low, high = problem.bounds["plan.batch"]
            nearby = range(math.floor(exact) - reach + 1, math.floor(exact) + reach + 1)
            whole = [m for m in nearby if low * (1 - WHOLE) <= m * d * replica <= high * (1 + WHOLE)]
        counts += [Counts(lane, d, m) for m in whole if m >= 1]
    return counts


def _quotient(whole: int, part: int) -> int:
    return whole // math.gcd(whole, part)


def _value(problem: Problem, path: str, point: Float[np.ndarray, " n"]) -> float:
    place = problem.index(path)
    if place is not None:
        return float(np.exp(point[place]))
    plan = problem.given.plan
    return float(np.reshape(plan.batch if path == "plan.batch" else plan.chips, ()))


class _Placed(NamedTuple):
    """Trials as lanes: layouts, starts and bounds, with chips and batch where the counts put them."""

    layouts: Lattice
    start: Float[np.ndarray, "trials n"]
    least: Float[np.ndarray, "trials n"]
    most: Float[np.ndarray, "trials n"]


def _place(problem: Problem, lattice: Lattice, solution: Solution, trials: list[Counts]) -> _Placed:
    lanes = np.array([counts.layout for counts in trials])
    layouts = take(lattice, lanes)
    start = np.array(solution.x)[lanes]
    least, most = problem.boxes(len(trials))
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
            start[:, place] = least[:, place] = most[:, place] = np.log(values)
    return _Placed(layouts, start, least, most)


def outlook(
    problem: Problem, lattice: Lattice, targets: Target, solution: Solution, trials: list[Counts]
) -> Float[np.ndarray, " trials"]:
    """What the logarithm of the objective will be at given counts, to first order: the Lagrangian of the lane.

    The other variables stay where the relaxed optimum has them, where their slope is zero.
    """
    lanes = np.array([counts.layout for counts in trials])
    placed = _place(problem, lattice, solution, trials)
    given = problem.given
    values = evaluate_points(problem.form, placed.start[:, None], placed.layouts, take(targets, lanes), given)
    weights = solution.multipliers.inequalities[lanes]
    return values.objective[:, 0] + np.sum(weights * values.inequalities[:, 0], axis=1)


def solve_at(
    problem: Problem, lattice: Lattice, targets: Target, solution: Solution, trials: list[Counts],
    iterations: int = ITERATIONS,
) -> list[Realized]:  # fmt: skip
    """Solve for the other variables at given counts, each with the target of its lane; what breaks a limit is dropped.

    `Counts.layout` is the place of a lane in lattice, targets and solution.
    """
    if not trials:
        return []
    lanes = np.array([counts.layout for counts in trials])
    layouts, start, least, most = _place(problem, lattice, solution, trials)
    bounds, warm = (least, most), take(solution.multipliers, lanes)
    found = solve_lanes(problem, layouts, start, take(targets, lanes), bounds, warm, iterations)
    converged = np.asarray(found.result == RESULTS.successful)
    worst = np.min(found.slacks.inequalities, axis=-1)
    return [
        Realized(counts, found.x[i], float(found.value[i]), bool(converged[i]))
        for i, counts in enumerate(trials)
        if worst[i] >= -TOLERATED and np.isfinite(found.value[i])
    ]
