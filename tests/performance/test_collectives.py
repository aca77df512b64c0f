import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    fastest_all_reduce_time,
    hierarchical_all_reduce_time,
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
