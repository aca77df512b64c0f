"""The layouts that hold the plans of a front.

Layouts that look best for some trade-off on a coarse grid are searched first. At each trade-off the multipliers of the
best of them then bound what any other layout can reach, as in `layout_search`, and those that are not excluded are
searched as well.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from energymodel.search.front import simplex
from energymodel.search.layout_search import MARGIN, lowest_around
from energymodel.search.layouts import Lattice, concatenate, take
from energymodel.search.problem import Criteria, DesignProblem
from energymodel.search.relaxation import (
    COARSE,
    FINE,
    evaluate_points,
    grid_points,
    obeys_limits,
    penalized,
    screen,
    solve_relaxed,
)
from energymodel.solver import RESULTS, PerConstraint, Solution, Values, result_is

PROMISING = 128  # layouts that the fine grid sees at first, the best on the coarse one
MIXTURES = 7  # of the objectives, for which a layout may be the best on the coarse grid
MOST = 32  # layouts that a trade-off adds because its bound does not exclude them
DOUBT = 0.2  # in the logarithm: by how much the points of all trade-offs may leave a bound too high
ITERATIONS = 24  # of a lane: what takes longer has no plan at its level, or is no better than its neighbors


class TradeOff(NamedTuple):
    """A single optimum of a front: powers of outputs whose product is minimized, and logarithms of limits on others."""

    powers: Mapping[str, float]
    levels: Mapping[str, float] = {}


class Optima(NamedTuple):
    """Relaxed optima of trade-offs in layouts: leaves of the solution begin with both axes, NaN where none was sought.

    `layouts` are indices among those with a fine grid.
    """

    layouts: Int[np.ndarray, " layouts"]
    solution: Solution

    @property
    def value(self) -> Float[np.ndarray, "trades layouts"]:
        """Logarithms of the objectives; infinite where the limits are broken."""
        return np.where(obeys_limits(self.solution), self.solution.value, np.inf)

    def lanes(self, trades: int | Int[np.ndarray, " lanes"], layouts: Int[np.ndarray, " lanes"]) -> Solution:
        """The optima of trade-offs in layouts, by their indices."""
        return jax.tree.map(lambda leaf: leaf[trades, layouts], self.solution)

    def joined(self, other: "Optima") -> "Optima":
        """The same with further layouts."""
        solution = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), self.solution, other.solution)
        return Optima(np.concatenate([self.layouts, other.layouts]), solution)


def traded(problem: DesignProblem, trade: TradeOff, values: Values) -> Values:
    """Objective and rows of a trade-off where the problem was evaluated."""
    rows, index = np.array(values.inequalities), problem.formulation.rows.index

    def logarithm(name: str) -> Float[np.ndarray, "layouts points"]:
        return values.inequalities[..., index(name)] + np.log(problem.criteria.limits[name])

    for name, level in trade.levels.items():
        rows[..., index(name)] = logarithm(name) - level
    return Values(sum(power * logarithm(name) for name, power in trade.powers.items()), rows)


def merit_of(problem: DesignProblem, trade: TradeOff, values: Values) -> Float[np.ndarray, "layouts points"]:
    """Logarithm of the objective of a trade-off, with a price on broken limits."""
    values = traded(problem, trade, values)
    return penalized(values.objective, values)


@dataclasses.dataclass(frozen=True)
class FrontLayouts:
    """A problem, all its layouts on a coarse grid, and those that may hold plans of the front on a fine one.

    `fine` are the indices in the lattice of the layouts with a fine grid.
    """

    problem: DesignProblem
    lattice: Lattice
    considered: int
    coarse: Values
    fine: Int[np.ndarray, " layouts"]
    grid: Float[np.ndarray, "layouts points n"]
    values: Values

    def promising(self, merit: Float[np.ndarray, "layouts points"], count: int) -> tuple[np.ndarray, np.ndarray]:
        """The layouts of the fine grid with the best merit and their best points."""
        best = np.argmin(merit, axis=1)
        order = np.argsort(merit[np.arange(len(best)), best], kind="stable")[:count]
        return order, best[order]

    def criteria(self, trades: Sequence[TradeOff]) -> Criteria:
        """The criteria of lanes, one trade-off each."""
        own = self.problem.criteria
        powers = {name: np.array([trade.powers.get(name, 0.0) for trade in trades]) for name in own.powers}
        limits = {
            name: np.array([np.exp(trade.levels[name]) if name in trade.levels else limit for trade in trades])
            for name, limit in own.limits.items()
        }
        return Criteria(powers, limits)

    def solve(
        self,
        layouts: Int[np.ndarray, " lanes"],
        start: Float[np.ndarray, "lanes n"],
        criteria: Criteria,
        warm: PerConstraint | None = None,
    ) -> Solution:
        """Relaxed optima of lanes, each by its own criteria, from the multipliers of neighbors if given."""
        return solve_relaxed(self.problem, self.layouts(layouts), start, criteria, warm=warm, iterations=ITERATIONS)

    def layouts(self, layouts: Int[np.ndarray, " lanes"]) -> Lattice:
        """The layouts of lanes."""
        return take(self.lattice, self.fine[layouts])

    def with_fine_grid(self, more: Int[np.ndarray, " more"]) -> "FrontLayouts":
        """The same with the fine grid of further layouts of the lattice."""
        grid = (more, *_fine_grid(self.problem, take(self.lattice, more)))
        fine, grid, values = concatenate((self.fine, self.grid, self.values), grid)
        return dataclasses.replace(self, fine=fine, grid=grid, values=values)

    def optima(
        self,
        trades: Sequence[TradeOff],
        layouts: Int[np.ndarray, " layouts"],
        sought: Bool[np.ndarray, "trades layouts"] | None = None,
    ) -> Optima:
        """Relaxed optima of trade-offs in layouts of the fine grid: all of them, or those that are sought."""
        if sought is None:
            sought = np.ones((len(trades), len(layouts)), bool)
        values = take(self.values, layouts)
        best = np.stack([np.argmin(merit_of(self.problem, trade, values), axis=1) for trade in trades])
        trade, layout = np.nonzero(sought)
        start = self.grid[layouts[layout], best[sought]]
        lanes = self.solve(layouts[layout], start, self.criteria([trades[int(index)] for index in trade]))

        def table(leaf: np.ndarray) -> np.ndarray:
            leaf = np.asarray(leaf)
            filled = np.full((*sought.shape, *leaf.shape[1:]), np.nan if leaf.dtype.kind == "f" else 0, leaf.dtype)
            filled[sought] = leaf
            return filled

        return Optima(layouts, jax.tree.map(table, lanes))


def screened(problem: DesignProblem, lattice: Lattice, considered: int, names: Sequence[str]) -> FrontLayouts:
    """The layouts that fit, with the fine grid of those that are best for a mixture of the objectives."""
    coarse = evaluate_points(problem, grid_points(problem, lattice, COARSE), lattice)
    mixtures = simplex(MIXTURES, len(names))
    best = []
    for weights in mixtures:
        merit = np.min(merit_of(problem, TradeOff(dict(zip(names, weights, strict=True))), coarse), axis=1)
        best.append(np.argsort(merit, kind="stable")[: -(-PROMISING // len(mixtures))])
    fine = np.unique(np.concatenate(best))
    return FrontLayouts(problem, lattice, considered, coarse, fine, *_fine_grid(problem, take(lattice, fine)))


def _fine_grid(problem: DesignProblem, lattice: Lattice) -> tuple[Float[np.ndarray, "layouts points n"], Values]:
    grid = grid_points(problem, lattice, FINE)
    return grid, evaluate_points(problem, grid, lattice)


def search_trade_offs(
    search: FrontLayouts, trades: Sequence[TradeOff], each: int, first: Sequence[int] = ()
) -> tuple[FrontLayouts, Optima]:
    """Relaxed optima of trade-offs in all layouts that can hold the best plan of one of them.

    The `first` layouts are searched and so many more for each trade-off; all with a fine grid, where these have no plan
    within the limits; then those that no bound excludes.
    """
    merits = [merit_of(search.problem, trade, search.values) for trade in trades]
    layouts = np.unique(np.concatenate([np.array(first, int), *(search.promising(merit, each)[0] for merit in merits)]))
    optima = search.optima(trades, layouts)
    rest = np.setdiff1d(np.arange(len(search.fine)), layouts)
    if len(rest) and not np.isfinite(optima.value).any():
        optima = optima.joined(search.optima(trades, rest))
    rival = _not_excluded(search, trades, optima)
    more = np.flatnonzero(rival.any(axis=0))
    if not len(more):
        return search, optima
    added = np.setdiff1d(more, search.fine)
    search = search.with_fine_grid(added) if len(added) else search
    layouts = np.flatnonzero(np.isin(search.fine, more))
    return search, optima.joined(search.optima(trades, layouts, rival[:, search.fine[layouts]]))


def _not_excluded(
    search: FrontLayouts, trades: Sequence[TradeOff], optima: Optima
) -> Bool[np.ndarray, "trades layouts"]:
    """Which layouts of the lattice that were not searched no bound excludes from each of the trade-offs."""
    rival = np.zeros((len(trades), len(search.lattice.tensor)), bool)
    others = np.setdiff1d(np.arange(rival.shape[1]), search.fine[optima.layouts])
    if not len(others):
        return rival
    part = take(search.lattice, others)
    holds = result_is(optima.solution.result, RESULTS.successful) & np.isfinite(optima.value)
    best = np.argmin(np.where(holds, optima.value, np.inf), axis=1)
    bounding = np.flatnonzero(holds.any(axis=1))
    points = optima.lanes(bounding, best[bounding]).x
    evaluated = [take(search.coarse, others), *(screen(search.problem, part, {}, point).values for point in points)]
    for index, point in zip(map(int, bounding), points, strict=True):
        lowest = np.min(optima.value[index])
        multipliers = optima.lanes(index, best[index]).multipliers.inequalities

        def lagrangian(values: Values, index: int = index, multipliers: np.ndarray = multipliers) -> np.ndarray:
            values = traded(search.problem, trades[index], values)
            return values.objective + values.inequalities @ multipliers

        bound = lowest_around(search.problem, part, point, lagrangian, evaluated, lowest + DOUBT)
        order = np.argsort(bound, kind="stable")[:MOST]
        rival[index, others[order[bound[order] < lowest + MARGIN]]] = True
    return rival
