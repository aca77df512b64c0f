"""The layouts that can hold the best plan, their relaxed optima, and bounds that exclude the others.

The layouts that look best on a coarse grid are searched first. The multipliers `y >= 0` of the best of them then bound
what any other layout can reach,

    min { f(x) : c(x) <= 0 }  >=  min { f(x) + y . c(x) }        [weak duality: Boyd & Vandenberghe 2004, sec. 5.1.3]

and only layouts whose bound does not exclude them are searched as well. Where no plan obeys the limits, the same holds
without f: a layout with `min y . c(x) > 0` has no such plan either [Farkas 1902].
"""

import dataclasses
import math
from contextlib import suppress
from functools import partial

import jax
import numpy as np
from jaxtyping import Float, Int

from energymodel.errors import InputError
from energymodel.scenarios.checks import check_plan
from energymodel.scenarios.components import OFFERS
from energymodel.search.layouts import take
from energymodel.search.problem import DesignProblem
from energymodel.search.relaxation import (
    CLOSE,
    COARSE,
    FINE,
    SETTLED,
    TOLERANCE,
    LayoutSearch,
    Screening,
    converged,
    evaluate_points,
    layout_bounds,
    obeys_limits,
    screen,
    solve_relaxed,
)
from energymodel.search.result import Optimum, SwitchWorth
from energymodel.solver import Values
from energymodel.system.layouts import ACT_ON, Lattice, can_run
from energymodel.system.plan import PRECISIONS, SCHEDULES

PROMISING = 128  # layouts, the best on the coarse grid, that are looked at on the fine one
FIRST = 32  # layouts that are searched before any bound is known, the best on the fine grid
RESTARTS = 16  # of the best lane
ELSEWHERE = 8  # lanes, those that break their limits least, that are restarted before nothing is said to obey them
AGAIN = 32  # stalled lanes, the ones with the lowest bounds, that are searched again
MOST = 512  # layouts that are searched because their bound does not exclude them
MARGIN = 0.05  # in the logarithm: by how much the minimum of a Lagrangian on a grid, and whole counts, may exceed it
COARSE_MARGIN = 0.5  # the same on the coarse grid and at the best lane's own point
SAME = 1e-6  # in the logarithm: what two searches of one optimum may differ by
SIMILAR = 1e-4  # the same where one of them ended at a kink without multipliers that hold
TRIED = 512  # layouts, the best on the coarse grid, that are tried with other switches
LEAST_WORTH = 1e-3  # in the logarithm: what a switch saves if it is turned on
SILENT = 1e-9  # sum of multipliers below which they do not say which limits are in the way


def search_layouts(
    problem: DesignProblem, lattice: Lattice, tolerance: float = 0.0, coarse: Screening | None = None
) -> LayoutSearch:
    """Relaxed optima of all layouts that can hold the best plan or the second best, or one within a tolerance [1].

    `coarse` is the screening of all layouts on the coarse grid, if it has been made.
    """
    coarse = screen(problem, lattice, COARSE) if coarse is None else coarse
    good = coarse.best(PROMISING)
    fine = screen(problem, take(lattice, good), FINE)
    ranked = fine.best(PROMISING)
    promising, start = good[ranked], fine.start[ranked]
    searched = _search(problem, lattice, promising[:FIRST], start[:FIRST])
    if np.sum(searched.usable) < 2 and len(promising) > FIRST and not searched.interrupted:
        searched = searched.joined(_search(problem, lattice, promising[FIRST:], start[FIRST:]))
    if not searched.usable.any() and not searched.interrupted:
        searched = _search_elsewhere(searched)
    if searched.interrupted:
        return searched
    if not searched.solved[searched.best]:  # its multipliers bound the others
        searched = restart(searched)
    bound = lower_bounds(searched, lattice, coarse)
    rival = bound < _second_best(searched) + MARGIN + math.log1p(tolerance)
    order = np.argsort(bound, kind="stable")
    order = order[~np.isin(order, searched.indices)]
    need = int(np.sum(rival[order]))
    more, rest = order[: min(need, MOST)], order[min(need, MOST) :]
    if len(more):
        start = screen(problem, take(lattice, more), FINE, searched.solution.x[searched.best]).start
        searched = searched.joined(_search(problem, lattice, more, start))
    searched = _search_again(searched, np.where(rival, bound, np.inf)[searched.indices])
    return searched._replace(others=float(np.min(bound[rest], initial=np.inf)), left=need - len(more))


