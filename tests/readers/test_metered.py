"""Energy of spans from counters and samples, what is missing, and devices on one grid."""

import itertools
import math

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading
from energymodel.readers.metered import Metered, by_device, merge_devices

nan = math.nan


def samples(times, powers, device="0") -> list[PowerReading]:
    return [PowerReading(time=float(t), device=device, power=float(p)) for t, p in zip(times, powers, strict=True)]


def counts(times, energies, device="0") -> list[PowerReading]:
    return [PowerReading(time=float(t), device=device, energy=float(e)) for t, e in zip(times, energies, strict=True)]


def energy(readings, start, stop):
    return Metered(readings).energy([(start, stop)])[0]


def test_a_ramp_is_integrated_exactly_between_samples():
    # P = 100 + 10 t: from 2.5 to 17.25 s, 100 * 14.75 + 5 * (17.25^2 - 2.5^2) = 2931.5625 J
    meter = Metered(samples(range(30), [100 + 10 * t for t in range(30)]))
    assert meter.energy([(2.5, 17.25)]) == pytest.approx((2931.5625, 14.75, 14.75), rel=1e-12)
    assert (meter.how, meter.spacing) == ("sampled", 1.0)


def test_parts_sum_to_the_whole():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.05, 0.2, 2000))
    readings = samples(times, rng.uniform(60, 700, 2000))
    parts = list(itertools.pairwise([5.0, 21.3, 60.7, 105.0]))
    assert sum(energy(readings, *part) for part in parts) == pytest.approx(energy(readings, 5.0, 105.0), rel=1e-9)
    assert Metered(readings).energy(parts)[0] == pytest.approx(energy(readings, 5.0, 105.0), rel=1e-9)
    assert Metered(readings).energy([]) == (0.0, 0.0, 0.0)


def test_a_counter_comes_before_samples():
    meter = Metered([PowerReading(time=float(t), device="0", power=100.0, energy=500.0 * t) for t in range(20)])
    assert (meter.energy([(3.0, 8.0)])[0], meter.how) == (pytest.approx(2500.0), "counter")


def test_a_counter_that_wraps_or_starts_anew_is_carried_on():
    end = 262143.32885
    raw = [(end - 450 + 100.0 * t) % end for t in range(21)]
    assert energy(counts(range(21), raw), 0, 20) == pytest.approx(2000.0, rel=1e-9)
    anew = [1e9 + 100.0 * t for t in range(10)] + [100.0 * (t + 1) for t in range(10)]
    assert energy(counts(range(20), anew), 0, 19) == pytest.approx(1900.0)


def test_a_counter_that_steps_back_a_little_is_a_gap():
    meter = Metered(counts(range(20), [1e6 + 100 * t - (150 if t >= 10 else 0) for t in range(20)]))
    assert meter.energy([(0, 19)]) == pytest.approx((1800.0, 18.0, 18.0))


def test_gaps_of_samples_are_bridged_for_a_minute_and_not_measured():
    for pause, seconds in ((41, 79), (81, 38)):
        times = [*range(20), *range(19 + pause, 39 + pause)]
        energies = Metered(samples(times, [300.0] * 40)).energy([(0, 38 + pause)])
        assert energies == pytest.approx((300.0 * seconds, seconds, 38.0))
    times = [*np.arange(0, 10, 0.1), *np.arange(14.5, 30, 0.1)]  # no gap
    assert Metered(samples(times, [300.0] * len(times))).energy([(0, 29)])[2] == pytest.approx(29.0)


def test_a_counter_measures_a_gap():
    readings = counts([*range(20), *range(60, 80)], [100.0 * t for t in [*range(20), *range(60, 80)]])
    assert Metered(readings).energy([(5, 75)]) == pytest.approx((7000, 70, 70))


def test_a_fresh_start_is_not_linked_to_what_was_before():
    first = counts([0, 10], [0, 1000])
    second = [PowerReading(time=12.0, device="0", energy=0.0, fresh=True), *counts([22], [3000])]
    assert Metered(first + second).energy([(0, 22)]) == pytest.approx((4000, 20, 20))


def test_order_and_repetition_of_readings_do_not_matter():
    readings = samples(range(40), [100 + t for t in range(40)])
    expected = energy(readings, 3.3, 30.1)
    assert energy(readings[::-1], 3.3, 30.1) == pytest.approx(expected)
    assert energy(readings + readings, 3.3, 30.1) == pytest.approx(expected)


@pytest.mark.parametrize("readings", [[], samples([nan, nan], [1, 1]), samples([0, 1], [nan, nan]), samples([0], [1])])
def test_nothing_is_known_without_two_readings_with_a_time(readings):
    assert Metered(readings).energy([(0.0, 20.0)]) == (0.0, 0.0, 0.0)
    with pytest.raises(InputError, match="two readings"):
        merge_devices(readings)


def test_devices_are_merged_on_one_grid():
    first = samples(range(21), [100.0 + t for t in range(21)])
    second = samples(np.arange(0.5, 20, 0.5), [200.0] * 39, "1")
    merged = merge_devices(first + second)
    assert merged.devices == ("0", "1")
    np.testing.assert_allclose(np.diff(merged.time), 1.0)
    np.testing.assert_allclose(merged.total[1:20], [300 + t for t in range(1, 20)])
    np.testing.assert_allclose(merged.mean[1:20], [150 + t / 2 for t in range(1, 20)])
    assert math.isnan(merged.total[0])
    assert merged.mean[0] == 100.0


def test_a_gap_stays_a_gap_on_the_grid():
    merged = merge_devices(samples([*range(10), *range(50, 60)], [100.0] * 20))
    assert np.isnan(merged.total[10:50]).all()
    assert np.isnan(merged.mean[10:50]).all()
    assert not np.isnan(merged.total[:10]).any()


def test_a_whole_and_its_parts_are_not_added_up():
    names = ("gpu", "cpu", "node", "cores")
    merged = merge_devices([reading for name in names for reading in counts(range(5), np.arange(5) * 100.0, name)])
    assert merged.devices == ("gpu", "cpu")
    np.testing.assert_allclose(merged.total, 200.0)


@pytest.mark.parametrize("interval", [0.0, -1.0, nan, 1e-9])
def test_a_grid_without_sense_is_refused(interval):
    with pytest.raises(InputError, match="interval"):
        merge_devices(samples(range(20), [1.0] * 20), interval=interval)


def test_readings_are_parted_by_device():
    devices = by_device(samples([0], [1], "b") + samples([0], [1], "a") + samples([1], [1], "b"))
    assert {name: len(rows) for name, rows in devices.items()} == {"b": 2, "a": 1}
