import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.hierarchy import (
    balance_cache_size,
    cache_limited_intensity,
    capacity_traffic,
    compulsory_traffic,
    gemm_traffic,
)

sizes = st.floats(64.0, 1e5)
few = settings(max_examples=25, deadline=None)


@few
@given(m=sizes, n=sizes, k=sizes, cache=st.floats(1e3, 1e9))
def test_traffic_lies_between_the_bound_and_the_stated_excess(m, n, k, cache):
    bound = max(float(compulsory_traffic(m, n, k)), float(capacity_traffic(m, n, k, cache)))
    traffic = float(gemm_traffic(m, n, k, cache))
    assert bound <= traffic * (1 + 1e-12)
    assert traffic <= 2**0.25 * bound * (1 + 1e-12)


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
