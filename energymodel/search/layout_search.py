"""The layouts that can hold the best plan, their relaxed optima, and bounds that exclude the others.

The layouts that look best on a coarse grid are searched first. The multipliers `y >= 0` of the best of them then bound
what any other layout can reach,

    min { f(x) : c(x) <= 0 }  >=  min { f(x) + y . c(x) }        [weak duality: Boyd & Vandenberghe 2004, sec. 5.1.3]

and only layouts whose bound does not exclude them are searched as well. Where no plan obeys the limits, the same holds
without f: a layout with `min y . c(x) > 0` has no such plan either [Farkas 1902].
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from energymodel.search.layouts import Lattice, concatenate, take
from energymodel.search.problem import DesignProblem
from energymodel.search.relaxation import (
    CLOSE,
    COARSE,
    FINE,
    SETTLED,
    Screening,
    layout_bounds,
    obeys_limits,
    screen,
    solve_relaxed,
    violation,
)
from energymodel.solver import RESULTS, Solution, Values, result_is

PROMISING = 128  # layouts, the best on the coarse grid, that are looked at on the fine one
FIRST = 32  # layouts that are searched before any bound is known, the best on the fine grid
RESTARTS = 16  # of the best lane
ELSEWHERE = 8  # lanes, those that break their limits least, that are restarted before nothing is said to obey them
AGAIN = 32  # stalled lanes, the ones with the lowest bounds, that are searched again
MOST = 512  # layouts that are searched because their bound does not exclude them
MARGIN = 0.05  # in the logarithm: by how much the minimum of a Lagrangian on a grid, and whole counts, may exceed it
COARSE_MARGIN = 0.5  # the same on the coarse grid and at the best lane's own point
NEARLY = 0.01  # violation of limits, in the logarithm, beyond which a lane is not rounded
SAME = 1e-6  # in the logarithm: what two searches of one optimum may differ by
SIMILAR = 1e-4  # the same where one of them ended at a kink without multipliers that hold
SILENT = 1e-9  # sum of multipliers below which they do not say which limits are in the way


class LayoutSearch(NamedTuple):
    """The layouts that were searched with their relaxed optima, and what is known of the others.

    `others` is the lowest bound of a layout that was not searched (logarithm of the objective; infinite if there is
    none), `left` counts those whose bound does not exclude them. Of `restarts` of the best lane, `agreeing` converge to
    its optimum and `astray` do not converge within the limits; those that do differ by `spread` in the logarithm.
    `restarted` is the lane that was restarted last.
    """

    lattice: Lattice
    solution: Solution
    others: float
    left: int
    restarts: int = 0
    agreeing: int = 0
    astray: int = 0
    spread: float = 0.0
    restarted: int | None = None

    @property
    def usable(self) -> Bool[np.ndarray, " lanes"]:
        """Lanes that obey all limits."""
        return obeys_limits(self.solution)

    @property
    def values(self) -> Float[np.ndarray, " lanes"]:
        """Logarithms of the objective; infinite for lanes that break a limit."""
        return np.where(self.usable, self.solution.value, np.inf)

    @property
    def roundable(self) -> Bool[np.ndarray, " lanes"]:
        """Lanes that obey all limits or nearly: at a kink they stall beside a plan of whole counts that does."""
        return self.broken <= NEARLY

    @property
    def broken(self) -> Float[np.ndarray, " lanes"]:
        """By how much each lane breaks its limits, in the logarithm; infinite where the model has no answer."""
        return np.where(np.isfinite(self.solution.value), violation(self.solution), np.inf)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C cut the search short."""
        return bool(np.any(result_is(self.solution.result, RESULTS.interrupted)))

    def joined(self, other: "LayoutSearch") -> "LayoutSearch":
        """The same with the lanes of another search after its own."""
        lattice, solution = concatenate((self.lattice, self.solution), (other.lattice, other.solution))
        return self._replace(lattice=lattice, solution=solution)

    def solved(self, lane: int) -> bool:
        """Whether the optimality conditions hold in a lane, so that its multipliers are prices."""
        return bool(result_is(self.solution.result, RESULTS.successful)[lane])

    def best(self) -> int:
        """The best usable lane, or the one that breaks its limits least."""
        if self.usable.any():
            return int(np.argmin(self.values))
        return int(np.argmin(self.broken))


