"""Constants of clusters that nobody has fitted, by partial pooling, and the files of their distributions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.scenarios.step_population import (
    LEVELS,
    NAMES,
    STEP_CONSTANTS,
    Coordinates,
    Effects,
    StepPopulation,
    read_normal,
    step_population,
    write_normal,
)

KNOWN = {"framework": "megatron", "chip": "h100-sxm"}
AT = NAMES.index("software.product_efficiency")
BY_HAND = StepPopulation(
    effects=Effects((("mean", "all", AT), ("framework", "f", AT), ("chip", "c", AT))),
    mean=np.array([0.1, -0.3, 0.05]),
    covariance=np.array([[0.04, -0.01, 0.0], [-0.01, 0.09, 0.0], [0.0, 0.0, 0.01]]),
    spreads={level: np.full(len(NAMES), spread) for level, spread in zip(LEVELS, (0.0, 0.5, 0.6, 0.2), strict=True)},
    group_scatter=0.03,
    row_scatter=0.04,
)


def test_effects_of_known_labels_add_up_by_hand():
    # Mean: ln 0.85 + 0.1 - 0.3 + 0.05. Variance: 0.04 + 0.09 + 0.01 - 2 x 0.01 of the effects, 0.2^2 of the cluster.
    result = BY_HAND.of({"framework": "f", "chip": "c"})
    np.testing.assert_allclose(result.mean[AT], math.log(0.85) - 0.15, rtol=1e-12)
    np.testing.assert_allclose(result.covariance[AT, AT], 0.16, rtol=1e-12)


@pytest.mark.parametrize(
    ("labels", "mean", "variance"),
    [
        # Without the effect of f: 0.04 + 0.01, and the spreads 0.5 and 0.2.
        ({"framework": "new", "chip": "c"}, 0.15, 0.34),
        # Without that of c: 0.04 + 0.09 - 0.02, and the spreads 0.6 and 0.2.
        ({"framework": "f", "chip": "new"}, -0.2, 0.51),
        ({}, 0.1, 0.04 + 0.25 + 0.36 + 0.04),
    ],
)
def test_a_label_that_is_not_known_adds_the_spread_of_its_level_by_hand(labels, mean, variance):
    result = BY_HAND.of(labels)
    np.testing.assert_allclose(result.mean[AT], math.log(0.85) + mean, rtol=1e-12)
    np.testing.assert_allclose(result.covariance[AT, AT], variance, rtol=1e-12)


def test_scatter_joins_groups_and_rows_by_hand():
    np.testing.assert_allclose(BY_HAND.scatter, 0.05)  # 3-4-5


@pytest.mark.parametrize("labels", [KNOWN, {"framework": "megatron", "chip": "new"}, {}])
def test_covariance_is_symmetric_and_positive_definite(labels):
    covariance = step_population().of(labels).covariance
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
    varies = np.diag(covariance) > 0.0
    assert np.all(np.linalg.eigvalsh(covariance[np.ix_(varies, varies)]) > 0.0)


def test_an_unknown_chip_and_framework_are_less_certain():
    """Each narrows what is known, if not of each constant: an effect may be less certain than its estimated spread."""
    totals = [
        float(np.trace(step_population().of(labels).covariance))
        for labels in (KNOWN, {**KNOWN, "chip": "new"}, {"framework": "new", "chip": "new"})
    ]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


def test_the_population_knows_the_usual_chips_and_frameworks():
    labels = {(level, label) for level, label, _ in step_population().effects.keys}
    assert {("framework", "megatron"), ("chip", "h100-sxm"), ("chip", "a100-sxm4-80gb")} <= labels


@pytest.mark.parametrize("name", NAMES)
@given(deviations=st.floats(-3.0, 3.0))
def test_value_and_coordinate_are_inverse_and_the_slope_is_the_derivative(name, deviations):
    constant = STEP_CONSTANTS[name]
    z, step = constant.middle + deviations, 1e-5
    np.testing.assert_allclose(constant.coordinate(constant.value(z)), z, atol=1e-8)
    difference = (constant.value(z + step) - constant.value(z - step)) / (2.0 * step)
    np.testing.assert_allclose(constant.slope(z), difference, rtol=1e-6)
    assert 0.0 < constant.value(z) < constant.upper


def test_a_distribution_comes_back_from_its_file_to_four_digits(tmp_path):
    root = np.array([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [-1.0, 0.25, 0.125]])
    normal = Coordinates(np.array([0.0, -3.25, 1e6]), root @ root.T)
    write_normal(tmp_path / "normal.csv", normal)
    result = read_normal(tmp_path / "normal.csv")
    np.testing.assert_allclose(result.mean, normal.mean, rtol=5e-4)
    np.testing.assert_allclose(result.covariance, normal.covariance, rtol=2e-3)
    assert (tmp_path / "normal.csv").read_text(encoding="utf-8").splitlines()[1] == "-3.25,0.5,1.5"
