"""How uncertain is what a plan saves, to first order, and how much of it rests on numbers that nobody measured?

Uncertain numbers x of a scenario move an objective v by `g = dv/dx`, so that its variance is `g^T C g`; C is the
covariance of the numbers: independent, but for those of a joint distribution [Taylor 1997, sec. 3.7]. The saving is
`v(own plan) - v(found plan)`; both plans stay, and train to the loss that the own plan reaches with those numbers.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from energymodel.design.result import Optimum
from energymodel.design.training_run import TrainingRun, output_gradient
from energymodel.presets.distributions import NumberDistribution, distributions
from energymodel.presets.scenario import Scenario
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value, output, parse_objective
from energymodel.system.plan import TargetLoss, TokenBudget, TrainingPlan
from energymodel.uncertainty.draws import UncertainNumber, joint_draws

LEVEL = 0.9
"""Probability of the intervals that are printed."""
DEVIATIONS = float(ndtri(0.5 + 0.5 * LEVEL))  # half of such an interval of a normal distribution
_ONE_DEVIATION = ndtr(np.array([-1.0, 1.0]))
LOSS = "plan.goal.loss"


class SavingAtRisk(NamedTuple):
    """Uncertainty of a found plan's objective and of its saving, to first order.

    - `deviation`, `own_deviation`: standard deviation of the logarithm of the objective, of the found and the own plan.
    - `saving`, `saving_deviation`: of the saving, in the unit of the objective.
    - `prior_deviation`: the part of `saving_deviation` that comes from priors.
    - `shares`: of the variance of the saving by number or joint distribution, the largest first; of priors alone.
    - `without`: priors whose scenario states no spread: they count as exact.
    """

    deviation: float
    own_deviation: float
    saving: float
    saving_deviation: float
    prior_deviation: float
    shares: Mapping[str, float]
    without: int

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
    def prior_variance(self) -> float:
        """Share of priors in the variance of the saving [1]."""
        return (self.prior_deviation / self.saving_deviation) ** 2 if self.saving_deviation else 0.0


def saving_at_risk(optimum: Optimum) -> SavingAtRisk:
    """Uncertainty of the objective and of the saving of a plan, from the distributions that its scenario states.

    **Raises:** `InputError` for a distribution that cannot be read.
    """
    scenario = optimum.scenario
    chosen = {path: value for path, value in optimum.found.items() if path.startswith("system.")}
    with jax.enable_x64(True):
        own = _at_loss(scenario, scenario.plan, optimum.baseline)
        found = _at_loss(scenario, optimum.plan, optimum.outcome)
        for path, value in chosen.items():
            found = found.at(found.changed(path, value))
        of_own = _gradient(own, optimum.baseline, optimum.minimize)
        of_found = _gradient(found, optimum.outcome, optimum.minimize)
        moved = np.zeros_like(of_own)  # of the loss of the own plan, whose tokens are given
        if isinstance(scenario.plan.goal, TokenBudget):
            tokens = output_gradient(own, {"tokens": 1.0})
            moved = -tokens / tokens[own.places[LOSS]]
        of_own = of_own + of_own[own.places[LOSS]] * moved
        if "loss" not in scenario.optimize.limits:
            of_found = of_found + of_found[own.places[LOSS]] * moved
    spread = _Spread(scenario, own)
    variances = spread.variances(of_own - of_found)
    priors = {name: variance for name, variance in variances.items() if spread.is_prior[name]}
    whole = sum(variances.values())
    largest = sorted(priors, key=lambda name: -priors[name])
    return SavingAtRisk(
        deviation=math.sqrt(sum(spread.variances(of_found).values())) / optimum.value,
        own_deviation=math.sqrt(sum(spread.variances(of_own).values())) / optimum.baseline_value,
        saving=optimum.baseline_value - optimum.value,
        saving_deviation=math.sqrt(whole),
        prior_deviation=math.sqrt(sum(priors.values())),
        shares={name: priors[name] / whole for name in largest} if whole else {},
        without=spread.without,
    )


def _at_loss(scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome) -> TrainingRun:
    """A run whose goal is the loss that it reaches."""
    goal = TargetLoss(np.asarray(float(outcome.loss)))
    plan = eqx.tree_at(lambda plan: plan.goal, plan, goal)
    system, plan = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (scenario.system, plan))
    return TrainingRun(system, plan)


def _gradient(run: TrainingRun, outcome: TrainingOutcome, minimize: str) -> Float[np.ndarray, " n"]:
    """Derivative of an objective, `dv = v sum p dy / y` for a product of powers p of outputs y."""
    value = float(objective_value(outcome, minimize))
    factors = parse_objective(minimize).factors
    return output_gradient(run, {name: value * power / float(output(outcome, name)) for name, power in factors})


class _Spread:
    """Standard deviations and covariances of the uncertain numbers of a system."""

    def __init__(self, scenario: Scenario, run: TrainingRun) -> None:
        values, origins = run.values, scenario.provenance
        system = {path: values[path] for path in values if path.startswith("system.")}
        known = distributions(
            dataclasses.replace(
                scenario, uncertainty={path: text for path, text in scenario.uncertainty.items() if path in system}
            ),
            values,
        )
        self.places = run.places
        self.alone = {
            path: float(np.ptp(one.quantiles(values[path], _ONE_DEVIATION))) / 2.0
            for path, one in known.items()
            if not one.is_joint
        }
        self.joint: dict[str, list[str]] = {}
        for path, one in known.items():
            if one.is_joint:
                self.joint.setdefault(one.name, []).append(path)
        self.covariances = {
            name: _covariance(name, paths, known, values, {path: origins[path].unit for path in paths})
            for name, paths in self.joint.items()
        }
        self.is_prior = {path: origins[path].is_prior for path in self.alone} | {
            f"joint {name}": all(origins[path].is_prior for path in paths) for name, paths in self.joint.items()
        }
        self.without = sum(origins[path].is_prior and path not in known for path in system)

    def variances(self, gradient: Float[np.ndarray, " n"]) -> dict[str, float]:
        """Variance that each number, or joint distribution, gives to an output with this gradient."""
        slopes = {path: float(np.sum(gradient[place])) for path, place in self.places.items()}
        found = {path: (slopes[path] * deviation) ** 2 for path, deviation in self.alone.items()}
        for name, paths in self.joint.items():
            along = np.array([slopes[path] for path in paths])
            found[f"joint {name}"] = max(0.0, float(along @ self.covariances[name] @ along))
        return found


def _covariance(
    name: str,
    paths: list[str],
    known: Mapping[str, NumberDistribution],
    values: Mapping[str, float],
    units: Mapping[str, str],
) -> Float[np.ndarray, "numbers numbers"]:
    """Covariance of the numbers of a joint distribution, to first order where the draws are logarithms."""
    joint = joint_draws(name, [UncertainNumber(path, values[path], units[path], known[path]) for path in paths])
    scale = np.array([values[path] if log else 1.0 for path, log in zip(paths, joint.logarithmic, strict=True)])
    draws = np.asarray(joint.deviations) * scale
    return np.atleast_2d(np.cov(draws, rowvar=False))
