"""Which plans cannot be improved in one respect without giving up another, and what is the exchange rate?"""

import dataclasses
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.design.finish import finished_plans
from energymodel.design.front import Front, FrontPoint, efficient, knee, levels_by_slope, relative_hypervolume, simplex
from energymodel.design.layout_search import ACTIVE, OPTIONS, layout_bounds, solve_lanes
from energymodel.design.layouts import (
    FINE,
    Lattice,
    candidates,
    evaluate_points,
    fits,
    grid_points,
    screen,
    take,
)
from energymodel.design.optimize import too_large
from energymodel.design.problem import Form, Given, Problem, Target, pose
from energymodel.design.realize import Counts, Realized, near, outlook, solve_at
from energymodel.errors import InputError, suggest
from energymodel.presets.scenario import Scenario
from energymodel.solver.minimize import PerConstraint, Solution, Values
from energymodel.solver.minimize_many import minimize_many
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import AT_LEAST, OF_THE_PLAN, OUTPUTS, log_objective, output
from energymodel.system.plan import ParallelLayout

ROUGH = {"plan.batch": np.array([0.5, 1.5]), "plan.clock": np.array([0.8]), "plan.chips": np.array([0.5, 1.0])}
SCREENED = 128  # layouts that the fine grid sees, the best on the coarse one
PER_LEVEL = 8  # layouts that a level of the coarse front takes from the screening
COARSE_LEVELS = 7
CLOSE = 0.01  # in the logarithm of the objective: layouts that near the best of a coarse level stay in
KEPT = 3  # layouts for each level of the fine front
ITERATIONS = 24  # of a lane: what takes longer has no plan at its level, or is no better than its neighbors
ROUNDED = 2  # of which this many are rounded
PRICE = 10.0  # of a violation in the screening
PROVEN = 1e-4  # distance of the logarithm from the relaxed optimum of the layout that proves a plan good
SAME = 6  # decimals of the logarithms of objectives to which two plans are one
AUGMENTATION = 1e-3  # of the Chebyshev norm: excludes weakly efficient points [Steuer & Choo 1983]


def pareto(
    scenario: Scenario,
    minimize: Sequence[str] = ("energy", "time"),
    points: int = 64,
    limits: Mapping[str, Any] | None = None,
    vary: Mapping[str, tuple[Any, Any]] | None = None,
    fix: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Front:
    """Find realizable plans that trade outputs of a scenario against each other.

    Two objectives: the first is minimized at levels of the second between its least value and its value where the
    first is least [epsilon-constraint: Haimes et al. 1971]; the multiplier of the level is the exchange rate. Three
    and more: the augmented Chebyshev distance from the ideal point is minimized for evenly spread weights [Steuer &
    Choo 1983]. Each point keeps its best layout and is rounded to whole replicas and micro-batches.

    **Arguments:**

    - `scenario`: from `load_scenario`.
    - `minimize`: two or more outputs of which less is better, such as energy, time, money, carbon, loss.
    - `points`: points of the front before dominated ones are dropped.
    - `limits`, `vary`, `fix`, `progress`: as in `optimize`; objectives have no limit unless it is given here.

    **Returns:** `Front`.

    **Raises:** `InputError` for unknown or repeated objectives, and what `optimize` raises.
    """
    tell = progress or (lambda sentence: None)
    names = tuple(minimize)
    _check(names, points)
    with jax.enable_x64(True):
        tell("evaluating the scenario's own plan")
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        wishes = scenario.optimize
        limits = {**wishes.get("limits", {}), **(limits or {})}
        vary = {**wishes.get("vary", {}), **(vary or {})}
        problem = pose(scenario, baseline, names[0], limits, vary, [*wishes.get("fix", ()), *fix], free=names)
        search = _Search.start(scenario, problem, tell)
        if len(names) == 2:
            found, exchange = _by_levels(search, names, points, tell)
        else:
            found, exchange = _by_weights(search, names, points, tell)
        return _front(search, names, baseline, found, exchange)


def _check(names: tuple[str, ...], points: int) -> None:
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"pareto: {', '.join(names) or 'nothing'} is no trade. Give two or more different objectives.")
    for name in names:
        if name not in OUTPUTS or name in OF_THE_PLAN:
            raise InputError(f'Unknown objective "{name}". {suggest(name, OUTPUTS)}')
        if name in AT_LEAST:
            raise InputError(f"{name}: more of it is better, so it is no objective to minimize. Limit it instead.")
    if points < 2:
        raise InputError(f"pareto: {points} points are no front. Ask for 2 or more.")


