import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.hierarchy import (
    attention_limited_intensity,
    balance_cache_size,
    cache_limited_intensity,
    capacity_traffic,
    compulsory_traffic,
    gemm_traffic,
)
from gradients import check_grads

sizes = st.floats(64.0, 1e5)
few = settings(max_examples=25, deadline=None)


@few
@given(m=sizes, n=sizes, k=sizes, cache=st.floats(1e3, 1e9))
def test_traffic_lies_between_the_bound_and_the_stated_excess(m, n, k, cache):
    bound = max(float(compulsory_traffic(m, n, k)), float(capacity_traffic(m, n, k, cache)))
    traffic = float(gemm_traffic(m, n, k, cache))
    assert bound <= traffic * (1 + 1e-12)
    assert traffic <= 2**0.25 * bound * (1 + 1e-12)


def test_an_infinite_cache_leaves_the_compulsory_traffic():
    np.testing.assert_allclose(gemm_traffic(512.0, 256.0, 128.0, 1e20), 512 * 128 + 128 * 256 + 512 * 256, rtol=1e-12)


def test_four_times_the_cache_halves_the_capacity_traffic():
    np.testing.assert_allclose(
        capacity_traffic(4096.0, 4096.0, 4096.0, 4e6) * 2, capacity_traffic(4096.0, 4096.0, 4096.0, 1e6), rtol=1e-14
    )


def test_at_the_balance_size_arithmetic_and_memory_take_equally_long():
    rate, bandwidth = 989e12, 3.35e12
    cache = balance_cache_size(rate, bandwidth, 2.0)
    np.testing.assert_allclose(cache_limited_intensity(cache, 2.0), rate / bandwidth, rtol=1e-12)


def test_large_products_reach_the_intensity_that_the_cache_permits():
    m, cache = 1e8, 1e6
    reached = 2 * m**3 / (2.0 * gemm_traffic(m, m, m, cache))
    np.testing.assert_allclose(reached, cache_limited_intensity(cache, 2.0), rtol=1e-6)


def test_twice_the_cache_doubles_the_intensity_of_attention():
    np.testing.assert_allclose(
        attention_limited_intensity(2e5, 128.0, 2.0), 2.0 * attention_limited_intensity(1e5, 128.0, 2.0), rtol=1e-14
    )


def test_gradients():
    x = jnp.asarray(8.0)

    def traffic(x):
        return jnp.log(gemm_traffic(jnp.exp(x), 4096.0, 4096.0, jnp.exp(x + 6.0)))

    check_grads(jax.jit(traffic), (x,), order=1)
    for function, arguments in (
        (compulsory_traffic, (x, x, x)),
        (capacity_traffic, (x, x, x, x)),
        (cache_limited_intensity, (x, x)),
        (attention_limited_intensity, (x, x, x)),
        (balance_cache_size, (x, x, x)),
    ):
        check_grads(jax.jit(function), arguments, order=1)
