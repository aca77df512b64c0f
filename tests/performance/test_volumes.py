from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from energymodel.performance.collectives import all_reduce_time
from energymodel.performance.volumes import (
    context_parallel_volume,
    data_parallel_volume,
    expert_parallel_volume,
    fully_sharded_token_threshold,
    fully_sharded_volume,
    pipeline_volume,
    tensor_parallel_volume,
)
from gradients import check_grads


@pytest.mark.parametrize("volume", [data_parallel_volume, fully_sharded_volume])
def test_a_single_replica_sends_nothing_and_many_send_a_constant(volume):
    assert volume(1.0, 70e9, 2.0) == 0
    np.testing.assert_allclose(volume(1e12, 70e9, 2.0), 2 * volume(2.0, 70e9, 2.0), rtol=1e-11)


def test_single_ranks_send_nothing():
    assert tensor_parallel_volume(1.0, 2048.0, 12288.0, 4.0, 2.0) == 0
    assert expert_parallel_volume(1.0, 8.0, 7168.0, 2.0) == 0


def test_volume_over_bandwidth_is_the_time_of_the_collective_without_latency():
    np.testing.assert_allclose(
        data_parallel_volume(128.0, 70e9, 2.0) / 45e9, all_reduce_time(128.0, 140e9, 0.0, 45e9), rtol=1e-12
    )


def test_at_the_threshold_arithmetic_takes_as_long_as_the_exchange():
    parameters, rate, efficiency, bandwidth = 70e9, 989e12, 0.45, 45e9
    tokens = fully_sharded_token_threshold(rate, efficiency, bandwidth)
    arithmetic = 6 * parameters * tokens / (rate * efficiency)
    np.testing.assert_allclose(arithmetic, fully_sharded_volume(1e12, parameters, 2.0) / bandwidth, rtol=1e-11)


VOLUMES: list[tuple[Callable[..., Array], tuple[float, ...]]] = [
    (data_parallel_volume, (128.0, 70e9)),
    (fully_sharded_volume, (128.0, 70e9)),
    (fully_sharded_token_threshold, (989e12, 0.45, 45e9)),
    (tensor_parallel_volume, (8.0, 2048.0, 12288.0, 4.0)),
    (expert_parallel_volume, (64.0, 8.0, 7168.0)),
    (pipeline_volume, (1.0, 2048.0, 12288.0)),
    (context_parallel_volume, (1024.0, 1024.0)),
]


@pytest.mark.parametrize(("volume", "arguments"), VOLUMES)
def test_halving_the_precision_halves_every_volume(volume, arguments):
    np.testing.assert_allclose(2 * volume(*arguments, 1.0), volume(*arguments, 2.0), rtol=1e-14)


def test_gradients():
    x = jnp.asarray(1.5)
    check_grads(jax.jit(data_parallel_volume), (x, x, x), order=1)
    check_grads(jax.jit(fully_sharded_volume), (x, x, x), order=1)
    check_grads(jax.jit(fully_sharded_token_threshold), (x, x, x, x), order=1)
    check_grads(jax.jit(tensor_parallel_volume), (x, x, x, x, x), order=1)
    check_grads(jax.jit(expert_parallel_volume), (x, x, x, x), order=1)
    check_grads(jax.jit(pipeline_volume), (x, x, x, x), order=1)
    check_grads(jax.jit(context_parallel_volume), (x, x, x), order=1)
