"""Limits that exclude each other, and how far each of them must give.

A set of limits is a conflict if no plan obeys all of it, and a smallest one if plans obey every set of fewer limits.
Sets are tried in the order of their size: points of a grid prove most of them harmless, and the rest are searched, each
in the layouts that break it least. Then each limit of the conflict is moved alone, until the others hold: at once to
where a plan breaks it by as much as all limits together must be broken, if that plan obeys the others, else by trial.
All of them share the loss that the run must reach and the chips that it has; these are moved as well. So far counts
may be fractions: a value is advised as a person reads it, once a search with it has found a plan in whole numbers.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.search.layouts import take
from energymodel.search.problem import FAR, Criteria, DesignProblem
from energymodel.search.relaxation import FINE, SETTLED, TOLERANCE, LayoutSearch, layout_bounds, screen, solve_relaxed
from energymodel.search.result import Conflict
from energymodel.search.rounding import RoundedPlan, realized
from energymodel.system.layouts import Lattice
from energymodel.system.outputs import AT_LEAST, limited_values, parse_limit, unit_of
from energymodel.units import format_quantity

TRIED = 6  # layouts in which a set of limits is searched
LEVELS = 6  # values of a limit that are tried at once
PASSES = 4  # each over one step of the last
SHARED = {"loss": 2.0, "chips": 64.0}  # goal and bound behind all conflicts, and up to how much of them is tried
OUTWARD = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)  # in the logarithm: how far whole numbers may be beyond fractions
HALVINGS = 4  # of the way back to a limit from a plan that ignores it
TIGHT = 0.02  # in the logarithm: a limit with less margin keeps whole numbers from a plan
FINER = 1e-4  # relative step to the next number as a person reads it
Trial = tuple[Sequence[str], Mapping[str, float]]
"""Limits that are tried together: those that hold, by name of row, and other values of some."""


class Way(NamedTuple):
    """A search, and its plans in whole numbers, best first."""

    search: LayoutSearch
    plans: list[RoundedPlan]


def conflicts(
    problem: DesignProblem, lattice: Lattice, realize: Callable[[DesignProblem], Way]
) -> tuple[tuple[Conflict, ...], Way | None]:
    """A smallest set of limits that exclude each other, each with a value at which a plan obeys all others.

    The value is NaN where no value of this limit alone helps. Limits come in the order of how little they must give.
    Where only fractions of replicas obey all limits, the set has those with hardly a margin.

    - `realize`: a search over all layouts.

    **Returns:** the limits, and what the first of them gives way to, one that was asked if possible.
    """
    infeasible = _InfeasibleProblem(problem, lattice)
    together = infeasible.smallest() or infeasible.tight()
    much = {name: {name: problem.limits[name] * factor} for name, factor in SHARED.items() if name in problem.limits}
    shared = [name for name, more in much.items() if infeasible.solve([(together, more)])[0][0] <= TOLERANCE]
    ways: dict[str, Way] = {}
    nearest = {name: infeasible.tried(name, realize, ways) for name in (*together, *shared)}

    def step(limit: Conflict) -> float:
        return abs(math.log(limit.nearest / limit.asked)) if limit.nearest > 0.0 else math.inf

    limits = [Conflict(name, problem.limits[name], value, unit_of(name)) for name, value in nearest.items()]
    limits.sort(key=step)
    first = sorted((limit.limit for limit in limits if limit.limit in ways), key=lambda name: name in SHARED)
    return tuple(limits), ways[first[0]] if first else None


def outward(problem: DesignProblem, name: str, value: float) -> float:
    """A limit as a person reads it, at least as loose as a value; chips in blocks."""
    if name == "chips":
        block = problem.block or math.gcd(round(float(problem.run.system.node.chips)), round(problem.limits[name]))
        return float(math.ceil(value / max(block, 1) - FINER) * max(block, 1))
    sign, near = -1.0 if name in AT_LEAST else 1.0, value
    while sign * ((read := parse_limit(name, format_quantity(near, unit_of(name)))) - value) < 0.0:
        near *= math.exp(sign * FINER)
    return read


class _InfeasibleProblem:
    """An infeasible problem with its layouts on a grid."""

    def __init__(self, problem: DesignProblem, lattice: Lattice) -> None:
        self.problem, self.lattice = problem, lattice
        self.grid, values = screen(problem, lattice, FINE)
        self.excess = np.where(np.isfinite(values.inequalities), values.inequalities, np.inf)
        self.rows = {name: row for row, name in enumerate(problem.formulation.rows) if name in problem.limits}
        self.least_broken: tuple[float, np.ndarray] | None = None

    def smallest(self) -> list[str]:
        """Limits of a smallest conflict among the rows; empty if there is none."""
        for size in range(1, len(self.rows) + 1):
            sets = [rows for rows in itertools.combinations(self.rows, size) if self.broken(rows).min() > 0.0]
            violation = self.solve([(rows, {}) for rows in sets])[0] if sets else np.zeros(1)
            if violation.max() > TOLERANCE:
                return list(sets[int(np.argmax(violation))])
        return []

    def tight(self) -> list[str]:
        """Limits that leave hardly a margin where fractions obey all of them."""
        rows = self.solve([(tuple(self.rows), {})])[1][0]
        return [name for name, row in self.rows.items() if rows[row] > -TIGHT]

    def tried(self, name: str, realize: Callable[[DesignProblem], Way], ways: dict[str, Way]) -> float:
        """Value of a limit with which a search finds plans, kept in `ways`, the others as they are; NaN if none does.

        From the nearest for fractions outward; failing that, from the plan of a limit far away back.
        """
        asked, sign = self.problem.limits[name], -1.0 if name in AT_LEAST else 1.0
        tried: dict[float, bool] = {}

        def value(step: float) -> float:
            return outward(self.problem, name, asked * math.exp(sign * step))

        def holds(step: float) -> bool:
            limit = value(step)
            if limit not in tried:
                way = realize(self.problem.asking(limits={name: limit}))
                tried[limit] = bool(way.plans)
                ways.update({name: way} if way.plans else {})
            return tried[limit]

        relaxed = sign * math.log(self.nearest(name) / asked)
        for more in OUTWARD if math.isfinite(relaxed) else ():
            if holds(relaxed + more):
                return value(relaxed + more)
        if not holds(math.log(SHARED.get(name, FAR))):
            return math.nan
        plan, outcome = realized(ways[name].search, ways[name].plans[0])
        reached = float(limited_values(self.problem.run.system, plan, outcome)[name])
        low, high = 0.0, max(FINER, sign * math.log(reached / asked))
        high = next((high + more for more in OUTWARD if holds(high + more)), math.log(SHARED.get(name, FAR)))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if holds(middle) else (middle, high)
        return value(high)

    def nearest(self, name: str) -> float:
        """Value of a limit at which the others can hold; NaN if there is none."""
        asked, rows = self.problem.limits[name], tuple(self.rows)
        sign = -1.0 if name in AT_LEAST else 1.0

        def at(step: float) -> float:
            return asked * math.exp(sign * step)

        low, high = 0.0, math.log(SHARED.get(name, FAR))
        violation, reached = self.solve([(rows, {name: at(high)})])
        if violation[0] > TOLERANCE:
            return math.nan
        if name in self.rows:
            row = self.rows[name]
            if self.least_broken is None:
                self.least_broken = tuple(part[0] for part in self.solve([(rows, {})]))
            lowest, broken = self.least_broken
            if broken[row] >= lowest - TOLERANCE:  # all limits together break no other
                return at(float(broken[row]))
            high = max(high + float(reached[0, row]), TOLERANCE)
        for _ in range(PASSES):
            steps = np.linspace(low, high, LEVELS + 1)
            violation, _ = self.solve([(rows, {name: at(step)}) for step in steps[1:]], patient=False)
            holds = np.flatnonzero(violation <= TOLERANCE)
            if not len(holds):
                break
            low, high = map(float, steps[holds[0] : holds[0] + 2])
        return at(high)

    def broken(self, rows: Sequence[str]) -> Float[np.ndarray, "layouts points"]:
        """Violation of some limits at points of the grid, in the sum of logarithms."""
        columns = [*(self.rows[name] for name in rows), -1]  # whole micro-batches always count
        return np.sum(np.maximum(self.excess[..., columns], 0.0), axis=-1)

    def solve(
        self, trials: Sequence[Trial], *, patient: bool = True
    ) -> tuple[Float[np.ndarray, " trials"], Float[np.ndarray, "trials rows"]]:
        """Smallest violation of each trial over the layouts that break it least on the grid, and the rows there.

        A search that is not patient may take a trial for broken that holds, where its limits leave next to no margin.
        """
        problem, count = self.problem, min(TRIED, len(self.grid))
        lanes, start = [], []
        for rows, instead in trials:
            broken = self.broken([name for name in rows if name not in instead])
            lanes.append(np.argsort(np.min(broken, axis=1), kind="stable")[:count])
            start.append(self.grid[lanes[-1], np.argmin(broken, axis=1)[lanes[-1]]])
        layouts = take(self.lattice, np.concatenate(lanes))
        limits = {
            name: np.repeat([self.limit(name, trial) for trial in trials], count) for name in problem.criteria.limits
        }
        lower, upper = layout_bounds(problem, layouts)
        index = problem.index("plan.chips")
        if index is not None:
            chips = np.repeat([instead.get("chips", 0.0) for _, instead in trials], count)
            upper[:, index] = np.where(chips > 0.0, np.log(np.maximum(chips, 1.0)), upper[:, index])
        criteria, iterations = Criteria(problem.criteria.powers, limits), None if patient else SETTLED
        solution = solve_relaxed(
            problem, layouts, np.concatenate(start), criteria, bounds=(lower, upper), iterations=iterations
        )
        rows = -solution.slacks.inequalities
        violation = np.sum(np.maximum(rows, 0.0), axis=-1).reshape(len(trials), count)
        violation = np.where(np.isfinite(violation), violation, np.inf)
        best, trial = np.argmin(violation, axis=1), np.arange(len(trials))
        return violation[trial, best], rows.reshape(len(trials), count, -1)[trial, best]

    def limit(self, name: str, trial: Trial) -> float:
        """Value of a limit in a trial, in SI; far away where the trial leaves it out."""
        (rows, instead), own = trial, float(self.problem.criteria.limits[name])
        if name in instead or name in rows or name not in self.rows:
            return instead.get(name, own)
        return own / FAR if name in AT_LEAST else own * FAR