def search_layouts(problem: DesignProblem, lattice: Lattice, tolerance: float = 0.0) -> LayoutSearch:
    """Relaxed optima of all layouts that can hold the best plan or the second best, or one within a tolerance [1]."""
    coarse = screen(problem, lattice, COARSE)
    good = coarse.best(PROMISING)
    fine = screen(problem, take(lattice, good), FINE)
    ranked = fine.best(PROMISING)
    promising, start = good[ranked], fine.start[ranked]
    searched = _search(problem, take(lattice, promising[:FIRST]), start[:FIRST])
    if np.sum(searched.usable) < 2 and len(promising) > FIRST and not searched.interrupted:
        searched = searched.joined(_search(problem, take(lattice, promising[FIRST:]), start[FIRST:]))
    first = promising[: len(searched.solution.value)]
    if not searched.usable.any() and not searched.interrupted:
        searched = _search_elsewhere(problem, searched)
    if searched.interrupted:
        return searched
    if not searched.solved(searched.best()):  # its multipliers bound the others
        searched = restart(problem, searched)
    bound = lower_bounds(problem, lattice, searched, coarse)
    rival = bound < _second_best(searched) + MARGIN + math.log1p(tolerance)
    order = np.argsort(bound, kind="stable")
    order = order[~np.isin(order, first)]
    need = int(np.sum(rival[order]))
    more, rest = order[: min(need, MOST)], order[min(need, MOST) :]
    if len(more):
        part = take(lattice, more)
        start = screen(problem, part, FINE, searched.solution.x[searched.best()]).start
        searched = searched.joined(_search(problem, part, start))
    lanes = np.concatenate([first, more])
    searched = _search_again(problem, searched, np.where(rival[lanes], bound[lanes], np.inf))
    return searched._replace(others=float(np.min(bound[rest], initial=np.inf)), left=need - len(more))


def _search(problem: DesignProblem, lattice: Lattice, start: Float[np.ndarray, "lanes n"]) -> LayoutSearch:
    """Relaxed optima of layouts, as long as lanes take to settle, without bounds of others."""
    return LayoutSearch(lattice, solve_relaxed(problem, lattice, start, iterations=SETTLED), np.inf, 0)


def _search_again(problem: DesignProblem, searched: LayoutSearch, bound: Float[np.ndarray, " lanes"]) -> LayoutSearch:
    """The same with patient searches of stalled lanes, from there and from a grid around the best lane.

    Those with the lowest finite bounds are searched again, if any plan obeys the limits.
    """
    stuck = np.flatnonzero(~result_is(searched.solution.result, RESULTS.successful) & np.isfinite(bound))
    stuck = stuck[np.argsort(bound[stuck], kind="stable")][:AGAIN]
    if not len(stuck) or not searched.usable.any() or searched.interrupted:
        return searched
    part, own = take(searched.lattice, stuck), searched.solution.x[stuck]
    near = screen(problem, part, CLOSE, searched.solution.x[searched.best()]).start
    start = np.concatenate([near, np.where(np.isfinite(own), own, near)])
    return _with_better(searched, stuck, _searched_patiently(problem, part, start))


def _search_elsewhere(problem: DesignProblem, searched: LayoutSearch) -> LayoutSearch:
    """The same with restarts of the lanes that break their limits least, each of which may be at a local minimum."""
    lanes = np.argsort(searched.broken, kind="stable")[:ELSEWHERE]
    part = take(searched.lattice, lanes)
    again = _searched_patiently(problem, part, spread_starts(problem, part, RESTARTS))
    return _with_better(searched, lanes, again)


def _searched_patiently(problem: DesignProblem, layouts: Lattice, start: Float[np.ndarray, "lanes n"]) -> Solution:
    """Relaxed optima from several starts for each layout in turn."""
    count = len(layouts.tensor)
    layouts = take(layouts, np.arange(len(start)) % count)
    return solve_relaxed(problem, layouts, start, iterations=SETTLED, patient=True)


def _with_better(searched: LayoutSearch, lanes: Int[np.ndarray, " some"], again: Solution) -> LayoutSearch:
    """The same with the best of several ends of some lanes, where it is better; `again` has each lane in turn."""
    values = np.where(obeys_limits(again), again.value, np.inf).reshape(-1, len(lanes))
    better = np.flatnonzero(np.min(values, axis=0) < searched.values[lanes])
    ends = np.argmin(values, axis=0)[better] * len(lanes) + better
    return searched._replace(solution=_replaced(searched.solution, lanes[better], again, ends))


