"""Settings of lowest energy, where they save more than a prediction's error, and the next batch of a job."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.calibration.best_setting import (
    Settings,
    lowest_energy,
    lowest_limits,
    next_batch,
    recommendation,
    steps_below,
)
from energymodel.calibration.constant_priors import Values
from energymodel.calibration.device_power import power_constants, power_errors, predict_power, profiles
from energymodel.calibration.least_squares import FitProblem, unfitted
from experiment import Experiment

MEDIAN: Values = {name: np.asarray(value.median) for name, value in power_constants().items()}
BATCHES = [2.0**k for k in range(2, 15)]
search_job = Experiment("02_power_limits").zeus_job.search_job


def best_settings(measured, error, most_slowdown=np.inf):
    prior = unfitted(FitProblem(power_errors, power_constants(), measured.runs))
    return recommendation(prior, measured, error, most_slowdown)


def settings_of(workload, batch, limit, time, watt, **options):
    workload, count = np.asarray(workload), len(workload)
    columns = (np.broadcast_to(np.asarray(value, float), (count,)) for value in (batch, limit, time, watt))
    batch, limit, time, watt = columns
    runs, is_profile = profiles(workload, batch, limit, time, watt, **options)
    return Settings(runs, is_profile, workload, batch, ("card",), np.ones(count))


def two_workloads(busy_watt=245.0, idle_watt=45.0):
    """Two workloads at two batches and four limits: one keeps the device busy, the other leaves it waiting."""
    workload = np.repeat(["busy", "waiting"], 8)
    batch, limit = np.tile(np.repeat([8.0, 32.0], 4), 2), np.tile([250.0, 200.0, 150.0, 125.0], 4)
    watt = np.minimum(np.where(workload == "busy", busy_watt, idle_watt), 0.98 * limit)
    return settings_of(
        workload, batch, limit, np.where(batch == 8.0, 110.0, 100.0), watt, rated_power=250.0, idle_power=40.0
    )


def test_a_prediction_has_to_save_more_than_its_error():
    energy, is_profile = np.array([100.0, 96.0, 98.0]), np.array([True, False, False])
    assert lowest_energy(energy, is_profile, 0.03) == 1
    assert lowest_energy(energy, is_profile, 0.05) == 0


def test_a_busy_device_is_limited_and_a_waiting_one_is_not():
    measured = two_workloads()
    best = best_settings(measured, error=0.04)
    busy, waiting = best.settings
    assert (busy.workload, busy.batch, waiting.workload, waiting.batch) == ("busy", 32.0, "waiting", 32.0)
    assert busy.limit in (125.0, 150.0)
    assert (waiting.limit, waiting.energy, waiting.time) == (250.0, 1.0, 1.0)
    runs, curve = measured.runs, best.curves[0]
    time, watt = predict_power(MEDIAN, runs)
    (row,) = np.flatnonzero((measured.workload == "busy") & (measured.batch == 32.0) & (runs.limit == busy.limit))
    assert busy.time == pytest.approx(float(time[row]) / 100.0, rel=1e-9)
    assert busy.energy == pytest.approx(float(time[row] * watt[row]) / (100.0 * 245.0), rel=1e-9)
    assert busy.energy_interval[0] < busy.energy < busy.energy_interval[1]
    assert curve.low[0] < curve.energy[0] < curve.high[0]
    assert np.interp(busy.speed, curve.speed, curve.energy) == pytest.approx(busy.energy, rel=0.01)


def test_clocks_are_stated_as_shares_of_the_profile():
    clock = np.tile([1.4e9, 1.05e9, 0.7e9], 2)
    measured = settings_of(
        np.repeat(["a", "b"], 3), 1.0, np.inf, 50.0, 230.0, clock=clock, rated_power=250.0, idle_power=40.0
    )
    for best in best_settings(measured, error=0.0).settings:
        assert best.limit is None
        assert best.clock in (0.5, 0.75)


def test_a_slowdown_that_is_not_allowed_is_not_chosen():
    measured = two_workloads()
    free = best_settings(measured, error=0.04).settings[0]
    for most in (1.02, 1.1):
        bound = best_settings(measured, 0.04, most).settings[0]
        assert bound.time <= most
        assert bound.speed > free.speed
    assert best_settings(measured, 0.04, 1.0).settings[0].limit == 250.0


def test_repeats_that_differ_by_more_than_a_saving_leave_the_device_alone():
    assert not best_settings(two_workloads()._replace(noise=0.5), error=0.04).settings[0].saves


def test_limits_that_a_card_exceeds_are_not_chosen_and_those_it_was_seen_to_hold_are():
    time, watt = [100.0, 101.0, 102.0, 103.0], [240.0, 148.0, 109.0, 108.0]
    measured = settings_of(["a"] * 4, 1.0, [250.0, 150.0, 110.0, 90.0], time, watt, idle_power=30.0)
    np.testing.assert_array_equal(lowest_limits(measured), 110.0)
    assert best_settings(measured, error=0.0).settings[0].limit == 110.0


def test_where_nothing_was_measured_lower_no_limit_below_the_usual_share_is_chosen():
    best = best_settings(settings_of(["a"], 1.0, 260.0, 1.0, 255.0), error=0.02).settings[0]
    assert 0.48 * 260.0 <= best.speed < 260.0
    assert best.speed % 5.0 == 0.0
    np.testing.assert_allclose(steps_below(1.0, 0.48), np.linspace(0.48, 1.0, 10, endpoint=False), atol=0.005)


def test_a_batch_that_needs_more_epochs_must_be_worth_them_and_the_next_run_is_beside_the_best():
    measured = two_workloads(245.0, 245.0)
    slow = best_settings(measured._replace(epochs=np.where(measured.batch == 32.0, 3.0, 1.0)), error=0.04)
    assert [best.batch for best in slow.settings] == [8.0, 8.0]
    assert [batch for *_, batch in slow.runs] in ([4.0, 4.0], [16.0, 16.0])
    failed = best_settings(measured._replace(epochs=np.where(measured.batch == 32.0, np.inf, 2.0)), error=0.04)
    assert [best.batch for best in failed.settings] == [8.0, 8.0]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(BATCHES), st.sampled_from(BATCHES), st.floats(0.05, 0.6))
def test_one_minimum_over_batches_is_reached_in_eight_runs(best, first, curvature):
    energy = {batch: np.exp(curvature * np.log2(batch / best) ** 2) for batch in BATCHES}
    tried = search_job(energy.__getitem__, BATCHES, first, 8)
    assert len(tried) == 8
    assert min(tried, key=lambda batch: tried[batch]) == best


def test_a_second_minimum_is_found_beyond_a_ridge_and_failed_runs_count():
    ridge = {4.0: 0.8, 8.0: 1.1, 16.0: 1.05, 32.0: 1.0, 64.0: 1.1, 128.0: 1.3, 256.0: 1.6, 512.0: 2.1, 1024.0: 3.0}
    assert 4.0 in search_job(ridge.__getitem__, list(ridge), 32.0, 8)
    energy = {batch: (1.0 + abs(np.log2(batch / 128)) if 32 <= batch <= 512 else np.inf) for batch in BATCHES}
    assert min(search_job(energy.__getitem__, BATCHES, 4.0, 8).values()) == 1.0
    assert set(search_job(lambda _: np.inf, [1.0, 2.0, 4.0], 1.0, 8)) == {1.0, 2.0, 4.0}


def test_the_last_runs_are_beside_the_best_and_nothing_left_is_none():
    tried = {4.0: 3.0, 64.0: 1.0, 4096.0: 5.0}
    assert next_batch(BATCHES, tried, 4.0, 2) in (32.0, 128.0)
    assert next_batch(BATCHES, tried | {32.0: 2.0}, 4.0, 1) == 128.0
    assert next_batch([8.0], {8.0: 1.0}, 8.0, 3) is None
    assert next_batch([8.0, 16.0], {8.0: 1.0}, 8.0, 0) is None
    assert next_batch([8.0, 16.0], {}, 100.0, 1) == 16.0
