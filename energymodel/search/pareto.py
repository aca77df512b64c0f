"""Fronts of plans of which none improves in one respect without losing in another, and their exchange rates."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from energymodel.errors import InputError, suggest
from energymodel.scenarios.question import Limits, Ranges
from energymodel.scenarios.scenario import Scenario
from energymodel.search.front import (
    Front,
    FrontPoint,
    efficient,
    front_message,
    knee,
    levels_by_slope,
    relative_hypervolume,
    simplex,
)
from energymodel.search.front_layouts import FrontLayouts, TradeOff, merit_of, screened, search_trade_offs
from energymodel.search.layouts import concatenate, take
from energymodel.search.problem import Criteria, formulate
from energymodel.search.relaxation import fitting_layouts, obeys_limits
from energymodel.search.result import SearchResult
from energymodel.search.rounding import RelaxedLanes, RoundedPlan, plans_at, round_points
from energymodel.solver import RESULTS, PerConstraint, Solution, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import AT_LEAST, OF_THE_PLAN, OUTPUTS, is_output, output, unit_of

PER_LEVEL = 8  # layouts that a level of the coarse front takes from the screening
COARSE_LEVELS = 7
CLOSE = 0.01  # in the logarithm of the objective: layouts this close to the best of a coarse level stay in
KEPT = 3  # layouts for each level of the fine front
ROUNDED = 2  # of which this many are rounded
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
    _check(names, points)
    scenario = scenario.with_question(names[0], limits, vary, fix)
    with jax.enable_x64(True):
        front = _searched(scenario, names, points, tell)
    if throw:
        front.result.throw_unless_successful(front.message)
    return front


def _check(names: tuple[str, ...], points: int) -> None:
    for name in names:
        if not is_output(name) or name in OF_THE_PLAN:
            raise InputError(f'Unknown objective "{name}". {suggest(name, OUTPUTS)}')
        if name in AT_LEAST:
            raise InputError(f"{name}: more of it is better, so it is no objective to minimize. Limit it instead.")
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"pareto: {', '.join(names) or 'nothing'} is no trade. Give two or more different objectives.")
    if points < 2:
        raise InputError(f"pareto: {points} points are no front. Ask for 2 or more.")


def _searched(scenario: Scenario, names: tuple[str, ...], points: int, tell: Callable[[str], None]) -> Front:
    tell("evaluating the scenario's own plan")
    baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
    problem = formulate(scenario, baseline, free=names)
    lattice, considered = fitting_layouts(problem)
    tell(f"screening {considered:,} layouts")
    search = screened(problem, lattice, considered, names)
    tell(f"finding the ends of {' and '.join([', '.join(names[:-1]), names[-1]])}")
    search, ends = _ends(search, names)
    search, lanes = (_between_levels if len(names) == 2 else _on_plane)(search, ends, names, points, tell)
    return _front(scenario, search, names, baseline, _solved(search, ends, lanes, names, tell))


class _End(NamedTuple):
    """An end of a front: logarithms of the objectives there; layouts, optima and criteria of its best lanes."""

    logarithms: dict[str, float]
    layouts: np.ndarray
    solution: Solution
    criteria: Criteria


class _FrontLanes(NamedTuple):
    """Lanes inside a front: where they begin, and the point of each.

    - `warm`: multipliers to begin with, of lanes at levels nearby.
    - `levels`: logarithms of all objectives but the first, at each point.
    - `coordinates`: of each point, in which neighbors are close, and of the ends, last of the first objective.
    - `unpriced`: points where a level has no price, because it is at its lowest.
    """

    layouts: Int[np.ndarray, " lanes"]
    start: Float[np.ndarray, "lanes n"]
    owner: Int[np.ndarray, " lanes"]
    warm: PerConstraint | None
    levels: Float[np.ndarray, "points objectives"]
    coordinates: Float[np.ndarray, "points_and_ends k"]
    unpriced: np.ndarray


def _ends(search: FrontLayouts, names: tuple[str, ...]) -> tuple[FrontLayouts, list[_End]]:
    """Where each of the objectives is lowest, that of the first last, and the search with the layouts of the ends."""
    # A touch of the others picks, of equally good plans, one that is not worse in them.
    trades = [TradeOff(dict.fromkeys(names, AUGMENTATION) | {name: 1.0}) for name in names]
    search, optima = search_trade_offs(search, trades, 2 * PER_LEVEL)
    rows, limits = search.problem.formulation.rows, search.problem.criteria.limits
    ends = []
    for index, (trade, values) in enumerate(zip(trades, optima.value, strict=True)):
        order = np.argsort(values, kind="stable")[:ROUNDED]
        if not np.isfinite(values[order[0]]):
            hint = "`energymodel optimize` with the same limits names them."
            raise InputError(f"pareto: no plan obeys the limits. {hint}")
        solution = optima.lanes(index, order)
        reached = -solution.slacks.inequalities[0]
        logarithms = {name: float(reached[rows.index(name)] + np.log(limits[name])) for name in names}
        ends.append(_End(logarithms, optima.layouts[order], solution, search.criteria([trade] * len(order))))
    return search, ends[::-1]


def _between_levels(
    search: FrontLayouts, ends: list[_End], names: tuple[str, ...], points: int, tell: Callable[[str], None]
) -> tuple[FrontLayouts, _FrontLanes]:
    """Lanes at levels of the second objective, from optima at a few levels of it."""
    first, second = names
    quick, cheap = ends
    row = search.problem.formulation.rows.index(second)
    levels = np.linspace(
        quick.logarithms[second], max(cheap.logarithms[second], quick.logarithms[second] + 1e-6), COARSE_LEVELS
    )
    tell(f"searching {COARSE_LEVELS} levels of {second}")
    trades = [TradeOff({first: 1.0}, {second: level}) for level in levels]
    search, optima = search_trade_offs(search, trades, PER_LEVEL, [*cheap.layouts, *quick.layouts])
    coarse, value = optima.solution, optima.value
    lowest = np.min(value, axis=1, keepdims=True)
    excess = np.subtract(value, lowest, out=np.full_like(value, np.inf), where=np.isfinite(lowest))

    prices = coarse.multipliers.inequalities[np.arange(COARSE_LEVELS), np.argmin(value, axis=1), row]
    feasible = np.flatnonzero(np.isfinite(lowest[1:-1, 0])) + 1
    values = np.array([quick.logarithms[first], *lowest[feasible, 0], cheap.logarithms[first]])
    slopes = np.array([np.nan, *prices[feasible], np.nan])
    fine = levels_by_slope(values, levels[[0, *feasible, -1]], slopes, points)
    lanes = []
    for owner, level in enumerate(fine):
        below = min(int(np.searchsorted(levels, level, side="right")) - 1, COARSE_LEVELS - 2)
        share = (level - levels[below]) / (levels[1] - levels[0])
        smaller = np.minimum(*excess[[below, below + 1]])
        for layout in np.argsort(smaller, kind="stable")[:KEPT]:
            if smaller[layout] <= CLOSE:
                sides = [side for side in (below, below + 1) if np.isfinite(value[side, layout])]
                weight = share if len(sides) == 2 else 0.0
                start = (1.0 - weight) * coarse.x[sides[0], layout] + weight * coarse.x[sides[-1], layout]
                lanes.append((layout, start, owner, sides[round(weight)]))
    tell(f"searching {points} levels of {second}")
    columns = zip(*lanes, strict=True) if lanes else ([], np.zeros((0, coarse.x.shape[-1])), [], [])
    layouts, start, owner, nearest = (np.array(list(column)) for column in columns)
    layouts, owner, nearest = (column.astype(int) for column in (layouts, owner, nearest))
    unpriced = np.arange(points) == 0
    coordinates = np.array([*range(points), 0, points - 1], float)[:, None]
    warm = optima.lanes(nearest, layouts).multipliers
    return search, _FrontLanes(optima.layouts[layouts], start, owner, warm, fine[:, None], coordinates, unpriced)


def _on_plane(
    search: FrontLayouts, ends: list[_End], names: tuple[str, ...], points: int, tell: Callable[[str], None]
) -> tuple[FrontLayouts, _FrontLanes]:
    """Lanes at levels of all objectives but the first, on the plane through the ends of the front."""
    weights = simplex(points, len(names))
    levels = weights @ np.array([[end.logarithms[name] for name in names[1:]] for end in ends])
    tell(f"searching {len(weights)} levels of {' and '.join(names[1:])}")
    layouts, starts = [], []
    for level in levels:
        trade = TradeOff({names[0]: 1.0}, dict(zip(names[1:], level, strict=True)))
        chosen, best = search.promising(merit_of(search.problem, trade, search.values), KEPT)
        layouts.append(chosen)
        starts.append(search.grid[chosen, best])
    owner = np.repeat(np.arange(len(weights)), [len(chosen) for chosen in layouts])
    coordinates, unpriced = np.concatenate([weights, np.eye(len(names))]), np.max(weights[:, :-1], axis=1) == 1.0
    start = np.concatenate(starts)
    return search, _FrontLanes(np.concatenate(layouts), start, owner, None, levels, coordinates, unpriced)


class _FrontPlans(NamedTuple):
    """Realizable plans, their lanes, and by lane what 1 % more of each further objective saves of the first [%]."""

    rounded: list[RoundedPlan]
    lanes: RelaxedLanes
    exchange: Float[np.ndarray, "lanes objectives"]


def _solved(
    search: FrontLayouts, ends: list[_End], lanes: _FrontLanes, names: tuple[str, ...], tell: Callable[[str], None]
) -> _FrontPlans:
    """Optima at the levels and at the ends, rounded, with the prices of the levels."""
    points = len(lanes.levels)
    trades = [TradeOff({names[0]: 1.0}, dict(zip(names[1:], level, strict=True))) for level in lanes.levels]
    # Rounding leaves the ends of the levels, so the ends themselves are rounded as well.
    criteria = concatenate(search.criteria([trades[point] for point in lanes.owner]), *(end.criteria for end in ends))
    layouts = np.concatenate([lanes.layouts, *(end.layouts for end in ends)])
    start = np.concatenate([lanes.start, *(end.solution.x for end in ends)])
    own = [np.full(len(end.layouts), points + index) for index, end in enumerate(ends)]
    owner = np.concatenate([lanes.owner, *own])
    warm = lanes.warm and concatenate(lanes.warm, *(end.solution.multipliers for end in ends))
    solution = search.solve(layouts, start, criteria, warm)
    relaxed = RelaxedLanes(search.layouts(layouts), criteria, solution)
    feasible = obeys_limits(solution)

    tell("rounding to whole replicas and micro-batches")
    merit, chosen = np.where(feasible, solution.value, np.inf), []
    for point in np.unique(owner):
        candidates = np.flatnonzero((owner == point) & np.isfinite(merit))
        chosen += map(int, candidates[np.argsort(merit[candidates], kind="stable")][:ROUNDED])
    rounded = round_points(search.problem, relaxed, owner, chosen)

    # A level that does not bind, the lowest there is, and a lane that stalled have no multiplier that is a price:
    # these take the price of the nearest level that has one.
    rows = [search.problem.formulation.rows.index(name) for name in names[1:]]
    prices = np.array(solution.multipliers.inequalities[:, rows])
    holds = feasible & result_is(solution.result, RESULTS.successful)
    holds &= ~np.append(lanes.unpriced, np.ones(len(ends), bool))[owner]
    for column in prices.T:
        priced = np.flatnonzero(holds & (column > NO_PRICE))
        for lane in np.setdiff1d(np.arange(len(owner)), priced):
            distance = np.linalg.norm(lanes.coordinates[owner[priced]] - lanes.coordinates[owner[lane]], axis=1)
            nearest = np.lexsort((solution.value[priced], distance))[:1]
            column[lane] = column[priced[nearest[0]]] if nearest.size else np.nan
    return _FrontPlans(rounded, relaxed, prices)


def _front(
    scenario: Scenario, search: FrontLayouts, names: tuple[str, ...], baseline: TrainingOutcome, plans: _FrontPlans
) -> Front:
    rounded = plans.rounded
    if not rounded:
        raise InputError("pareto: no realizable plan obeys the limits. Relax a limit, or free plan.batch.")
    layouts, criteria = take((plans.lanes.lattice, plans.lanes.criteria), np.array([plan.lane for plan in rounded]))
    at, counts = np.stack([plan.point for plan in rounded]), [plan.counts for plan in rounded]
    points = [
        FrontPoint(
            {name: float(output(outcome, name)) for name in names},
            dict(zip(names[1:], map(float, plans.exchange[plan.lane]), strict=True)),
            exact,
            outcome,
        )
        for plan, (exact, outcome) in zip(
            rounded, plans_at(scenario, search.problem, at, layouts, criteria, counts), strict=True
        )
    ]
    table = np.array([[point.values[name] for name in names] for point in points])
    order = np.flatnonzero(efficient(np.round(np.log(table), SAME)))
    order = order[np.argsort(table[order, 1], kind="stable")]
    table = table[order]
    converged = all(plan.converged for plan in rounded)
    return Front(
        scenario=scenario,
        minimize=names,
        units={name: unit_of(name) for name in names},
        points=tuple(points[index] for index in order),
        baseline={name: float(output(baseline, name)) for name in names},
        hypervolume=relative_hypervolume(table),
        knee=knee(table),
        layouts_considered=search.considered,
        layouts_searched=len(np.unique(np.stack(jax.tree.leaves(layouts), axis=1), axis=0)),
        result=SearchResult.successful if converged else SearchResult.not_converged,
        message=front_message(scenario, points, converged=converged),
    )
