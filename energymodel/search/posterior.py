"""Posterior of the uncertain numbers of a scenario after measurements of its run.

The numbers that a scenario calls uncertain have a prior; a few measured outputs move all of them a little, those most
that are least known and matter most. In coordinates z of unit normal prior, with the outputs' logarithms linear in z
around the estimate, this is a step of Gauss-Newton towards the most likely values [Tarantola 2005, sec. 3.4.4].
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from energymodel.ranges import ends_of
from energymodel.scenarios.distributions import NumberDistribution
from energymodel.scenarios.scenario import Scenario, distributions
from energymodel.search.training_run import TrainingRun, changes_along
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import output

ROUNDS = 4  # of linearization: the outputs are near power laws of the numbers
STEP_SHARES = (1.0, 0.5, 0.25, 0.1)  # of a step of Gauss-Newton, of which the best is taken
SETTLED = 1e-4  # of minus twice the logarithm of the density: a hundredth of a standard deviation
FARTHEST = 4.0  # standard deviations of the prior that a number may move
EDGE = 1e-6  # probability at which the tails of a prior are cut
SLOPE_STEP = 1e-4  # standard deviations
ENTROPY_FLOOR = "entropy_floor"
FLOOR_SPREAD = 0.03
"""Standard deviation of the loss that data and tokenizer leave [nat/token] (docs/physics.md B10). It stands for all
constants of a loss law that are known only together: one loss cannot tell them apart."""
SMALLEST_MOVE = 0.01  # standard deviations of its prior from which a number counts as moved
SHARES = (0.05, 0.95)

Product = Mapping[str, float]
"""Powers of outputs by name, whose product is measured or forecast."""


class Update(NamedTuple):
    """A number before and after, and its 90 % interval after, in the unit of its path."""

    path: str
    unit: str
    before: float
    after: float
    lower: float
    upper: float


class UncertainNumber(NamedTuple):
    """A number with its prior, its value there, and the lowest and the highest value that it may have."""

    prior: NumberDistribution
    before: float
    ends: tuple[float, float]

    def value(self, z: float) -> float:
        """The number at a coordinate of unit normal prior."""
        share = float(np.clip(ndtr(z), EDGE, 1.0 - EDGE))
        return float(np.clip(self.prior.quantiles(self.before, [share])[0], *self.ends))

    def coordinate(self, value: float) -> float:
        """The coordinate of a value: zero in the middle of a distribution around it, else where its quantile is."""
        edge = float(-ndtri(EDGE))
        if not self.value(-edge) < value < self.value(edge):
            return -edge if value <= self.value(-edge) else edge
        root: Any = brentq(lambda z: self.value(z) - value, -edge, edge, xtol=1e-12)
        return float(root)


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Uncertain numbers of a scenario after measurements, by path.

    - `z`, `covariance`: estimate in coordinates of unit normal prior, in the order of the paths.
    """

    numbers: Mapping[str, UncertainNumber]
    z: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]

    @property
    def values(self) -> dict[str, float]:
        """Most likely value of each number, in SI."""
        return {path: number.value(z) for (path, number), z in zip(self.numbers.items(), self.z, strict=True)}

    @property
    def distances(self) -> dict[str, float]:
        """How far each number has moved, in standard deviations of its prior [1]."""
        start = np.array([number.coordinate(number.before) for number in self.numbers.values()])
        return dict(zip(self.numbers, np.abs(self.z - start).tolist(), strict=True))

    def moved(self) -> list[str]:
        """Paths that the measurements have moved, farthest first."""
        distance = self.distances
        return sorted((path for path in distance if distance[path] > SMALLEST_MOVE), key=lambda path: -distance[path])

    def update(self, path: str, unit: str) -> Update:
        """One number before and after."""
        number, z, spread = self._estimate(path)
        return Update(path, unit, number.before, *(number.value(z + ndtri(share) * spread) for share in (0.5, *SHARES)))

    def distribution(self, path: str) -> str:
        """What a scenario file says of the number from now on; correlations with others are lost."""
        (prior, *_), _, spread = self._estimate(path)
        if prior.family in ("lognormal", "normal"):
            return f"{prior.family} {prior.numbers[0] * spread:.6g}"
        return " ".join([prior.family, *(f"{number:.9g}" for number in prior.numbers)])

    def _estimate(self, path: str) -> tuple[UncertainNumber, float, float]:
        """A number, its coordinate and the standard deviation of that."""
        index = list(self.numbers).index(path)
        return self.numbers[path], float(self.z[index]), math.sqrt(self.covariance[index, index])

    def spread(self, run: TrainingRun, products: Sequence[Product]) -> Float[np.ndarray, " k"]:
        """Standard deviations of logarithms of products of outputs, from all uncertain numbers together [1]."""
        slopes = _slopes(self, run, products)[1]
        return np.sqrt(np.einsum("ki,ij,kj->k", slopes, self.covariance, slopes))

    def at(self, run: TrainingRun) -> TrainingRun:
        """A run with its numbers at the estimate."""
        vector, places = run.vector, run.places
        for path, value in self.values.items():
            vector[places[path]] = value
        return run.at(vector)


