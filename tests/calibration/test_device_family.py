"""Are cards told by their names, and are constants of kin nearer than those of strangers?"""

import numpy as np
import pytest

from energymodel.calibration.constant_priors import joint_prior
from energymodel.calibration.device_family import (
    ARCHITECTURES,
    architecture_of,
    family_prior,
    family_variance,
    likeness,
)
from energymodel.calibration.device_power import power_constants
from energymodel.calibration.power_population import power_population
from energymodel.scenarios.files import names


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("V100", "volta"),
        ("Tesla V100-SXM2-32GB", "volta"),
        ("NVIDIA A40", "ampere"),
        ("A100-SXM4-80GB", "ampere"),
        ("Quadro RTX 6000", "turing"),
        ("RTX6000", "turing"),
        ("NVIDIA RTX 6000 Ada Generation", "ada"),
        ("NVIDIA GeForce RTX 4090", "ada"),
        ("NVIDIA GeForce RTX 3090", "ampere"),
        ("RTX A6000", "ampere"),
        ("NVIDIA GeForce RTX 5090", "blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell", "blackwell"),
        ("h100-sxm", "hopper"),
        ("GH200", "hopper"),
        ("gb300", "blackwell"),
        ("L40S", "ada"),
        ("Tesla T4", "turing"),
        ("Titan X (Pascal)", "pascal"),
        ("mi300x", "cdna 3"),
        ("AMD Instinct MI355X", "cdna 4"),
        ("tpu-v5p", "tpu v5"),
        ("hopper", "hopper"),
    ],
)
def test_cards_are_told_by_their_names(card, name):
    found = architecture_of(card)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("card", ["", "gaudi3", "near-limit", "my card", "trainium2", "v1000"])
def test_other_words_are_no_card(card):
    assert architecture_of(card) is None


def test_every_preset_of_a_known_maker_has_an_architecture():
    unknown = {name for name in names("hardware") if architecture_of(name) is None}
    assert {name for name in unknown if name.startswith(("a100", "b", "g", "h", "mi", "tpu", "v"))} <= {"gaudi3"}


def test_the_nearer_generation_is_more_alike_and_a_correlation_is_possible():
    one = ARCHITECTURES
    near, far = likeness(one["turing"], one["ampere"]), likeness(one["turing"], one["hopper"])
    assert 1.0 > likeness(one["turing"], one["turing"]) > near > far > likeness(one["turing"], one["cdna 3"]) > 0.0
    alone = joint_prior(power_constants(devices=tuple(one)))
    assert np.all(np.linalg.eigvalsh(family_prior(alone, list(one.values())).information) > 0.0)
    single = joint_prior(power_constants())
    assert np.all(family_variance(single, one["turing"], one["turing"]) < family_variance(single, None, one["turing"]))


def test_what_is_known_of_kin_narrows_the_prior_and_of_strangers_hardly():
    population, alone = power_population(), joint_prior(power_constants())
    turing, amd = (population.of([architecture_of(card)]) for card in ("RTX 8000", "MI300X"))
    assert turing.names == amd.names == alone.names
    assert np.all(turing.spread < 0.95 * alone.spread)
    assert np.all(amd.spread > 0.9 * alone.spread)
    assert np.all(amd.spread <= alone.spread * (1 + 1e-9))
    both = population.of([architecture_of("RTX 8000"), architecture_of("MI300X")])
    np.testing.assert_allclose(both.mean[::2], turing.mean)
    np.testing.assert_allclose(both.spread[1::2], amd.spread)
