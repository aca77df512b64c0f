import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.collectives import (
    CollectiveLibrary,
    hierarchical_latency,
    hierarchical_transfer_time,
    node_collective_time,
    point_to_point_time,
)

few = settings(max_examples=25, deadline=None)


def ring(n, size, latency, bandwidth, passes):
    """A ring in which every rank waits for each other and sends its part n - 1 times, in each pass."""
    return passes * (n - 1.0) * (latency + size / n / bandwidth)


@few
@given(n=st.floats(1.0, 1e5), size=st.floats(0.0, 1e11), passes=st.sampled_from([1.0, 2.0]))
def test_a_hierarchy_of_one_level_is_the_flat_ring(n, size, passes):
    expected = ring(n, size, 5e-6, 5e10, passes)
    for levels in ((n, 1.0), (1.0, n)):
        time = hierarchical_transfer_time(*levels, size, 5e10, 5e10, passes)
        time += hierarchical_latency(*levels, 5e-6, 5e-6, passes)
        np.testing.assert_allclose(time, expected, rtol=1e-12, atol=1e-18)


def test_equal_networks_gain_only_latency_from_a_hierarchy():
    # The bandwidth term of the ring is optimal: 2 (n-1)/n S for n = g G either way.
    layered = hierarchical_transfer_time(8.0, 128.0, 1e9, 5e10, 5e10)
    np.testing.assert_allclose(layered, ring(1024.0, 1e9, 0.0, 5e10, 2.0), rtol=1e-12)


def test_trees_win_with_small_messages_and_rings_with_large_ones():
    def time(nodes, size, tree):
        transfer = hierarchical_transfer_time(1.0, nodes, size, 5e10, 5e10, tree=tree)
        return transfer + hierarchical_latency(1.0, nodes, 5e-6, 5e-6, tree=tree)

    assert time(1024.0, 1e4, True) < time(1024.0, 1e4, False)
    assert time(16.0, 1e11, False) < time(16.0, 1e11, True)


def test_hierarchy_of_a_single_chip_takes_no_time():
    def time(*numbers):
        inner, outer, size, slow, narrow, far, wide = numbers
        return hierarchical_transfer_time(inner, outer, size, narrow, wide) + hierarchical_latency(
            inner, outer, slow, far
        )

    arguments = tuple(map(jnp.asarray, (1.0, 1.0, 1e9, 5e-6, 3.6e11, 1e-5, 4.5e10)))
    assert time(*arguments) == 0
    assert np.all(np.isfinite(jax.grad(time, argnums=tuple(range(7)))(*arguments)))


def test_a_message_costs_its_latency_and_its_transfer():
    np.testing.assert_allclose(point_to_point_time(0.0, 5e-6, 5e10), 5e-6)


MEASURED = CollectiveLibrary(5e-6, 2e-5, 0.35, 0.4, 0.64)


def in_node(n, size, latency=8e-7, bandwidth=3.6e11, library=MEASURED, passes=1.0, fused=1.0):
    return node_collective_time(n, size, latency, bandwidth, library, passes, fused)


@few
@given(n=st.floats(1.0, 100.0), size=st.floats(1.0, 1e10), passes=st.sampled_from([1.0, 2.0]))
def test_measured_collectives_take_longer_with_ranks_and_size(n, size, passes):
    time = float(in_node(n, size, passes=passes))
    assert 0 <= time <= float(in_node(n * 1.1, size, passes=passes)) * (1 + 1e-12)
    assert time < float(in_node(n + 1.0, size * 1.1, passes=passes))


@few
@given(n=st.floats(1.0, 100.0), size=st.floats(0.0, 1e10))
def test_without_what_libraries_add_the_law_is_that_of_rings(n, size):
    plain = CollectiveLibrary()
    for passes in (1.0, 2.0):
        time = in_node(n, size, 1e-6, 3e11, plain, passes=passes)
        np.testing.assert_allclose(time, ring(n, size, 1e-6, 3e11, passes), rtol=1e-12)


def test_small_messages_take_their_latency_and_large_ones_their_transfer():
    np.testing.assert_allclose(in_node(8.0, 0.0), 5e-6 + 7 * 8e-7, rtol=1e-12)
    np.testing.assert_allclose(in_node(8.0, 1e12), 7.4 / 8 * 1e12 / 3.6e11, rtol=1e-4)


def test_switches_that_add_help_large_groups_only():
    ring = MEASURED.__class__(5e-6, 2e-5, 0.35, 0.4, 0.0)
    assert in_node(8.0, 1e9, passes=2.0) < in_node(8.0, 1e9, passes=2.0, library=ring)
    np.testing.assert_allclose(in_node(2.0, 1e9, passes=2.0), in_node(2.0, 1e9, passes=2.0, library=ring), rtol=1e-12)
    # Two collectives cannot be added by switches on their way.
    np.testing.assert_allclose(in_node(8.0, 1e9, passes=2.0, fused=0.0), 2 * in_node(8.0, 1e9), rtol=1e-12)


@pytest.mark.parametrize("n", [1.0, 1.5, 3.0, 6.0, 12.0])
def test_gradients_of_measured_collectives(n):
    arguments = tuple(map(jnp.asarray, (n, 2.0, 0.3, 1.5)))
    law = lambda *numbers: in_node(*numbers, library=CollectiveLibrary(0.1, 0.7, 0.4, 0.3, 0.6))  # noqa: E731
    assert np.all(np.isfinite(jax.grad(law, argnums=(0, 1, 2, 3))(*arguments)))