def prior_of(scenario: Scenario, run: TrainingRun, loss_measured: bool) -> Posterior:
    """What the scenario says of its uncertain numbers, before any measurement."""
    values = run.values
    uncertain = distributions(scenario, values)
    priors = {path: prior for path, prior in uncertain.items() if not prior.is_joint and path.startswith("system.")}
    if loss_measured:
        floors = [path for path, prior in uncertain.items() if prior.is_joint and path.endswith(ENTROPY_FLOOR)]
        priors |= {path: NumberDistribution("normal", (FLOOR_SPREAD,)) for path in floors}
    numbers = {path: UncertainNumber(prior, values[path], ends_of(scenario, path)) for path, prior in priors.items()}
    z = np.array([number.coordinate(number.before) for number in numbers.values()])
    return Posterior(numbers, z, np.eye(len(numbers)))


def posterior_of(prior: Posterior, run: TrainingRun, measured: Sequence[tuple[Product, float, float]]) -> Posterior:
    """Most likely values after the measurements, and their covariance.

    **Arguments:**

    - `prior`: from `prior_of`.
    - `run`: system and plan that were measured.
    - `measured`: quantities with their values in SI and their relative errors [1], which are independent.
    """
    if not measured or not prior.numbers:
        return prior
    products, values, errors = zip(*measured, strict=True)
    target, noise, start, now = np.log(values), np.diag(np.square(errors)), prior.z, prior

    def misfit(moved: Posterior) -> float:
        """Minus twice the logarithm of the posterior density, up to a constant."""
        there = moved.at(run)
        residual = target - _logarithms(evaluate_once(there.system, there.plan), products)
        step = moved.z - start
        return float(residual @ np.linalg.solve(noise, residual) + step @ np.linalg.solve(prior.covariance, step))

    def gain(slopes: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "n k"]:
        """How z answers to a residual."""
        return prior.covariance @ slopes.T @ np.linalg.inv(slopes @ prior.covariance @ slopes.T + noise)

    lowest = misfit(now)
    predicted, slopes = _slopes(now, now.at(run), products)
    for _ in range(ROUNDS):
        z = start + gain(slopes) @ (target - predicted + slopes @ (now.z - start))
        # Beyond a kink of the model the linearization is wrong, and full steps jump to and fro across it.
        steps = (np.clip(now.z + share * (z - now.z), start - FARTHEST, start + FARTHEST) for share in STEP_SHARES)
        trials = [dataclasses.replace(now, z=step) for step in steps]
        misfits = [misfit(trial) for trial in trials]
        if min(misfits) >= lowest - SETTLED:
            break
        now, lowest = trials[int(np.argmin(misfits))], min(misfits)
        predicted, slopes = _slopes(now, now.at(run), products)
    covariance = prior.covariance - gain(slopes) @ slopes @ prior.covariance
    return dataclasses.replace(now, covariance=0.5 * (covariance + covariance.T))


def failure_posterior(chip_mtbf: float, spread: float, chip_time: float, failures: float) -> tuple[float, float]:
    """Mean time between failures of a chip after k failures in n t, `M = (a M_0 + n t) / (a + k)`, a = 1/sigma^2
    [derivation: gamma prior of the rate with mean 1/M_0 and relative spread sigma, Poisson failures].

    **Arguments:**

    - `chip_mtbf`: M_0 [s].
    - `spread`: sigma, of its logarithm [1].
    - `chip_time`: n t [s].
    - `failures`: k [1].

    **Returns:** M [s], and the spread of its logarithm `1 / sqrt(a + k)` [1].
    """
    shape = spread**-2.0
    return (shape * chip_mtbf + chip_time) / (shape + failures), (shape + failures) ** -0.5


def _slopes(
    now: Posterior, run: TrainingRun, products: Sequence[Product]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k n"]]:
    """Logarithms of products of outputs and their derivatives by z at the estimate."""
    steps, places = np.zeros((len(now.z), run.vector.size)), run.places
    for step, (path, number), z in zip(steps, now.numbers.items(), now.z, strict=True):
        step[places[path]] = (number.value(z + SLOPE_STEP) - number.value(z - SLOPE_STEP)) / (2.0 * SLOPE_STEP)
    changes = changes_along(run, steps)
    return _logarithms(changes.outcome, products), np.array([changes.relative(powers) for powers in products])


def _logarithms(outcome: TrainingOutcome, products: Sequence[Product]) -> Float[np.ndarray, " k"]:
    logs = [sum(power * math.log(float(output(outcome, name))) for name, power in each.items()) for each in products]
    return np.array(logs, np.float64)
