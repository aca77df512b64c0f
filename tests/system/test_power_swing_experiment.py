"""Does experiment 18 state what its command computes, and do its claims hold?"""

import numpy as np
import pytest

from experiment import Experiment

EXPERIMENT = Experiment("18_power_swing")


@pytest.fixture(scope="module")
def stated():
    return EXPERIMENT.stated()


@pytest.fixture(scope="module")
def computed():
    return EXPERIMENT.module("run")


@pytest.mark.parametrize("part", ["of_nodes", "of_fleet", "of_smoothing"])
def test_tables_are_those_of_the_command(part, stated, computed):
    for name, rows in getattr(computed, part)().items():
        assert len(rows) == len(stated[name])
        for row, kept in zip(rows, stated[name], strict=True):
            for key, value in row.items():
                if isinstance(value, float):
                    np.testing.assert_allclose(kept[key], value, rtol=1e-4, atol=1e-6, err_msg=f"{name} {key}")
                else:
                    assert kept[key] == value


def test_accuracy_is_that_of_the_tables(stated, computed):
    for row, kept in zip(computed.accuracies(stated), stated["accuracy"], strict=True):
        assert row["prediction"] == kept["prediction"]
        np.testing.assert_allclose(kept["mean_error"], row["mean_error"], rtol=1e-6)


def test_a_chip_at_a_checkpoint_draws_static_power_rather_than_that_of_waiting_kernels(stated, computed):
    """What `power_over_time` takes the level of a checkpoint to be."""
    measured = next(row["measured_w"] for row in stated["levels_8xh100"] if row["level"] == "writing")
    step = computed.levels.small_model(stated["wave"][0]["step_s"])[1]
    assert abs(8 * float(step.levels.writing) / measured - 1.0) < 0.1
    assert 8 * float(step.levels.waiting) / measured > 1.4


def test_every_means_of_smoothing_has_its_price(stated):
    rows = {row["smoothing"]: row for row in stated["smoothing"]}
    none = rows.pop("none")
    for row in rows.values():
        assert row["swing_mw"] < none["swing_mw"]
        assert row["ramp_mw_per_s"] < none["ramp_mw_per_s"]
        assert row["energy_change"] > 0.0
        assert row["money_change"] > 0.0


def test_wave_by_hand(computed):
    # 3,200 W above the writing level for 0.25 s a step; a meter of 1 s sees a quarter of it.
    wave = computed.traces.Wave(4400.0, 1200.0, 0.25)
    assert wave.energy(10) == pytest.approx(8000.0)
    assert wave.highest(1, 1.0) == pytest.approx(2000.0)
    assert wave.highest(10, 1.0) == pytest.approx(4400.0)
