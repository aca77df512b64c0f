"""Voltage curves: normalization, floor, slope, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from energymodel.physics import voltage
from energymodel.physics.switching import busy_power, mixed_cubic_power

# docs/physics.md B2, Tenstorrent Blackhole firmware
BLACKHOLE = voltage.PolynomialVoltage(0.73869, 0.05236, 0.00856, 1279.76e6, 189.57e6, 1350e6)
SHAPES = st.fixed_dictionaries(
    {"floor": st.floats(0.5, 0.95), "knee": st.floats(0.2, 0.9), "width": st.floats(0.005, 0.1)}
)


@given(clock=st.floats(0.0, 1.2), step=st.floats(0.0, 0.5), shape=SHAPES)
def test_curve_is_one_at_reference_and_never_falls(clock, step, shape):
    curve = voltage.VoltageCurve(**shape)
    np.testing.assert_allclose(curve(1.0), 1.0, rtol=1e-14)
    assert curve(clock + step) >= curve(clock)
    assert curve(clock) > 0


def test_sharp_knee_and_vertex_have_a_floor():
    # Below the knee 0.7; halfway from knee to reference, halfway from floor to one.
    np.testing.assert_allclose(
        voltage.voltage_fraction(jnp.array([0.1, 0.4, 0.8]), 0.7, 0.6, 1e-3), [0.7, 0.7, 0.85], rtol=1e-12
    )
    # Vertex at z = -52.36 / 17.12 = -3.0584, 699.98 MHz.
    low = BLACKHOLE.voltage(jnp.array([0.0, 300e6, 699.9e6]))
    np.testing.assert_allclose(low, 0.73869 - 0.05236**2 / (4 * 0.00856), rtol=1e-12)
    assert np.all(np.diff(BLACKHOLE(jnp.arange(0.3, 1.1, 0.05))) >= 0)
    np.testing.assert_allclose(BLACKHOLE(1.0), 1.0, rtol=1e-15)


def test_switching_with_the_posynomial_voltage_is_the_posynomial_power():
    clock, share = np.linspace(0.1, 1.2, 12), np.linspace(0.0, 1.0, 5)[:, None]
    np.testing.assert_allclose(
        busy_power(20.0, 200.0, clock, voltage.PosynomialVoltage(share)(clock), 1.0),
        mixed_cubic_power(20.0, 200.0, share, clock),
        rtol=1e-12,
    )


def test_gradients_are_finite_at_the_bounds():
    for clock in (0.0, 1.0, 5.0):
        slopes = jax.grad(voltage.voltage_fraction, argnums=(0, 1, 2, 3))(clock, 0.7, 0.6, 0.03)
        assert np.all(np.isfinite(slopes))
        assert np.isfinite(jax.grad(BLACKHOLE)(clock))
    np.testing.assert_allclose(voltage.polynomial_voltage(3e9, 0.7, 0.1, 0.0, 1e9, 1e9), 0.9, rtol=1e-14)
    assert np.isfinite(jax.grad(voltage.polynomial_voltage, argnums=3)(3e9, 0.7, 0.1, 0.0, 1e9, 1e9))