class _Search(NamedTuple):
    """A problem and the layouts that fit, with the logarithms of objectives and violations on a grid."""

    scenario: Scenario
    problem: Problem
    lattice: Lattice
    considered: int
    grid: Float[np.ndarray, "layouts points n"]
    values: Values

    @staticmethod
    def start(scenario: Scenario, problem: Problem, tell: Callable[[str], None]) -> "_Search":
        chips = problem.bounds.get("plan.chips", (0.0, float(scenario.plan.chips)))[1]
        lattice = candidates(problem.given, chips, problem.choices)
        considered = len(lattice.tensor)
        tell(f"screening {considered} layouts")
        lattice = take(lattice, np.flatnonzero(fits(problem, lattice, chips)))
        if not len(lattice.tensor):
            raise InputError(too_large(problem))
        lattice = take(lattice, screen(problem, lattice, ROUGH).best(SCREENED))
        grid = grid_points(problem, lattice, FINE)
        values = evaluate_points(problem.form, grid, lattice, problem.target, problem.given)
        return _Search(scenario, problem, lattice, considered, grid, values)

    def logarithm(self, name: str) -> Float[np.ndarray, "layouts points"]:
        """Logarithm of a limited output on the grid."""
        row = self.problem.form.rows.index(name)
        return self.values.inequalities[..., row] + np.log(self.problem.target.limits[name])

    def promising(self, merit: Float[np.ndarray, "layouts points"], count: int) -> tuple[np.ndarray, np.ndarray]:
        """Places of the best layouts and of their best points, with a price on broken limits."""
        broken = np.sum(np.maximum(self.values.inequalities, 0.0), axis=-1)
        merit = np.where(np.isfinite(merit), merit + PRICE * broken, np.inf)
        best = np.argmin(merit, axis=1)
        order = np.argsort(merit[np.arange(len(best)), best], kind="stable")[:count]
        return order, best[order]

    def solve(
        self, places: np.ndarray, start: np.ndarray, targets: Target, warm: PerConstraint | None = None
    ) -> Solution:
        """Relaxed optima of layouts, each for its own target, from the multipliers of neighbors if given."""
        return solve_lanes(self.problem, take(self.lattice, places), start, targets, warm=warm, iterations=ITERATIONS)


def usable(solution: Solution) -> np.ndarray:
    """Lanes that obey all limits."""
    violation = np.sum(np.maximum(-solution.slacks.inequalities, 0.0), axis=-1)
    return np.isfinite(solution.value) & (violation <= ACTIVE)


def _targets(problem: Problem, count: int, powers: Mapping[str, Any], limits: Mapping[str, Any]) -> Target:
    """The target for each of so many lanes, with other powers and limits."""
    own = problem.targets(count)
    none = dict.fromkeys(own.powers, np.zeros(count))
    return Target(
        {**none, **{name: np.full(count, power) for name, power in powers.items()}},
        {**own.limits, **{name: np.broadcast_to(limit, (count,)) for name, limit in limits.items()}},
    )


class _End(NamedTuple):
    """An end of a front: logarithms of the objectives there, and the best lanes with multipliers and target."""

    logarithms: dict[str, float]
    places: np.ndarray
    x: Float[np.ndarray, "lanes n"]
    multipliers: PerConstraint
    targets: Target


def _end(search: _Search, name: str, others: Sequence[str]) -> _End:
    """Where one of the objectives is least."""
    places, points = search.promising(search.logarithm(name), 2 * PER_LEVEL)
    # A touch of the others picks, of equally good plans, one that is not worse in them.
    powers = {name: 1.0, **dict.fromkeys(others, AUGMENTATION)}
    targets = _targets(search.problem, len(places), powers, {})
    solution = search.solve(places, search.grid[places, points], targets)
    merit = np.where(usable(solution), solution.value, np.inf)
    order = np.argsort(merit, kind="stable")[:ROUNDED]
    if not np.isfinite(merit[order[0]]):
        raise InputError("pareto: no plan obeys the limits. `energymodel optimize` with the same limits names them.")
    rows = -solution.slacks.inequalities[order[0]]
    form, limits = search.problem.form, search.problem.target.limits
    logarithms = {one: float(rows[form.rows.index(one)] + np.log(limits[one])) for one in (name, *others)}
    return _End(logarithms, places[order], solution.x[order], take(solution.multipliers, order), take(targets, order))


