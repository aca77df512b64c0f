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


class MeasuredOutput(NamedTuple):
    """A measured quantity: a product of powers of outputs by name, its value in SI, and its relative error [1]."""

    powers: Mapping[str, float]
    value: float
    error: float


class Update(NamedTuple):
    """A number before and after, and its 90 % interval after, in the unit of its path."""

    path: str
    unit: str
    before: float
    after: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Uncertain numbers of a scenario after measurements.

    - `priors`, `before`: distribution and prior value by path; `ends`: the lowest and the highest value it may have.
    - `z`, `covariance`: estimate in coordinates of unit normal prior, in the order of the paths.
    - `values`: the most likely values, in SI.
    """

    priors: Mapping[str, NumberDistribution]
    before: Mapping[str, float]
    ends: Mapping[str, tuple[float, float]]
    z: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]

    @property
    def values(self) -> dict[str, float]:
        """Most likely value of each number."""
        return {path: _value(self, path, z) for path, z in zip(self.priors, self.z, strict=True)}

    def update(self, path: str, unit: str) -> Update:
        """One number before and after."""
        z, spread = self._estimate(path)
        values = (_value(self, path, z + ndtri(share) * spread) for share in (0.5, *SHARES))
        return Update(path, unit, self.before[path], *values)

    def _estimate(self, path: str) -> tuple[float, float]:
        """Coordinate of a number and its standard deviation."""
        index = list(self.priors).index(path)
        return float(self.z[index]), math.sqrt(self.covariance[index, index])

    @property
    def distances(self) -> dict[str, float]:
        """How far each number has moved, in standard deviations of its prior [1]."""
        start = np.array([_coordinate(self, path, value) for path, value in self.before.items()])
        return dict(zip(self.priors, np.abs(self.z - start).tolist(), strict=True))

    def moved(self) -> list[str]:
        """Paths that the measurements have moved, farthest first."""
        distance = self.distances
        return sorted((path for path in distance if distance[path] > SMALLEST_MOVE), key=lambda path: -distance[path])

    def distribution(self, path: str) -> str:
        """What a scenario file says of the number from now on; correlations with others are lost."""
        prior = self.priors[path]
        if prior.family in ("lognormal", "normal"):
            return f"{prior.family} {prior.numbers[0] * self._estimate(path)[1]:.6g}"
        return " ".join([prior.family, *(f"{number:.9g}" for number in prior.numbers)])

    def spread(self, run: TrainingRun, products: Sequence[Mapping[str, float]]) -> Float[np.ndarray, " k"]:
        """Standard deviations of logarithms of products of outputs, from all uncertain numbers together [1]."""
        slopes = _slopes(self, run, products)[1]
        return np.sqrt(np.einsum("ki,ij,kj->k", slopes, self.covariance, slopes))


def prior_of(scenario: Scenario, run: TrainingRun, loss_measured: bool) -> Posterior:
    """What the scenario says of its uncertain numbers, before any measurement."""
    values = run.values
    uncertain = distributions(scenario, values)
    priors = {path: prior for path, prior in uncertain.items() if not prior.is_joint and path.startswith("system.")}
    if loss_measured:
        floors = [path for path, prior in uncertain.items() if prior.is_joint and path.endswith(ENTROPY_FLOOR)]
        priors |= {path: NumberDistribution("normal", (FLOOR_SPREAD,)) for path in floors}
    before = {path: values[path] for path in priors}
    ends = {path: ends_of(scenario, path) for path in priors}
    start = Posterior(priors, before, ends, np.zeros(len(priors)), np.eye(len(priors)))
    z = np.array([_coordinate(start, path, value) for path, value in before.items()])
    return dataclasses.replace(start, z=z)


def posterior_of(prior: Posterior, run: TrainingRun, measured: Sequence[MeasuredOutput]) -> Posterior:
    """Most likely values after the measurements, and their covariance.

    **Arguments:**

    - `prior`: from `prior_of`.
    - `run`: system and plan that were measured.
    - `measured`: quantities, with independent errors.
    """
    if not measured or not prior.priors:
        return prior
    start, now = prior.z, prior
    products = [quantity.powers for quantity in measured]
    target = np.log([quantity.value for quantity in measured])
    noise = np.diag([quantity.error**2 for quantity in measured])

    def misfit(moved: Posterior) -> float:
        """Minus twice the logarithm of the posterior density, up to a constant."""
        there = _moved(run, moved)
        residual = target - _logarithms(evaluate_once(there.system, there.plan), products)
        from_prior = moved.z - start
        return float(
            residual @ np.linalg.solve(noise, residual) + from_prior @ np.linalg.solve(prior.covariance, from_prior)
        )

    def gain(slopes: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "n k"]:
        """How z answers to a residual."""
        return prior.covariance @ slopes.T @ np.linalg.inv(slopes @ prior.covariance @ slopes.T + noise)

    least = misfit(now)
    predicted, slopes = _slopes(now, _moved(run, now), products)
    for _ in range(ROUNDS):
        z = start + gain(slopes) @ (target - predicted + slopes @ (now.z - start))
        # Beyond a kink of the model the linearization is wrong, and full steps jump to and fro across it.
        trials = [
            dataclasses.replace(now, z=np.clip(now.z + share * (z - now.z), start - FARTHEST, start + FARTHEST))
            for share in STEP_SHARES
        ]
        misfits = [misfit(trial) for trial in trials]
        if min(misfits) >= least - SETTLED:
            break
        now, least = trials[int(np.argmin(misfits))], min(misfits)
        predicted, slopes = _slopes(now, _moved(run, now), products)
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
    now: Posterior, run: TrainingRun, products: Sequence[Mapping[str, float]]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k n"]]:
    """Logarithms of products of outputs and their derivatives by z, at the numbers given."""
    steps, places = np.zeros((len(now.z), run.vector.size)), run.places
    for step, path, z in zip(steps, now.priors, now.z, strict=True):
        high, low = (_value(now, path, z + end) for end in (SLOPE_STEP, -SLOPE_STEP))
        step[places[path]] = (high - low) / (2.0 * SLOPE_STEP)
    changes = changes_along(run, steps)
    return _logarithms(changes.outcome, products), np.array([changes.relative(powers) for powers in products])


def _logarithms(outcome: TrainingOutcome, products: Sequence[Mapping[str, float]]) -> Float[np.ndarray, " k"]:
    """Logarithms of products of outputs."""
    return np.array(
        [sum(power * math.log(float(output(outcome, name))) for name, power in each.items()) for each in products],
        np.float64,
    )


def _moved(run: TrainingRun, now: Posterior) -> TrainingRun:
    """The run with its numbers at the estimate."""
    vector, places = run.vector, run.places
    for path, value in now.values.items():
        vector[places[path]] = value
    return run.at(vector)


def _value(now: Posterior, path: str, z: float) -> float:
    share = float(np.clip(ndtr(z), EDGE, 1.0 - EDGE))
    return float(np.clip(now.priors[path].quantiles(now.before[path], [share])[0], *now.ends[path]))


def _coordinate(now: Posterior, path: str, value: float) -> float:
    """The coordinate of a value: zero in the middle of a distribution around it, else where its quantile is."""
    edge = float(-ndtri(EDGE))
    ends = _value(now, path, -edge), _value(now, path, edge)
    if not ends[0] < value < ends[1]:
        return -edge if value <= ends[0] else edge
    root: Any = brentq(lambda z: _value(now, path, z) - value, -edge, edge, xtol=1e-12)
    return float(root)