def screen_switched(problem: DesignProblem, lattice: Lattice) -> tuple[Lattice, Screening]:
    """All layouts with those switches of the problem that save, and their screening on the coarse grid.

    The best layouts of that grid take one switch after the other, and of schedules the best, if that saves at the best
    point of the grid: the merit, or where limits are broken with and without the switch the objective, since a faster
    step leaves room for a lower clock.
    """
    coarse = screen(problem, lattice, COARSE)
    tried = np.isin(np.arange(len(coarse.points)), coarse.best(TRIED))
    for switch in problem.switches:
        turned = turned_on(lattice, switch)
        acts = tried & can_run(problem.run.system, turned) & (getattr(lattice, switch) == 0.0)
        if degree := ACT_ON.get(switch):
            acts &= getattr(lattice, degree) > 1.0
        lanes = np.flatnonzero(acts)
        if not lanes.size:
            continue
        points = coarse.points[lanes]
        new = Screening(points, evaluate_points(problem, points, take(turned, lanes)))
        old = Screening(points, take(coarse.values, lanes))
        (merit, objective), (new_merit, new_objective) = old.lowest, new.lowest
        both_break = (merit > objective) & (new_merit > new_objective)
        saves = np.where(both_break, new_objective - objective, new_merit - merit) < -LEAST_WORTH
        lattice = jax.tree.map(partial(_put, lanes[saves]), lattice, take(turned, lanes[saves]))
        values = jax.tree.map(partial(_put, lanes[saves]), coarse.values, take(new.values, saves))
        coarse = coarse._replace(values=values)
    return lattice, coarse


def turned_on(layout: Lattice, switch: str) -> Lattice:
    """Layouts with a switch on; of precisions and schedules, one replaces the other."""
    rivals = next((group for group in (PRECISIONS, SCHEDULES) if switch in group), (switch,))
    fields = {name: getattr(layout, name) for name in rivals}
    return dataclasses.replace(layout, **{name: np.full_like(leaf, name == switch) for name, leaf in fields.items()})


def _put(lanes: Int[np.ndarray, " some"], into: np.ndarray, source: np.ndarray) -> np.ndarray:
    """A copy with some lanes of another array in place of its own."""
    into = np.array(into)
    into[lanes] = source
    return into


def _search(
    problem: DesignProblem, lattice: Lattice, index: Int[np.ndarray, " some"], start: Float[np.ndarray, "some n"]
) -> LayoutSearch:
    """Relaxed optima of some layouts, as long as lanes take to settle."""
    part = take(lattice, index)
    return LayoutSearch(problem, part, solve_relaxed(problem, part, start, iterations=SETTLED), indices=index)


def _search_again(searched: LayoutSearch, bound: Float[np.ndarray, " lanes"]) -> LayoutSearch:
    """The same with searches of stalled lanes of the lowest finite bounds, from there and around the best lane."""
    stuck = np.flatnonzero(~searched.solved & np.isfinite(bound))
    stuck = stuck[np.argsort(bound[stuck], kind="stable")][:AGAIN]
    if not len(stuck) or not searched.usable.any() or searched.interrupted:
        return searched
    own = searched.solution.x[stuck]
    around = searched.solution.x[searched.best]
    near = screen(searched.problem, take(searched.lattice, stuck), CLOSE, around).start
    return _with_better(searched, stuck, np.concatenate([near, np.where(np.isfinite(own), own, near)]))[0]


def _search_elsewhere(searched: LayoutSearch) -> LayoutSearch:
    """The same with restarts of the lanes that break their limits least, each of which may be at a local minimum."""
    lanes = np.argsort(searched.broken, kind="stable")[:ELSEWHERE]
    start = spread_starts(searched.problem, take(searched.lattice, lanes), RESTARTS)
    return _with_better(searched, lanes, start)[0]


def _with_better(
    searched: LayoutSearch,
    lanes: Int[np.ndarray, " some"],
    start: Float[np.ndarray, "starts n"],
    similar: float = 0.0,
    *,
    only_converged: bool = False,
) -> tuple[LayoutSearch, Float[np.ndarray, "some ends"]]:
    """The same with the best end of patient searches of some lanes where it is better, and the values of all ends.

    The starts have each lane in turn. An end may be worse than a lane by `similar`.
    """
    part = take(searched.lattice, np.resize(lanes, len(start)))
    again = solve_relaxed(searched.problem, part, start, iterations=SETTLED, patient=True)
    usable = obeys_limits(again) & (converged(again) | (not only_converged))
    values = np.where(usable, again.value, np.inf).reshape(-1, len(lanes)).T
    better = np.flatnonzero(np.min(values, axis=1) < searched.values[lanes] + similar)
    ends = np.argmin(values, axis=1)[better] * len(lanes) + better

    solution = jax.tree.map(partial(_put, lanes[better]), searched.solution, take(again, ends))
    return searched._replace(solution=solution), values


