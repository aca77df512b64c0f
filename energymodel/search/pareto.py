"""Fronts of plans of which none improves in one respect without losing in another, and their exchange rates.

Each point of a front is the best plan at levels of all objectives but the first. Layouts are searched at the ends of
the front and at a few nodes between; points take those that are close to the best at the nodes around them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError, suggest
from energymodel.scenarios.question import Limits, Ranges
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layout_search import screen_switched, search_layouts
from energymodel.search.layouts import fitting_layouts, take
from energymodel.search.problem import DesignProblem, formulate
from energymodel.search.relaxation import LayoutSearch, Screening, solve_relaxed
from energymodel.search.result import (
    Front,
    FrontPoint,
    SearchResult,
    efficient,
    front_message,
    knee,
    levels_by_slope,
    simplex,
)
from energymodel.search.rounding import OPTIMAL, realized, round_lanes
from energymodel.solver import Values
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import Lattice
from energymodel.system.outputs import AT_LEAST, OF_THE_PLAN, OUTPUTS, is_output, output, unit_of

NODES = 7  # of the front, at which all layouts are searched
CLOSE = 0.01  # in the logarithm of the objective: layouts this close to the best of a node stay in
PER_POINT = 3  # layouts that are searched at each point
ROUNDED = 2  # of which this many are rounded
ITERATIONS = 24  # of a lane: what takes longer has no plan at its level, or is no better than its neighbors
SAME = 6  # decimals of the logarithms of objectives to which two plans are one
NO_PRICE = 1e-6  # of a level, in percent for a percent: it does not bind
AUGMENTATION = 1e-3  # weight of the other objectives at an end: excludes weakly efficient points


def pareto(
    scenario: Scenario,
    minimize: Sequence[str] = ("energy", "time"),
    points: int = 64,
    limits: Limits | None = None,
    vary: Ranges | None = None,
    fix: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    *,
    throw: bool = False,
) -> Front:
    """Find realizable plans that trade outputs of a scenario against each other.

    The first objective is minimized at levels of the others [epsilon-constraint: Haimes et al. 1971]; the multiplier
    of a level is the exchange rate. Of two objectives, the levels of the second lie between its minimum and its value
    where the first is lowest, close where the front is steep; of three and more they are spread evenly over the plane
    through the ends of the front [Das & Dennis 1998]. Each point keeps its best layout and is rounded to whole replicas
    and micro-batches.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `minimize`: two or more outputs of which less is better, such as energy, time, money, carbon, loss.
    - `points`: points of the front before dominated ones are dropped.
    - `limits`, `vary`, `fix`, `progress`, `throw`: as in `optimize`; objectives have no limit unless it is given.

    **Returns:** `Front`.

    **Raises:** `InputError` for unknown or repeated objectives, and what `optimize` raises.
    """
    tell = progress or (lambda sentence: None)
    names = tuple(minimize)
    for name in names:
        if not is_output(name) or name in OF_THE_PLAN:
            raise InputError(f'Unknown objective "{name}". {suggest(name, OUTPUTS)}')
        if name in AT_LEAST:
            raise InputError(f"{name}: more of it is better, so it is no objective to minimize. Limit it instead.")
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"pareto: {', '.join(names) or 'nothing'} is no trade. Give two or more different objectives.")
    if points < 2:
        raise InputError(f"pareto: {points} points are no front. Ask for 2 or more.")
    scenario = scenario.with_question(names[0], limits, vary, fix)
    with jax.enable_x64(True):
        front = _searched(scenario, names, points, tell)
    if throw:
        front.result.throw_unless_successful(front.message)
    return front


class _Node(NamedTuple):
    """A point of the front at which all layouts were searched: its weights of the ends, and its best lanes first."""

    weights: np.ndarray
    problem: DesignProblem
    searched: LayoutSearch
    order: np.ndarray


def _searched(scenario: Scenario, names: tuple[str, ...], count: int, tell: Callable[[str], None]) -> Front:
    tell("evaluating the scenario's own plan")
    baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
    problem = formulate(scenario, baseline, free=names)
    lattice, considered = fitting_layouts(problem)
    tell(f"screening {considered:,} layouts")
    lattice, coarse = screen_switched(problem, lattice)

    def node(weights: np.ndarray, asked: DesignProblem) -> _Node:
        searched = search_layouts(asked, lattice, coarse=_screened_again(problem, coarse, asked))
        order = np.argsort(searched.values, kind="stable")
        return _Node(weights, asked, searched, order[: int(np.sum(searched.usable))])

    tell(f"finding the ends of {' and '.join([', '.join(names[:-1]), names[-1]])}")
    # A touch of the others picks, of equally good plans, one that is not worse in them.
    ends = [
        node(corner, problem.asking(dict.fromkeys(names, AUGMENTATION) | {name: 1.0}))
        for name, corner in zip(names, np.eye(len(names)), strict=True)
    ]
    if any(not len(end.order) for end in ends):
        raise InputError("pareto: no plan obeys the limits. `energymodel optimize` with the same limits names them.")
    columns = [problem.formulation.rows.index(name) for name in names]
    logarithms = np.array(
        [
            np.log([end.problem.criteria.limits[name] for name in names])
            - end.searched.solution.slacks.inequalities[end.order[0]][columns]
            for end in ends
        ]
    )
    first, *others = names

    def at_level(weights: np.ndarray) -> DesignProblem:
        return problem.asking({first: 1.0}, dict(zip(others, np.exp(weights @ logarithms[:, 1:]), strict=True)))

    inner = [weights for weights in simplex(NODES, len(names)) if np.max(weights) < 1.0]
    tell(f"searching {len(inner)} levels of {' and '.join(others)}")
    between = [node(weights, at_level(weights)) for weights in inner]
    nodes = [*ends, *(each for each in between if len(each.order))]
    levels = simplex(count, len(names)) if len(names) > 2 else _by_slope(nodes, logarithms, others[0], count)
    tell(f"searching {len(levels)} levels of {' and '.join(others)}")
    lanes, owner = _lanes(nodes, lattice, levels, [at_level(weights) for weights in levels])
    tell("rounding to whole replicas and micro-batches")
    merit, chosen = lanes.values, []
    for level in np.unique(owner):
        candidates = np.flatnonzero((owner == level) & np.isfinite(merit))
        chosen.extend(candidates[np.argsort(merit[candidates], kind="stable")][:ROUNDED])
    rounded = [plan for _, plan in sorted(round_lanes(lanes, owner, np.array(chosen, int)).items())]
    if not rounded:
        raise InputError("pareto: no realizable plan obeys the limits. Relax a limit, or free plan.batch.")
    index, plans = np.array([plan.lane for plan in rounded]), [realized(lanes, plan) for plan in rounded]
    table = np.array([[float(output(outcome, name)) for name in names] for _, outcome in plans])
    order = np.flatnonzero(efficient(np.round(np.log(table), SAME)))
    order = order[np.argsort(table[order, 1], kind="stable")]
    exchange = _exchange(lanes, owner, names, count)[index]
    points = [
        FrontPoint(
            dict(zip(names, table[i].tolist(), strict=True)),
            dict(zip(others, exchange[i].tolist(), strict=True)),
            *plans[i],
        )
        for i in order
    ]
    # A plan whose own search reached the iteration limit is as good as its lane's bound, if it is as close to it.
    converged = all(plan.converged or plan.value <= lanes.solution.value[plan.lane] + OPTIMAL for plan in rounded)
    return Front(
        scenario=scenario,
        minimize=names,
        units={name: unit_of(name) for name in names},
        points=tuple(points),
        baseline={name: float(output(baseline, name)) for name in names},
        knee=knee(table[order]),
        layouts_considered=considered,
        layouts_searched=len(np.unique(np.stack(jax.tree.leaves(take(lattice, lanes.indices[index])), axis=1), axis=0)),
        result=SearchResult.successful if converged else SearchResult.not_converged,
        message=front_message(scenario, points, converged=converged),
    )


def _screened_again(problem: DesignProblem, coarse: Screening, asked: DesignProblem) -> Screening:
    """A screening by other powers of the objectives and other limits on them, from the values of the first."""
    rows, objective = np.array(coarse.values.inequalities), np.zeros_like(coarse.values.objective)
    for column, name in enumerate(problem.formulation.rows):
        limit = float(np.log(problem.criteria.limits[name]))
        objective += float(asked.criteria.powers.get(name, 0.0)) * (rows[..., column] + limit)
        change = limit - float(np.log(asked.criteria.limits[name]))
        rows[..., column] += -change if name in AT_LEAST else change
    return Screening(coarse.points, Values(objective, rows))


def _by_slope(nodes: list[_Node], logarithms: np.ndarray, second: str, points: int) -> np.ndarray:
    """Weights of the ends at levels of the second objective that lie close where the front is steep."""
    (cheapest, quickest, *between), row = nodes, nodes[0].problem.formulation.rows.index(second)
    between = sorted(between, key=lambda node: -node.weights[1])
    best = [(node.searched.solution, node.order[0]) for node in between]
    low, high = logarithms[1, 1], max(logarithms[0, 1], logarithms[1, 1] + 1e-6)
    values = [logarithms[1, 0], *(float(solution.value[lane]) for solution, lane in best), logarithms[0, 0]]
    slopes = [float(solution.multipliers.inequalities[lane, row]) for solution, lane in best]
    shares = [quickest.weights[0], *(node.weights[0] for node in between), cheapest.weights[0]]
    at = low + np.array(shares) * (high - low)
    share = (levels_by_slope(np.array(values), at, np.array([np.nan, *slopes, np.nan]), points) - low) / (high - low)
    return np.stack([share, 1.0 - share], axis=1)


def _lanes(
    nodes: list[_Node], lattice: Lattice, levels: np.ndarray, problems: list[DesignProblem]
) -> tuple[LayoutSearch, np.ndarray]:
    """Relaxed optima at all levels and at the ends, and the point that each lane belongs to, the ends last.

    A level is searched in the layouts that are close to the best at one of the two nodes next to it, from between
    their optima there. Rounding leaves the ends of the levels, so the ends themselves are lanes as well.
    """
    lanes: list[tuple] = []
    for owner, (weights, problem) in enumerate(zip(levels, problems, strict=True)):
        distances = [float(np.linalg.norm(node.weights - weights)) for node in nodes]
        first, second = (int(index) for index in np.argsort(distances, kind="stable")[:2])
        share = distances[first] / (distances[first] + distances[second])
        excess: dict[int, float] = {}
        for node in (nodes[first], nodes[second]):
            values = node.searched.solution.value
            for lane in node.order:
                layout = int(node.searched.indices[lane])
                excess[layout] = min(excess.get(layout, np.inf), float(values[lane] - values[node.order[0]]))
        close = [layout for layout, more in excess.items() if more <= CLOSE]
        for layout in sorted(close, key=lambda layout: excess[layout])[:PER_POINT]:
            sides = [
                (node, node.searched.solution, int(lane))
                for node in (nodes[first], nodes[second])
                for lane in node.order[node.searched.indices[node.order] == layout][:1]
            ]
            (_, near, lane), (_, far, other) = (sides * 2)[:2]
            start = (1.0 - share) * near.x[lane] + share * far.x[other]
            # Multipliers at the end of another objective are prices in that one.
            prices = [take(side.multipliers, np.array(i)) for node, side, i in sides if node.weights[1:].max() < 1.0]
            warm = prices[0] if prices else jax.tree.map(np.zeros_like, take(near.multipliers, np.array(lane)))
            lanes.append((layout, start, problem.criteria, owner, warm))
    for index, end in enumerate(nodes[: len(nodes[0].weights)]):
        for lane in end.order[:ROUNDED]:
            multipliers = take(end.searched.solution.multipliers, np.array(lane))
            layout, start = int(end.searched.indices[lane]), end.searched.solution.x[lane]
            lanes.append((layout, start, end.problem.criteria, len(levels) + index, multipliers))
    layouts, start, criteria, owner, warm = zip(*lanes, strict=True)
    criteria, warm = (jax.tree.map(lambda *leaves: np.stack(leaves), *trees) for trees in (criteria, warm))
    part, start = take(lattice, np.array(layouts)), np.stack(start)
    solution = solve_relaxed(problems[0], part, start, criteria, warm=warm, iterations=ITERATIONS)
    return LayoutSearch(problems[0], part, solution, criteria, np.array(layouts)), np.array(owner)


def _exchange(
    lanes: LayoutSearch, owner: np.ndarray, names: tuple[str, ...], points: int
) -> Float[np.ndarray, "lanes objectives"]:
    """By lane what 1 % more of each further objective saves of the first [%].

    A level that does not bind, the lowest there is, and a lane that stalled have no multiplier that is a price: these
    take the price of the nearest level that has one.
    """
    columns = [lanes.problem.formulation.rows.index(name) for name in names[1:]]
    prices = lanes.solution.multipliers.inequalities[:, columns]
    weights = np.concatenate([simplex(points, len(names)), np.eye(len(names))])[owner]
    holds = lanes.usable & lanes.solved & (np.max(weights[:, 1:], axis=1) < 1.0)
    for column in prices.T:
        priced = np.flatnonzero(holds & (column > NO_PRICE))
        for lane in np.setdiff1d(np.arange(len(owner)), priced):
            distance = np.linalg.norm(weights[priced] - weights[lane], axis=1)
            nearest = np.lexsort((lanes.solution.value[priced], distance))[:1]
            column[lane] = column[priced[nearest[0]]] if nearest.size else np.nan
    return prices
