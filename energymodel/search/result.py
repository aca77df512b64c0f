"""Results of plan searches: the optimum, prices of limits, conflicts, fronts and their measures, how a search ended."""

import dataclasses
import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from energymodel.ranges import declaration
from energymodel.rendered import Rendered
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import replace_leaf
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import LIMIT_OF_SLACK, OUTPUTS, limited_values, limits_of_system
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

EXCEEDED = 1e-6  # in the logarithm: by how much a value exceeds its limit before a person is told
OBEYS_EVERY_LIMIT = "obeys every limit"
OBEYS_LIMITS_ASKED = "obeys the limits that were asked"
_MESSAGES = {
    "successful": f"The plan is realizable and {OBEYS_EVERY_LIMIT}.",
    "infeasible": (
        "Plans exist only with fractions of replicas or micro-batches. Relax a limit a little, or free plan.batch."
    ),
    "not converged": (
        f"The plan is realizable and {OBEYS_EVERY_LIMIT}. Its optimality is not shown: the iteration limit was "
        "reached. Start from it, or vary fewer numbers."
    ),
    "interrupted": ("The search was interrupted; the plan is the best found so far. Run it again for the optimum."),
}
SAME_NUMBER = 1e-9  # relative change of a number that counts as none
FLATTEST = 1e-4  # of the steepest slope that levels are spread by
ARM = 0.05  # in logarithms of the objectives, 5 %: distance over which the bend of a front is measured
NOT_CONVERGED = "Some plans are feasible but not shown to be optimal: the iteration limit was reached."


class SearchResult(enum.StrEnum):
    """How a search ended; `message` says what to do next."""

    successful = "successful"
    infeasible = "infeasible"
    not_converged = "not converged"
    interrupted = "interrupted"

    @property
    def message(self) -> str:
        """One or two sentences for a person."""
        return _MESSAGES[self]

    def throw_unless_successful(self, message: str) -> None:
        """Raise `RuntimeError` with the message of a search unless it was successful."""
        if self != SearchResult.successful:
            raise RuntimeError(f"{self}: {message}")


