"""Constants of power of a card that nobody has measured, from the cards that were measured.

Constants of all measured cards are fitted together under a Gaussian process over architectures; another card is that
process conditioned on them [Rasmussen & Williams 2006, sec. 2.2]. `run.py --write-population` of
`experiments/02_power_limits` writes those of `device_power`, of `experiments/03_frequency` those of `kernel_clock`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.calibration.constant_priors import ConstantPriors, JointPrior, Matrix, Vector, joint_prior
from energymodel.calibration.device_power import power_constants
from energymodel.calibration.kernel_clock import CONSTANTS
from energymodel.scenarios.files import read_toml
from energymodel.scenarios.step_population import FOLDER, read_normal

LIMITS, KERNELS = "power-limit", "kernel-clock"
EVERYWHERE, LINEAGE = 0.1, 0.7
"""Shares of the variance between cards that all cards and that a lineage have in common; each card has the rest."""
GENERATIONS = 1.5  # after which what a lineage has in common falls by a factor e


class Architecture(NamedTuple):
    """Architecture of cards, its generation in what it descends from, and the pattern of the names of its cards."""

    name: str
    lineage: str
    generation: float
    cards: str


@cache
def architectures() -> Mapping[str, Architecture]:
    """Known architectures, newest first."""
    tables = read_toml(FOLDER / "architectures.toml")
    return {
        name: Architecture(name, table["lineage"], float(table["generation"]), table["cards"])
        for name, table in tables.items()
    }


def architecture_of(card: str) -> Architecture | None:
    """The architecture of a card by its name, such as "Quadro RTX 6000", "h100-sxm" or "volta"; `None` if unknown."""
    plain, every = re.sub(r"[\s_\-/()]+", " ", card.strip().lower()), architectures()
    spaced = re.sub(r"\b(rtx|gtx|tpu)(?=\w*\d)", r"\1 ", plain).replace("rtx  ", "rtx ")
    by_card = (of for of in every.values() if re.search(rf"(?<![a-z0-9])(?:{of.cards})(?![a-z0-9])", spaced))
    by_name = (of for of in every.values() if re.search(rf"\b{of.name}\b", plain))
    return every.get(plain) or next(by_card, next(by_name, None))


def likenesses(
    cards: Sequence[Architecture | None], others: Sequence[Architecture | None] | None = None
) -> Float[np.ndarray, "cards others"]:
    """Correlations of a constant between cards, `c_0 + c_1 exp(-|g - h| / l)` within a lineage, else c_0 [prior].

    Others are other pieces, even of one type; by default the cards themselves, each like itself.
    """

    def likeness(card: Architecture | None, other: Architecture | None) -> float:
        if card is None or other is None or card.lineage != other.lineage:
            return EVERYWHERE
        return EVERYWHERE + LINEAGE * float(np.exp(-abs(card.generation - other.generation) / GENERATIONS))

    between = np.array([[likeness(card, other) for other in (cards if others is None else others)] for card in cards])
    if others is None:
        np.fill_diagonal(between, 1.0)
    return between


class PowerPopulation(NamedTuple):
    """Constants of some cards; coordinates are in the order of constants, then cards."""

    constants: ConstantPriors  # of one card alone, before any was measured
    cards: tuple[str, ...]
    mean: Vector
    covariance: Matrix
    errors: Mapping[str, float]  # usual logarithmic errors of time, power and energy of a card that was left out

    def of(self, cards: Sequence[Architecture | None]) -> JointPrior:
        """The prior of other cards, in the order of constants, then cards; names are those of one card alone."""
        alone, measured = joint_prior(self.constants), [architecture_of(card) for card in self.cards]
        gain = likenesses(cards, measured) @ np.linalg.inv(likenesses(measured))
        left = likenesses(cards) - gain @ likenesses(cards, measured).T
        count, spread = np.eye(len(alone.names)), np.repeat(alone.spread, len(cards))
        carry = np.kron(count, gain) * np.outer(spread, 1.0 / np.repeat(alone.spread, len(measured)))
        mean = np.repeat(alone.mean, len(cards)) + carry @ (self.mean - np.repeat(alone.mean, len(measured)))
        total = np.kron(count, left) * np.outer(spread, spread) + carry @ self.covariance @ carry.T
        names = tuple(name for name in alone.names for _ in cards)
        return JointPrior.of(names, mean, total)


@cache
def power_population(name: str = LIMITS) -> PowerPopulation:
    """Cards that an experiment fitted: at power limits (`LIMITS`), or their kernels at several clocks (`KERNELS`)."""
    table, constants = read_toml(FOLDER / f"{name}.toml"), power_constants() if name == LIMITS else CONSTANTS
    return PowerPopulation(constants, tuple(table["cards"]), *read_normal(FOLDER / f"{name}.csv"), table["errors"])
