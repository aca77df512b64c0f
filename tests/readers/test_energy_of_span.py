"""Is the energy of a span that of the readings, and is what is missing said?"""

import itertools
import math

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.readers.energy_of_span import by_device, energy_between, merge_devices
from energymodel.readers.log_records import PowerReading

nan = math.nan


def samples(times, powers, device="0") -> list[PowerReading]:
    return [PowerReading(time=float(t), device=device, power=float(p)) for t, p in zip(times, powers, strict=True)]


def counts(times, energies, device="0") -> list[PowerReading]:
    return [PowerReading(time=float(t), device=device, energy=float(e)) for t, e in zip(times, energies, strict=True)]


def test_a_ramp_is_integrated_exactly_between_samples():
    # P = 100 + 10 t: from 2.5 to 17.25 s, 100 * 14.75 + 5 * (17.25^2 - 2.5^2) = 2931.5625 J
    found = energy_between(samples(range(30), [100 + 10 * t for t in range(30)]), 2.5, 17.25)
    assert found.energy == pytest.approx(2931.5625, rel=1e-12)
    assert found.mean_power == pytest.approx(2931.5625 / 14.75)
    assert (found.how, found.coverage, found.samples) == ("sampled", pytest.approx(1.0), 15)


def test_parts_sum_to_the_whole():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.05, 0.2, 2000))
    readings = samples(times, rng.uniform(60, 700, 2000))
    whole = energy_between(readings, 5.0, 105.0).energy
    cuts = [5.0, 21.3, 60.7, 105.0]
    parts = [energy_between(readings, a, b).energy for a, b in itertools.pairwise(cuts)]
    assert sum(parts) == pytest.approx(whole, rel=1e-9)


def test_a_counter_comes_before_samples():
    readings = [PowerReading(time=float(t), device="0", power=100.0, energy=500.0 * t) for t in range(20)]
    found = energy_between(readings, 3.0, 8.0)  # shorter than what samples resolve
    assert (found.energy, found.how) == (pytest.approx(2500.0), "counter")


def test_a_counter_that_wraps_or_starts_anew_is_carried_on():
    end = 262143.32885
    raw = [(end - 450 + 100.0 * t) % end for t in range(21)]
    assert energy_between(counts(range(21), raw), 0, 20).energy == pytest.approx(2000.0, rel=1e-9)
    anew = [1e9 + 100.0 * t for t in range(10)] + [100.0 * (t + 1) for t in range(10)]
    assert energy_between(counts(range(20), anew), 0, 19).energy == pytest.approx(1900.0)


def test_a_counter_that_steps_back_a_little_is_a_gap():
    readings = counts(range(20), [1e6 + 100 * t - (150 if t >= 10 else 0) for t in range(20)])
    found = energy_between(readings, 0, 19)
    assert found.energy == pytest.approx(1800.0)
    assert found.coverage == pytest.approx(18 / 19)


def test_a_gap_is_not_bridged():
    times = [*range(20), *range(60, 80)]
    found = energy_between(samples(times, [300.0] * 40), 0, 79)
    assert found.coverage == pytest.approx(38 / 79)
    assert found.energy == pytest.approx(300 * 38)
    assert found.bridged == pytest.approx(300 * 41)
    assert found.mean_power == pytest.approx(300)


def test_a_counter_measures_a_gap_that_lies_within_the_span():
    readings = counts([*range(20), *range(60, 80)], [100.0 * t for t in [*range(20), *range(60, 80)]])
    found = energy_between(readings, 5, 75)
    assert (found.energy, found.coverage) == (pytest.approx(7000), pytest.approx(1.0))
    half = energy_between(readings, 5, 40)
    assert (half.energy, half.coverage) == (pytest.approx(1400), pytest.approx(14 / 35))


def test_a_pause_of_five_seconds_is_no_gap():
    times = [*np.arange(0, 10, 0.1), *np.arange(14.5, 30, 0.1)]
    assert energy_between(samples(times, [300.0] * len(times)), 0, 29).coverage == pytest.approx(1.0)


