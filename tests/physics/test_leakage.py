"""Leakage: reference point, doubling, gradients."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics.leakage import Leakage, leakage_power, static_energy

H100 = Leakage(70.0, 3.0, 0.015, 338.15)  # docs/physics.md B2


def test_reference_point_and_zero_voltage():
    np.testing.assert_allclose(H100(1.0, 338.15), 70.0)
    assert H100(0.0, 338.15) == 0.0


@given(temperature=st.floats(280.0, 400.0), voltage=st.floats(0.5, 1.1), sensitivity=st.floats(0.01, 0.025))
@settings(max_examples=25, deadline=None)
def test_doubles(temperature, voltage, sensitivity):
    def power(kelvin):
        return leakage_power(70.0, voltage, kelvin, 3.0, sensitivity, 338.15)

    doubling = float(np.log(2.0) / sensitivity)
    assert 27.0 < doubling < 70.0  # docs/physics.md B2: 30 to 70 K
    np.testing.assert_allclose(power(temperature + doubling), 2 * power(temperature), rtol=1e-5)


def test_energy_is_additive_in_time():
    np.testing.assert_allclose(static_energy(0.8, 90.0, 3.0), static_energy(0.8, 90.0, jnp.array([1.0, 2.0])).sum())