class _Found(NamedTuple):
    """Realizable plans with the layout and the target of each."""

    realized: list[Realized]
    layouts: Lattice
    targets: Target


Exchange = Callable[[int], dict[str, float]]


def _by_levels(
    search: _Search, names: tuple[str, ...], points: int, tell: Callable[[str], None]
) -> tuple[_Found, Exchange]:
    """Points of a front of two objectives, at levels of the second."""
    first, second = names
    tell(f"finding the ends of {first} and {second}")
    cheap, quick = _end(search, first, [second]), _end(search, second, [first])
    ends = (quick.logarithms[second], max(cheap.logarithms[second], quick.logarithms[second] + 1e-6))
    problem = search.problem

    levels = np.linspace(*ends, COARSE_LEVELS)
    chosen, starts = [], []
    for level in levels:
        merit = search.logarithm(first) + PRICE * np.maximum(search.logarithm(second) - level, 0.0)
        places, best = search.promising(merit, PER_LEVEL)
        chosen.append(places)
        starts.append(search.grid[places, best])
    layouts = np.unique(np.concatenate(chosen))
    tell(f"searching {len(layouts)} layouts at {COARSE_LEVELS} levels of {second}")
    lanes = [(int(layout), level) for level in range(COARSE_LEVELS) for layout in layouts]
    start = _nearest_starts(lanes, chosen, starts)
    allowed = np.exp(levels[[level for _, level in lanes]])
    coarse = search.solve(
        np.array([layout for layout, _ in lanes]), start, _targets(problem, len(lanes), {first: 1.0}, {second: allowed})
    )
    value = np.where(usable(coarse), coarse.value, np.inf).reshape(COARSE_LEVELS, len(layouts))
    least = np.min(value, axis=1, keepdims=True)
    excess = np.subtract(value, least, out=np.full_like(value, np.inf), where=np.isfinite(least))
    x = coarse.x.reshape(COARSE_LEVELS, len(layouts), -1)

    row = problem.form.rows.index(second)
    prices = coarse.multipliers.inequalities[:, row].reshape(value.shape)[
        np.arange(len(levels)), np.argmin(value, axis=1)
    ]
    known = np.flatnonzero(np.isfinite(least[1:-1, 0])) + 1
    values = np.array([quick.logarithms[first], *least[known, 0], cheap.logarithms[first]])
    fine = levels_by_slope(values, levels[[0, *known, -1]], np.array([np.nan, *prices[known], np.nan]), points)
    places, begin, near, level_of = [], [], [], []
    for index, level in enumerate(fine):
        below = min(int(np.searchsorted(levels, level, side="right")) - 1, COARSE_LEVELS - 2)
        share = (level - levels[below]) / (levels[1] - levels[0])
        near_best = np.minimum(*excess[[below, below + 1]])
        for layout in np.argsort(near_best, kind="stable")[:KEPT]:
            if near_best[layout] <= CLOSE:
                places.append(int(layouts[layout]))
                begin.append((1.0 - share) * x[below, layout] + share * x[below + 1, layout])
                near.append((below + round(share)) * len(layouts) + layout)
                level_of.append(index)
    tell(f"searching {points} levels of {second}")
    owner = np.array(level_of, int)
    at_levels = _targets(problem, len(places), {first: 1.0}, {second: np.exp(fine[owner])})
    # Rounding leaves the ends of the levels, so the ends themselves are rounded as well.
    targets = _concatenate(at_levels, quick.targets, cheap.targets)
    places = np.concatenate([np.array(places, int), quick.places, cheap.places])
    begin = np.concatenate([np.array(begin).reshape(-1, x.shape[-1]), quick.x, cheap.x])
    owner = np.concatenate([owner, np.full(len(quick.places), points), np.full(len(cheap.places), points + 1)])
    warm = _concatenate(take(coarse.multipliers, np.array(near, int)), quick.multipliers, cheap.multipliers)
    solution = search.solve(places, begin, targets, warm)
    found = _round(search, places, targets, solution, owner, points + 2, tell)
    prices = np.array(solution.multipliers.inequalities[:, row])
    # At the ends a level does not bind, or is the least there is and its price anything from that beside it.
    inner = np.flatnonzero(usable(solution) & (owner > 0) & (owner < points))
    for end, level in ((0, 1), (points, 1), (points + 1, points - 1)):
        nearest = np.lexsort((solution.value[inner], np.abs(owner[inner] - level)))[:1]
        prices[owner == end] = prices[inner[nearest]] if nearest.size else np.nan
    return found, lambda lane: {second: float(prices[lane])}


