"""Swings and ramps behind a lag: limits, an independent integration, gradients."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.power_swing import lagged_swing, steepest_ramp

times = st.floats(1e-3, 1e2)


@given(low=times, high=times, lag=times)
@settings(max_examples=50, deadline=None)
def test_swing_is_a_share_of_the_height_and_the_same_upside_down(low, high, lag):
    with jax.enable_x64(True):
        swing = float(lagged_swing(700.0, low, low + high, lag))
        assert 0.0 < swing <= 700.0 * (1.0 + 1e-12)
        np.testing.assert_allclose(swing, lagged_swing(700.0, high, low + high, lag), rtol=1e-9)
        assert swing >= float(lagged_swing(700.0, low, low + high, 2.0 * lag)) * (1.0 - 1e-12)


def test_swing_between_its_limits():
    np.testing.assert_allclose(lagged_swing(700.0, 1.0, 5.0, 1e-3), 700.0)
    np.testing.assert_allclose(lagged_swing(700.0, 1.0, 5.0, 1e4), 700.0 * 1.0 * 4.0 / (1e4 * 5.0), rtol=1e-3)
    assert lagged_swing(700.0, 0.0, 5.0, 0.1) == 0.0


def test_swing_and_ramp_are_those_of_the_integrated_lag():
    """Forward steps of `tau dP/dt = input - P` until the wave repeats."""
    lag, period, low, step = 0.3, 2.0, 0.5, 1e-4
    phase = np.arange(0.0, period, step)
    wave = np.where(phase < low, 200.0, 900.0)
    power, trace = 900.0, []
    for _ in range(8):
        trace = []
        for target in wave:
            power += step / lag * (target - power)
            trace.append(power)
    np.testing.assert_allclose(lagged_swing(700.0, low, period, lag), np.ptp(trace), rtol=1e-3)
    rising = np.minimum(np.arange(0.0, 3.0, step) / 0.6, 1.0) * 700.0
    power, slopes = 0.0, []
    for target in rising:
        slopes.append((target - power) / lag)
        power += step * slopes[-1]
    np.testing.assert_allclose(steepest_ramp(700.0, 0.6, lag), max(slopes), rtol=1e-3)


def test_a_step_rises_with_the_lag_and_a_slow_rise_by_itself():
    np.testing.assert_allclose(steepest_ramp(700.0, 0.0, 0.1), 7000.0)
    np.testing.assert_allclose(steepest_ramp(700.0, 100.0, 0.1), 7.0)
    # On either side of the joint of the series.
    np.testing.assert_allclose(steepest_ramp(700.0, 0.999e-4, 0.1), steepest_ramp(700.0, 1.001e-4, 0.1), rtol=2e-6)


def test_gradients_at_no_time():
    with jax.enable_x64(True):
        slopes = jax.grad(steepest_ramp, argnums=(0, 1, 2))(700.0, 0.0, 0.1)
        np.testing.assert_allclose(slopes, [10.0, -700.0 / (2.0 * 0.1**2), -700.0 / 0.1**2])
        assert np.isfinite(jax.grad(lagged_swing, argnums=1)(700.0, 0.0, 5.0, 0.1))
