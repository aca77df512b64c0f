import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.saturation import (
    compute_power,
    exponential_saturation,
    half_throughput_batch,
    memory_power,
    memory_traffic_rate,
    saturating_throughput,
)

few = settings(max_examples=25, deadline=None)


@few
@given(batch=st.floats(1e3, 1e8), fixed=st.floats(1e-3, 1.0))
def test_the_default_is_a_step_of_fixed_and_proportional_time(batch, fixed):
    token = 1e-6
    throughput = saturating_throughput(batch, 1 / token, half_throughput_batch(fixed, token))
    np.testing.assert_allclose(throughput, batch / (fixed + token * batch), rtol=1e-12)


@few
@given(ratio=st.one_of(st.floats(1e-3, 0.9), st.floats(1.1, 1e3)), exponent=st.floats(0.3, 1.0))
def test_a_sharp_bend_is_the_minimum_of_the_source(ratio, exponent):
    sharp = saturating_throughput(ratio, 1.0, 1.0, exponent, 200.0)
    np.testing.assert_allclose(sharp, min(1.0, ratio) ** exponent, rtol=1e-6)


@few
@given(batch=st.floats(1e-3, 1e3), sharpness=st.floats(1.0, 16.0))
def test_throughput_grows_with_the_batch_below_its_maximum(batch, sharpness):
    here, further = (float(saturating_throughput(b, 5.0, 1.0, 0.8, sharpness)) for b in (batch, 2 * batch))
    assert here <= further * (1 + 1e-12)
    assert further <= 5.0 * (1 + 1e-12)


def test_exponential_saturation_reaches_its_maximum_and_starts_linearly():
    np.testing.assert_allclose(exponential_saturation(1e3, 0.9, 1.0), 0.9, rtol=1e-12)
    np.testing.assert_allclose(exponential_saturation(1e-12, 0.9, 1.0), 0.9e-12, rtol=1e-9)


def test_memory_traffic_runs_from_weights_to_activations():
    arguments = (3.5e11, 2e5, 0.02, 1e-6)
    np.testing.assert_allclose(memory_traffic_rate(0.0, *arguments), 3.5e11 / 0.02, rtol=1e-12)
    np.testing.assert_allclose(memory_traffic_rate(1e15, *arguments), 2e5 / 1e-6, rtol=1e-5)
    # It falls, because w / t_0 > a / tau.
    assert np.all(np.diff(memory_traffic_rate(jnp.asarray([1e4, 1e5, 1e6]), *arguments)) < 0)


def test_powers_are_bounded_and_proportional():
    np.testing.assert_allclose(compute_power(1e15, 400.0, 1e5), 400.0, rtol=1e-9)
    np.testing.assert_allclose(compute_power(1.0, 400.0, 1e5), 400 / 1e5, rtol=1e-4)
    np.testing.assert_allclose(memory_power(2e12, 3e-11), 2 * memory_power(1e12, 3e-11), rtol=1e-14)