def _concatenate(*lanes: Any) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *lanes)


def _nearest_starts(
    lanes: list[tuple[int, int]], chosen: list[np.ndarray], starts: list[np.ndarray]
) -> Float[np.ndarray, "lanes n"]:
    """For each layout and level the start that the nearest level with this layout had."""
    known = {
        (int(layout), level): start
        for level, (layouts, begin) in enumerate(zip(chosen, starts, strict=True))
        for layout, start in zip(layouts, begin, strict=True)
    }
    levels: dict[int, list[int]] = {}
    for layout, level in known:
        levels.setdefault(layout, []).append(level)
    return np.array([known[layout, min(levels[layout], key=lambda one: abs(one - level))] for layout, level in lanes])


@dataclasses.dataclass(frozen=True)
class Chebyshev:
    """The augmented Chebyshev distance from an ideal point as a problem: `min t + r sum w (ln f - ln f*)`.

    The last coordinate is t, which no weighted distance may exceed [Steuer & Choo 1983].
    """

    form: Form
    names: tuple[str, ...]

    def __call__(
        self, point: Array, layout: ParallelLayout, weights: Array, ideal: Array, target: Target, given: Given
    ) -> Values:
        """Objective and rows: those of the form, then a distance for each objective."""
        point, radius = jnp.asarray(point)[:-1], jnp.asarray(point)[-1]
        rows = self.form(point, layout, target, given).inequalities
        system, plan = self.form.at(point, layout, target, given)
        outcome = evaluate(system, plan)
        logarithms = jnp.stack([log_objective(outcome, {name: 1.0}) for name in self.names])
        distances = weights * (logarithms - ideal)
        return Values(radius + AUGMENTATION * jnp.sum(distances), jnp.concatenate([rows, distances - radius]))


def _by_weights(
    search: _Search, names: tuple[str, ...], points: int, tell: Callable[[str], None]
) -> tuple[_Found, Exchange]:
    """Points of a front of three and more objectives, at weights spread over the simplex."""
    tell(f"finding the ends of {', '.join(names)}")
    problem = search.problem
    ends = [_end(search, name, [one for one in names if one != name]).logarithms for name in names]
    ideal = np.array([ends[k][name] for k, name in enumerate(names)])
    worst = np.array([max(end[name] for end in ends) for name in names])
    spread = np.maximum(worst - ideal, 1e-6)
    weights = 1.0 / (np.maximum(simplex(points, len(names)), 1e-2) * spread)
    weights /= weights.max(axis=1, keepdims=True)
    logarithms = np.stack([search.logarithm(name) for name in names])
    places, begin, owner = [], [], []
    for index, weight in enumerate(weights):
        merit = np.max(weight[:, None, None] * (logarithms - ideal[:, None, None]), axis=0)
        layouts, best = search.promising(merit, KEPT)
        radius = merit[layouts, best]
        places += list(layouts)
        begin += [np.append(search.grid[i, k], r) for i, k, r in zip(layouts, best, radius, strict=True)]
        owner += [index] * len(layouts)
    tell(f"searching {len(weights)} weights")
    lattice = take(search.lattice, np.array(places))
    least, most = layout_bounds(problem, lattice)
    count, owner = len(places), np.array(owner)
    far = (np.full((count, 1), -1e3), np.full((count, 1), 1e3))
    targets = _targets(problem, count, {names[0]: 1.0}, {})
    raw = minimize_many(
        Chebyshev(problem.form, names), np.array(begin),
        (lattice, weights[owner], np.tile(ideal, (count, 1)), targets), shared=(problem.given,),
        bounds=(np.hstack([least, far[0]]), np.hstack([most, far[1]])), options=OPTIONS,
    )  # fmt: skip
    prices = raw.multipliers.inequalities[:, -len(names) :] * weights[owner]
    # Rounding minimizes the first objective while the others stay where the search left them.
    rows = -raw.slacks.inequalities
    reached = {name: np.exp(rows[:, problem.form.rows.index(name)]) * problem.target.limits[name] for name in names[1:]}
    targets = _targets(problem, count, {names[0]: 1.0}, {name: at * (1 + 1e-4) for name, at in reached.items()})
    good = usable(raw)
    solution = search.solve(np.array(places), raw.x[:, :-1], targets)
    merit = np.where(good, raw.value, np.inf)
    found = _round(search, np.array(places), targets, solution, owner, len(weights), tell, merit)

    def exchange(lane: int) -> dict[str, float]:
        own = prices[lane, 0]
        return {name: float(prices[lane, k] / own) for k, name in enumerate(names) if k and own > 0.0}

    return found, exchange


