"""Is the setting of lowest energy found where it saves more than a prediction's error, and left where it does not?"""

import numpy as np
import pytest

from energymodel.calibration.best_setting import best_settings, lowest_energy
from energymodel.calibration.constant_priors import Values
from energymodel.calibration.device_power import power_constants, predict_power, profiles

MEDIAN: Values = {name: np.asarray(one.median) for name, one in power_constants().items()}


def test_a_prediction_has_to_save_more_than_its_error():
    energy, is_profile = np.array([100.0, 96.0, 98.0]), np.array([True, False, False])
    assert lowest_energy(energy, is_profile, 0.03) == 1
    assert lowest_energy(energy, is_profile, 0.05) == 0


def measured(busy_watt, idle_watt):
    """Two workloads at two batches and four limits: one keeps the device busy, the other leaves it waiting."""
    workload = np.repeat(["busy", "waiting"], 8)
    batch, limit = np.tile(np.repeat([8.0, 32.0], 4), 2), np.tile([250.0, 200.0, 150.0, 125.0], 4)
    time = np.where(batch == 8.0, 110.0, 100.0)
    watt = np.where(workload == "busy", busy_watt, idle_watt)
    runs, is_profile = profiles(workload, batch, limit, time, watt, rated_power=250.0, idle_power=40.0)
    return runs, is_profile, workload, batch


def test_a_busy_device_is_limited_and_a_waiting_one_is_not():
    busy, waiting = best_settings(MEDIAN, *measured(245.0, 45.0), error=0.04)
    assert (busy.workload, busy.batch, waiting.workload, waiting.batch) == ("busy", 32.0, "waiting", 32.0)
    assert busy.limit in (125.0, 150.0)
    assert busy.energy < 0.9
    assert busy.time > 1.05
    assert (waiting.limit, waiting.energy, waiting.time) == (250.0, 1.0, 1.0)


def test_ratios_are_those_of_the_prediction():
    runs, is_profile, workload, batch = measured(245.0, 45.0)
    busy, _ = best_settings(MEDIAN, runs, is_profile, workload, batch, error=0.04)
    time, watt = predict_power(MEDIAN, runs)
    (row,) = np.flatnonzero((workload == "busy") & (batch == 32.0) & (runs.limit == busy.limit))
    assert busy.time == pytest.approx(float(time[row]) / 100.0, rel=1e-9)
    assert busy.energy == pytest.approx(float(time[row] * watt[row]) / (100.0 * 245.0), rel=1e-9)


def test_clocks_are_stated_as_shares_of_the_profile():
    clock = np.tile([1.4e9, 1.05e9, 0.7e9], 2)
    runs, is_profile = profiles(
        np.repeat(["a", "b"], 3),
        np.ones(6),
        np.full(6, np.inf),
        np.full(6, 50.0),
        np.full(6, 230.0),
        clock=clock,
        rated_power=250.0,
        idle_power=40.0,
    )
    for one in best_settings(MEDIAN, runs, is_profile, np.repeat(["a", "b"], 3), np.ones(6), error=0.0):
        assert one.limit is None
        assert one.clock in (0.5, 0.75)
