"""Power delivery: losses, best load, chain, I2R."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics import delivery
from gradients import check_grads

LOSSES = (0.02, 0.03, 0.05)  # docs/physics.md B5


@given(
    fixed=st.floats(0.001, 0.1),
    proportional=st.floats(0.0, 0.1),
    quadratic=st.floats(0.001, 0.1),
    load=st.floats(0.01, 2.0),
)
@settings(max_examples=25, deadline=None)
def test_peak_efficiency_is_the_maximum(fixed, proportional, quadratic, load):
    with jax.enable_x64(True):
        losses = (fixed, proportional, quadratic)
        peak = delivery.peak_efficiency(*losses)
        np.testing.assert_allclose(
            delivery.regulator_efficiency(delivery.optimal_load(fixed, quadratic), *losses), peak
        )
        assert delivery.regulator_efficiency(load, *losses) <= peak * (1 + 1e-12)


def test_efficiency_and_loss_agree():
    load = jnp.array([0.1, 0.5, 1.0])
    drawn = load + delivery.regulator_loss(load, *LOSSES)
    np.testing.assert_allclose(delivery.regulator_efficiency(load, *LOSSES), load / drawn)


def test_zero_load_draws_the_no_load_loss():
    regulator = delivery.Regulator(1000.0, *LOSSES)
    np.testing.assert_allclose(regulator.input_power(0.0), 20.0)
    np.testing.assert_allclose(regulator.input_power(500.0), 547.5)  # 500 + 1000 x 0.0475
    assert delivery.regulator_efficiency(0.0, *LOSSES) == 0.0
    assert delivery.regulator_efficiency(0.0, 0.0, 0.0, 0.0) == 0.0
    assert np.all(np.isfinite(jax.grad(delivery.regulator_efficiency, argnums=range(4))(0.0, 0.0, 0.0, 0.0)))
    assert np.all(np.isfinite(jax.grad(delivery.regulator_efficiency, argnums=range(4))(0.0, *LOSSES)))


def test_ideal_delivery_loses_nothing():
    assert delivery.Regulator(1000.0, 0.0, 0.0, 0.0).input_power(700.0) == 700.0
    assert delivery.chain_efficiency(1.0, 1.0) == 1.0
    assert delivery.Distribution(48.0, 0.0).loss(700.0) == 0.0


def test_resistive_loss_falls_with_the_square_of_voltage():
    np.testing.assert_allclose(
        delivery.Distribution(12.0, 1e-3).loss(700.0), 16 * delivery.Distribution(48.0, 1e-3).loss(700.0)
    )
    np.testing.assert_allclose(delivery.distribution_loss(700.0, 0.8, 1e-4) / 700.0, 0.1094, atol=5e-5)  # B5: 10.94 %


def test_gradients():
    check_grads(delivery.regulator_loss, (0.5, *LOSSES), order=2)
    check_grads(delivery.regulator_efficiency, (0.5, *LOSSES), order=2, rtol=1e-4)
    check_grads(delivery.optimal_load, (0.2, 0.5), order=2)
    check_grads(delivery.peak_efficiency, (0.2, 0.3, 0.5), order=2)
    check_grads(delivery.chain_efficiency, (0.9, 0.8, 0.7), order=2)
    check_grads(delivery.distribution_loss, (7.0, 0.8, 0.1), order=1, rtol=1e-4)
    check_grads(lambda power: delivery.Regulator(1.0, *LOSSES).input_power(power), (0.5,), order=2)
