"""What a plan expects of its run along the way, and the loss at its end from its own loss so far.

The losses over the last half of the tokens D so far are fitted by `L = c + a (D / D_now)^-beta - g (1 - h)`, where h
falls from 1 at the highest learning rate to 0 at a tenth of it. Level c and amplitude a are free. The exponent beta,
which tells the end before the curve has bent, and the gain g of a learning rate that has decayed have priors from other
runs (`courses/own-run`, experiments/15_closed_loop).
"""

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.learning.learning_rate import AbstractLearningRate, StagedRate
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.components import preset_in_si
from energymodel.scenarios.scenario import Scenario
from energymodel.search.replan import Forecast
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem, learning_of, parameters_in_loss

FIRST_SHARE = 0.5  # of the tokens so far, from where on losses are fitted
FEWEST = 5  # ranges of tokens without which nothing is fitted
EXPONENTS = np.linspace(0.05, 2.0, 79)
NOISE, NOISE_OF_STEP = 0.01, 0.03
"""Standard deviation of the mean loss of a range about the curve, and of one step's own [nat/token]."""
DECAYED = 0.1  # learning rate over its highest at which it counts as decayed [1]
UNBOUNDED = 1e-9  # precision of level and amplitude before any loss is known [token^2/nat^2]

Values = Float[np.ndarray, " n"]


class CoursePrior(NamedTuple):
    """What other runs say of a run's own course: means and standard deviations.

    - `exponent`, `exponent_spread`: beta [1].
    - `gain`, `gain_spread`: g, by which the loss falls as the learning rate decays to a tenth [nat/token].
    - `model_error`: what the form leaves for each factor of e in tokens beyond those so far [nat/token].
    - `end_noise`: of the mean loss at the end, by the data it falls on [nat/token].
    - `law_error`: of the loss law, by data and tokenizer that are not those it was fitted on [nat/token].
    - `power_drift`: of the mean power of the rest over that so far, by what comes later, such as evaluations [1].
    """

    exponent: float
    exponent_spread: float
    gain: float
    gain_spread: float
    model_error: float
    end_noise: float
    law_error: float
    power_drift: float


@cache
def course_prior() -> CoursePrior:
    """That of the preset `courses/own-run`."""
    numbers = preset_in_si("courses", "own-run")
    return CoursePrior(*(float(numbers[name]["value"]) for name in CoursePrior._fields))


class LossCourse(NamedTuple):
    """The loss of a run so far, in ranges of tokens.

    - `tokens`: in the middle of each range [token].
    - `loss`: mean [nat/token]; `number` of steps.
    - `rate`: learning rate over its highest [1].
    """

    tokens: Values
    loss: Values
    number: Values
    rate: Values


class FittedCourse(NamedTuple):
    """For each exponent its weight, the best level, amplitude and gain, and their covariance; tokens so far [token]."""

    weights: Float[np.ndarray, " e"]
    best: Float[np.ndarray, "e 3"]
    covariance: Float[np.ndarray, "e 3 3"]
    tokens: float
    prior: CoursePrior

    def at(self, tokens: float, rate: float) -> Forecast:
        """The loss after so many tokens at a learning rate [1, over its highest], and its interval."""
        ratio = tokens / self.tokens
        gradient = _design(np.array([ratio]), np.array([rate]))[:, 0]
        values = np.sum(gradient * self.best, axis=1)
        spreads = np.einsum("ei,eij,ej->e", gradient, self.covariance, gradient)
        value = float(self.weights @ values)
        spread = math.sqrt(self.weights @ (spreads + (values - value) ** 2))
        model_error = self.prior.model_error * max(math.log(ratio), 0.0)
        return Forecast.of(value, math.hypot(spread, model_error, self.prior.end_noise))


def fit_course(
    course: LossCourse, prior: CoursePrior, begin: float = 0.0, first_share: float = FIRST_SHARE
) -> FittedCourse | None:
    """Fit the losses so far; nothing where there are too few, or where they fall as if towards less than none.

    **Arguments:**

    - `begin`: tokens before which the learning rate still rose [token].
    - `first_share` of the tokens so far, from where on losses are fitted [1].
    """
    if not len(course.tokens):
        return None
    fitted = (course.tokens >= max(first_share * course.tokens[-1], begin)) & np.isfinite(course.loss)
    if np.sum(fitted) < FEWEST:
        return None
    now = float(course.tokens[-1])
    noise = NOISE + NOISE_OF_STEP / np.sqrt(course.number[fitted])
    design = _design(course.tokens[fitted] / now, course.rate[fitted]) / noise[:, None]
    loss = course.loss[fitted] / noise
    precision = np.diag([UNBOUNDED, UNBOUNDED, prior.gain_spread**-2])
    covariance = np.linalg.inv(np.einsum("eni,enj->eij", design, design) + precision)
    best = np.einsum("eij,ej->ei", covariance, np.einsum("eni,n->ei", design, loss) + precision[2] * prior.gain)
    far = loss - np.einsum("eni,ei->en", design, best)
    misfit = np.sum(2.0 * (np.sqrt(1.0 + far**2) - 1.0), axis=1)  # robust
    misfit += ((best[:, 2] - prior.gain) / prior.gain_spread) ** 2
    misfit += ((EXPONENTS - prior.exponent) / prior.exponent_spread) ** 2
    misfit[best[:, 0] < 0.0] = math.inf  # no text has less than no entropy
    if not np.any(np.isfinite(misfit)):
        return None
    weights = np.exp(-0.5 * (misfit - np.min(misfit)))
    return FittedCourse(weights / np.sum(weights), best, covariance, now, prior)