def test_a_fresh_start_is_not_linked_to_what_was_before():
    first = counts([0, 10], [0, 1000])
    second = [PowerReading(time=12.0, device="0", energy=0.0, fresh=True), *counts([22], [3000])]
    found = energy_between(first + second, 0, 22)
    assert (found.energy, found.coverage) == (pytest.approx(4000), pytest.approx(20 / 22))


def test_short_spans_are_refused_or_widened_with_a_reason():
    readings = samples(range(100), [100.0 if t < 50 else 300.0 for t in range(100)])
    with pytest.raises(InputError, match="widen=True"):
        energy_between(readings, 40, 42)
    found = energy_between(readings, 40, 42, widen=True)
    assert found.energy == pytest.approx(200)
    assert "widened to 10 s" in found.note
    assert energy_between(readings, 40, 50).note == ""


def test_order_and_repetition_of_readings_do_not_matter():
    readings = samples(range(40), [100 + t for t in range(40)])
    expected = energy_between(readings, 3.3, 30.1).energy
    assert energy_between(readings[::-1], 3.3, 30.1).energy == pytest.approx(expected)
    assert energy_between(readings + readings, 3.3, 30.1).energy == pytest.approx(expected)


@pytest.mark.parametrize(
    ("readings", "start", "stop", "match"),
    [
        ([], 0, 20, "one device"),
        (samples([0, 1], [1, 1]) + samples([0, 1], [1, 1], "1"), 0, 20, "by_device"),
        (samples([nan, nan], [1, 1]), 0, 20, "interval="),
        (samples([0, 1], [1, 1]), 20, 0, "before"),
        (samples([0, 1], [1, 1]), 0, nan, "before"),
        (samples([0, 1], [1, 1]), 1000, 2000, "same clock"),
        (samples([0, 1], [nan, nan]), 0, 20, "interval="),
    ],
)
def test_what_cannot_be_integrated_is_refused(readings, start, stop, match):
    with pytest.raises(InputError, match=match):
        energy_between(readings, start, stop)


def test_devices_are_merged_on_one_grid():
    one = samples(range(21), [100.0 + t for t in range(21)])
    two = samples(np.arange(0.5, 20, 0.5), [200.0] * 39, "1")
    found = merge_devices(one + two)
    assert found.devices == ("0", "1")
    np.testing.assert_allclose(np.diff(found.time), 1.0)
    np.testing.assert_allclose(found.total[1:20], [300 + t for t in range(1, 20)])
    np.testing.assert_allclose(found.mean[1:20], [150 + t / 2 for t in range(1, 20)])
    assert math.isnan(found.total[0])
    assert found.mean[0] == 100.0
    assert merge_devices(one + two, devices=["1"]).devices == ("1",)


def test_a_gap_stays_a_gap_on_the_grid():
    found = merge_devices(samples([*range(10), *range(50, 60)], [100.0] * 20))
    assert np.isnan(found.total[10:50]).all()
    assert not np.isnan(found.total[:10]).any()


def test_a_whole_and_its_parts_are_not_added_up():
    readings = [one for name in ("gpu", "cpu", "node", "cores") for one in counts(range(5), np.arange(5) * 100.0, name)]
    found = merge_devices(readings)
    assert found.devices == ("gpu", "cpu")
    np.testing.assert_allclose(found.total, 200.0)


@pytest.mark.parametrize("interval", [0.0, -1.0, nan, 1e-9])
def test_a_grid_without_sense_is_refused(interval):
    with pytest.raises(InputError, match="interval"):
        merge_devices(samples(range(20), [1.0] * 20), interval=interval)


def test_merging_nothing_is_refused():
    with pytest.raises(InputError, match="two readings"):
        merge_devices(samples([0], [1]))
    with pytest.raises(InputError, match="No reading is of device"):
        merge_devices(samples([0, 1], [1, 1]), devices=["7"])


def test_readings_are_parted_by_device():
    found = by_device(samples([0], [1], "b") + samples([0], [1], "a") + samples([1], [1], "b"))
    assert {name: len(rows) for name, rows in found.items()} == {"b": 2, "a": 1}
