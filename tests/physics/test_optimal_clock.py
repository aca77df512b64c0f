"""Energy-optimal clocks: closed forms against search, and the floor of voltage."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from energymodel.physics.optimal_clock import (
    energy_delay_optimal_frequency,
    energy_optimal_clock,
    energy_optimal_frequency,
    work_energy,
)
from energymodel.physics.switching import BusyPower, busy_power_at, mixed_cubic_power
from energymodel.physics.voltage import VoltageCurve
from gradients import check_grads

H100 = BusyPower(VoltageCurve(0.70, 0.60, 0.03), 140.0, 660.0)  # docs/physics.md B2.2


def cubic(clock, parameters):
    static, coefficient = parameters
    return mixed_cubic_power(static, coefficient, 1.0, clock)


@jax.jit
def h100_optimum(share, chip=H100):
    return energy_optimal_clock(busy_power_at, 0.2, 1.0, share, chip)


@given(static=st.floats(10.0, 300.0), coefficient=st.floats(50.0, 500.0), delay=st.floats(0.0, 1.9))
@settings(max_examples=25, deadline=None)
def test_closed_form_is_the_minimum(static, coefficient, delay):
    with jax.enable_x64(True):
        found = minimize_scalar(
            lambda log_f: np.log(static + coefficient * np.exp(3 * log_f)) - (1 + delay) * log_f, bounds=(-5, 5)
        )
        closed = energy_delay_optimal_frequency(static, coefficient, delay, 1e9)
        np.testing.assert_allclose(np.log(closed), found.x, atol=1e-5)


def test_delay_exponent_zero_is_energy_and_two_is_full_speed():
    np.testing.assert_allclose(
        energy_delay_optimal_frequency(100.0, 200.0, 0.0, 9.0), energy_optimal_frequency(100.0, 200.0), rtol=1e-14
    )
    for exponent in (2.0, 5.0):
        value, slopes = jax.value_and_grad(energy_delay_optimal_frequency, argnums=(0, 1, 2, 3))(
            100.0, 200.0, exponent, 1.2
        )
        assert value == 1.2
        np.testing.assert_array_equal(slopes, [0.0, 0.0, 0.0, 1.0])


def test_implicit_optimum_is_the_closed_form_on_a_cubic():
    parameters = (jnp.array(100.0), jnp.array(200.0))
    found = energy_optimal_clock(cubic, 0.1, 1.0, 0.0, parameters)
    np.testing.assert_allclose(found, energy_optimal_frequency(100.0, 200.0), rtol=1e-12)
    slopes = jax.grad(lambda p: energy_optimal_clock(cubic, 0.1, 1.0, 0.0, p))(parameters)
    np.testing.assert_allclose(slopes, jax.grad(energy_optimal_frequency, argnums=(0, 1))(100.0, 200.0), rtol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_implicit_optimum_is_the_minimum(share):
    energy = jax.jit(lambda phi: work_energy(H100(phi), phi, share))
    found = minimize_scalar(energy, bounds=(0.2, 1.0), options={"xatol": 1e-9})
    np.testing.assert_allclose(h100_optimum(share), found.x, atol=1e-6)


def test_without_slack_the_optimum_is_at_or_above_the_knee():
    # docs/physics.md C, T2: below the knee energy per operation falls with clock.
    sharp = BusyPower(VoltageCurve(0.70, 0.60, 1e-3), 140.0, 660.0)
    assert h100_optimum(0.0, sharp) >= 0.6 - 5e-3
    below = work_energy(sharp(jnp.array([0.3, 0.4, 0.5, 0.59])), jnp.array([0.3, 0.4, 0.5, 0.59]), 0.0)
    assert np.all(np.diff(below) < 0)


def test_optimum_at_a_bound():
    assert energy_optimal_clock(busy_power_at, 0.8, 1.0, 0.2, H100) == 0.8
    assert energy_optimal_clock(busy_power_at, 0.2, 0.5, 0.2, H100) == 0.5
    slopes = jax.grad(lambda chip: energy_optimal_clock(busy_power_at, 0.8, 1.0, 0.2, chip))(H100)
    assert np.all(np.isfinite(jax.tree.leaves(slopes)))


def test_gradients():
    check_grads(work_energy, (300.0, 0.5, 0.2), order=2, rtol=1e-5)
    check_grads(energy_optimal_frequency, (100.0, 200.0), order=2)
    check_grads(partial(energy_delay_optimal_frequency, maximum_frequency=9.0), (100.0, 200.0, 1.0), order=2)
    check_grads(h100_optimum, (0.2, H100), order=1, loops=True, rtol=1e-3)
