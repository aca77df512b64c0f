import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.batching import energy_optimal_batch, proportional_split, time_optimal_batch

few = settings(max_examples=25, deadline=None)
critical = st.floats(1e5, 1e8)
half = st.floats(1e3, 1e7)


def cost(batch, critical, half, share):
    """Energy to a loss over the ideal; time at a share of 1."""
    return (1 + batch / critical) * (1 + share * half / batch)


@few
@given(critical=critical, half=half, share=st.floats(0.05, 0.95))
def test_slopes_of_energy_and_time_vanish_at_their_optimal_batches(critical, half, share):
    energy, time = energy_optimal_batch(critical, half, share, 1 - share), time_optimal_batch(critical, half)
    assert energy <= time
    slope = jax.grad(lambda batch, share: jnp.log(cost(batch, critical, half, share)))
    np.testing.assert_allclose([slope(energy, share) * energy, slope(time, 1.0) * time], 0.0, atol=1e-12)


def test_least_energy_and_time_in_closed_form():
    # (1 + sqrt(s B_h / B_c))^2 with s B_h / B_c = 0.3 / 16, and (1 + 1/4)^2
    best = energy_optimal_batch(4e6, 2.5e5, 0.3, 0.7)
    np.testing.assert_allclose(cost(best, 4e6, 2.5e5, 0.3), (1 + np.sqrt(0.3 / 16)) ** 2, rtol=1e-12)
    np.testing.assert_allclose(cost(time_optimal_batch(4e6, 2.5e5), 4e6, 2.5e5, 1.0), 1.5625, rtol=1e-12)


throughputs = st.lists(st.floats(0.1, 100.0), min_size=4, max_size=4)


@few
@given(throughputs=throughputs, exponent=st.floats(-2.0, 3.0))
def test_the_parts_are_the_whole(throughputs, exponent):
    parts = proportional_split(7.0, jnp.asarray(throughputs), exponent)
    np.testing.assert_allclose(jnp.sum(parts), 7.0, rtol=1e-12)
    assert np.all(parts > 0)


@few
@given(throughputs=throughputs, exponent=st.floats(-1.0, 3.0))
def test_no_exponent_beats_the_proportional_split(throughputs, exponent):
    s = jnp.asarray(throughputs)
    best = 7.0 / jnp.sum(s)
    np.testing.assert_allclose(proportional_split(7.0, s) / s, best, rtol=1e-12)
    assert jnp.max(proportional_split(7.0, s, exponent) / s) >= best * (1 - 1e-12)


def test_exponent_zero_divides_evenly():
    np.testing.assert_allclose(proportional_split(9.0, jnp.asarray([1.0, 5.0, 30.0]), 0.0), 3.0)


def test_batches_keep_their_shape_and_large_throughputs_stay_finite_in_float32():
    with jax.enable_x64(False):
        s = jnp.asarray([[1e15, 2e15], [3e15, 1e15]], dtype=jnp.float32)
        parts = proportional_split(jnp.asarray([3.0, 4.0]), s, 3.0)
    assert parts.shape == (2, 2)
    # 1 : 8 and 27 : 1
    np.testing.assert_allclose(parts, [[3 / 9, 24 / 9], [108 / 28, 4 / 28]], rtol=1e-5)
