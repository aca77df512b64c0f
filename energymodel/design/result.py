"""What does a design search answer?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from energymodel.presets.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import ParallelLayout, TrainingPlan


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
class Conflict:
    """One limit of a set that cannot hold together: what was asked, and the nearest value that works."""

    limit: str
    asked: float
    nearest: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best realizable plan, beside the scenario's own.

    `relaxed_value` is the least objective with counts free to be fractions, a bound on what rounding can reach;
    `gap` is the relative distance of the answer to it. All numbers are NumPy float64.
    """

    scenario: Scenario
    minimize: str
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
    result: str
    message: str
    conflicts: tuple[Conflict, ...]
    statistics: Mapping[str, Any]

    @property
    def success(self) -> bool:
        """Whether the plan can be trusted."""
        return self.result == "successful"
