"""Slowdown of clusters with the number of chips, and recovery of growth that was put in."""

import numpy as np
import pytest

from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("17_kernels")


@pytest.mark.parametrize("what", ["cluster preset", "framework and chip"])
def test_measured_steps_grow_as_predicted(what):
    """By less than half a percent a doubling more or less, with either sign about as often."""
    result = EXPERIMENT.weak_scaling.families(EXPERIMENT.weak_scaling.DATA, EXPERIMENT.weak_scaling.SYSTEMS[what])
    left = np.array([family.per_doubling for family in result])
    low, high = EXPERIMENT.weak_scaling.interval(result)
    assert len(left) > 25
    assert abs(np.median(left)) < 0.005
    assert low < 0.0 < high
    assert 0.3 < np.mean(left > 0.0) < 0.7


def test_finds_a_known_growth():
    random = np.random.default_rng(1)
    drawn = []
    for cluster in range(8):
        chips = 8.0 * 2.0 ** np.arange(2 + cluster % 4)
        excess = 0.3 * cluster + 0.03 * np.log2(chips) + random.normal(0.0, 0.002, len(chips))
        drawn.append(EXPERIMENT.weak_scaling.Family(str(cluster), "", chips, excess))
    np.testing.assert_allclose(np.median([family.per_doubling for family in drawn]), 0.03, rtol=0.1)
    low, high = EXPERIMENT.weak_scaling.interval(drawn)
    assert 0.025 < low < 0.03 < high < 0.035
