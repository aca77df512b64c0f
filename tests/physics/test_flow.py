"""Moving coolant: affinity law, optimum flow, rows."""

import jax.numpy as jnp
import numpy as np

from energymodel.physics import flow
from gradients import check_grads


def test_affinity_law():
    assert flow.mover_power(20.0, 0.0) == 0.0
    np.testing.assert_allclose(flow.mover_power(20.0, 2.0), 160.0)


def test_resistance_tends_to_conduction():
    np.testing.assert_allclose(flow.convection_resistance(0.02, 0.03, 1.0), 0.05)
    np.testing.assert_allclose(flow.convection_resistance(0.02, 0.03, 1e9), 0.02, rtol=1e-5)
    assert np.all(np.diff(flow.convection_resistance(0.02, 0.03, jnp.arange(0.1, 2.0, 0.1))) < 0)


def test_first_chip_sees_supply_and_last_the_full_rise():
    rise = 7000.0 / (0.1 * 4186.0)
    row = flow.row_coolant_temperature(303.15, jnp.array([0.0, 1.0]), rise)
    np.testing.assert_allclose(row, [303.15, 303.15 + rise], rtol=1e-14)


def test_gradients():
    check_grads(flow.mover_power, (20.0, 0.5), order=2)
    check_grads(flow.convection_resistance, (0.02, 0.03, 0.5), order=2)
    check_grads(flow.server_fan_power, (0.7, 0.1, 4.5, 1.2), order=2, rtol=1e-5)
    check_grads(flow.controlled_flow, (1.0, 0.14, 1.5, 0.5), order=2, rtol=1e-5)
    check_grads(flow.row_coolant_temperature, (3.0, 0.5, 7.0), order=2, rtol=1e-5)
