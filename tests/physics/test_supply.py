"""Power delivery, gating, swings behind a lag, and storage."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.leakage import NEVER, PowerGate, gating_break_even, gating_saving
from energymodel.physics.power_swing import EnergyStorage, lagged_swing, smoothed_swing, steepest_ramp, stored_ramp

# docs/physics.md B5: 5 W of leakage, 0.5 W when off, 50 uJ to wake
GATE = PowerGate(1.0, 0.1, 50e-6, 5e-6, 1e-9)


@given(leakage=st.floats(0.1, 100.0), residual=st.floats(0.0, 0.9), wake=st.floats(1e-6, 1e-3))
def test_saving_is_nothing_at_break_even(leakage, residual, wake):
    idle = gating_break_even(wake, leakage, residual * leakage)
    saving = gating_saving(leakage, residual * leakage, idle, wake, 1.0)
    np.testing.assert_allclose(saving, 0.0, atol=1e-15)
    assert gating_saving(leakage, residual * leakage, 2 * idle, wake, 1.0) > 0


def test_gates_act_above_break_even_only():
    np.testing.assert_allclose(GATE.saved_power(5.0, 40e-6, 100e-6), 1.3)
    np.testing.assert_allclose(GATE.wake_delay(5.0, 40e-6), 5e-6)
    assert GATE.saved_power(5.0, 5e-6, 100e-6) == 0.0
    assert GATE.wake_delay(5.0, 5e-6) == 0.0
    assert gating_break_even(50e-6, 0.0, 0.0) == NEVER
    assert GATE.saved_power(0.0, 40e-6, 100e-6) == 0.0
    gate = PowerGate(0.5, 0.1, 50e-6, 5e-6, 1e-6)
    for leakage in (0.0, 5.0, 500.0):
        for idle in (0.0, 11.1e-6, 1.0):
            slopes = jax.grad(lambda g, p, t: g.saved_power(p, t, 1.0), argnums=(0, 1, 2))(gate, leakage, idle)
            assert np.all(np.isfinite(jax.tree.leaves(slopes)))


times = st.floats(1e-3, 1e2)


@given(low=times, high=times, lag=times)
@settings(max_examples=50, deadline=None)
def test_swing_is_a_share_of_the_height_and_the_same_upside_down(low, high, lag):
    swing = float(lagged_swing(700.0, low, low + high, lag))
    assert 0.0 < swing <= 700.0 * (1.0 + 1e-12)
    np.testing.assert_allclose(swing, lagged_swing(700.0, high, low + high, lag), rtol=1e-9)
    assert swing >= float(lagged_swing(700.0, low, low + high, 2.0 * lag)) * (1.0 - 1e-12)


def test_swings_and_ramps_between_their_limits():
    np.testing.assert_allclose(lagged_swing(700.0, 1.0, 5.0, 1e-3), 700.0)
    np.testing.assert_allclose(lagged_swing(700.0, 1.0, 5.0, 1e4), 700.0 * 1.0 * 4.0 / (1e4 * 5.0), rtol=1e-3)
    assert lagged_swing(700.0, 0.0, 5.0, 0.1) == 0.0
    np.testing.assert_allclose(steepest_ramp(700.0, 0.0, 0.1), 7000.0)
    np.testing.assert_allclose(steepest_ramp(700.0, 100.0, 0.1), 7.0)
    # On either side of the joint of the series.
    np.testing.assert_allclose(steepest_ramp(700.0, 0.999e-4, 0.1), steepest_ramp(700.0, 1.001e-4, 0.1), rtol=2e-6)
    slopes = jax.grad(steepest_ramp, argnums=(0, 1, 2))(700.0, 0.0, 0.1)
    np.testing.assert_allclose(slopes, [10.0, -700.0 / (2.0 * 0.1**2), -700.0 / 0.1**2])
    assert np.isfinite(jax.grad(lagged_swing, argnums=1)(700.0, 0.0, 5.0, 0.1))


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


NONE = EnergyStorage()


def test_none_and_enough_storage():
    swing, loss = NONE.smoothed(400.0, 1.0, 5.0)
    assert (float(swing), float(loss), float(NONE.price())) == (400.0, 0.0, 0.0)
    np.testing.assert_allclose(NONE.ramp(400.0, 0.2, 0.016), steepest_ramp(400.0, 0.2, 0.016))
    # Then it takes the mean of the low phase up to that of the high one, and loses what efficiency says.
    swing, loss = smoothed_swing(400.0, 1.0, 5.0, 1e6, 1e6, 0.8)
    np.testing.assert_allclose(swing, 0.0, atol=1e-9)
    taken = 400.0 * 4.0 / (4.0 + 0.8)  # W for 1 s of 5
    np.testing.assert_allclose(loss, taken * 0.2 / 5.0)
    slopes = jax.grad(lambda power, energy: smoothed_swing(400.0, 0.0, 5.0, power, energy, 0.9).swing, (0, 1))
    assert np.all(np.isfinite(slopes(0.0, 0.0)))


@given(
    low=st.floats(0.01, 10.0),
    high=st.floats(0.01, 10.0),
    power=st.floats(0.0, 1e3),
    energy=st.floats(0.0, 1e3),
    efficiency=st.floats(0.5, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_storage_keeps_to_its_power_and_energy(low, high, power, energy, efficiency):
    swing, loss = smoothed_swing(400.0, low, low + high, power, energy, efficiency)
    assert -1e-9 <= float(swing) <= 400.0
    removed = 400.0 - float(swing)
    taken = removed / (1.0 + efficiency * low / high)
    given_back = removed - taken
    assert max(taken, given_back) <= power * (1.0 + 1e-9) + 1e-9
    assert given_back * high <= energy * (1.0 + 1e-9) + 1e-9
    np.testing.assert_allclose(float(loss) * (low + high), taken * low - given_back * high, atol=1e-7)


@given(power=st.floats(0.0, 1e3), energy=st.floats(0.0, 1e3), more=st.floats(1.0, 3.0))
@settings(max_examples=60, deadline=None)
def test_more_storage_never_steepens_a_ramp(power, energy, more):
    ramp = float(stored_ramp(400.0, 0.01, 0.016, power, energy))
    assert float(stored_ramp(400.0, 0.01, 0.016, more * power, energy)) <= ramp * (1.0 + 1e-9)
    assert float(stored_ramp(400.0, 0.01, 0.016, power, more * energy)) <= ramp * (1.0 + 1e-9)
