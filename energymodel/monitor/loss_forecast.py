"""Which loss will a run end at, by its own loss so far?

A run's own losses over the last half of its tokens are fitted by `L = c + a (D / D_now)^-beta`. Level and amplitude are
free; the exponent has a prior from other runs (experiments/15_closed_loop), which is what tells the end before the
curve has bent. While the learning rate is not decayed, a token is worth w of those of a run that decays it by its
end: a decayed run of D tokens ends where the undecayed one would after `D / w`.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from energymodel.monitor.expectation import Expectation

FIRST_SHARE = 0.5
"""Of the tokens so far, from where on losses are fitted."""
FEWEST = 5
"""Ranges of tokens without which nothing is fitted."""
EXPONENT, EXPONENT_SPREAD = 0.8, 0.15
"""Prior of the exponent [1]; experiments/15_closed_loop."""
EXPONENTS = np.linspace(0.05, 2.0, 196)
NOISE, NOISE_OF_STEP = 0.01, 0.03
"""Standard deviation of the mean loss of a range about the curve, and of one step's own [nat/token]."""
MODEL_ERROR = 0.03
"""What the form leaves for each factor of e in tokens beyond those so far [nat/token]; experiments/15_closed_loop."""
END_NOISE = 0.006
"""Standard deviation of the mean loss at the end, by the data it falls on [nat/token]; experiments/15_closed_loop."""
SHARES = (0.05, 0.95)

Values = Float[np.ndarray, " n"]


class LossForecast(NamedTuple):
    """A loss with its 90 % interval [nat/token]."""

    value: float
    lower: float
    upper: float


def measured_loss(loss: float) -> LossForecast:
    """The loss of a run at its end, as measured."""
    return LossForecast(loss, *(loss + float(ndtri(share)) * END_NOISE for share in SHARES))


class FittedCourse(NamedTuple):
    """For each exponent its weight, the best level and amplitude, and their covariance.

    - `tokens`: so far [token].
    """

    weights: Values
    best: Float[np.ndarray, "n 2"]
    covariance: Float[np.ndarray, "n 2 2"]
    tokens: float

    def at(self, tokens: float) -> LossForecast:
        """The loss after so many tokens at the learning rate of now, and its interval."""
        ratio = tokens / self.tokens
        gradient = np.stack([np.ones_like(EXPONENTS), ratio**-EXPONENTS], axis=1)
        values = np.sum(gradient * self.best, axis=1)
        spreads = np.einsum("ni,nij,nj->n", gradient, self.covariance, gradient)
        value = float(np.sum(self.weights * values))
        variance = float(np.sum(self.weights * (spreads + (values - value) ** 2)))
        farther = max(math.log(ratio), 0.0)
        spread = math.sqrt(variance + (MODEL_ERROR * farther) ** 2 + END_NOISE**2)
        return LossForecast(value, *(value + float(ndtri(share)) * spread for share in SHARES))


def fit_course(tokens: Values, loss: Values, number: Values, begin: float = 0.0) -> FittedCourse | None:
    """Fit the losses so far; nothing where there are too few, or where they fall as if towards less than none.

    **Arguments:**

    - `tokens`, `loss`, `number`: tokens, mean loss and number of steps of each range, as `RunState.course` has them.
    - `begin`: tokens before which the learning rate still rose [token].
    """
    if not len(tokens):
        return None
    kept = (tokens >= max(FIRST_SHARE * tokens[-1], begin)) & np.isfinite(loss)
    if np.sum(kept) < FEWEST:
        return None
    now = float(tokens[-1])
    tokens, loss, number = tokens[kept] / now, loss[kept], number[kept]
    noise = NOISE + NOISE_OF_STEP / np.sqrt(number)
    misfit, best, covariance = [], [], []
    for exponent in EXPONENTS:
        design = np.stack([np.ones_like(tokens), tokens**-exponent], axis=1) / noise[:, None]
        values, *_ = np.linalg.lstsq(design, loss / noise, rcond=None)
        far = loss / noise - design @ values
        robust = float(np.sum(2.0 * (np.sqrt(1.0 + far**2) - 1.0)))
        cannot_be = math.inf if values[0] < 0.0 else 0.0  # no text has less than no entropy
        misfit.append(robust + ((exponent - EXPONENT) / EXPONENT_SPREAD) ** 2 + cannot_be)
        best.append(values)
        covariance.append(np.linalg.pinv(design.T @ design))
    if not math.isfinite(min(misfit)):
        return None
    weights = np.exp(-0.5 * (np.array(misfit) - min(misfit)))
    return FittedCourse(weights / np.sum(weights), np.array(best), np.array(covariance), now)


def final_loss(course: FittedCourse, expected: Expectation) -> LossForecast:
    """The loss at the end of the plan, with the learning rate decayed by then if the plan decays it."""
    return course.at(expected.tokens / expected.undecayed_worth)


def decayed_loss(course: FittedCourse, expected: Expectation) -> float:
    """The loss that the run would have now if its learning rate were decayed [nat/token]."""
    return course.at(course.tokens / expected.undecayed_worth).value
