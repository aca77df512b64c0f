"""Architectures of cards by their names, and what measured cards say of others."""

import numpy as np
import pytest

from energymodel.calibration.constant_priors import joint_prior
from energymodel.calibration.device_power import power_constants
from energymodel.calibration.power_population import architecture_of, architectures, likenesses, power_population
from energymodel.scenarios.files import names
from experiment import Experiment

CARDS = {
    "volta": ("V100", "Tesla V100-SXM2-32GB"),
    "ampere": ("NVIDIA A40", "A100-SXM4-80GB", "NVIDIA GeForce RTX 3090", "RTX A6000"),
    "turing": ("Quadro RTX 6000", "RTX6000", "Tesla T4"),
    "ada": ("NVIDIA RTX 6000 Ada Generation", "NVIDIA GeForce RTX 4090", "L40S"),
    "blackwell": ("NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell", "gb300"),
    "hopper": ("h100-sxm", "GH200", "hopper"),
    "pascal": ("Titan X (Pascal)",),
    "cdna 3": ("mi300x",),
    "cdna 4": ("AMD Instinct MI355X",),
    "tpu v5": ("tpu-v5p",),
    None: ("", "gaudi3", "near-limit", "my card", "trainium2", "v1000"),
}


@pytest.mark.parametrize("name", CARDS)
def test_names_of_cards_give_their_architecture(name):
    assert {getattr(architecture_of(card), "name", None) for card in CARDS[name]} == {name}


def test_every_preset_of_a_known_maker_has_an_architecture():
    unknown = {name for name in names("hardware") if architecture_of(name) is None}
    assert {name for name in unknown if name.startswith(("a100", "b", "g", "h", "mi", "tpu", "v"))} <= {
        "gaudi2",
        "gaudi3",
    }


def test_the_nearer_generation_is_more_alike_and_a_correlation_is_possible():
    every = [architecture_of(name) for name in architectures()]
    turing = [architecture_of("turing")]
    same, near, far, other = likenesses(turing, [architecture_of(x) for x in ("turing", "ampere", "hopper", "cdna 3")])[
        0
    ]
    # 0.1 + 0.7 exp(-1 / 1.5) = 0.4594 a generation apart
    np.testing.assert_allclose([same, near, other], [0.8, 0.459392, 0.1], rtol=1e-5)
    assert near > far > other
    family_prior = Experiment("02_power_limits").cards.family_prior
    alone = joint_prior(power_constants(devices=tuple(architectures())))
    assert np.all(np.linalg.eigvalsh(family_prior(alone, every).information) > 0.0)


def test_measured_cards_narrow_the_prior_of_similar_ones_and_hardly_that_of_others():
    population, alone = power_population(), joint_prior(power_constants())
    turing, amd = (population.of([architecture_of(card)]) for card in ("RTX 8000", "MI300X"))
    assert turing.names == amd.names == alone.names
    assert np.all(turing.spread < 0.95 * alone.spread)
    assert np.all(amd.spread > 0.9 * alone.spread)
    assert np.all(amd.spread <= alone.spread * (1 + 1e-9))
    both = population.of([architecture_of("RTX 8000"), architecture_of("MI300X")])
    np.testing.assert_allclose(both.mean[::2], turing.mean)
    np.testing.assert_allclose(both.spread[1::2], amd.spread)