def _round(
    search: _Search, places: np.ndarray, targets: Target, solution: Solution, owner: np.ndarray, points: int,
    tell: Callable[[str], None], merit: np.ndarray | None = None,
) -> _Found:  # fmt: skip
    """Best realizable plan of each point of the front."""
    tell("rounding to whole replicas and micro-batches")
    problem, lattice = search.problem, take(search.lattice, places)
    merit = np.where(usable(solution), solution.value if merit is None else merit, np.inf)
    trials: list[Counts] = []
    for point in range(points):
        lanes = np.flatnonzero((owner == point) & np.isfinite(merit))
        for lane in lanes[np.argsort(merit[lanes], kind="stable")][:ROUNDED]:
            trials += near(problem, lattice, int(lane), solution.x[lane], 1)
    # In the order of their outlook, until that is hardly better than what a point has.
    waiting: dict[int, list[tuple[float, Counts]]] = {}
    for promised, trial in zip(outlook(problem, lattice, targets, solution, trials), trials, strict=True):
        heapq.heappush(waiting.setdefault(int(owner[trial.layout]), []), (float(promised), trial))
    best: dict[int, Realized] = {}
    while waiting:
        trials, full = [], -(-len(waiting) // OPTIONS.chunk) * OPTIONS.chunk
        while len(trials) < full and any(waiting.values()):  # a chunk that is not full takes as long
            for own in waiting.values():
                if own and len(trials) < full:
                    trials.append(heapq.heappop(own)[1])
        for one in solve_at(problem, lattice, targets, solution, trials):
            point = int(owner[one.layout])
            if point not in best or one.value < best[point].value:
                best[point] = one
        waiting = {
            point: own
            for point, own in waiting.items()
            if own and (point not in best or own[0][0] < best[point].value - PROVEN)
        }
    # A plan whose own search ran out of iterations is as good as its lane's bound, if it is as close to it.
    chosen = [
        one._replace(converged=one.converged or one.value <= solution.value[one.layout] + PROVEN)
        for _, one in sorted(best.items())
    ]
    lanes = np.array([one.layout for one in chosen], int)
    return _Found(chosen, take(lattice, lanes), take(targets, lanes))


def _front(
    search: _Search, names: tuple[str, ...], baseline: TrainingOutcome,
    found: _Found, exchange: Exchange,
) -> Front:  # fmt: skip
    if not found.realized:
        raise InputError("pareto: no realizable plan obeys the limits. Relax a limit, or free plan.batch.")
    at, counts = np.stack([one.point for one in found.realized]), [one.counts for one in found.realized]
    finished = finished_plans(search.scenario, search.problem, at, counts, found.layouts, found.targets)
    points = [
        FrontPoint({name: float(output(outcome, name)) for name in names}, exchange(one.layout), plan, outcome)
        for one, (plan, outcome) in zip(found.realized, finished, strict=True)
    ]
    converged = all(one.converged for one in found.realized)
    table = np.array([[point.values[name] for name in names] for point in points])
    kept = np.flatnonzero(efficient(np.round(np.log(table), SAME)))
    kept = kept[np.argsort(table[kept, 1], kind="stable")]
    table = table[kept]
    searched = len(np.unique(np.stack(jax.tree.leaves(found.layouts), axis=1), axis=0))
    return Front(
        scenario=search.scenario,
        minimize=names,
        units={name: OUTPUTS[name] for name in names},
        points=tuple(points[place] for place in kept),
        baseline={name: float(output(baseline, name)) for name in names},
        hypervolume=relative_hypervolume(table),
        knee=knee(table),
        layouts_considered=search.considered,
        layouts_searched=searched,
        result="successful" if converged else "not converged",
        message=(
            "Every plan is realizable and obeys every limit."
            if converged
            else "Some plans are feasible but not shown to be optimal: the iterations ran out."
        ),
    )
