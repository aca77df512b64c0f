"""The plan that saves most among those as good as the best within a tolerance.

Where an objective is flat, its exact optimum may cost a lot of something else: the fastest plan cools throttled chips
for the last tenth of a percent. A second search therefore minimizes the energy (the money, where energy is the
objective)

    min { g(x) : c(x) <= 0, f(x) <= (1 + tolerance) f* }        [epsilon-constraint: Haimes et al. 1971]

in all layouts whose relaxed optimum lies within the tolerance, by the programs that the first search compiled.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.scenarios.scenario import Scenario
from energymodel.search.layout_search import spread_starts
from energymodel.search.layouts import take
from energymodel.search.problem import DesignProblem, row_of_objective
from energymodel.search.relaxation import SETTLED, LayoutSearch, solve_relaxed
from energymodel.search.result import NearTie
from energymodel.search.rounding import TOLERATED, RoundedPlan, plans_at, round_layouts, solve_at_counts
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value, parse_objective
from energymodel.system.plan import TrainingPlan

MOST = 128  # layouts that are searched, those with the best objective
STARTS = 32  # over all bounds, of the plans of the first search that are searched again
RESTARTED = 2  # plans of the first search that are searched again at their counts
EVALUATED = 4  # plans of which the cheapest is taken, if they are equal in what is saved
MEANINGLESS = 1e-6  # a share of what is saved that is not worth a line
EQUAL = 1e-4  # in the logarithm: two plans that differ by less are equal


class EvaluatedPlan(NamedTuple):
    """A plan with what it yields and costs, and the solver's vector of it."""

    plan: TrainingPlan
    outcome: TrainingOutcome
    point: Float[np.ndarray, " n"]

    def over(self, other: "EvaluatedPlan", name: str) -> float:
        """Ratio of an objective to that of another plan [1]."""
        return float(objective_value(self.outcome, name) / objective_value(other.outcome, name))


def saved_beside(minimize: str) -> str:
    """What is saved among plans that are equally good: energy, or money where energy is minimized."""
    return "money" if minimize == "energy" else "energy"


def tolerance_of(scenario: Scenario) -> float:
    """Share by which the objective may exceed the lowest [1]; none of a loss, of which half a percent is much."""
    asked = scenario.optimize
    return 0.0 if "loss" in parse_objective(asked.minimize).names() else asked.tolerance


def near_tie(
    scenario: Scenario, problem: DesignProblem, searched: LayoutSearch, rounded: list[RoundedPlan], exact: EvaluatedPlan
) -> tuple[EvaluatedPlan, NearTie | None]:
    """The plan to take, and how it compares with the exact optimum; `None` where no other plan saves anything.

    Of plans that save the same, the cheapest is meant. The exact optimum stays if the other saves less, in percent,
    than it costs.
    """
    tolerance, saved = tolerance_of(scenario), saved_beside(problem.minimize)
    most = rounded[0].value + math.log1p(tolerance)
    within = problem.asking({saved: 1.0}, {row_of_objective(problem.minimize): math.exp(most - TOLERATED)})
    near = [plan for plan in rounded if plan.value <= most][:RESTARTED]
    plans = [*_in_layouts(within, searched, most), *_at_counts(within, searched, near)]
    plans.sort(key=lambda plan: plan.value)
    if not plans:
        return exact, None
    plans = [plan for plan in plans if plan.value <= plans[0].value + EQUAL][:EVALUATED]
    layouts, points = take(searched.lattice, np.array([plan.lane for plan in plans])), [plan.point for plan in plans]
    evaluated = plans_at(scenario, within, points, layouts, counts=[plan.counts for plan in plans])
    other = min(map(EvaluatedPlan, *zip(*evaluated, strict=True), points), key=lambda plan: float(plan.outcome.money))
    cost, saving = other.over(exact, problem.minimize) - 1.0, 1.0 - other.over(exact, saved)
    if saving <= MEANINGLESS:
        return exact, None
    taken = saving > cost
    return other if taken else exact, NearTie(tolerance, saved, cost, saving, taken, exact.plan, exact.outcome)


def _in_layouts(within: DesignProblem, searched: LayoutSearch, most: float) -> list[RoundedPlan]:
    """Plans in the layouts whose relaxed optimum is within the tolerance, from there."""
    lanes = np.argsort(searched.values, kind="stable")[:MOST]
    lanes = lanes[searched.values[lanes] <= most]
    if not len(lanes):
        return []
    lattice = take(searched.lattice, lanes)
    solution = solve_relaxed(within, lattice, searched.solution.x[lanes], iterations=SETTLED, patient=True)
    relaxed = LayoutSearch(lattice, solution)
    plans = round_layouts(within, relaxed, relaxed.usable)
    return [plan._replace(counts=plan.counts._replace(lane=int(lanes[plan.lane]))) for plan in plans]


def _at_counts(within: DesignProblem, searched: LayoutSearch, near: list[RoundedPlan]) -> list[RoundedPlan]:
    """Plans of the same layouts and counts as those that are within the tolerance, from starts all over the bounds.

    Such plans exist. Where a power cap binds, the objective has a kink, at which a single search may end.
    """
    each = STARTS // len(near)
    start = spread_starts(within, take(searched.lattice, np.array([plan.lane for plan in near])), each)
    start[: len(near)] = [plan.point for plan in near]
    return solve_at_counts(within, searched, [plan.counts for plan in near] * each, SETTLED, start)
