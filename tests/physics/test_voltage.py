"""Voltage curves: normalization, floor, slope, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from energymodel.physics import voltage
from energymodel.physics.switching import busy_power

SHAPES = st.fixed_dictionaries(
    {"floor": st.floats(0.5, 0.95), "knee": st.floats(0.2, 0.9), "width": st.floats(0.005, 0.1)}
)


@given(clock=st.floats(0.0, 1.2), step=st.floats(0.0, 0.5), shape=SHAPES)
def test_curve_is_one_at_reference_and_never_falls(clock, step, shape):
    curve = voltage.VoltageCurve(**shape)
    np.testing.assert_allclose(curve(1.0), 1.0, rtol=1e-14)
    assert curve(clock + step) >= curve(clock)
    assert curve(clock) > 0


def test_sharp_knee_has_a_floor():
    # Below the knee 0.7; halfway from knee to reference, halfway from floor to one.
    np.testing.assert_allclose(
        voltage.voltage_fraction(jnp.array([0.1, 0.4, 0.8]), 0.7, 0.6, 1e-3), [0.7, 0.7, 0.85], rtol=1e-12
    )


def test_switching_with_the_posynomial_voltage_is_the_posynomial_power():
    clock, share = np.linspace(0.1, 1.2, 12), np.linspace(0.0, 1.0, 5)[:, None]
    np.testing.assert_allclose(
        busy_power(20.0, 200.0 * clock, voltage.PosynomialVoltage(share)(clock)),
        20.0 + 200.0 * ((1.0 - share) * clock + share * clock**3),
        rtol=1e-12,
    )


def test_gradients_are_finite_at_the_bounds():
    for clock in (0.0, 1.0, 5.0):
        slopes = jax.grad(voltage.voltage_fraction, argnums=(0, 1, 2, 3))(clock, 0.7, 0.6, 0.03)
        assert np.all(np.isfinite(slopes))
