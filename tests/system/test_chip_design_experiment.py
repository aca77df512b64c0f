"""Does the experiment on published chips still give what it states?"""

import jax
import numpy as np
import pytest

from experiment import Experiment

EXPERIMENT = Experiment("19_chip_design")


@pytest.fixture(scope="module")
def experiment():
    return EXPERIMENT.module("run")


@pytest.fixture(scope="module")
def stated():
    return EXPERIMENT.stated()


@pytest.fixture(scope="module")
def chips(experiment):
    with jax.enable_x64(True):
        return experiment.chips()


def test_each_held_out_power_is_the_stated_one(experiment, stated, chips):
    for row, known in zip(experiment.power_rows(chips), stated["power"], strict=True):
        np.testing.assert_allclose(row["error"], known["error"], atol=1e-4, err_msg=known["chip"])


def test_three_constants_recover_powers_that_follow_from_them(experiment, chips):
    constants = np.array([0.2e-12, 0.1e6, 8e-12])
    powers = experiment.drawn(constants, chips)
    follow = [
        chip._replace(accelerator=experiment.eqx.tree_at(lambda a: a.rated_power, chip.accelerator, np.asarray(power)))
        for chip, power in zip(chips, powers, strict=True)
    ]
    np.testing.assert_allclose(experiment.fitted(follow), constants, rtol=1e-4)


def test_a_step_to_the_chip_itself_has_no_error(experiment, chips):
    row = experiment.step_row(chips[2], chips[2])
    np.testing.assert_allclose([row["rate_error"], row["power_error"]], 0.0, atol=1e-12)


def test_steps_are_the_stated_ones(experiment, stated, chips):
    names = {chip.name: chip for chip in chips}
    for known in stated["steps"]:
        row = experiment.step_row(names[known["from"]], names[known["to"]])
        for key in ("rate_error", "power_error", "energy_error"):
            np.testing.assert_allclose(row[key], known[key], atol=1e-6, err_msg=known["to"])
    # The README's claim: within an architecture, rates carry.
    within = [row for row in stated["steps"] if row["to"] in ("a100-sxm4-80gb", "h200-sxm", "b200-sxm")]
    assert max(abs(row["rate_error"]) for row in within) < 0.06