def restart(searched: LayoutSearch, lane: int | None = None) -> LayoutSearch:
    """The same with restarts of one lane, the best unless given, which happens once.

    A restart replaces the lane where it is better; or as good, where the lane itself did not converge.
    """
    best = searched.best if lane is None else lane
    if not searched.usable.any() or searched.interrupted or searched.restarted == best:
        return searched
    lanes, similar = np.array([best]), 0.0 if searched.solved[best] else SIMILAR
    start = spread_starts(searched.problem, take(searched.lattice, lanes), RESTARTS)
    searched, ends = _with_better(searched, lanes, start, similar, only_converged=True)
    values, value = ends[np.isfinite(ends)], float(searched.solution.value[best])
    return searched._replace(
        restarted=best,
        restarts=RESTARTS,
        agreeing=int(np.sum(values <= np.min(values, initial=value) + SAME)),
        astray=RESTARTS - len(values),
        spread=float(np.ptp(np.append(values, value))),
    )


def spread_starts(problem: DesignProblem, lattice: Lattice, count: int) -> Float[np.ndarray, "lanes n"]:
    """So many starts for each layout in turn, spread evenly over its bounds: each coordinate takes each of `count`
    equally spaced values once [McKay et al. 1979].
    """
    lower, upper = layout_bounds(problem, lattice)
    cells = np.tile(np.arange(count), (lower.shape[1], 1))
    shares = (np.random.default_rng(0).permuted(cells, axis=1).T + 0.5) / count
    return np.concatenate([lower + share * (upper - lower) for share in shares])


def lower_bounds(searched: LayoutSearch, lattice: Lattice, coarse: Screening) -> Float[np.ndarray, " layouts"]:
    """Lower bound of each layout by the Lagrangian of the best lane.

    Its minimum is taken on the coarse grid and at the best lane's own point, and where these leave a doubt on a grid
    around that point. Where memory limits the best lane, layouts that need far less of it would gain by its price: the
    bound is the higher one of those with that price and without. For an infeasible problem it is the logarithm by which
    limits must be broken, weighted by shares of the multipliers, or equally where there are none. Multipliers of a lane
    that stalled may be anything: the best lane that converged gives them.
    """
    solved = np.where(searched.solved, searched.values, np.inf)
    best = int(np.argmin(solved)) if np.isfinite(solved).any() else searched.best
    problem, point = searched.problem, searched.solution.x[best]
    y = np.asarray(searched.solution.multipliers.inequalities[best])
    weights = np.where(np.isfinite(y) & (y > 0.0), y, 0.0)
    share = 1.0 if searched.usable.any() else 0.0
    if not share:
        total = float(np.sum(weights))
        weights = weights / total if total > SILENT else np.full_like(weights, 1.0 / len(weights))
    free = np.array(weights)
    free[problem.formulation.rows.index("memory")] *= 1.0 - share

    def lowest(values: Values) -> np.ndarray:
        lagrangians = share * values.objective[..., None] + values.inequalities @ np.stack([weights, free], axis=1)
        return np.min(np.where(np.isfinite(lagrangians), lagrangians, np.inf), axis=1)

    bounds = np.minimum(lowest(coarse.values), lowest(screen(problem, lattice, {}, point).values))
    close = np.flatnonzero(np.max(bounds, axis=1) < _second_best(searched) + COARSE_MARGIN)
    if close.size:
        bounds[close] = np.minimum(bounds[close], lowest(screen(problem, take(lattice, close), CLOSE, point).values))
    return np.max(bounds, axis=1)


def worth_of_switches(problem: DesignProblem, optimum: Optimum) -> tuple[SwitchWorth, ...]:
    """What each switch that the framework offers and was not searched saves at the plan found, the most first.

    A switch with which the layout does not run is left out.
    """
    scenario, plan, formulation = optimum.scenario, optimum.plan, problem.formulation
    layouts = {"": plan.layout}
    for switch in scenario.tables["system"]["software"].get(OFFERS, ()):
        if {switch} & {*problem.layout_ranges, *problem.switches} or float(getattr(plan.layout, switch)) > 0.0:
            continue
        layout = turned_on(plan.layout, switch)
        with suppress(InputError):
            check_plan(scenario.system, dataclasses.replace(plan, layout=layout))
            layouts[switch] = layout
    lattice = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *layouts.values())
    point = np.array([formulation.coordinate(path, optimum.found[path]) for path in formulation.paths])
    values = evaluate_points(problem, np.tile(point, (len(layouts), 1, 1)), lattice)
    saved = -np.expm1(values.objective[:, 0] - values.objective[0, 0])
    most = np.maximum(values.inequalities[0, 0], TOLERANCE)  # a looser limit than that of the system may be broken
    keeps = np.all(values.inequalities[:, 0] <= most, axis=-1)
    worth = [*map(SwitchWorth, layouts, saved.tolist(), keeps.tolist())][1:]
    return tuple(sorted(worth, key=lambda switch: -switch.saving))


def _second_best(searched: LayoutSearch) -> float:
    """The value that a layout must stay below to come first or second; zero violation where there is none."""
    values = np.sort(searched.values)[:2]
    return float(values[-1]) if searched.usable.any() else 0.0
