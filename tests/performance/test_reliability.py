import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.reliability import (
    Reliability,
    availability,
    cluster_mtbf,
    daly_interval,
    exponential_availability,
    largest_deviation,
    minimum_waste,
    observed_chip_mtbf,
    straggler_factor,
    waste,
    young_interval,
)
from gradients import check_grads

few = settings(max_examples=25, deadline=None)

# Llama 3: 419 failures in 54 d on 16,384 chips (docs/physics.md B3); checkpoint, restart and variation: its priors.
LLAMA3 = Reliability(
    chip_mtbf=16384 * 54 * 86400 / 419, checkpoint_time=30, restart_time=600, straggler_variation=0.008
)


def test_one_chip_has_no_straggler_and_more_chips_have_worse_ones():
    assert straggler_factor(1.0, 0.008) == 1
    chips = jnp.exp(jnp.linspace(0.0, 14.0, 200))
    assert np.all(np.diff(largest_deviation(chips)) > 0)


def test_largest_deviation_is_continuous_at_eight():
    below, above = largest_deviation(8.0 - 1e-9), largest_deviation(8.0)
    np.testing.assert_allclose(below, above, rtol=1e-8)


def test_largest_deviation_approaches_the_mean_of_normal_maxima():
    # The mean of the Gumbel law lies gamma / sqrt(2 ln n) above its mode; sampled maxima agree to 2 %.
    n = 4096
    sampled = np.random.default_rng(0).standard_normal((2000, n)).max(axis=1).mean()
    np.testing.assert_allclose(
        largest_deviation(float(n)) + np.euler_gamma / np.sqrt(2 * np.log(n)), sampled, rtol=0.02
    )


def test_failure_times_invert_each_other():
    np.testing.assert_allclose(cluster_mtbf(observed_chip_mtbf(16384.0, 4665600.0, 419.0), 16384.0), 4665600 / 419)


@few
@given(delta=st.floats(0.1, 300.0), mtbf=st.floats(1e3, 1e7), off=st.floats(-2.0, 2.0))
def test_no_interval_wastes_less_than_youngs(delta, mtbf, off):
    best = young_interval(delta, mtbf)
    least = waste(best, delta, 600.0, mtbf)
    np.testing.assert_allclose(minimum_waste(delta, 600.0, mtbf), least, rtol=1e-12)
    assert waste(best * np.exp(off), delta, 600.0, mtbf) >= least * (1 - 1e-12)


@few
@given(delta=st.floats(0.1, 300.0), mtbf=st.floats(1e5, 1e7), off=st.floats(-2.0, 2.0))
def test_no_interval_is_much_more_available_than_dalys(delta, mtbf, off):
    # Daly's interval is an expansion of the exact optimum: within 1e-5 of the best availability here.
    best = daly_interval(delta, mtbf)
    most = exponential_availability(best, delta, 600.0, mtbf)
    assert exponential_availability(best * np.exp(off), delta, 600.0, mtbf) <= most * (1 + 1e-5)


def test_daly_becomes_young_for_cheap_checkpoints_and_the_mtbf_for_dear_ones():
    np.testing.assert_allclose(daly_interval(1e-6, 1e4), young_interval(1e-6, 1e4), rtol=1e-4)
    np.testing.assert_allclose(daly_interval(3e4, 1e4), 1e4)


def test_first_order_availability_agrees_with_the_exponential_one():
    delta, restart, mtbf = 1.0, 30.0, 1e6
    tau = young_interval(delta, mtbf)
    w = float(waste(tau, delta, restart, mtbf))
    np.testing.assert_allclose(availability(w), exponential_availability(tau, delta, restart, mtbf), atol=2 * w**2)


def test_exponential_availability_against_the_printed_form():
    tau, delta, restart, mtbf = 900.0, 30.0, 600.0, 11135.0
    direct = tau * np.exp(-restart / mtbf) / (mtbf * np.expm1((tau + delta) / mtbf))
    np.testing.assert_allclose(exponential_availability(tau, delta, restart, mtbf), direct, rtol=1e-13)


@few
@given(w=st.floats(0.0, 0.5))
def test_availability_is_exact_up_to_one_half(w):
    assert availability(w) == 1 - w


def test_availability_is_positive_decreasing_and_twice_smooth_beyond():
    w = jnp.linspace(0.0, 20.0, 400)
    assert np.all(availability(w) > 0)
    assert np.all(np.diff(availability(w)) < 0)
    beside = [0.5 - 1e-7, 0.5 + 1e-7]
    slopes = [float(jax.grad(availability)(x)) for x in beside]
    curvatures = [float(jax.grad(jax.grad(availability))(x)) for x in beside]
    np.testing.assert_allclose(slopes, -1.0, rtol=1e-6)
    np.testing.assert_allclose(curvatures, 0.0, atol=1e-4)


def test_free_checkpoints_cost_nothing_and_have_finite_gradients():
    def lost(delta):
        return waste(young_interval(delta, 1e4), delta, 600.0, 1e4) + daly_interval(delta, 1e4) * 1e-4

    np.testing.assert_allclose(lost(jnp.asarray(0.0)), 0.06)
    assert np.isfinite(jax.grad(lost)(jnp.asarray(0.0)))
    np.testing.assert_allclose(minimum_waste(0.0, 600.0, 1e4), 0.06)
    assert np.isfinite(jax.grad(minimum_waste)(jnp.asarray(0.0), 600.0, 1e4))


def test_component_by_hand():
    # docs/physics.md B3: w = .1273 at 16,384 chips, straggler 1 + 0.008 * 3.860
    np.testing.assert_allclose(LLAMA3.waste(16384.0), 0.1273, atol=5e-5)
    np.testing.assert_allclose(LLAMA3.availability(16384.0), 0.8727, atol=5e-5)
    np.testing.assert_allclose(LLAMA3.straggler_factor(16384.0), 1.03088, atol=5e-6)


def test_component_has_finite_gradients_in_hopeless_fleets():
    model = jax.tree.map(jnp.asarray, LLAMA3)

    def calendar(model, chips):
        return model.straggler_factor(chips) / model.availability(chips)

    for chips in (1.0, 8.0, 1e8):
        gradients = jax.grad(calendar, argnums=(0, 1))(model, jnp.asarray(chips))
        assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize("chips", [1.0, 3.0, 9.0, 1e4])
def test_straggler_gradient(chips):
    check_grads(jax.jit(largest_deviation), (jnp.asarray(chips),), order=1, rtol=1e-4)
    check_grads(lambda n, v: straggler_factor(n, v), (jnp.asarray(chips), jnp.asarray(0.01)), order=1)


@pytest.mark.parametrize("w", [0.1, 0.7, 1.0, 3.0])
def test_availability_gradient(w):
    check_grads(jax.jit(availability), (jnp.asarray(w),), order=1)


def test_gradients():
    x = jnp.asarray(1.5)
    check_grads(jax.jit(cluster_mtbf), (x, x), order=1)
    check_grads(jax.jit(observed_chip_mtbf), (x, x, x), order=1)
    check_grads(jax.jit(young_interval), (x, x), order=1)
    check_grads(jax.jit(daly_interval), (x / 10, x), order=1, rtol=1e-4)
    check_grads(jax.jit(waste), (x, x / 10, x / 10, x), order=1)
    check_grads(jax.jit(minimum_waste), (x, x, x), order=1)
    check_grads(jax.jit(exponential_availability), (x, x / 10, x / 10, x), order=1)
