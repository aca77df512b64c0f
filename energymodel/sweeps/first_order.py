"""Uncertainty of what a plan saves, to first order, and the part of it that rests on priors.

The saving is `v(own plan) - v(optimum)` of an objective v. Both plans stay as uncertain numbers move
(`energymodel.sweeps.outcome_spread`), and the optimum trains to the loss that the own plan reaches with them.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from energymodel.physics.voltage import HIGHEST_KNEE
from energymodel.scenarios.step_population import row_scatter
from energymodel.search.result import Optimum
from energymodel.search.training_run import SLOWDOWN, TrainingRun, in_float64, replace_leaf
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread, directions_of, spread_along
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import objective_value, parse_objective
from energymodel.system.plan import TokenBudget

TOKENS, LAYOUT, CLOCK = "plan.goal.tokens", "layout", "clock"
VOLTAGE = tuple(f"system.accelerator.voltage.{name}" for name in ("floor", "knee"))


class SavingAtRisk(NamedTuple):
    """Uncertainty of a found plan's objective and of its saving, to first order.

    - `deviation`, `own_deviation`: standard deviation of the logarithm of the objective, of the found and the own plan.
    - `saving`, `saving_deviation`: of the saving, in the unit of the objective.
    - `prior_deviation`: the part of `saving_deviation` that comes from priors.
    - `shares`: of the variance of the saving by number or joint distribution, the largest first; of priors alone.
    - `without`: priors whose scenario states no spread: they count as exact.
    - `own`, `found`: spread of all outputs of both plans, along the same directions.
    - `clock`: what the clock of the plan found saves beside the own one, all else as found, over the objective, with
      the ends of its 90 % interval by what is known of the voltage [1]; `None` where neither says anything.
    """

    deviation: float
    own_deviation: float
    saving: float
    saving_deviation: float
    prior_deviation: float
    shares: Mapping[str, float]
    without: int
    own: OutcomeSpread | None = None
    found: OutcomeSpread | None = None
    clock: tuple[float, float, float] | None = None

    @property
    def resting_on_priors(self) -> float:
        """Share of the saving that priors can take away within their 90 % interval, at most all of it [1]."""
        return min(1.0, DEVIATIONS * self.prior_deviation / abs(self.saving)) if self.saving else 0.0

    def interval(self, value: float) -> tuple[float, float]:
        """90 % interval of the objective of the found plan, log-normal."""
        return value * math.exp(-DEVIATIONS * self.deviation), value * math.exp(DEVIATIONS * self.deviation)

    @property
    def saving_interval(self) -> tuple[float, float]:
        """90 % interval of the saving, normal."""
        return self.saving - DEVIATIONS * self.saving_deviation, self.saving + DEVIATIONS * self.saving_deviation

    @property
    def chance(self) -> float:
        """Probability that the plan saves at all, normal [1]."""
        return float(ndtr(self.saving / self.saving_deviation)) if self.saving_deviation else float(self.saving > 0.0)

    @property
    def prior_variance(self) -> float:
        """Share of priors in the variance of the saving [1]."""
        return (self.prior_deviation / self.saving_deviation) ** 2 if self.saving_deviation else 0.0


def saving_at_risk(optimum: Optimum) -> SavingAtRisk:
    """Uncertainty of the outputs and of the saving of a plan, from the distributions that its scenario states.

    **Raises:** `InputError` for a distribution that cannot be read.
    """
    scenario = optimum.scenario
    with jax.enable_x64(True):
        own_run = in_float64(TrainingRun(scenario.system, scenario.plan))
        directions = directions_of(scenario, own_run)
        names = (*directions.names, LAYOUT)
        # Another layout has an error of its own: that of its step time and of the own layout's, by the first.
        steps = np.pad(directions.steps, ((0, 1), (0, 0)))
        own = spread_along(own_run, steps)
        if optimum.choice.claim is not None and optimum.choice.claim.taken:
            steps[-1, own_run.places[SLOWDOWN]] = math.sqrt(2.0) * row_scatter() * own_run.values[SLOWDOWN]
        best = _spread_of_optimum(optimum, own, own_run, steps)
        voltages = {path: float(np.sum(steps[:, own_run.places[path]])) for path in VOLTAGE if path in directions.names}
        clock = _clock_saving(optimum, voltages) if voltages and CLOCK in optimum.saving else None
    moved = optimum.baseline_value * own.relative(optimum.minimize) - optimum.value * best.relative(optimum.minimize)
    variances = dict.fromkeys(names, 0.0)
    for name, change in zip(names, moved, strict=True):
        variances[name] += float(change) ** 2
    priors = {name: variance for name, variance in variances.items() if directions.is_prior.get(name)}
    variance = sum(variances.values())
    largest = sorted(priors, key=lambda name: -priors[name])
    return SavingAtRisk(
        deviation=best.deviation(optimum.minimize),
        own_deviation=own.deviation(optimum.minimize),
        saving=optimum.baseline_value - optimum.value,
        saving_deviation=math.sqrt(variance),
        prior_deviation=math.sqrt(sum(priors.values())),
        shares={name: priors[name] / variance for name in largest} if variance else {},
        without=directions.without,
        own=own,
        found=best,
        clock=clock,
    )


def _clock_saving(optimum: Optimum, voltages: Mapping[str, float]) -> tuple[float, float, float]:
    """Saving by the clock [1] and its ends, exactly: near the knee of the voltage slopes say little of it.

    **Arguments:**

    - `voltages`: standard deviations of floor and knee by path [1].
    """
    run, own = in_float64(TrainingRun(optimum.system, optimum.plan)), float(optimum.scenario.plan.clock)

    def saved(path: str, change: float) -> float:
        moved = run.at(run.changed(path, min(run.number(path) + change, HIGHEST_KNEE)))
        slow, fast = (
            float(objective_value(evaluate_once(moved.system, plan), optimum.minimize))
            for plan in (moved.plan, replace_leaf(moved.plan, CLOCK, own))
        )
        return 1.0 - slow / fast

    middle = saved(next(iter(voltages)), 0.0)
    ends = [[saved(path, sign * DEVIATIONS * size) - middle for sign in (-1.0, 1.0)] for path, size in voltages.items()]
    below, above = (np.linalg.norm(np.maximum(0.0, np.max(sign * np.array(ends), axis=1))) for sign in (-1.0, 1.0))
    return middle, middle - float(below), middle + float(above)


def _spread_of_optimum(
    optimum: Optimum, own: OutcomeSpread, own_run: TrainingRun, steps: Float[np.ndarray, "directions n"]
) -> OutcomeSpread:
    """Of the optimum, whose tokens follow so that it reaches the loss of the own plan, or a loss that was asked.

    A plan that minimizes the loss keeps its tokens.
    """
    run = in_float64(TrainingRun(optimum.system, optimum.plan))
    columns, moves = run.places, np.zeros((len(steps), len(run.vector)))  # whose batch may have other knots
    for path, column in own_run.places.items():
        if path.startswith("system."):
            moves[:, columns[path]] = steps[:, column]
    gives_loss = "loss" in parse_objective(optimum.minimize).names()
    if not isinstance(optimum.plan.goal, TokenBudget) or gives_loss:
        return spread_along(run, moves)
    more_tokens = np.zeros(moves.shape[1])
    more_tokens[columns[TOKENS]] = float(optimum.plan.goal.tokens)
    both = spread_along(run, np.stack([*moves, more_tokens]))
    loss = both.change("loss")
    wanted = np.zeros(len(steps)) if "loss" in optimum.scenario.optimize.limits else own.change("loss")
    tokens = (wanted - loss[:-1]) / loss[-1] if loss[-1] else np.zeros(len(steps))
    moved = jax.tree.map(lambda change: change[:-1] + tokens * change[-1], both.moved)
    return both._replace(moved=moved)
