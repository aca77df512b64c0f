"""Is the setting of lowest energy found where it saves more than a prediction's error, and left where it does not?"""

import numpy as np
import pytest

from energymodel.calibration.best_setting import Settings, lowest_energy, lowest_limits, recommendation, steps_below
from energymodel.calibration.constant_priors import Values
from energymodel.calibration.device_power import power_constants, power_errors, predict_power, profiles
from energymodel.calibration.least_squares import FitProblem, unfitted

MEDIAN: Values = {name: np.asarray(one.median) for name, one in power_constants().items()}


def best_settings(settings, error, most_slowdown=np.inf):
    found = unfitted(FitProblem(power_errors, power_constants(), settings.runs))
    return recommendation(found, settings, error, most_slowdown)


def test_a_prediction_has_to_save_more_than_its_error():
    energy, is_profile = np.array([100.0, 96.0, 98.0]), np.array([True, False, False])
    assert lowest_energy(energy, is_profile, 0.03) == 1
    assert lowest_energy(energy, is_profile, 0.05) == 0


def measured(busy_watt, idle_watt):
    """Two workloads at two batches and four limits: one keeps the device busy, the other leaves it waiting."""
    workload = np.repeat(["busy", "waiting"], 8)
    batch, limit = np.tile(np.repeat([8.0, 32.0], 4), 2), np.tile([250.0, 200.0, 150.0, 125.0], 4)
    time = np.where(batch == 8.0, 110.0, 100.0)
    watt = np.minimum(np.where(workload == "busy", busy_watt, idle_watt), 0.98 * limit)
    runs, is_profile = profiles(workload, batch, limit, time, watt, rated_power=250.0, idle_power=40.0)
    return Settings(runs, is_profile, workload, batch, ("card",), np.ones(16))


def test_a_busy_device_is_limited_and_a_waiting_one_is_not():
    busy, waiting = best_settings(measured(245.0, 45.0), error=0.04).settings
    assert (busy.workload, busy.batch, waiting.workload, waiting.batch) == ("busy", 32.0, "waiting", 32.0)
    assert busy.limit in (125.0, 150.0)
    assert busy.energy < 0.9
    assert busy.time > 1.05
    assert (waiting.limit, waiting.energy, waiting.time) == (250.0, 1.0, 1.0)


def test_ratios_are_those_of_the_prediction():
    given = measured(245.0, 45.0)
    found, runs = best_settings(given, error=0.04), given.runs
    busy, curve = found.settings[0], found.curves[0]
    time, watt = predict_power(MEDIAN, runs)
    (row,) = np.flatnonzero((given.workload == "busy") & (given.batch == 32.0) & (runs.limit == busy.limit))
    assert curve.low[0] < curve.energy[0] < curve.high[0]
    assert np.interp(busy.speed, curve.speed, curve.energy) == pytest.approx(busy.energy, rel=0.01)
    assert busy.energy_interval[0] < busy.energy < busy.energy_interval[1]
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
    given = Settings(runs, is_profile, np.repeat(["a", "b"], 3), np.ones(6), ("card",), np.ones(6))
    for one in best_settings(given, error=0.0).settings:
        assert one.limit is None
        assert one.clock in (0.5, 0.75)


def test_a_slowdown_that_is_not_allowed_is_not_chosen():
    given = measured(245.0, 45.0)
    free = best_settings(given, error=0.04).settings[0]
    for most in (1.02, 1.1):
        bound = best_settings(given, 0.04, most).settings[0]
        assert bound.time <= most
        assert bound.speed > free.speed
    assert best_settings(given, 0.04, 1.0).settings[0].limit == 250.0


def test_repeats_that_differ_by_more_than_a_saving_leave_the_device_alone():
    given = measured(245.0, 45.0)
    assert best_settings(given, error=0.04).settings[0].saves
    assert not best_settings(given._replace(noise=0.5), error=0.04).settings[0].saves


def test_limits_that_a_card_exceeds_are_not_chosen_and_those_it_was_seen_to_hold_are():
    limit, watt = np.array([250.0, 150.0, 110.0, 90.0]), np.array([240.0, 148.0, 109.0, 108.0])
    time = np.array([100.0, 101.0, 102.0, 103.0])
    runs, is_profile = profiles(["a"] * 4, np.ones(4), limit, time, watt, idle_power=30.0)
    given = Settings(runs, is_profile, np.array(["a"] * 4), np.ones(4), ("card",), np.ones(4))
    np.testing.assert_array_equal(lowest_limits(given), 110.0)
    assert best_settings(given, error=0.0).settings[0].limit == 110.0


def test_where_nothing_was_measured_lower_no_limit_below_the_usual_share_is_chosen():
    runs, is_profile = profiles(["a"], np.ones(1), np.array([260.0]), np.array([1.0]), np.array([255.0]))
    given = Settings(runs, is_profile, np.array(["a"]), np.ones(1), ("card",), np.ones(1))
    best = best_settings(given, error=0.02).settings[0]
    assert 0.48 * 260.0 <= best.speed < 260.0
    assert best.speed % 5.0 == 0.0
    np.testing.assert_allclose(steps_below(1.0, 0.48), np.linspace(0.48, 1.0, 10, endpoint=False), atol=0.005)


def test_a_batch_that_needs_more_epochs_must_be_worth_them_and_the_next_run_is_beside_the_best():
    given = measured(245.0, 245.0)
    epochs = np.where(given.batch == 32.0, 3.0, 1.0)
    found = best_settings(given._replace(epochs=epochs), error=0.04)
    assert [one.batch for one in found.settings] == [8.0, 8.0]
    assert [one.batch for one in found.runs] in ([4.0, 4.0], [16.0, 16.0])
    failed = best_settings(given._replace(epochs=np.where(given.batch == 32.0, np.inf, 2.0)), error=0.04)
    assert [one.batch for one in failed.settings] == [8.0, 8.0]
