"""Power delivery: losses of regulators and wires."""

import numpy as np

from energymodel.physics import delivery

LOSSES = (0.02, 0.03, 0.05)  # docs/physics.md B5


def test_zero_load_draws_the_no_load_loss():
    regulator = delivery.Regulator(1000.0, *LOSSES)
    np.testing.assert_allclose(regulator.input_power(0.0), 20.0)
    np.testing.assert_allclose(regulator.input_power(500.0), 547.5)  # 500 + 1000 x 0.0475


def test_ideal_delivery_loses_nothing():
    assert delivery.Regulator(1000.0, 0.0, 0.0, 0.0).input_power(700.0) == 700.0
    assert delivery.Distribution(48.0, 0.0).loss(700.0) == 0.0


def test_resistive_loss_falls_with_the_square_of_voltage():
    np.testing.assert_allclose(
        delivery.Distribution(12.0, 1e-3).loss(700.0), 16 * delivery.Distribution(48.0, 1e-3).loss(700.0)
    )
    np.testing.assert_allclose(delivery.distribution_loss(700.0, 0.8, 1e-4) / 700.0, 0.1094, atol=5e-5)  # B5: 10.94 %
