from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.roofline import compute_time, elementwise_traffic, roofline_time, token_rate

few = settings(max_examples=25, deadline=None)
times = st.floats(1e-6, 1e3)
exponents = st.floats(1.0, 64.0)


@few
@given(operations=st.floats(1.0, 1e20), rate=st.floats(1e9, 1e16), efficiency=st.floats(0.01, 1.0))
def test_arithmetic_takes_longer_the_more_there_is(operations, rate, efficiency):
    time = compute_time(operations, rate, efficiency)
    np.testing.assert_allclose(compute_time(2.0 * operations, rate, efficiency), 2.0 * time, rtol=1e-12)
    np.testing.assert_allclose(time * rate * efficiency, operations, rtol=1e-12)


@few
@given(compute=times, memory=times, communication=times, exponent=exponents)
def test_time_lies_between_perfect_and_no_overlap(compute, memory, communication, exponent):
    time = float(roofline_time(compute, memory, communication, exponent))
    longest, total = max(compute, memory, communication), compute + memory + communication
    assert longest * (1.0 - 1e-12) <= time <= total * (1.0 + 1e-12)
    assert time <= longest * 3.0 ** (1.0 / exponent) * (1.0 + 1e-12)
    np.testing.assert_allclose(roofline_time(compute, memory, communication, 1.0), total, rtol=1e-12)


def test_many_exponents_reach_the_classical_roofline():
    # The largest excess, three equal terms at p = 8, is 14.7 % (docs/physics.md A2.19).
    np.testing.assert_allclose(roofline_time(1.0, 0.6, 0.5, 200.0), 1.0, rtol=1e-6)
    assert roofline_time(1.0, 1.0, 1.0, 8.0) == pytest.approx(1.147, abs=5e-4)


@few
@given(compute=times, memory=times, network=times, exponent=exponents)
def test_rate_is_one_over_the_time_of_a_token(compute, memory, network, exponent):
    rate = token_rate(1e15, 3e12, 5e10, compute * 1e15, memory * 3e12, network * 5e10, exponent)
    np.testing.assert_allclose(rate * roofline_time(compute, memory, network, exponent), 1.0, rtol=1e-9)


def test_rate_reduces_to_the_minimum_of_three_limits():
    """docs/physics.md E: at p = 200, with the two largest terms at least 10 % apart, the minimum holds to 1e-6."""
    limits = [400e12 / 2.43e12, 3e12 / 1.6e10, 45e9 / 1e8]
    rate = token_rate(400e12, 3e12, 45e9, 2.43e12, 1.6e10, 1e8, 200.0)
    np.testing.assert_allclose(rate, min(limits), rtol=1e-6)


@few
@given(tokens=st.floats(1.0, 1e6), hidden=st.floats(1.0, 1e5), tensor=st.floats(1.0, 64.0))
def test_sequence_parallelism_divides_all_of_the_traffic(tokens, hidden, tensor):
    whole = elementwise_traffic(tokens, hidden, 1.0, 0.0)
    divided = elementwise_traffic(tokens, hidden, tensor, 1.0)
    np.testing.assert_allclose(divided, whole / tensor, rtol=1e-12)
    assert elementwise_traffic(tokens, hidden, tensor, 0.0) >= divided * (1.0 - 1e-12)
    np.testing.assert_allclose(whole, 4.0 * 34.0 * tokens * hidden, rtol=1e-12)


@pytest.mark.parametrize("exponent", [1.0, 4.0])
def test_gradients_are_finite_where_a_resource_is_idle(exponent):
    time = jax.jit(jax.grad(partial(roofline_time, exponent=exponent), argnums=(0, 1, 2)))
    assert np.all(np.isfinite(time(jnp.asarray(1.0), jnp.asarray(0.0), jnp.asarray(0.0))))
