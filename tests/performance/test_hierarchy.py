import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.hierarchy import (
    arithmetic_intensity,
    balance_cache_size,
    cache_limited_intensity,
    capacity_traffic,
    compulsory_traffic,
    gemm_movement_energy,
    gemm_movement_time,
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


def test_large_products_reach_the_intensity_that_the_cache_permits():
    m, cache = 1e8, 1e6
    reached = arithmetic_intensity(2 * m**3, 2.0 * gemm_traffic(m, m, m, cache))
    np.testing.assert_allclose(reached, cache_limited_intensity(cache, 2.0), rtol=1e-6)


def test_at_the_balance_size_arithmetic_and_memory_take_equally_long():
    rate, bandwidth = 989e12, 3.35e12
    cache = balance_cache_size(rate, bandwidth, 2.0)
    np.testing.assert_allclose(cache_limited_intensity(cache, 2.0), rate / bandwidth, rtol=1e-12)


def test_a_fast_level_costs_no_time_and_all_levels_cost_energy():
    caches = jnp.asarray([1e5, 1e7])
    slow = gemm_movement_time(4096.0, 4096.0, 4096.0, caches[1:], jnp.asarray([1e12]), 2.0)
    both = gemm_movement_time(4096.0, 4096.0, 4096.0, caches, jnp.asarray([1e18, 1e12]), 2.0)
    np.testing.assert_allclose(both, slow, rtol=1e-12)
    energies = jnp.asarray([1e-12, 3e-11])
    parts = [gemm_movement_energy(4096.0, 4096.0, 4096.0, caches[i : i + 1], energies[i : i + 1], 2.0) for i in (0, 1)]
    np.testing.assert_allclose(
        gemm_movement_energy(4096.0, 4096.0, 4096.0, caches, energies, 2.0), sum(parts), rtol=1e-12
    )


def test_batches_of_products_keep_their_shape():
    rows = jnp.asarray([128.0, 256.0, 512.0])
    times = gemm_movement_time(rows, 4096.0, 4096.0, jnp.asarray([1e5, 1e7]), jnp.asarray([1e13, 1e12]), 2.0)
    assert times.shape == (3,)
    assert np.all(np.diff(times) > 0)


def test_gradients():
    energies = jnp.asarray([1e-12, 3e-11])
    x, caches, bandwidths = jnp.asarray(8.0), jnp.log(jnp.asarray([1e5, 1e7])), jnp.log(jnp.asarray([1e13, 1e12]))

    def traffic(x):
        return jnp.log(gemm_traffic(jnp.exp(x), 4096.0, 4096.0, jnp.exp(x + 6.0)))

    def time(caches, bandwidths):
        return 1e3 * gemm_movement_time(4096.0, 4096.0, 4096.0, jnp.exp(caches), jnp.exp(bandwidths), 2.0)

    def energy(caches):
        return 1e2 * gemm_movement_energy(4096.0, 4096.0, 4096.0, jnp.exp(caches), energies, 2.0)

    check_grads(jax.jit(traffic), (x,), order=1)
    check_grads(jax.jit(time), (caches, bandwidths), order=1)
    check_grads(jax.jit(energy), (caches,), order=1)
    for function, arguments in (
        (compulsory_traffic, (x, x, x)),
        (capacity_traffic, (x, x, x, x)),
        (arithmetic_intensity, (x, x)),
        (cache_limited_intensity, (x, x)),
        (balance_cache_size, (x, x, x)),
    ):
        check_grads(jax.jit(function), arguments, order=1)