def exceeded_limits(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> str:
    """Which limits of hardware, building and model a plan exceeds, and by how much; empty if it keeps all of them.

    A plan of a search exceeds one only where a looser limit was asked for, or where the scenario's own plan does.
    """
    exceeded = [name for slack, name in LIMIT_OF_SLACK.items() if float(getattr(outcome.slack, slack)) < -EXCEEDED]
    if not exceeded:
        return ""
    run = scenario.system, plan, outcome
    tables = limited_values(*run), limits_of_system(*run)
    ends = {name: [format_quantity(float(table[name]), OUTPUTS[name]) for table in tables] for name in exceeded}
    titles = {name: declaration(outcome.slack, slack).metadata["title"] for slack, name in LIMIT_OF_SLACK.items()}
    exceeded = (
        f"{titles[name]} ({name}) is {value}, beyond the limit {limit}" for name, (value, limit) in ends.items()
    )
    return ", ".join(exceeded)


@dataclasses.dataclass(frozen=True)
class Price:
    """What a limit costs: elasticity of the objective, and price per unit of the limit.

    `elasticity` is y in "1 % more of the limit saves y % of the objective"; `price` is the objective saved per
    unit of the limit, in `price_unit`, such as J/s.
    """

    elasticity: float
    price: float
    price_unit: str


class LayoutClaim(NamedTuple):
    """What the best layout of the model gains on the own one: a share of the objective in the geometric mean over the
    uncertain constants of a step (0.02 is 2 %), the probability that it gains at all, and whether it is the answer.
    """

    gain: float
    probability: float
    taken: bool


class RankedLayout(NamedTuple):
    """A layout, how far its objective is above the lowest (0.02 is 2 %), and its probability to be the best, or NaN."""

    layout: ParallelLayout
    excess: float
    probability: float = math.nan


class SwitchWorth(NamedTuple):
    """A switch of the layout that was not searched: its name, what it saves of the objective with the plan found as it
    is (0.02 is 2 %), and whether that keeps the limits.
    """

    switch: str
    saving: float
    keeps_limits: bool


class LayoutChoice(NamedTuple):
    """Layouts that may be the best, the likeliest first, and what the best one claims.

    There is no claim where it is the own one, or the own one breaks the limits.
    """

    ranked: tuple[RankedLayout, ...] = ()
    claim: LayoutClaim | None = None


@dataclasses.dataclass(frozen=True)
class NearTie:
    """The plan of lowest energy or money within a tolerance of the optimum, compared with the exact optimum.

    `cost` is the excess of its objective over that of the exact optimum, `saving` what it saves of `saved` (0.02 is
    2 %); `taken` says whether it is the answer. `plan` and `outcome` are those of the exact optimum.
    """

    tolerance: float
    saved: str
    cost: float
    saving: float
    taken: bool
    plan: TrainingPlan
    outcome: TrainingOutcome


class Additions(NamedTuple):
    """What is searched beside the numbers of the best layouts: knots of the batch, paths of power caps of stages."""

    knots: int = 0
    stages: tuple[str, ...] = ()

    @property
    def searches(self) -> tuple["Additions", ...]:
        """Each addition alone, and both together if both are asked for."""
        if self.knots and self.stages:
            return Additions(knots=self.knots), Additions(stages=self.stages), self
        return (self,)

    @property
    def names(self) -> str:
        """As messages call them."""
        parts = [f"a batch at {self.knots} knots of progress"] if self.knots else []
        return " and ".join([*parts, *(["power by pipeline stage"] if self.stages else [])])


@dataclasses.dataclass(frozen=True)
class Refinement:
    """What a batch that follows the progress of the run, or power by pipeline stage, saves of the objective.

    `saving` is beside the best plan with one batch and one clock, `plan` with its `outcome`, in the unit of the
    objective, and 0 where that plan stays; `converged` says whether the search did.
    """

    added: Additions
    saving: float
    converged: bool
    plan: TrainingPlan
    outcome: TrainingOutcome


@dataclasses.dataclass(frozen=True)
class Conflict:
    """One limit of a set that cannot hold together: what was asked, and the nearest value that works."""

    limit: str
    asked: float
    nearest: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Optimum(Rendered):
    """The best realizable plan, beside the scenario's own; `scenario.optimize` is the question that it answers.

    `relaxed_value` is the lowest objective with counts free to be fractions, a bound on what rounding can reach;
    `gap` is the relative distance of the best realizable plan to it. Where `near_tie` is taken, another plan is the
    answer, within the tolerance of the question. `found` are the values of the variables by path, in SI; `saving` is
    what each cause saves of the objective (`energymodel.search.causes`). `choice` weighs the layouts by the error of
    the model; `switches` are those of the framework that were not searched. `prices` are empty where the limits exclude
    each other, and where multipliers are no prices: at a kink of the model, or without a margin about the plan. All
    numbers are NumPy float64.
    """

    scenario: Scenario
    plan: TrainingPlan
    outcome: TrainingOutcome
    baseline: TrainingOutcome
    value: float
    baseline_value: float
    value_unit: str
    limits: Mapping[str, float]
    limit_units: Mapping[str, str]
    prices: Mapping[str, Price]
    active: tuple[str, ...]
    varied: tuple[str, ...]
    layouts_considered: int
    layouts_feasible: int
    runner_up: RankedLayout | None
    relaxed_value: float
    gap: float
    result: SearchResult
    message: str
    conflicts: tuple[Conflict, ...]
    statistics: Mapping[str, int | float]
    found: Mapping[str, float] = dataclasses.field(default_factory=dict)
    near_tie: NearTie | None = None
    choice: LayoutChoice = dataclasses.field(default_factory=LayoutChoice)
    switches: tuple[SwitchWorth, ...] = ()
    refinements: tuple[Refinement, ...] = ()
    saving: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def minimize(self) -> str:
        """What is minimized."""
        return self.scenario.optimize.minimize

    @property
    def success(self) -> bool:
        """Whether the plan can be trusted."""
        return self.result == SearchResult.successful

    @property
    def system(self) -> TrainingSystem:
        """System with the numbers that the search has chosen."""
        system = self.scenario.system
        for path, value in self.found.items():
            if path.startswith("system."):
                system = replace_leaf(system, path.removeprefix("system."), value)
        return jax.tree.map(np.asarray, system)

    @property
    def scenario_found(self) -> Scenario:
        """The scenario with the numbers of the system that the search has chosen."""
        return dataclasses.replace(self.scenario, system=self.system)

    @property
    def has_own_plan(self) -> bool:
        """Whether the layout of the scenario's plan was given, so that a saving against it says something."""
        return "layout" not in self.scenario.chosen

    @property
    def keeps_plan(self) -> bool:
        """Whether the plan is as good as the scenario's own, but for rounding."""
        return math.isclose(self.value, self.baseline_value, rel_tol=SAME_NUMBER)


@dataclasses.dataclass(frozen=True)
class FrontPoint:
    """A realizable plan that no other of its front beats in all objectives.

    `exchange` is y in "1 % more of this objective saves y % of the first", at the relaxed optimum.
    """

    values: Mapping[str, float]
    exchange: Mapping[str, float]
    plan: TrainingPlan
    outcome: TrainingOutcome


@dataclasses.dataclass(frozen=True)
class Front(Rendered):
    """Efficient plans, ordered by the second objective.

    `knee` is the index of the plan at which the front bends most (`knee`).
    """

    scenario: Scenario
    minimize: tuple[str, ...]
    units: Mapping[str, str]
    points: tuple[FrontPoint, ...]
    baseline: Mapping[str, float]
    knee: int
    layouts_considered: int
    layouts_searched: int
    result: SearchResult
    message: str

    @property
    def success(self) -> bool:
        """Whether every plan can be trusted."""
        return self.result == SearchResult.successful

    def table(self) -> Float[np.ndarray, "points objectives"]:
        """Values of the objectives."""
        return np.array([[point.values[name] for name in self.minimize] for point in self.points])


def front_message(scenario: Scenario, points: Sequence[FrontPoint], *, converged: bool) -> str:
    """What all plans of a front have in common."""
    if not converged:
        return NOT_CONVERGED
    exceeded = next(filter(None, (exceeded_limits(scenario, point.plan, point.outcome) for point in points)), "")
    obeys = f"{OBEYS_LIMITS_ASKED}; of some, {exceeded}" if exceeded else OBEYS_EVERY_LIMIT
    return f"Every plan is realizable and {obeys}."


def efficient(values: Float[np.ndarray, "points objectives"]) -> Bool[np.ndarray, " points"]:
    """Which points no other point beats or equals in all objectives while better in one [Pareto 1906]."""
    no_worse = np.all(values[:, None] <= values[None], axis=-1)
    better = np.any(values[:, None] < values[None], axis=-1)
    first = np.tril(np.all(values[:, None] == values[None], axis=-1), -1).any(axis=1)  # of equal points the first stays
    return ~np.any(no_worse & better, axis=0) & ~first


def levels_by_slope(
    first: Float[np.ndarray, " known"],
    second: Float[np.ndarray, " known"],
    slopes: Float[np.ndarray, " known"],
    points: int,
) -> Float[np.ndarray, " points"]:
    """Levels of the second objective, close where the first falls fast: their density is the root of its slope.

    So many points enclose most area then [Auger, Bader, Brockhoff & Zitzler 2009]. Between the levels where it
    is known the logarithm of the slope is linear; where it is NaN, at the ends, the slope itself is.
    """
    chords = -np.diff(first) / np.diff(second)
    slopes = np.array(slopes)
    for end, chord, inner in ((0, 0, 1), (-1, -1, -2)):
        if np.isnan(slopes[end]):
            slopes[end] = chords[chord] if len(slopes) == 2 else 2.0 * chords[chord] - slopes[inner]
    slopes = np.maximum(slopes, FLATTEST * np.max(slopes))
    fine = np.linspace(second[0], second[-1], 64 * points)
    density = np.exp(0.5 * np.interp(fine, second, np.log(slopes)))
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return np.interp(np.linspace(0.0, share[-1], points), share, fine)


def knee(values: Float[np.ndarray, "points objectives"]) -> int:
    """Index of the plan at which a front of two objectives, in the order of the second, bends most.

    There the logarithm of their product lies farthest below its mean at equal distances `ARM` to both sides along the
    front, in logarithms. Units and all of the front beyond that distance play no part. Of more objectives it is the
    plan of the lowest product, where 1 % of one is worth 1 % of another.
    """
    logarithms = np.log(values)
    bend = -logarithms.sum(axis=1)
    if values.shape[1] == 2:
        along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(logarithms, axis=0).T))])
        arms = np.minimum(ARM, np.minimum(along, along[-1] - along))
        sides = along + np.array([[-1.0], [1.0]]) * arms
        bend += sum(np.interp(sides, along, column).mean(axis=0) for column in logarithms.T)
    return int(np.argmax(bend))


def simplex(count: int, size: int) -> Float[np.ndarray, "points size"]:
    """At least `count` evenly spread weights that are not negative and add up to one [Das & Dennis 1998]."""
    steps = next(steps for steps in itertools.count(1) if math.comb(steps + size - 1, size - 1) >= count)
    parts = np.indices((steps + 1,) * (size - 1)).reshape(size - 1, -1).T
    parts = np.column_stack([parts, steps - parts.sum(axis=1)])
    return parts[parts[:, -1] >= 0] / steps
