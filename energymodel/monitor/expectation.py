"""The outcome, the loss along the way and the learning rate that a plan expects."""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.monitor.loss_forecast import DECAYED, CoursePrior, course_prior
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.components import preset_in_si
from energymodel.scenarios.scenario import Scenario
from energymodel.system.evaluate import evaluate_once, learning_of, parameters_in_loss
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

COURSE = 200  # tokens at which the loss of the plan is known beforehand
FIRST_SHARE = 1e-4


@dataclass(frozen=True)
class Expectation:
    """A scenario, its outcome, and its loss along the way.

    - `course_tokens`, `course_loss`: tokens [token], and the loss of a run that ends there, its learning rate decayed.
    - `decays`: whether the plan's learning rate decays by its end; `decays_throughout` as a cosine does.
    - `course_prior`: what other runs say of the course of the loss.
    """

    scenario: Scenario
    outcome: TrainingOutcome
    course_tokens: np.ndarray
    course_loss: np.ndarray
    decays: bool
    decays_throughout: bool
    course_prior: CoursePrior

    @property
    def chips(self) -> float:
        """Chips of the plan."""
        return float(self.scenario.plan.chips)

    @property
    def tokens(self) -> float:
        """Tokens of the whole run."""
        return float(self.outcome.tokens)

    @property
    def sequence(self) -> float:
        """Tokens of a sequence."""
        return float(self.scenario.system.workload.sequence)

    @property
    def batch(self) -> float:
        """Tokens of a step."""
        return float(np.max(np.asarray(self.scenario.plan.batch)))

    @property
    def step_time(self) -> float:
        """Of one step [s], pauses and failures left out."""
        return float(sum(jax.tree.leaves(self.outcome.step_time)))

    def loss(self, tokens: float) -> float:
        """That the plan expects of a run that ends after so many tokens [nat/token]."""
        return float(np.interp(np.log(max(tokens, 1.0)), np.log(self.course_tokens), self.course_loss))

    def rate(self, tokens: np.ndarray) -> np.ndarray:
        """Learning rate of the plan over its highest [1]: a cosine to a tenth, or none that decays before the end."""
        if not self.decays_throughout:
            return np.ones_like(tokens)
        return DECAYED + 0.5 * (1.0 - DECAYED) * (1.0 + np.cos(math.pi * np.minimum(tokens / self.tokens, 1.0)))


def expectation_of(scenario: Scenario) -> Expectation:
    """Evaluate a scenario, and its loss along the way.

    **Raises:** `InputError` for a plan whose batch changes with progress.
    """
    if scenario.plan.knots > 1:
        raise InputError("The batch of this plan changes with progress, which cannot be monitored.")
    with jax.enable_x64(True):
        outcome = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        end = float(outcome.tokens)
        tokens = np.geomspace(FIRST_SHARE * end, end, COURSE)
        loss = np.asarray(_losses(scenario.system, scenario.plan, tokens))
    worth = float(scenario.system.recipe.learning_rate.token_efficiency)
    constant, cosine = (_token_efficiency(name) for name in ("constant", "cosine"))
    return Expectation(scenario, outcome, tokens, loss, worth > constant, worth == cosine, course_prior())


@partial(Compiled, once=True)
def _losses(system: TrainingSystem, plan: TrainingPlan, tokens: Float[Array, " n"]) -> Float[Array, " n"]:
    """Of runs that end after so many tokens [nat/token]."""
    learning, parameters, batch = learning_of(system, plan), parameters_in_loss(system), jnp.max(plan.batch)
    return jax.vmap(lambda some: learning.run(parameters, some, batch)[0])(tokens)


def _token_efficiency(schedule: str) -> float:
    """Of a preset of the learning rate's schedule [1]."""
    return float(preset_in_si("schedules", schedule)["token_efficiency"]["value"])
