import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.collectives import (
    CollectiveLibrary,
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    fastest_all_reduce_time,
    hierarchical_all_reduce_time,
    node_collective_time,
    point_to_point_time,
    reduce_scatter_time,
    tree_all_reduce_time,
)
from gradients import check_grads

COLLECTIVES = [
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    fastest_all_reduce_time,
    reduce_scatter_time,
    tree_all_reduce_time,
]
EACH = pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda function: function.__name__)
few = settings(max_examples=25, deadline=None)
ranks = st.floats(1.0, 1e5)
bytes_ = st.floats(0.0, 1e11)


@EACH
@pytest.mark.parametrize("size", [0.0, 1e9])
@pytest.mark.parametrize("latency", [0.0, 5e-6])
def test_a_single_rank_takes_no_time_and_has_finite_gradients(collective, size, latency):
    arguments = tuple(map(jnp.asarray, (1.0, size, latency, 50e9)))
    assert collective(*arguments) == 0.0
    gradients = jax.grad(collective, argnums=(0, 1, 2, 3))(*arguments)
    assert np.all(np.isfinite(gradients))


@EACH
@few
@given(n=ranks, size=bytes_)
def test_time_grows_with_ranks_and_size(collective, n, size):
    time = float(collective(n, size, 5e-6, 50e9))
    assert 0 <= time <= float(collective(n * 1.1, size, 5e-6, 50e9)) * (1 + 1e-12)
    assert time <= float(collective(n, size + 1e6, 5e-6, 50e9)) * (1 + 1e-12)


@few
@given(n=ranks, size=bytes_)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(n, size):
    parts = reduce_scatter_time(n, size, 5e-6, 50e9) + all_gather_time(n, size, 5e-6, 50e9)
    np.testing.assert_allclose(all_reduce_time(n, size, 5e-6, 50e9), parts, rtol=1e-12, atol=0)


@few
@given(n=st.floats(1.01, 1e5), size=st.floats(1.0, 1e11), exponent=st.floats(1.0, 64.0))
def test_the_soft_minimum_is_below_both_by_at_most_the_stated_share(n, size, exponent):
    least = min(float(all_reduce_time(n, size, 5e-6, 5e10)), float(tree_all_reduce_time(n, size, 5e-6, 5e10)))
    fastest = float(fastest_all_reduce_time(n, size, 5e-6, 5e10, exponent))
    assert least * 2 ** (-1 / exponent) * (1 - 1e-12) <= fastest <= least * (1 + 1e-12)


def test_trees_win_with_small_messages_and_rings_with_large_ones():
    assert tree_all_reduce_time(1024.0, 1e4, 5e-6, 50e9) < all_reduce_time(1024.0, 1e4, 5e-6, 50e9)
    assert all_reduce_time(16.0, 1e11, 5e-6, 50e9) < tree_all_reduce_time(16.0, 1e11, 5e-6, 50e9)


def test_a_hierarchy_of_one_level_is_the_flat_collective():
    flat = all_reduce_time(64.0, 1e9, 5e-6, 5e10)
    np.testing.assert_allclose(hierarchical_all_reduce_time(64.0, 1.0, 1e9, 5e-6, 5e10, 1.0, 1.0), flat, rtol=1e-12)
    np.testing.assert_allclose(hierarchical_all_reduce_time(1.0, 64.0, 1e9, 1.0, 1.0, 5e-6, 5e10), flat, rtol=1e-12)


def test_equal_networks_gain_only_latency_from_a_hierarchy():
    # The bandwidth term of the ring is optimal: 2 (n-1)/n S for n = g G either way.
    layered = hierarchical_all_reduce_time(8.0, 128.0, 1e9, 0.0, 5e10, 0.0, 5e10)
    np.testing.assert_allclose(layered, all_reduce_time(1024.0, 1e9, 0.0, 5e10), rtol=1e-12)


def test_hierarchy_of_a_single_chip_takes_no_time():
    arguments = tuple(map(jnp.asarray, (1.0, 1.0, 1e9, 5e-6, 3.6e11, 1e-5, 4.5e10)))
    assert hierarchical_all_reduce_time(*arguments) == 0
    assert np.all(np.isfinite(jax.grad(hierarchical_all_reduce_time, argnums=tuple(range(7)))(*arguments)))


def test_an_empty_message_costs_its_latency():
    np.testing.assert_allclose(point_to_point_time(0.0, 5e-6, 5e10), 5e-6)


@EACH
@pytest.mark.parametrize("n", [1.5, 3.0, 1000.0])
def test_gradients(collective, n):
    arguments = tuple(map(jnp.asarray, (n, 2.0, 0.3, 1.5)))
    check_grads(jax.jit(collective), arguments, order=1)


def test_gradients_of_the_others():
    check_grads(jax.jit(point_to_point_time), tuple(map(jnp.asarray, (2.0, 0.3, 1.5))), order=2)
    check_grads(
        jax.jit(hierarchical_all_reduce_time), tuple(map(jnp.asarray, (3.0, 4.0, 2.0, 0.3, 1.5, 0.2, 1.2))), order=1
    )


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
    np.testing.assert_allclose(in_node(n, size, 1e-6, 3e11, plain), all_gather_time(n, size, 1e-6, 3e11), rtol=1e-12)
    ring = in_node(n, size, 1e-6, 3e11, plain, passes=2.0)
    np.testing.assert_allclose(ring, all_reduce_time(n, size, 1e-6, 3e11), rtol=1e-12)


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
    if n > 1.0:
        check_grads(jax.jit(law), arguments, order=1)
