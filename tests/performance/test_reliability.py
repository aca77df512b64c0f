import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaincc

from energymodel.performance import reliability

# Llama 3: 419 failures in 54 d on 16,384 chips (docs/physics.md B3); checkpoint, restart and variation: its priors.
LLAMA3 = reliability.Reliability(
    chip_mtbf=16384 * 54 * 86400 / 419, checkpoint_time=30, restart_time=600, straggler_variation=0.008
)


def test_largest_deviation_and_stragglers():
    assert reliability.straggler_factor(1.0, 0.008) == 1
    chips = jnp.exp(jnp.linspace(0.0, 14.0, 200))
    assert np.all(np.diff(reliability.largest_deviation(chips)) > 0)
    below, above = reliability.largest_deviation(8.0 - 1e-9), reliability.largest_deviation(8.0)
    np.testing.assert_allclose(below, above, rtol=1e-8)
    # The mean of the Gumbel law lies gamma / sqrt(2 ln n) above its mode; sampled maxima agree to 2 %.
    n = 4096
    sampled = np.random.default_rng(0).standard_normal((2000, n)).max(axis=1).mean()
    np.testing.assert_allclose(
        reliability.largest_deviation(float(n)) + np.euler_gamma / np.sqrt(2 * np.log(n)), sampled, rtol=0.02
    )


def exponential_availability(interval, checkpoint_time, restart_time, mtbf):
    """Daly 2006, exact for exponential failures, also during checkpoints and restarts."""
    return interval * np.exp(-restart_time / mtbf) / (mtbf * np.expm1((interval + checkpoint_time) / mtbf))


@given(delta=st.floats(0.1, 300.0), mtbf=st.floats(1e3, 1e7), off=st.floats(-2.0, 2.0))
def test_no_interval_wastes_less_than_youngs(delta, mtbf, off):
    best = reliability.young_interval(delta, mtbf)
    least = reliability.lost_time(best, delta, 600.0, mtbf).waste
    np.testing.assert_allclose(np.sqrt(2 * delta / mtbf) + 600.0 / mtbf, least, rtol=1e-12)
    assert reliability.lost_time(best * np.exp(off), delta, 600.0, mtbf).waste >= least * (1 - 1e-12)


def test_checkpoints_save_and_follow_each_other_only_when_written():
    # Failures at random times, sampled: those of a run that goes on while its checkpoints are written.
    interval, writing, mtbf = 1000.0, 300.0, 1e6
    failure = np.random.default_rng(0).uniform(50 * interval, 51 * interval, 100_000)
    saved = interval * np.floor((failure - writing) / interval)
    np.testing.assert_allclose(
        np.mean(failure - saved) / mtbf, reliability.lost_time(interval, 30.0, 0.0, mtbf, writing).rework, rtol=5e-3
    )
    assert reliability.checkpoint_interval(30.0, 0.0, 1e4) == reliability.young_interval(30.0, 1e4)
    assert reliability.checkpoint_interval(30.0, 5000.0, 1e4) == 5000.0


@pytest.mark.parametrize("in_repair", [1.0, 3.0, 8.0, 40.0])
def test_failures_without_a_spare_are_those_of_the_poisson_law(in_repair):
    for spares in range(int(3 * in_repair) + 3):
        exact = 1.0 - gammaincc(spares, in_repair) if spares else 1.0  # P(N >= s)
        assert abs(float(reliability.spare_shortage(float(spares), in_repair)) - exact) < 0.08


def restarts(model, spares):
    """Time of restarts over all time that is productive or lost."""
    calendar = model.calendar(16384.0, spares)
    return float(calendar.lost.restart * calendar.waste / (1.0 - calendar.productive))


def test_spares_shorten_restarts_until_there_are_enough():
    model = reliability.Reliability(1e8, 30.0, 300.0, 0.0, replacement_time=7200.0)
    none, few_spares, many = (restarts(model, spares) for spares in (0.0, 16.0, 100.0))
    mtbf = 1e8 / 16384.0
    np.testing.assert_allclose(none, (300.0 + 7200.0) / mtbf, rtol=2e-3)
    np.testing.assert_allclose(many, 300.0 / mtbf, rtol=1e-9)
    assert many < few_spares < none


def test_availability_is_smooth_and_near_the_exponential_one():
    w = jnp.linspace(0.0, 20.0, 400)
    assert np.all(reliability.availability(w) > 0)
    assert np.all(np.diff(reliability.availability(w)) < 0)
    beside = [0.5 - 1e-7, 0.5 + 1e-7]
    slopes = [float(jax.grad(reliability.availability)(x)) for x in beside]
    curvatures = [float(jax.grad(jax.grad(reliability.availability))(x)) for x in beside]
    np.testing.assert_allclose(slopes, -1.0, rtol=1e-6)
    np.testing.assert_allclose(curvatures, 0.0, atol=1e-4)
    delta, restart, mtbf = 1.0, 30.0, 1e6
    tau = float(reliability.young_interval(delta, mtbf))
    w = float(reliability.lost_time(tau, delta, restart, mtbf).waste)
    np.testing.assert_allclose(
        reliability.availability(w), exponential_availability(tau, delta, restart, mtbf), atol=2 * w**2
    )


def test_free_checkpoints_and_hopeless_fleets_have_finite_gradients():
    def lost(delta):
        return reliability.lost_time(reliability.young_interval(delta, 1e4), delta, 600.0, 1e4).waste

    np.testing.assert_allclose(lost(jnp.asarray(0.0)), 0.06)
    assert np.isfinite(jax.grad(lost)(jnp.asarray(0.0)))
    model = jax.tree.map(jnp.asarray, LLAMA3)

    def calendar(model, chips):
        return reliability.straggler_factor(chips, model.straggler_variation) / model.calendar(chips, 2.0).productive

    for chips in (1.0, 8.0, 1e8):
        gradients = jax.grad(calendar, argnums=(0, 1))(model, jnp.asarray(chips))
        assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(gradients))
