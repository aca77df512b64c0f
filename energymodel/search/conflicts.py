"""Which limits exclude each other, and how far must each of them give?

A set of limits is a conflict if no plan obeys all of it, and a smallest one if plans obey every set of fewer limits.
Sets are tried in the order of their size: points of a grid prove most of them harmless, and the rest are searched, each
in the layouts that break it least. Then each limit of the conflict is moved alone, until the others hold: at once to
where a plan breaks it by as much as all limits together must be broken, if that plan obeys the others, else by trial.
All of them share the loss that the run must reach and the chips that it has; these are moved as well.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.search.layouts import Lattice, take
from energymodel.search.problem import FAR, Criteria, DesignProblem
from energymodel.search.relaxation import (
    FINE,
    SETTLED,
    TOLERANCE,
    evaluate_points,
    grid_points,
    layout_bounds,
    solve_relaxed,
)
from energymodel.search.result import Conflict
from energymodel.system.outputs import AT_LEAST, unit_of

TRIED = 6  # layouts in which a set of limits is searched
LEVELS = 6  # values of a limit that are tried at once
PASSES = 4  # each over one step of the last
SHARED = {"loss": 2.0, "chips": 64.0}  # goal and bound behind all conflicts, and up to how much of them is tried


class _LimitSet(NamedTuple):
    """Limits that are tried together: those that hold, by name of row, and other values of some."""

    rows: tuple[str, ...]
    instead: dict[str, float]


def conflicts(problem: DesignProblem, lattice: Lattice) -> tuple[Conflict, ...]:
    """A smallest set of limits that exclude each other, each with the value at which all others hold.

    The value is NaN where no value of this limit alone helps. Limits come in the order of how little they must give.
    """
    infeasible = _InfeasibleProblem(problem, lattice)
    together = infeasible.smallest()
    shared = [
        name for name, most in SHARED.items() if name in problem.limits and infeasible.helps(name, most, together)
    ]
    found = [
        Conflict(name, problem.limits[name], infeasible.nearest(name), unit_of(name)) for name in (*together, *shared)
    ]
    return tuple(sorted(found, key=lambda one: abs(math.log(one.nearest / one.asked)) if one.nearest > 0 else math.inf))


class _InfeasibleProblem:
    """An infeasible problem with its layouts on a grid."""

    def __init__(self, problem: DesignProblem, lattice: Lattice) -> None:
        self.problem, self.lattice = problem, lattice
        self.grid = grid_points(problem, lattice, FINE)
        values = evaluate_points(problem, self.grid, lattice)
        self.excess = np.where(np.isfinite(values.inequalities), values.inequalities, np.inf)
        self.rows = {name: row for row, name in enumerate(problem.formulation.rows) if name in problem.limits}

    def smallest(self) -> tuple[str, ...]:
        """Limits of a smallest conflict among the rows; empty if none is found."""
        for size in range(1, len(self.rows) + 1):
            sets = list(itertools.combinations(self.rows, size))
            sets = [one for one in sets if self.broken(one).min() > 0.0]
            lack = self.violation([_LimitSet(one, {}) for one in sets])
            if len(sets) and lack.max() > TOLERANCE:
                return sets[int(np.argmax(lack))]
        return ()

    def helps(self, name: str, most: float, rows: tuple[str, ...]) -> bool:
        """Whether some rows can hold together with so many times a limit."""
        case = _LimitSet(rows, {name: self.problem.limits[name] * most})
        return bool(self.violation([case])[0] <= TOLERANCE)

    def nearest(self, name: str) -> float:
        """Value of a limit at which the others can hold; NaN if there is none."""
        asked, rows = self.problem.limits[name], tuple(self.rows)
        sign = -1.0 if name in AT_LEAST else 1.0

        def at(step: float) -> float:
            return asked * math.exp(sign * step)

        low, high = 0.0, math.log(SHARED.get(name, FAR))
        lack, reached = self.solve([_LimitSet(rows, {name: at(high)})])
        if lack[0] > TOLERANCE:
            return math.nan
        if name in self.rows:
            row = self.rows[name]
            least, broken = self.least_broken
            if broken[row] >= least - TOLERANCE:  # all limits together break no other
                return at(float(broken[row]))
            high = max(high + float(reached[0, row]), TOLERANCE)
        for _ in range(PASSES):
            steps = np.linspace(low, high, LEVELS + 1)[1:]
            lack, _ = self.solve([_LimitSet(rows, {name: at(step)}) for step in steps], patient=False)
            holds = np.flatnonzero(lack <= TOLERANCE)
            if not len(holds):
                break
            best = int(holds[0])
            low, high = (low if best == 0 else float(steps[best - 1])), float(steps[best])
        return at(high)

    @cached_property
    def least_broken(self) -> tuple[float, Float[np.ndarray, " rows"]]:
        """Smallest violation of all limits together, and by how much each is broken there."""
        lack, rows = self.solve([_LimitSet(tuple(self.rows), {})])
        return float(lack[0]), rows[0]

    def broken(self, rows: Sequence[str]) -> Float[np.ndarray, "layouts points"]:
        """What points of the grid break of some limits, in the sum of logarithms."""
        places = [*(self.rows[name] for name in rows), -1]  # whole micro-batches always count
        return np.sum(np.maximum(self.excess[..., places], 0.0), axis=-1)

    def violation(self, cases: Sequence[_LimitSet]) -> Float[np.ndarray, " cases"]:
        """Smallest violation of each case over its layouts."""
        return self.solve(cases)[0] if cases else np.zeros(0)

    def solve(
        self, cases: Sequence[_LimitSet], *, patient: bool = True
    ) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, "cases rows"]]:
        """Smallest violation of each case over the layouts that break it least on the grid, and the rows there.

        A search that is not patient may take a case for broken that holds, where its limits leave next to no room.
        """
        problem = self.problem
        count = min(TRIED, len(self.grid))
        places, start = [], []
        for case in cases:
            broken = self.broken([name for name in case.rows if name not in case.instead])
            at = np.argmin(broken, axis=1)
            chosen = np.argsort(broken[np.arange(len(at)), at], kind="stable")[:count]
            places.append(chosen)
            start.append(self.grid[chosen, at[chosen]])
        layouts = take(self.lattice, np.concatenate(places))
        limits = {
            name: np.repeat([self.limit(name, case) for case in cases], count) for name in problem.criteria.limits
        }
        powers = problem.repeated_criteria(len(cases) * count).powers
        lower, upper = layout_bounds(problem, layouts)
        place = problem.index("plan.chips")
        if place is not None:
            chips = np.repeat([case.instead.get("chips", 0.0) for case in cases], count)
            upper[:, place] = np.where(chips > 0.0, np.log(np.maximum(chips, 1.0)), upper[:, place])
        criteria = Criteria(powers, limits)
        iterations = None if patient else SETTLED
        bounds = lower, upper
        found = solve_relaxed(problem, layouts, np.concatenate(start), criteria, bounds=bounds, iterations=iterations)
        rows = -found.slacks.inequalities
        lack = np.sum(np.maximum(rows, 0.0), axis=-1).reshape(len(cases), count)
        lack = np.where(np.isfinite(lack), lack, np.inf)
        best = np.argmin(lack, axis=1)
        case = np.arange(len(cases))
        return lack[case, best], rows.reshape(len(cases), count, -1)[case, best]

    def limit(self, name: str, case: _LimitSet) -> float:
        """Value of a limit in a case, in SI."""
        own = float(self.problem.criteria.limits[name])
        if name in case.instead:
            return case.instead[name]
        if name in case.rows or name not in self.rows:
            return own
        return own / FAR if name in AT_LEAST else own * FAR
