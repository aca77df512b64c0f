"""Results of plan searches: the optimum, prices of limits, conflicts, and how the search ended."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import NamedTuple

from energymodel.scenarios.scenario import Scenario
from energymodel.shown import Shown
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import LIMIT_OF_SLACK, OUTPUTS, limited_values, limits_of_system
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.units import format_quantity

EXCEEDED = 1e-6  # in the logarithm: by how much a value exceeds its limit before a person is told


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


OBEYS_EVERY_LIMIT = "obeys every limit"
OBEYS_LIMITS_ASKED = "obeys the limits that were asked"

_MESSAGES = {
    SearchResult.successful: f"The plan is realizable and {OBEYS_EVERY_LIMIT}.",
    SearchResult.infeasible: (
        "Plans exist only with fractions of replicas or micro-batches. Relax a limit a little, or free plan.batch."
    ),
    SearchResult.not_converged: (
        f"The plan is realizable and {OBEYS_EVERY_LIMIT}. Its optimality is not shown: the iteration limit was "
        "reached. Start from it, or vary fewer numbers."
    ),
    SearchResult.interrupted: (
        "The search was interrupted; the plan is the best found so far. Run it again for the optimum."
    ),
}


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
    return ", ".join(f"{name} is {value}, above the system's {limit}" for name, (value, limit) in ends.items())


@dataclasses.dataclass(frozen=True)
class Price:
    """What a limit costs: elasticity of the objective, and price per unit of the limit.

    `elasticity` is y in "1 % more of the limit saves y % of the objective"; `price` is the objective saved per
    unit of the limit, in `price_unit`, such as J/s.
    """

    elasticity: float
    price: float
    price_unit: str


@dataclasses.dataclass(frozen=True)
class RunnerUp:
    """The best plan of another layout and how much worse its objective is (0.02 is 2 %)."""

    layout: ParallelLayout
    excess: float


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
class Optimum(Shown):
    """The best realizable plan, beside the scenario's own; `scenario.optimize` is the question that it answers.

    `relaxed_value` is the lowest objective with counts free to be fractions, a bound on what rounding can reach;
    `gap` is the relative distance of the best realizable plan to it. Where `near_tie` is taken, another plan is the
    answer, within the tolerance of the question. `found` are the values of the variables by path, in SI; `saving` is
    what each cause saves of the objective (`energymodel.search.saving`). `prices` are empty where the limits exclude
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
    runner_up: RunnerUp | None
    relaxed_value: float
    gap: float
    result: SearchResult
    message: str
    conflicts: tuple[Conflict, ...]
    statistics: Mapping[str, int | float]
    found: Mapping[str, float] = dataclasses.field(default_factory=dict)
    near_tie: NearTie | None = None
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