def _design(ratio: Values, rate: Values) -> Float[np.ndarray, "e n 3"]:
    """Derivatives of the loss by level, amplitude and gain, for each exponent."""
    falling = ratio[None, :] ** -EXPONENTS[:, None]
    decayed = (1.0 - rate) / (1.0 - DECAYED)
    return np.stack(np.broadcast_arrays(np.ones_like(falling), falling, -decayed), axis=2)


COURSE = 200  # tokens at which the loss of the plan is known beforehand
EARLIEST = 1e-4  # of the tokens of the run


@dataclass(frozen=True)
class Expectation:
    """A scenario, its outcome, and its loss along the way.

    - `chips` of the plan; `tokens` of the whole run; `batch`: tokens of a step.
    - `step_time`: of one step, pauses and failures left out [s].
    - `course_tokens`, `course_loss`: tokens [token], and the loss of a run that ends there, its learning rate decayed.
    - `rate_course`: shares of the tokens, and the plan's learning rate over its highest there, linear between them [1].
    - `end_rate`: its learning rate at the end over its highest [1].
    - `course_prior`: what other runs say of the course of the loss.
    """

    scenario: Scenario
    outcome: TrainingOutcome
    chips: float
    tokens: float
    batch: float
    step_time: float
    course_tokens: np.ndarray
    course_loss: np.ndarray
    rate_course: tuple[np.ndarray, np.ndarray]
    end_rate: float
    course_prior: CoursePrior

    def loss(self, tokens: float) -> float:
        """That the plan expects of a run that ends after so many tokens [nat/token]."""
        return float(np.interp(np.log(max(tokens, 1.0)), np.log(self.course_tokens), self.course_loss))

    def rate(self, tokens: np.ndarray) -> np.ndarray:
        """Learning rate of the plan over its highest [1]; of WSD that of the stable phase."""
        return np.interp(tokens / self.tokens, *self.rate_course)


def expectation_of(scenario: Scenario) -> Expectation:
    """Evaluate a scenario, and its loss along the way.

    **Raises:** `InputError` for a plan whose batch changes with progress.
    """
    if scenario.plan.knots > 1:
        raise InputError("The batch of this plan changes with progress, which cannot be monitored.")
    with jax.enable_x64(True):
        outcome = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        tokens = np.geomspace(EARLIEST, 1.0, COURSE) * float(outcome.tokens)
        loss = np.asarray(_losses(scenario.system, scenario.plan, tokens))
        rate_course, end_rate = rates_of(scenario.system.recipe.learning_rate)
    return Expectation(
        scenario,
        outcome,
        chips=float(scenario.plan.chips),
        tokens=float(outcome.tokens),
        batch=float(np.max(np.asarray(scenario.plan.batch))),
        step_time=float(sum(jax.tree.leaves(outcome.step_time))),
        course_tokens=tokens,
        course_loss=loss,
        rate_course=rate_course,
        end_rate=end_rate,
        course_prior=course_prior(),
    )


def rates_of(learning_rate: AbstractLearningRate) -> tuple[tuple[np.ndarray, np.ndarray], float]:
    """`Expectation.rate_course` and `end_rate`: of stages as they are, else of a cosine to a tenth, or of none."""
    if isinstance(learning_rate, StagedRate):
        rates, shares = map(np.asarray, learning_rate.pieces())
        ends = np.cumsum(shares)
        return (np.stack([ends - shares, ends], axis=1).ravel(), np.repeat(rates, 2)), float(rates[-1])
    presets = (preset_in_si("schedules", name)["token_efficiency"]["value"] for name in ("constant", "cosine"))
    (constant, cosine), worth = presets, float(np.asarray(learning_rate.tokens_worth()))
    shares = np.linspace(0.0, 1.0, 1001)
    rates = DECAYED + 0.5 * (1.0 - DECAYED) * (1.0 + np.cos(math.pi * shares))
    return (shares, rates if worth == cosine else np.ones_like(shares)), DECAYED if worth > constant else 1.0


@partial(Compiled, once=True)
def _losses(system: TrainingSystem, plan: TrainingPlan, tokens: Float[Array, " n"]) -> Float[Array, " n"]:
    """Of runs that end after so many tokens [nat/token]."""
    learning, parameters, batch = learning_of(system, plan), parameters_in_loss(system), jnp.max(plan.batch)
    return jax.vmap(lambda some: learning.run(parameters, some, batch)[0])(tokens)
