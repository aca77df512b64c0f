"""What do the cards measured so far say of the constants of power of another card?

Constants of all cards, fitted together under the prior of `device_family.family_prior`. `run.py --write-population` of
`experiments/02_power_limits` writes those of `device_power`, of `experiments/03_frequency` those of `kernel_clock`.
Another card is the Gaussian process of that prior, conditioned on what is known of them [Rasmussen & Williams 2006,
sec. 2.2].
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.calibration.constant_priors import ConstantPriors, JointPrior, joint_prior
from energymodel.calibration.device_family import Architecture, architecture_of, likenesses
from energymodel.calibration.device_power import power_constants
from energymodel.calibration.kernel_clock import CONSTANTS
from energymodel.scenarios.files import read_toml
from energymodel.scenarios.normal_table import read_normal
from energymodel.scenarios.step_population import FOLDER

LIMITS, KERNELS = "power-limit", "kernel-clock"


class PowerPopulation(NamedTuple):
    """Constants of some cards.

    - `constants`: of one card alone, before any was measured.
    - `mean`, `covariance`: of their coordinates, in the order of constants, then cards.
    - `errors`: usual logarithmic errors of time, power and energy of a card that was left out.
    """

    constants: ConstantPriors
    cards: tuple[str, ...]
    mean: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    errors: Mapping[str, float]

    def of(self, cards: Sequence[Architecture | None]) -> JointPrior:
        """The prior of other cards, in the order of constants, then cards; names are those of one card alone."""
        alone = joint_prior(self.constants)
        count, known = len(alone.names), [architecture_of(card) for card in self.cards]
        between = likenesses(known, known)
        np.fill_diagonal(between, 1.0)
        gain = likenesses(cards, known) @ np.linalg.inv(between)
        left = likenesses(cards, cards)
        np.fill_diagonal(left, 1.0)
        left = left - gain @ likenesses(cards, known).T
        spread = np.repeat(alone.spread, len(cards))
        carry = np.kron(np.eye(count), gain) * np.outer(spread, 1.0 / np.repeat(alone.spread, len(known)))
        center = np.repeat(alone.mean, len(known))
        mean = np.repeat(alone.mean, len(cards)) + carry @ (self.mean - center)
        total = np.kron(np.eye(count), left) * np.outer(spread, spread) + carry @ self.covariance @ carry.T
        names = tuple(name for name in alone.names for _ in cards)
        return JointPrior(names, mean, np.sqrt(np.diag(total)), np.linalg.inv(np.linalg.cholesky(total)))


@cache
def power_population() -> PowerPopulation:
    """Cards at power limits, that `experiments/02_power_limits` fitted."""
    return _read(LIMITS, power_constants())


@cache
def kernel_population() -> PowerPopulation:
    """Cards whose kernels ran at several clocks, that `experiments/03_frequency` fitted."""
    return _read(KERNELS, CONSTANTS)


def _read(name: str, constants: ConstantPriors) -> PowerPopulation:
    table = read_toml(FOLDER / f"{name}.toml")
    return PowerPopulation(constants, tuple(table["cards"]), *read_normal(FOLDER / f"{name}.csv"), table["errors"])