def restart(problem: DesignProblem, searched: LayoutSearch, lane: int | None = None) -> LayoutSearch:
    """The same with restarts of one lane, the best unless given, which happens once.

    A restart replaces the lane where it is better; or as good, where the lane itself did not converge.
    """
    best = searched.best() if lane is None else lane
    if not searched.usable.any() or searched.interrupted or searched.restarted == best:
        return searched
    layout = take(searched.lattice, np.array([best]))
    again = _searched_patiently(problem, layout, spread_starts(problem, layout, RESTARTS))
    converged = obeys_limits(again) & result_is(again.result, RESULTS.successful)
    value, values = float(searched.solution.value[best]), again.value[converged]
    if np.min(values, initial=np.inf) < value + (0.0 if searched.solved(best) else SIMILAR):
        better = int(np.argmin(np.where(converged, again.value, np.inf)))
        searched = searched._replace(solution=_replaced(searched.solution, best, again, better))
        value = float(values.min())
    return searched._replace(
        restarts=RESTARTS,
        agreeing=int(np.sum(values <= np.min(values, initial=value) + SAME)),
        astray=RESTARTS - len(values),
        spread=float(np.ptp(np.append(values, value))),
        restarted=best,
    )


def spread_starts(problem: DesignProblem, lattice: Lattice, count: int) -> Float[np.ndarray, "lanes n"]:
    """So many starts for each layout in turn, spread evenly over its bounds: each coordinate takes each of `count`
    equally spaced values once [McKay et al. 1979].
    """
    lower, upper = layout_bounds(problem, lattice)
    cells = np.tile(np.arange(count), (lower.shape[1], 1))
    shares = (np.random.default_rng(0).permuted(cells, axis=1).T + 0.5) / count
    return np.concatenate([lower + share * (upper - lower) for share in shares])


def _replaced(
    solution: Solution, lanes: int | Int[np.ndarray, " some"], other: Solution, ends: int | Int[np.ndarray, " some"]
) -> Solution:
    """A solution with some lanes replaced by those of another."""

    def put(into: np.ndarray, source: np.ndarray) -> np.ndarray:
        into = np.array(into)
        into[lanes] = np.asarray(source)[ends]
        return into

    return jax.tree.map(put, solution, other)


def lower_bounds(
    problem: DesignProblem, lattice: Lattice, searched: LayoutSearch, coarse: Screening
) -> Float[np.ndarray, " layouts"]:
    """Lower bound of each layout by the Lagrangian of the best lane.

    Its minimum is taken on the coarse grid and at the best lane's own point, and where these leave a doubt on a grid
    around that point. For an infeasible problem it is the logarithm by which limits must be broken, weighted by shares
    of the multipliers, or equally where there are none. Multipliers of a lane that stalled may be anything: the best
    lane that converged gives them.
    """
    converged = np.where(result_is(searched.solution.result, RESULTS.successful), searched.values, np.inf)
    best = int(np.argmin(converged)) if np.isfinite(converged).any() else searched.best()
    point = searched.solution.x[best]
    y = np.asarray(searched.solution.multipliers.inequalities[best])
    weights = np.where(np.isfinite(y) & (y > 0.0), y, 0.0)
    share = 1.0 if searched.usable.any() else 0.0
    if not share:
        total = float(np.sum(weights))
        weights = weights / total if total > SILENT else np.full_like(weights, 1.0 / len(weights))

    def lagrangian(values: Values) -> np.ndarray:
        return share * values.objective + values.inequalities @ weights

    evaluated = [coarse.values, screen(problem, lattice, {}, point).values]
    return lowest_around(problem, lattice, point, lagrangian, evaluated, _second_best(searched) + COARSE_MARGIN)


def lowest_around(
    problem: DesignProblem,
    lattice: Lattice,
    point: Float[np.ndarray, " n"],
    lagrangian: Callable[[Values], Float[np.ndarray, "layouts points"]],
    evaluated: Sequence[Values],
    doubtful: float,
) -> Float[np.ndarray, " layouts"]:
    """Minimum of a Lagrangian in each layout over evaluated points; where it is below a level, also around a point."""

    def lowest(values: Values) -> np.ndarray:
        result = lagrangian(values)
        return np.min(np.where(np.isfinite(result), result, np.inf), axis=1)

    bound = np.min([lowest(values) for values in evaluated], axis=0)
    close = np.flatnonzero(bound < doubtful)
    if close.size:
        bound[close] = np.minimum(bound[close], lowest(screen(problem, take(lattice, close), CLOSE, point).values))
    return bound


def _second_best(searched: LayoutSearch) -> float:
    """The value that a layout must stay below to come first or second; zero violation where there is none."""
    values = np.sort(searched.values)[:2]
    return float(values[-1]) if searched.usable.any() else 0.0
