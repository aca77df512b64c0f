"""A stated pattern of memory access in whole runs."""

import numpy as np
import pytest

from cli.shell import SMALL
from energymodel.scenarios.scenario import load_scenario
from outcomes import assert_log_slopes, outcome_of

PATH = "system.accelerator.access"


def outcome(**changes):
    return outcome_of(SMALL, f"{PATH}=stated-access", *(f"{path}={value}" for path, value in changes.items()))


def test_the_stated_pattern_as_measured_is_that_of_the_measured_share():
    own, published = outcome_of(SMALL), outcome()
    for name in ("time", "money", "carbon"):
        np.testing.assert_allclose(getattr(published, name), getattr(own, name), rtol=1e-12)
    np.testing.assert_allclose(published.energy.memory, own.energy.memory, rtol=1e-12)


@pytest.mark.parametrize(
    ("field", "value", "memory"),
    [("line_size", "512 B", 1.0625 / 1.0078125), ("stride", 4, 4.0), ("in_flight", "1 MB", 1.0)],
)
def test_each_number_of_the_pattern_slows_kernels_and_moves_more(field, value, memory):
    changed, own = outcome(**{f"{PATH}.{field}": value}), outcome()
    assert changed.time > own.time or field == "line_size"
    assert changed.time != own.time
    np.testing.assert_allclose(changed.energy.memory / own.energy.memory, memory, rtol=1e-6)


def test_prefetches_pay_where_few_bytes_are_in_flight():
    few = {f"{PATH}.in_flight": "500 kB"}
    assert outcome(**few, **{f"{PATH}.prefetch_coverage": 0.8}).time < outcome(**few).time
    assert outcome(**{f"{PATH}.prefetch_coverage": 0.8, f"{PATH}.in_flight": "1 GB"}).time > outcome().time


def test_gradients_of_energy_and_time():
    stated = load_scenario(SMALL, {PATH: "stated-access"})
    names = ("line_size", "run_length", "in_flight", "latency")
    point = {f"{PATH}.{name}": float(getattr(stated.system.accelerator.access, name)) for name in names}
    point[f"{PATH}.prefetch_coverage"] = 0.5
    slopes = assert_log_slopes(lambda result: (result.energy.total, result.time), stated, point, rtol=1e-4)
    assert np.all(np.abs(slopes) > 1e-7)


def test_a_fixed_share_for_collectives_costs_time_on_either_side_of_the_best():
    def time(share):
        return float(outcome_of(SMALL, f"{PATH}=divided-access", f"{PATH}.collective_share={share}").time)

    own = float(outcome_of(SMALL).time)
    low, best, high = time(0.02), time(0.1), time(0.5)
    assert own < best < min(low, high)
