"""Which plans cannot be improved in one respect without giving up another, and what is the exchange rate?"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

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
from energymodel.search.front_layouts import FrontLayouts, TradeOff, logarithm, screened, search_trade_offs
from energymodel.search.layouts import concatenate, take
from energymodel.search.problem import Criteria, DesignProblem, Formulation, formulate
from energymodel.search.relaxation import OPTIONS, fitting_layouts, layout_bounds, obeys_limits, penalized
from energymodel.search.result import SearchResult
from energymodel.search.rounding import RelaxedLanes, RoundedPlan, plans_at, round_points
from energymodel.search.training_run import TrainingRun
from energymodel.solver import RESULTS, Solution, Values, minimize_many, result_is
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import AT_LEAST, OF_THE_PLAN, OUTPUTS, is_output, log_objective, output, unit_of
from energymodel.system.plan import ParallelLayout

PER_LEVEL = 8  # layouts that a level of the coarse front takes from the screening
COARSE_LEVELS = 7
CLOSE = 0.01  # in the logarithm of the objective: layouts this close to the best of a coarse level stay in
KEPT = 3  # layouts for each level of the fine front
ROUNDED = 2  # of which this many are rounded
SAME = 6  # decimals of the logarithms of objectives to which two plans are one
NO_PRICE = 1e-6  # of a level, in percent for a percent: it does not bind
AUGMENTATION = 1e-3  # of the Chebyshev norm: excludes weakly efficient points [Steuer & Choo 1983]


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

    Two objectives: the first is minimized at levels of the second between its minimum and its value where the first
    is lowest [epsilon-constraint: Haimes et al. 1971]; the multiplier of the level is the exchange rate. Three and
    more: the augmented Chebyshev distance from the ideal point is minimized for evenly spread weights [Steuer & Choo
    1983]. Each point keeps its best layout and is rounded to whole replicas and micro-batches.

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
        tell("evaluating the scenario's own plan")
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        search = _screened(formulate(scenario, baseline, free=names), names, tell)
        plans = (_by_levels if len(names) == 2 else _by_weights)(search, names, points, tell)
        front = _front(scenario, search, names, baseline, plans)
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


def _screened(problem: DesignProblem, names: tuple[str, ...], tell: Callable[[str], None]) -> FrontLayouts:
    lattice, considered = fitting_layouts(problem)
    tell(f"screening {considered:,} layouts")
    return screened(problem, lattice, considered, names)


class _End(NamedTuple):
    """An end of a front: logarithms of the objectives there; layouts, optima and criteria of its best lanes."""

    logarithms: dict[str, float]
    layouts: np.ndarray
    solution: Solution
    criteria: Criteria


def _ends(search: FrontLayouts, names: tuple[str, ...]) -> tuple[FrontLayouts, list[_End]]:
    """Where each of the objectives is lowest, and the search with the layouts that this took."""
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
    return search, ends


class _FrontPlans(NamedTuple):
    """Realizable plans, their lanes, and by lane what 1 % more of each further objective saves of the first [%]."""

    rounded: list[RoundedPlan]
    lanes: RelaxedLanes
    exchange: Callable[[int], dict[str, float]]


def _by_levels(search: FrontLayouts, names: tuple[str, ...], points: int, tell: Callable[[str], None]) -> _FrontPlans:
    """Points of a front of two objectives, at levels of the second."""
    first, second = names
    tell(f"finding the ends of {first} and {second}")
    search, (cheap, quick) = _ends(search, names)
    problem, row = search.problem, search.problem.formulation.rows.index(second)
    levels = np.linspace(
        quick.logarithms[second], max(cheap.logarithms[second], quick.logarithms[second] + 1e-6), COARSE_LEVELS
    )
    tell(f"searching {COARSE_LEVELS} levels of {second}")
    trades = [TradeOff({first: 1.0}, {second: level}) for level in levels]
    search, optima = search_trade_offs(search, trades, PER_LEVEL, [*cheap.layouts, *quick.layouts])
    layouts, coarse, value = optima.layouts, optima.solution, optima.value
    lowest = np.min(value, axis=1, keepdims=True)
    excess = np.subtract(value, lowest, out=np.full_like(value, np.inf), where=np.isfinite(lowest))

    prices = coarse.multipliers.inequalities[np.arange(COARSE_LEVELS), np.argmin(value, axis=1), row]
    known = np.flatnonzero(np.isfinite(lowest[1:-1, 0])) + 1
    values = np.array([quick.logarithms[first], *lowest[known, 0], cheap.logarithms[first]])
    fine = levels_by_slope(values, levels[[0, *known, -1]], np.array([np.nan, *prices[known], np.nan]), points)
    chosen, begin, nearest, level_of = [], [], [], []
    for index, level in enumerate(fine):
        below = min(int(np.searchsorted(levels, level, side="right")) - 1, COARSE_LEVELS - 2)
        share = (level - levels[below]) / (levels[1] - levels[0])
        smaller = np.minimum(*excess[[below, below + 1]])
        for place in np.argsort(smaller, kind="stable")[:KEPT]:
            if smaller[place] <= CLOSE:
                sides = [side for side in (below, below + 1) if np.isfinite(value[side, place])]
                weight = share if len(sides) == 2 else 0.0
                chosen.append(place)
                begin.append((1.0 - weight) * coarse.x[sides[0], place] + weight * coarse.x[sides[-1], place])
                nearest.append(sides[round(weight)])
                level_of.append(index)
    tell(f"searching {points} levels of {second}")
    chosen, owner = np.array(chosen, int), np.array(level_of, int)
    at_levels = search.criteria([TradeOff({first: 1.0}, {second: level}) for level in fine[owner]])
    # Rounding leaves the ends of the levels, so the ends themselves are rounded as well.
    criteria = concatenate(at_levels, quick.criteria, cheap.criteria)
    layouts = np.concatenate([layouts[chosen], quick.layouts, cheap.layouts])
    begin = np.concatenate([np.array(begin).reshape(-1, coarse.x.shape[-1]), quick.solution.x, cheap.solution.x])
    owner = np.concatenate([owner, np.full(len(quick.layouts), points), np.full(len(cheap.layouts), points + 1)])
    multipliers = optima.lanes(np.array(nearest, int), chosen).multipliers
    warm = concatenate(multipliers, quick.solution.multipliers, cheap.solution.multipliers)
    solution = search.solve(layouts, begin, criteria, warm)
    lanes = RelaxedLanes(search.layouts(layouts), criteria, solution)
    rounded = _round(problem, lanes, owner, np.asarray(solution.value), tell)
    prices = np.array(solution.multipliers.inequalities[:, row])
    # A level that does not bind, the lowest there is, and a lane that stands still have no multiplier that is a price:
    # these take the price of the nearest level that has one.
    place = np.select([owner == points, owner == points + 1], [0, points - 1], owner)
    holds = obeys_limits(solution) & result_is(solution.result, RESULTS.successful)
    holds &= (owner > 0) & (owner < points) & (prices > NO_PRICE)
    priced = np.flatnonzero(holds)
    for lane in np.flatnonzero(~holds):
        nearest = np.lexsort((solution.value[priced], np.abs(place[priced] - place[lane])))[:1]
        prices[lane] = prices[priced[nearest[0]]] if nearest.size else np.nan
    return _FrontPlans(rounded, lanes, lambda lane: {second: float(prices[lane])})


@dataclasses.dataclass(frozen=True)
class Chebyshev:
    """The augmented Chebyshev distance from an ideal point as a problem: `min t + r sum w (ln f - ln f*)`.

    The last coordinate is t, which no weighted distance may exceed [Steuer & Choo 1983].
    """

    formulation: Formulation
    names: tuple[str, ...]

    def __call__(
        self, point: Array, layout: ParallelLayout, weights: Array, ideal: Array, criteria: Criteria, given: TrainingRun
    ) -> Values:
        """Objective and rows: those of the formulation, then a distance for each objective."""
        point, radius = jnp.asarray(point)[:-1], jnp.asarray(point)[-1]
        rows = self.formulation(point, layout, criteria, given).inequalities
        outcome = evaluate(*self.formulation.at(point, layout, criteria, given))
        logarithms = jnp.stack([log_objective(outcome, {name: 1.0}) for name in self.names])
        distances = weights * (logarithms - ideal)
        return Values(radius + AUGMENTATION * jnp.sum(distances), jnp.concatenate([rows, distances - radius]))


def _by_weights(search: FrontLayouts, names: tuple[str, ...], points: int, tell: Callable[[str], None]) -> _FrontPlans:
    """Points of a front of three and more objectives, at weights spread over the simplex."""
    tell(f"finding the ends of {', '.join(names)}")
    problem = search.problem
    search, ends = _ends(search, names)
    ideal = np.array([end.logarithms[name] for end, name in zip(ends, names, strict=True)])
    worst = np.array([max(end.logarithms[name] for end in ends) for name in names])
    spread = np.maximum(worst - ideal, 1e-6)
    weights = 1.0 / (np.maximum(simplex(points, len(names)), 1e-2) * spread)
    weights /= weights.max(axis=1, keepdims=True)
    logarithms = np.stack([logarithm(problem, name, search.values) for name in names])
    chosen, begin, owner = [], [], []
    for index, weight in enumerate(weights):
        merit = np.max(weight[:, None, None] * (logarithms - ideal[:, None, None]), axis=0)
        layouts, best = search.promising(penalized(merit, search.values), KEPT)
        radius = merit[layouts, best]
        chosen += list(layouts)
        begin += [np.append(search.grid[i, k], r) for i, k, r in zip(layouts, best, radius, strict=True)]
        owner += [index] * len(layouts)
    tell(f"searching {len(weights)} weights")
    chosen = np.array(chosen)
    lattice = search.layouts(chosen)
    lower, upper = layout_bounds(problem, lattice)
    count, owner = len(chosen), np.array(owner)
    far = np.full((count, 1), 1e3)
    raw = minimize_many(
        Chebyshev(problem.formulation, names),
        np.array(begin),
        (lattice, weights[owner], np.tile(ideal, (count, 1)), search.criteria([TradeOff({names[0]: 1.0})] * count)),
        shared=(problem.given,),
        bounds=(np.hstack([lower, -far]), np.hstack([upper, far])),
        options=OPTIONS,
    )
    prices = raw.multipliers.inequalities[:, -len(names) :] * weights[owner]
    # Rounding minimizes the first objective while the others stay where the search left them.
    rows, rows_of = -raw.slacks.inequalities, problem.formulation.rows.index
    reached = {name: rows[:, rows_of(name)] + np.log(problem.criteria.limits[name]) for name in names[1:]}
    levels = [{name: float(at[lane]) + 1e-4 for name, at in reached.items()} for lane in range(count)]
    criteria = search.criteria([TradeOff({names[0]: 1.0}, level) for level in levels])
    merit = np.where(obeys_limits(raw), raw.value, np.inf)
    solution = search.solve(chosen, raw.x[:, :-1], criteria)
    lanes = RelaxedLanes(lattice, criteria, solution)
    rounded = _round(problem, lanes, owner, merit, tell)

    def exchange(lane: int) -> dict[str, float]:
        own = prices[lane, 0]
        return {name: float(prices[lane, k] / own) for k, name in enumerate(names) if k and own > 0.0}

    return _FrontPlans(rounded, lanes, exchange)


def _round(
    problem: DesignProblem, lanes: RelaxedLanes, owner: np.ndarray, merit: np.ndarray, tell: Callable[[str], None]
) -> list[RoundedPlan]:
    """Best realizable plan of each point of the front, from its lanes of best merit."""
    tell("rounding to whole replicas and micro-batches")
    merit = np.where(obeys_limits(lanes.solution), merit, np.inf)
    chosen: list[int] = []
    for point in np.unique(owner):
        own = np.flatnonzero((owner == point) & np.isfinite(merit))
        chosen += map(int, own[np.argsort(merit[own], kind="stable")][:ROUNDED])
    return round_points(problem, lanes, owner, chosen)


def _front(
    scenario: Scenario, search: FrontLayouts, names: tuple[str, ...], baseline: TrainingOutcome, plans: _FrontPlans
) -> Front:
    if not plans.rounded:
        raise InputError("pareto: no realizable plan obeys the limits. Relax a limit, or free plan.batch.")
    layouts, criteria = take((plans.lanes.lattice, plans.lanes.criteria), np.array([one.lane for one in plans.rounded]))
    at, counts = np.stack([one.point for one in plans.rounded]), [one.counts for one in plans.rounded]
    evaluated = plans_at(scenario, search.problem, at, layouts, criteria, counts)
    points = [
        FrontPoint({name: float(output(outcome, name)) for name in names}, plans.exchange(one.lane), plan, outcome)
        for one, (plan, outcome) in zip(plans.rounded, evaluated, strict=True)
    ]
    table = np.array([[point.values[name] for name in names] for point in points])
    kept = np.flatnonzero(efficient(np.round(np.log(table), SAME)))
    kept = kept[np.argsort(table[kept, 1], kind="stable")]
    table = table[kept]
    converged = all(plan.converged for plan in plans.rounded)
    return Front(
        scenario=scenario,
        minimize=names,
        units={name: unit_of(name) for name in names},
        points=tuple(points[place] for place in kept),
        baseline={name: float(output(baseline, name)) for name in names},
        hypervolume=relative_hypervolume(table),
        knee=knee(table),
        layouts_considered=search.considered,
        layouts_searched=len(np.unique(np.stack(jax.tree.leaves(layouts), axis=1), axis=0)),
        result=SearchResult.successful if converged else SearchResult.not_converged,
        message=front_message(scenario, points, converged=converged),
    )
