"""How alike are two cards, by their architectures, and what do constants of some cards say of another?"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.calibration.constant_priors import JointPrior

EVERYWHERE, LINEAGE, OWN = 0.1, 0.7, 0.2
"""Shares of the variance between cards that all cards have in common, that a lineage has, and that a card has alone."""
GENERATIONS = 1.5  # after which what a lineage has in common falls by a factor e


class Architecture(NamedTuple):
    """Of a card: its name, what it descends from, and its place there."""

    name: str
    lineage: str
    generation: float


ARCHITECTURES = {
    one.name: one
    for one in (
        Architecture("maxwell", "nvidia", -1.0),
        Architecture("pascal", "nvidia", 0.0),
        Architecture("volta", "nvidia", 1.0),
        Architecture("turing", "nvidia", 2.0),
        Architecture("ampere", "nvidia", 3.0),
        Architecture("ada", "nvidia", 4.0),
        Architecture("hopper", "nvidia", 5.0),
        Architecture("blackwell", "nvidia", 6.0),
        Architecture("cdna", "amd", 0.0),
        Architecture("cdna 2", "amd", 1.0),
        Architecture("cdna 3", "amd", 2.0),
        Architecture("cdna 4", "amd", 3.0),
        Architecture("tpu v3", "tpu", 0.0),
        Architecture("tpu v4", "tpu", 1.0),
        Architecture("tpu v5", "tpu", 2.0),
        Architecture("tpu v6", "tpu", 3.0),
        Architecture("tpu v7", "tpu", 4.0),
    )
}
_CARDS = (
    ("blackwell", r"g?b[123]00|rtx (?:pro [2-6]000|50[5-9]0)"),
    ("hopper", r"h20|h100|h200|h800|gh200"),
    ("ada", r"rtx [2-6]\d00 ?ada|rtx 40[5-9]0|l4|l40s?|[2-6]000 ada"),
    ("ampere", r"a(?:10|16|2|30|40|100|800)g?|rtx a[2-6]000|a[456]000|rtx 30[5-9]0"),
    ("turing", r"(?:quadro )?rtx [3-8]000|t4|titan rtx|rtx 20[6-8]0|gtx 16[56]0"),
    ("volta", r"v100s?|titan v|gv100"),
    ("pascal", r"p100|p40|p4|gtx 10[5-8]0|titan xp?|gp100"),
    ("maxwell", r"m40|m60|gtx 9[5-8]0"),
    ("cdna 4", r"mi35[05]x?"),
    ("cdna 3", r"mi3(?:00|25)[xa]?"),
    ("cdna 2", r"mi2[15]0x?"),
    ("cdna", r"mi100"),
    ("tpu v7", r"tpu v7x?|ironwood"),
    ("tpu v6", r"tpu v6e?|trillium"),
    ("tpu v5", r"tpu v5[ep]?"),
    ("tpu v4", r"tpu v4"),
    ("tpu v3", r"tpu v3"),
)


def architecture_of(card: str) -> Architecture | None:
    """The architecture of a card by its name, such as "Quadro RTX 6000", "h100-sxm" or "volta"; `None` if unknown."""
    plain = re.sub(r"[\s_\-/()]+", " ", card.strip().lower())
    if plain in ARCHITECTURES:
        return ARCHITECTURES[plain]
    spaced = re.sub(r"\b(rtx|gtx|tpu)(?=\w*\d)", r"\1 ", plain).replace("rtx  ", "rtx ")
    for name, pattern in _CARDS:
        if re.search(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", spaced):
            return ARCHITECTURES[name]
    return next((one for name, one in ARCHITECTURES.items() if re.search(rf"\b{name}\b", plain)), None)


def likeness(one: Architecture | None, other: Architecture | None) -> float:
    """Correlation of a constant of two different cards, `c_0 + c_1 exp(-|g - h| / l)` within a lineage [prior].

    **Returns:** correlation [1]; what all cards have in common where an architecture is not known.
    """
    if one is None or other is None or one.lineage != other.lineage:
        return EVERYWHERE
    return EVERYWHERE + LINEAGE * float(np.exp(-abs(one.generation - other.generation) / GENERATIONS))


def likenesses(
    cards: Sequence[Architecture | None], others: Sequence[Architecture | None]
) -> Float[np.ndarray, "cards others"]:
    """`likeness` of each of some cards with each of others, which are other pieces even where the type is the same."""
    return np.array([[likeness(one, other) for other in others] for one in cards])


def family_prior(alone: JointPrior, cards: Sequence[Architecture | None]) -> JointPrior:
    """The prior of cards that are fitted together: that of each alone, with correlations by `likeness`.

    **Arguments:**

    - `alone`: of constants that have one value for each card, in the order of constants, then cards.
    """
    between = likenesses(cards, cards)
    np.fill_diagonal(between, 1.0)
    names = len(alone.names) // len(cards)
    total = np.kron(np.eye(names), between) * np.outer(alone.spread, alone.spread)
    return alone._replace(whiten=np.linalg.inv(np.linalg.cholesky(total)))


def family_variance(
    alone: JointPrior, one: Architecture | None, other: Architecture | None
) -> Float[np.ndarray, " constants"]:
    """Variance of the difference of two cards by coordinate, `2 (1 - c) s^2` with their `likeness` c [definition]."""
    return 2.0 * (1.0 - likeness(one, other)) * alone.spread**2
