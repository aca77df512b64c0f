"""Profiles at lower limits by the voltage forms of the law, and recovery of known constants."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.calibration.constant_priors import Values, joint_prior, values_of
from energymodel.calibration.device_power import (
    Profiles,
    clock_at_limit,
    device_busy_power,
    overhead_share,
    power_constants,
    power_errors,
    predict_power,
    profiles,
    voltage_at,
)

CONSTANTS = power_constants()
MEDIAN: Values = {name: np.asarray(prior.median) for name, prior in CONSTANTS.items()}


def rows(limit, overhead: Any = 0.0, reference_power: Any = 220.0):
    limit = np.atleast_1d(np.asarray(limit, float))
    columns = {name: np.ones_like(limit) for name in Profiles._fields}
    for name, value in (("reference_time", 100.0), ("idle_power", 40.0), ("rated_power", 250.0)):
        columns[name] = np.full_like(limit, value)
    columns |= {"workload": np.zeros(limit.shape, int), "device": np.zeros(limit.shape, int), "limit": limit}
    ones = np.ones_like(limit)
    return Profiles(**{**columns, "overhead": overhead * ones, "reference_power": reference_power * ones})


def test_without_a_limit_a_profile_is_itself():
    time, watt = predict_power(MEDIAN, rows(np.inf, overhead=0.3))
    np.testing.assert_allclose([time[0], watt[0]], [100.0, 220.0], rtol=1e-9)


def test_clocks_without_limits_have_slopes():
    """Where only clocks are set, the limit is infinite: the errors must have finite slopes all the same."""
    runs = rows([np.inf, np.inf], overhead=0.3)._replace(clock=np.array([1.0, 0.7]))
    names = ("busy_power", "static_above_idle", "voltage_floor")

    def total(*chosen):
        return jnp.sum(power_errors(MEDIAN | dict(zip(names, chosen, strict=True)), runs) ** 2)

    slopes = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*(jnp.asarray(MEDIAN[name]) for name in names))
    assert np.all(np.isfinite(slopes))


def test_clock_at_a_limit_inverts_busy_power():
    phi, values = jnp.linspace(0.05, 1.0, 30), {"voltage_floor": 0.8, "voltage_knee": 0.6, "lowest_clock": 0.05}
    limit = device_busy_power(phi, (50.0, 170.0, values))
    np.testing.assert_allclose(clock_at_limit(limit, 50.0, 170.0, values), phi, rtol=1e-10)


def test_the_posynomial_form_is_constant_voltage_at_one_end_and_the_cube_at_the_other():
    """Limits of the form: `phi` for a cubic share of 0, where floor 1 is the same, and `phi^3` for 1."""
    share = jnp.tile(jnp.array([0.064, 0.2, 0.5, 1.0]), 2)
    ends = np.repeat([0.0, 1.0], 4)
    clock = jax.jit(lambda limit, ends: clock_at_limit(limit, 0.0, 1.0, {"cubic_share": ends, "lowest_clock": 0.05}))(
        share, ends
    )
    np.testing.assert_allclose(clock[:4], share[:4], rtol=1e-12)
    np.testing.assert_allclose(clock[4:], np.cbrt(share[4:]), rtol=1e-9)


def test_a_profile_carries_over_by_the_posynomial_form():
    """Solved by hand: a profile at 220 W of a GPU that is never idle, of which 40 W + 10 W are idle and static."""
    values: Values = {
        name: np.asarray(value)
        for name, value in {
            "static_above_idle": 0.04,
            "busy_power": 1.0,
            "waiting_exponent": 0.0,
            "overhead_exponent": 1.0,
            "memory_share": 0.25,
            "lowest_clock": 0.17,
            "overlap": 1.0,
            "cubic_share": 0.5,
        }.items()
    }
    # 170 W switch at clock 1, at half the clock 170 (0.5 x 0.5 + 0.5 x 0.125) = 53.125 W.
    time, watt = jax.jit(predict_power)(values, rows(50.0 + 53.125))
    np.testing.assert_allclose(time, 100.0 * (0.75 / 0.5 + 0.25), rtol=2e-3)
    np.testing.assert_allclose(watt, 103.125, rtol=2e-3)


def test_priors_of_both_forms_agree_at_the_knee():
    constants = power_constants({"voltage_floor": 0.8, "voltage_knee": 0.6}, form="posynomial")
    assert set(CONSTANTS) - set(constants) == {"voltage_floor", "voltage_knee"}
    # The floor of 0.8 with a sharp knee.
    np.testing.assert_allclose(voltage_at(0.6, {"cubic_share": constants["cubic_share"].median}), 0.8, rtol=1e-12)


def test_slope_of_the_clock_is_that_of_the_implicit_function():
    def clock(limit, floor, knee):
        values = {"voltage_floor": floor, "voltage_knee": knee, "lowest_clock": 0.05}
        return clock_at_limit(limit, 50.0, 170.0, values)

    at = (118.0, 0.8, 0.6)
    slopes = jax.grad(clock, argnums=(0, 1, 2))(*at)
    for index, slope in enumerate(slopes):
        step = np.eye(3)[index] * 1e-6
        central = (clock(*(np.array(at) + step)) - clock(*(np.array(at) - step))) / 2e-6
        np.testing.assert_allclose(slope, central, rtol=1e-5)


def test_power_at_the_lowest_clock_may_exceed_a_limit_that_cannot_be_held():
    slow, _ = predict_power(MEDIAN, rows([45.0, 50.0]))
    np.testing.assert_allclose(slow[0], slow[1])


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 0.8), st.floats(60.0, 249.0))
def test_a_higher_limit_is_never_slower_and_draws_no_less_where_the_device_is_busy(overhead, reference_power):
    time, watt = predict_power(MEDIAN, rows(np.linspace(60.0, 250.0, 40), overhead, reference_power))
    assert np.all(np.diff(time) <= 1e-9)
    assert np.all(watt >= 40.0)
    # A device that mostly waits draws less at a higher clock: it is in its busy state for a shorter time.
    if reference_power > 100.0:
        assert np.all(np.diff(watt) >= -1e-9)
        assert np.all(watt <= reference_power * (1 + 1e-9))


def test_overhead_is_what_larger_batches_save_and_padding_is_none():
    # 30 s at batch 8, 20 s at the fastest batch, 25 s where it is padded: a third of the first is overhead.
    np.testing.assert_allclose(overhead_share(np.array([30.0, 20.0, 25.0]), np.array([8.0, 32.0, 64.0])), [1 / 3, 0, 0])


def test_rows_are_joined_with_the_highest_limit_of_their_workload_and_batch():
    table, is_profile = profiles(
        ["a", "a", "a", "b"],
        np.array([8.0, 8.0, 16.0, 8.0]),
        np.array([100.0, 200.0, 200.0, 200.0]),
        np.array([30.0, 20.0, 15.0, 9.0]),
        np.array([90.0, 160.0, 170.0, 100.0]),
    )
    np.testing.assert_array_equal(is_profile, [False, True, True, True])
    np.testing.assert_array_equal(table.reference_time, [20.0, 20.0, 15.0, 9.0])
    np.testing.assert_array_equal(table.reference_power, [160.0, 160.0, 170.0, 100.0])
    np.testing.assert_allclose(table.overhead, [0.25, 0.25, 0.0, 0.0])
    assert table.rated_power[0] == 200.0
    assert table.idle_power[0] < 90.0


def test_static_power_is_above_idle_and_busy_power_within_bounds_by_construction():
    for z in (-30.0, 30.0):
        values = values_of(CONSTANTS, np.full(len(joint_prior(CONSTANTS).mean), z))
        assert values["static_above_idle"] >= 0.0
        assert 0.5 <= values["busy_power"] <= 1.6
