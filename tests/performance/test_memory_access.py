import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.memory_access import (
    balanced_prefetch_coverage,
    bytes_in_flight,
    coalescing_efficiency,
    concurrent_bandwidth,
    concurrent_stream_shares,
    line_efficiency,
    optimal_line_size,
    prefetch_latency,
    prefetch_traffic,
    serial_stream_shares,
    stream_times,
)
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
volumes = st.lists(st.floats(0.1, 1e3), min_size=4, max_size=4)


@few
@given(run=st.floats(8.0, 1e4), overhead=st.floats(1.0, 1e3), off=st.floats(-2.0, 2.0))
def test_no_line_is_better_than_the_optimal_one(run, overhead, off):
    best = optimal_line_size(run, overhead)
    assert line_efficiency(best * np.exp(off), run, overhead) <= line_efficiency(best, run, overhead) * (1 + 1e-12)


def test_long_runs_in_long_lines_are_fully_efficient():
    np.testing.assert_allclose(line_efficiency(1e6, 1e12, 1.0), 1.0, rtol=2e-6)


def test_adjacent_elements_coalesce_fully_and_far_ones_use_one_sector_each():
    np.testing.assert_allclose(coalescing_efficiency(1.0, 2.0, 32.0), 1.0)
    np.testing.assert_allclose(coalescing_efficiency(1e6, 2.0, 32.0), 2 / 32)


def test_no_prefetching_changes_nothing():
    np.testing.assert_allclose(prefetch_latency(6e-7, 0.0, 0.9), 6e-7)
    np.testing.assert_allclose(prefetch_traffic(0.0, 0.5), 1.0)


def test_perfect_prefetching_hides_the_latency_without_traffic():
    np.testing.assert_allclose(prefetch_latency(6e-7, 1.0, 1.0), 0.0, atol=1e-20)
    np.testing.assert_allclose(prefetch_traffic(1.0, 1.0), 1.0)


@few
@given(latency=st.floats(0.01, 10.0), accuracy=st.floats(0.3, 1.0), timeliness=st.floats(0.3, 1.0))
def test_no_coverage_is_better_than_the_balanced_one(latency, accuracy, timeliness):
    def time(coverage):
        return max(float(prefetch_latency(latency, coverage, timeliness)), float(prefetch_traffic(coverage, accuracy)))

    best = float(balanced_prefetch_coverage(latency, 1.0, accuracy, timeliness))
    assert 0 <= best <= 1
    assert all(time(best) <= time(other) + 1e-9 for other in np.linspace(0, 1, 21))


def test_bound_by_bandwidth_wants_no_prefetching():
    np.testing.assert_allclose(balanced_prefetch_coverage(0.5, 1.0, 0.8, 0.9), 0.0)


@few
@given(bandwidth=st.floats(1e9, 1e13), flight=st.floats(1e3, 1e8), exponent=st.floats(1.0, 64.0))
def test_bandwidth_is_below_both_limits_by_at_most_the_stated_share(bandwidth, flight, exponent):
    limit = min(bandwidth, flight / 6e-7)
    reached = float(concurrent_bandwidth(bandwidth, flight, 6e-7, exponent))
    assert limit * 2 ** (-1 / exponent) * (1 - 1e-12) <= reached <= limit * (1 + 1e-12)


def test_the_bytes_of_littles_law_put_latency_and_bandwidth_level():
    flight = bytes_in_flight(3.35e12, 6e-7)
    np.testing.assert_allclose(concurrent_bandwidth(3.35e12, flight, 6e-7, 4.0), 3.35e12 * 2**-0.25, rtol=1e-12)


@few
@given(volumes=volumes, seed=st.integers(0, 2**16))
def test_streams_have_no_better_shares(volumes, seed):
    other = jnp.asarray(np.random.default_rng(seed).dirichlet(np.ones(len(volumes))) + 1e-3)
    other = other / jnp.sum(other)
    volumes = jnp.asarray(volumes)
    serial = jnp.sum(stream_times(volumes, serial_stream_shares(volumes), 2.0))
    concurrent = jnp.max(stream_times(volumes, concurrent_stream_shares(volumes), 2.0))
    assert serial <= jnp.sum(stream_times(volumes, other, 2.0)) * (1 + 1e-12)
    assert concurrent <= jnp.max(stream_times(volumes, other, 2.0)) * (1 + 1e-12)
    # Closed forms of the two optima.
    np.testing.assert_allclose(serial, jnp.sum(jnp.sqrt(volumes)) ** 2 / 2, rtol=1e-12)
    np.testing.assert_allclose(concurrent, jnp.sum(volumes) / 2, rtol=1e-12)


@pytest.mark.parametrize("shares", [serial_stream_shares, concurrent_stream_shares])
def test_an_empty_stream_has_no_share_and_finite_gradients(shares):
    volumes = jnp.asarray([0.0, 1.0, 4.0])
    assert shares(volumes)[0] == 0

    def total(v):
        return jnp.sum(stream_times(v, shares(v), 2.0))

    assert np.all(np.isfinite(jax.grad(total)(volumes)))
    assert stream_times(volumes, shares(volumes), 2.0)[0] == 0


def test_gradients():
    x = jnp.asarray(1.5)
    v = jnp.asarray([1.0, 2.0, 4.0])
    check_grads(lambda a, b, c: line_efficiency(a, b, c), (x, x, x), order=1)
    check_grads(jax.jit(optimal_line_size), (x, x), order=1)
    check_grads(lambda s: coalescing_efficiency(s, 4.0, 32.0), (jnp.asarray(3.0),), order=1)
    check_grads(jax.jit(prefetch_latency), (x, x / 2, x / 2), order=1)
    check_grads(jax.jit(prefetch_traffic), (x / 2, x / 2), order=1)
    check_grads(lambda a: balanced_prefetch_coverage(a, 1.0, 0.8, 0.9), (x,), order=1)
    check_grads(jax.jit(bytes_in_flight), (x, x), order=1)
    check_grads(lambda a, b: concurrent_bandwidth(a, b, 1.3, 4.0), (x, 2 * x), order=1)
    check_grads(lambda v: stream_times(v, serial_stream_shares(v), x), (v,), order=1)
    check_grads(lambda v: stream_times(v, concurrent_stream_shares(v) ** 2, x), (v,), order=1)
