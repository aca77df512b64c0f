"""Experiments on published chips and on the swing of power: their results are those of their commands."""

import jax
import numpy as np
import pytest

from experiment import Experiment, assert_rows

CHIPS, SWING = Experiment("19_chip_design"), Experiment("18_power_swing")
pytestmark = pytest.mark.slow


def test_powers_and_steps_of_chips():
    chip_design, stored = CHIPS.run, CHIPS.stored
    with jax.enable_x64(True):
        chips = chip_design.chips()
    for row, published in zip(chip_design.power_rows(chips), stored["power"], strict=True):
        np.testing.assert_allclose(row["error"], published["error"], atol=1e-4, err_msg=published["chip"])
    names = {chip.name: chip for chip in chips}
    for published in stored["steps"]:
        row = chip_design.step_row(names[published["from"]], names[published["to"]])
        for key in ("rate_error", "power_error", "energy_error"):
            np.testing.assert_allclose(row[key], published[key], atol=1e-6, err_msg=published["to"])
    # The README's claim: within an architecture, rates carry.
    within = [row for row in stored["steps"] if row["to"] in ("a100-sxm4-80gb", "h200-sxm", "b200-sxm")]
    assert max(abs(row["rate_error"]) for row in within) < 0.06


def test_three_constants_recover_powers_that_follow_from_them():
    chip_design = CHIPS.run
    chips, constants = chip_design.chips(), np.array([0.2e-12, 0.1e6, 8e-12])
    powers = map(np.asarray, chip_design.drawn(constants, chips))
    rated = lambda chip, power: chip_design.eqx.tree_at(lambda a: a.rated_power, chip.accelerator, power)  # noqa: E731
    follow = [chip._replace(accelerator=rated(chip, power)) for chip, power in zip(chips, powers, strict=True)]
    np.testing.assert_allclose(chip_design.fitted(follow), constants, rtol=1e-4)


@pytest.mark.parametrize("part", ["of_nodes", "of_fleet", "of_smoothing"])
def test_swings(part):
    for name, rows in getattr(SWING.run, part)().items():
        assert_rows(rows, SWING.stored[name], 1e-4)
    assert_rows(SWING.run.accuracies(SWING.stored), SWING.stored["accuracy"], 1e-6)


def test_a_chip_at_a_checkpoint_draws_static_power_rather_than_that_of_waiting_kernels():
    """What `power_over_time` takes the level of a checkpoint to be; every means of smoothing has its price."""
    computed, stored = SWING.run, SWING.stored
    measured = next(row["measured_w"] for row in stored["levels_8xh100"] if row["level"] == "writing")
    step = computed.levels.small_model(stored["wave"][0]["step_s"])[1]
    assert abs(8 * float(step.levels.writing) / measured - 1.0) < 0.1
    assert 8 * float(step.levels.waiting) / measured > 1.4
    none, *means = sorted(stored["smoothing"], key=lambda row: row["smoothing"] != "none")
    for row in means:
        assert row["swing_mw"] < none["swing_mw"]
        assert row["energy_change"] > 0.0 < row["money_change"]
