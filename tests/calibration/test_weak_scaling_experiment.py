"""Does the experiment on weak scaling give the variation of the preset, and find one that was put in?"""

import numpy as np
import pytest

from energymodel.performance.reliability import straggler_factor
from energymodel.presets.files import read_preset
from experiment import Experiment

EXPERIMENT = Experiment("17_kernels")


@pytest.fixture(scope="module")
def weak_scaling():
    return EXPERIMENT.module("weak_scaling")


@pytest.fixture(scope="module")
def found(weak_scaling):
    return weak_scaling.families(weak_scaling.DATA)


def test_preset_is_what_the_families_say(weak_scaling, found):
    stated = read_preset("reliability", "llama-3")["straggler_variation"]["value"]
    low, high = weak_scaling.interval(found)
    assert low < 2.0 * stated < 2.0 * high
    # That of the preset is fitted to all runs together, not to the growth of families alone.
    assert 0.5 < weak_scaling.fitted_variation(found) / stated < 2.0


def test_less_growth_is_left_on_clusters_held_out(weak_scaling, found):
    without = [one.per_doubling(0.0) for one in found]
    left = weak_scaling.held_out(found)
    assert np.median(without) > 0.005
    assert abs(np.median(left)) < 0.5 * np.median(without)


def test_finds_a_known_variation(weak_scaling):
    random = np.random.default_rng(1)
    drawn = []
    for cluster in range(8):
        chips = 8.0 * 2.0 ** np.arange(2 + cluster % 4)
        noise = random.normal(0.0, 0.002, len(chips))
        excess = 0.3 * cluster + np.log(np.asarray(straggler_factor(chips, 0.03))) + noise
        drawn.append(weak_scaling.Family(str(cluster), "", chips, excess))
    # Slopes of ln(1 + cv k) against k are cv / (1 + cv k): a few percent below cv.
    np.testing.assert_allclose(weak_scaling.fitted_variation(drawn), 0.03, rtol=0.2)
