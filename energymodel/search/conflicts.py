"""Limits that exclude each other, and how far each of them must give.

A set of limits is a conflict if no plan obeys all of it, and a smallest one if plans obey every set of fewer limits.
Sets are tried in the order of their size: points of a grid prove most of them harmless, and the rest are searched, each
in the layouts that break it least. Then each limit of the conflict is moved alone, until the others hold: at once to
where a plan breaks it by as much as all limits together must be broken, if that plan obeys the others, else by trial.
All of them share the loss that the run must reach and the chips that it has; these are moved as well.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
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
    instead: Mapping[str, float] = MappingProxyType({})


def conflicts(problem: DesignProblem, lattice: Lattice) -> tuple[Conflict, ...]:
    """A smallest set of limits that exclude each other, each with the value at which all others hold.

    The value is NaN where no value of this limit alone helps. Limits come in the order of how little they must give.
    """
    infeasible = _InfeasibleProblem(problem, lattice)
    together = infeasible.smallest()
    shared = [name for name in SHARED if name in problem.limits and infeasible.helps(name, together)]
    nearest = {name: infeasible.nearest(name) for name in (*together, *shared)}

    def step(name: str) -> float:
        return abs(math.log(nearest[name] / problem.limits[name])) if nearest[name] > 0.0 else math.inf

    limits = [Conflict(name, problem.limits[name], value, unit_of(name)) for name, value in nearest.items()]
    return tuple(sorted(limits, key=lambda limit: step(limit.limit)))


class _InfeasibleProblem:
    """An infeasible problem with its layouts on a grid."""

    def __init__(self, problem: DesignProblem, lattice: Lattice) -> None:
        self.problem, self.lattice = problem, lattice
        self.grid = grid_points(problem, lattice, FINE)
        values = evaluate_points(problem, self.grid, lattice)
        self.excess = np.where(np.isfinite(values.inequalities), values.inequalities, np.inf)
        self.rows = {name: row for row, name in enumerate(problem.formulation.rows) if name in problem.limits}

    def smallest(self) -> list[str]:
        """Limits of a smallest conflict among the rows; empty if there is none."""
        for size in range(1, len(self.rows) + 1):
            sets = [_LimitSet(rows) for rows in itertools.combinations(self.rows, size)]
            sets = [limits for limits in sets if self.broken(limits.rows).min() > 0.0]
            violation = self.solve(sets)[0] if sets else np.zeros(1)
            if violation.max() > TOLERANCE:
                return list(sets[int(np.argmax(violation))].rows)
        return []

    def helps(self, name: str, rows: Sequence[str]) -> bool:
        """Whether some rows can hold together with much more of a shared limit."""
        limits = _LimitSet(tuple(rows), {name: self.problem.limits[name] * SHARED[name]})
        return bool(self.solve([limits])[0][0] <= TOLERANCE)

    def nearest(self, name: str) -> float:
        """Value of a limit at which the others can hold; NaN if there is none."""
        asked, rows = self.problem.limits[name], tuple(self.rows)
        sign = -1.0 if name in AT_LEAST else 1.0

        def at(step: float) -> float:
            return asked * math.exp(sign * step)

        low, high = 0.0, math.log(SHARED.get(name, FAR))
        violation, reached = self.solve([_LimitSet(rows, {name: at(high)})])
        if violation[0] > TOLERANCE:
            return math.nan
        if name in self.rows:
            row = self.rows[name]
            lowest, broken = self.least_broken
            if broken[row] >= lowest - TOLERANCE:  # all limits together break no other
                return at(float(broken[row]))
            high = max(high + float(reached[0, row]), TOLERANCE)
        for _ in range(PASSES):
            steps = np.linspace(low, high, LEVELS + 1)
            violation, _ = self.solve([_LimitSet(rows, {name: at(step)}) for step in steps[1:]], patient=False)
            holds = np.flatnonzero(violation <= TOLERANCE)
            if not len(holds):
                break
            low, high = map(float, steps[holds[0] : holds[0] + 2])
        return at(high)

    @cached_property
    def least_broken(self) -> tuple[float, Float[np.ndarray, " rows"]]:
        """Smallest violation of all limits together, and by how much each is broken there."""
        violation, rows = self.solve([_LimitSet(tuple(self.rows))])
        return float(violation[0]), rows[0]

    def broken(self, rows: Sequence[str]) -> Float[np.ndarray, "layouts points"]:
        """Violation of some limits at points of the grid, in the sum of logarithms."""
        columns = [*(self.rows[name] for name in rows), -1]  # whole micro-batches always count
        return np.sum(np.maximum(self.excess[..., columns], 0.0), axis=-1)

    def solve(
        self, cases: Sequence[_LimitSet], *, patient: bool = True
    ) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, "cases rows"]]:
        """Smallest violation of each case over the layouts that break it least on the grid, and the rows there.

        A search that is not patient may take a case for broken that holds, where its limits leave next to no margin.
        """
        problem, count = self.problem, min(TRIED, len(self.grid))
        lanes, start = [], []
        for case in cases:
            broken = self.broken([name for name in case.rows if name not in case.instead])
            best = np.argmin(broken, axis=1)
            chosen = np.argsort(broken[np.arange(len(best)), best], kind="stable")[:count]
            lanes.append(chosen)
            start.append(self.grid[chosen, best[chosen]])
        layouts = take(self.lattice, np.concatenate(lanes))
        names = problem.criteria.limits
        limits = {name: np.repeat([self.limit(name, case) for case in cases], count) for name in names}
        lower, upper = layout_bounds(problem, layouts)
        index = problem.index("plan.chips")
        if index is not None:
            chips = np.repeat([case.instead.get("chips", 0.0) for case in cases], count)
            upper[:, index] = np.where(chips > 0.0, np.log(np.maximum(chips, 1.0)), upper[:, index])
        solution = solve_relaxed(
            problem,
            layouts,
            np.concatenate(start),
            Criteria(problem.repeated_criteria(len(layouts.tensor)).powers, limits),
            bounds=(lower, upper),
            iterations=None if patient else SETTLED,
        )
        rows = -solution.slacks.inequalities
        violation = np.sum(np.maximum(rows, 0.0), axis=-1).reshape(len(cases), count)
        violation = np.where(np.isfinite(violation), violation, np.inf)
        best, case = np.argmin(violation, axis=1), np.arange(len(cases))
        return violation[case, best], rows.reshape(len(cases), count, -1)[case, best]

    def limit(self, name: str, case: _LimitSet) -> float:
        """Value of a limit in a case, in SI; far away where the case leaves it out."""
        own = float(self.problem.criteria.limits[name])
        if name in case.instead or name in case.rows or name not in self.rows:
            return case.instead.get(name, own)
        return own / FAR if name in AT_LEAST else own * FAR
