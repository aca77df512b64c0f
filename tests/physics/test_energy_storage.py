"""Storage: what it takes out of a swing and a ramp, what it loses, what it costs."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.energy_storage import EnergyStorage, smoothed_swing, stored_ramp
from energymodel.physics.power_swing import steepest_ramp

NONE = EnergyStorage()
SMALL = EnergyStorage(energy=65.0, power=200.0, efficiency=0.9, energy_price=0.02, power_price=0.1)


def test_without_storage_nothing_changes():
    swing, loss = NONE.smoothed(400.0, 1.0, 5.0)
    assert (float(swing), float(loss), float(NONE.price())) == (400.0, 0.0, 0.0)
    np.testing.assert_allclose(NONE.ramp(400.0, 0.2, 0.016), steepest_ramp(400.0, 0.2, 0.016))


def test_enough_storage_leaves_no_swing():
    """Then it takes the mean of the low phase up to that of the high one, and loses what efficiency says."""
    swing, loss = smoothed_swing(400.0, 1.0, 5.0, 1e6, 1e6, 0.8)
    np.testing.assert_allclose(swing, 0.0, atol=1e-9)
    taken = 400.0 * 4.0 / (4.0 + 0.8)  # W for 1 s of 5
    np.testing.assert_allclose(loss, taken * 0.2 / 5.0)


@given(
    low=st.floats(0.01, 10.0),
    high=st.floats(0.01, 10.0),
    power=st.floats(0.0, 1e3),
    energy=st.floats(0.0, 1e3),
    efficiency=st.floats(0.5, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_storage_keeps_to_its_power_and_energy(low, high, power, energy, efficiency):
    with jax.enable_x64(True):
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
    with jax.enable_x64(True):
        ramp = float(stored_ramp(400.0, 0.01, 0.016, power, energy))
        assert float(stored_ramp(400.0, 0.01, 0.016, more * power, energy)) <= ramp * (1.0 + 1e-9)
        assert float(stored_ramp(400.0, 0.01, 0.016, power, more * energy)) <= ramp * (1.0 + 1e-9)


def test_price_is_that_of_capacity_and_converters():
    np.testing.assert_allclose(SMALL.price(), 65.0 * 0.02 + 200.0 * 0.1)


def test_gradients_without_storage_and_swing_are_finite():
    slopes = jax.grad(lambda power, energy: smoothed_swing(400.0, 0.0, 5.0, power, energy, 0.9).swing, (0, 1))
    assert np.all(np.isfinite(slopes(0.0, 0.0)))
