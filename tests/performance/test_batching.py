import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.batching import (
    cost_optimal_batch,
    energy_delay_optimal_batch,
    energy_optimal_batch,
    optimal_batch,
    relative_energy,
    relative_time,
    time_optimal_batch,
)
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
critical = st.floats(1e5, 1e8)
half = st.floats(1e3, 1e7)
exponents = st.floats(0.3, 1.5)
shares = st.floats(0.05, 0.95)


@few
@given(critical=critical, half=half, b=exponents, g=exponents)
def test_the_slope_of_time_vanishes_at_the_optimal_batch(critical, half, b, g):
    best = optimal_batch(critical, half, b, g)
    slope = jax.grad(lambda x: jnp.log(relative_time(jnp.exp(x), critical, half, b, g)))(jnp.log(best))
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)


@few
@given(critical=critical, half=half, exponent=exponents)
def test_equal_exponents_give_the_geometric_mean(critical, half, exponent):
    best = optimal_batch(critical, half, exponent, exponent)
    np.testing.assert_allclose(best, time_optimal_batch(critical, half), rtol=1e-12)


@few
@given(critical=critical, half=half, share=shares, hardware=st.floats(1e-6, 1e-2))
def test_energy_cost_and_time_optimal_batches_are_ordered(critical, half, share, hardware):
    idle, work = 1e3 * share, 1e3 * (1 - share)
    energy = energy_optimal_batch(critical, half, idle, work)
    cost = cost_optimal_batch(critical, half, idle, work, hardware, 2.2e-8)
    assert energy <= cost * (1 + 1e-12)
    assert cost <= time_optimal_batch(critical, half) * (1 + 1e-12)


@few
@given(critical=critical, half=half, share=shares, off=st.floats(-2.0, 2.0))
def test_no_batch_takes_less_energy_than_the_energy_optimal_one(critical, half, share, off):
    best = energy_optimal_batch(critical, half, share, 1 - share)
    least = relative_energy(best, critical, half, share)
    assert relative_energy(best * np.exp(off), critical, half, share) >= least * (1 - 1e-12)


def test_least_energy_and_time_in_closed_form():
    # (1 + sqrt(s B_h / B_c))^2 with s B_h / B_c = 0.3 / 16, and (1 + 1/4)^2
    best = energy_optimal_batch(4e6, 2.5e5, 0.3, 0.7)
    np.testing.assert_allclose(relative_energy(best, 4e6, 2.5e5, 0.3), (1 + np.sqrt(0.3 / 16)) ** 2, rtol=1e-12)
    np.testing.assert_allclose(relative_time(time_optimal_batch(4e6, 2.5e5), 4e6, 2.5e5), 1.5625, rtol=1e-12)


@few
@given(critical=critical, half=half, share=shares, n=st.floats(0.0, 5.0), off=st.floats(-2.0, 2.0))
def test_no_batch_has_a_smaller_energy_delay_product(critical, half, share, n, off):
    def product(batch):
        return relative_energy(batch, critical, half, share) * relative_time(batch, critical, half) ** n

    best = jax.jit(energy_delay_optimal_batch)(critical, half, share, n)
    assert product(best * np.exp(off)) >= product(best) * (1 - 1e-12)


def test_energy_delay_product_runs_from_energy_to_time():
    energy = energy_delay_optimal_batch(4e6, 2.5e5, 0.3, 0.0)
    np.testing.assert_allclose(energy, energy_optimal_batch(4e6, 2.5e5, 0.3, 0.7), rtol=1e-12)
    time = energy_delay_optimal_batch(4e6, 2.5e5, 0.3, 1e9)
    np.testing.assert_allclose(time, time_optimal_batch(4e6, 2.5e5), rtol=1e-8)


def test_very_unlike_exponents_keep_their_digits_in_float32():
    with jax.enable_x64(False):
        small = optimal_batch(1e6, 1e8, 1.0, 0.01)
        assert small.dtype == jnp.float32
    # b B^2 + (b - g) B_h B - g B_h B_c = 0, solved in float64
    exact = max(np.roots([1.0, 0.99e8, -0.01 * 1e14]))
    np.testing.assert_allclose(small, exact, rtol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_gradients_of_the_energy_delay_optimum(share):
    arguments = tuple(map(jnp.asarray, (4.0, 0.25, share)))
    assert np.all(np.isfinite(jax.grad(energy_delay_optimal_batch, argnums=(0, 1, 2))(*arguments)))
    if 0 < share < 1:
        check_grads(jax.jit(energy_delay_optimal_batch), arguments, order=1, loops=True)


def test_gradients():
    x = jnp.asarray(1.5)
    check_grads(jax.jit(relative_time), (x, 2 * x, x, x, x), order=1)
    check_grads(jax.jit(relative_energy), (x, 2 * x, x, x / 2), order=1)
    check_grads(jax.jit(optimal_batch), (2 * x, x, x, x / 2), order=1)
    check_grads(jax.jit(optimal_batch), (2 * x, x, x / 2, x), order=1)
    check_grads(jax.jit(optimal_batch), (2 * x, x, x, x), order=1)
    check_grads(jax.jit(time_optimal_batch), (x, x), order=1)
    check_grads(jax.jit(energy_optimal_batch), (x, x, x, x), order=1)
    check_grads(jax.jit(cost_optimal_batch), (x, x, x, x, x, x), order=1)
