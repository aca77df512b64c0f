"""Parallel degrees, and the memory that states and activations take."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.performance import parallelism
from energymodel.performance.collectives import inner_ranks
from energymodel.performance.memory_footprint import (
    divided_bytes_per_unit,
    layer_activation_bytes,
    state_bytes_per_parameter,
)
from energymodel.performance.pipeline_bubble import idle_stage_layers
from energymodel.performance.workload import recomputed_share

counts = st.integers(1, 64).map(float)
shares = st.floats(0.0, 1.0)


@given(data=counts, tensor=counts, pipeline=counts, context=counts, microbatches=counts, microbatch=counts)
def test_degrees_multiply_to_the_chips_and_microbatches_to_the_batch(
    data, tensor, pipeline, context, microbatches, microbatch
):
    chips = data * tensor * pipeline * context
    np.testing.assert_allclose(parallelism.data_parallel_degree(chips, tensor, pipeline, context), data, rtol=1e-12)
    batch = data * microbatches * microbatch * 2048.0
    np.testing.assert_allclose(parallelism.microbatch_count(batch, data, microbatch, 2048.0), microbatches, rtol=1e-12)


@given(layers=counts, pipeline=counts, virtual_stages=counts)
def test_fullest_rank_has_room_for_its_share_and_at_most_one_more_layer_per_virtual_stage(
    layers, pipeline, virtual_stages
):
    fullest = float(parallelism.fullest_stage_layers(layers, pipeline, virtual_stages))
    assert layers / pipeline * (1.0 - 1e-9) <= fullest < layers / pipeline + virtual_stages
    np.testing.assert_allclose(
        parallelism.fullest_stage_layers(layers * pipeline * virtual_stages, pipeline, virtual_stages),
        layers * virtual_stages,
        rtol=1e-12,
    )


@given(layers=counts, pipeline=counts, virtual_stages=counts, head=st.floats(0.0, 3.0))
def test_idle_work_is_the_slowest_rank_less_the_mean(layers, pipeline, virtual_stages, head):
    mean = (layers + head) / pipeline
    fullest = float(parallelism.fullest_stage_layers(layers, pipeline, virtual_stages))
    spare = pipeline * fullest - layers  # of which the rank with the head gets one first
    slowest = max(fullest, fullest - min(1.0, spare) + head)
    idle = float(idle_stage_layers(spare, pipeline, head))
    np.testing.assert_allclose(idle, slowest - mean, atol=1e-12 * slowest)
    assert idle >= -1e-15 * slowest
    assert idle_stage_layers(0.0, 1.0, head) == 0.0


@given(microbatches=counts, pipeline=counts, virtual_stages=counts)
def test_a_bubble_is_the_filling_of_the_pipeline(microbatches, pipeline, virtual_stages):
    fewer, more = sorted((microbatches, pipeline))
    passes = microbatches * (1.0 + float(parallelism.bubble_fraction(pipeline, virtual_stages, microbatches)))
    np.testing.assert_allclose(passes, more + (fewer - 1.0) / virtual_stages, rtol=1e-12)


@pytest.mark.parametrize("point", [(0.0, 16.0, 0.0), (2.0, 16.0, 1.0), (0.0, 1.0, 0.0)])
def test_gradients_of_idle_work_are_finite_at_kinks(point):
    gradient = jax.jit(jax.grad(idle_stage_layers, argnums=(0, 1, 2)))(*map(jnp.asarray, point))
    assert np.all(np.isfinite(gradient))


@given(full=shares, attention=shares, share=shares)
def test_recomputation_repeats_at_most_the_forward_pass(full, attention, share):
    repeated = float(recomputed_share(full, attention, share))
    assert 0.0 <= repeated <= 1.0 / 3.0 + 1e-12
    assert recomputed_share(0.0, 0.0, share) == 0.0
    np.testing.assert_allclose(recomputed_share(1.0, attention, share), 1.0 / 3.0, rtol=1e-12)


@given(ranks=counts, stride=counts, node=counts)
def test_ranks_in_a_node_fit_into_group_and_node(ranks, stride, node):
    inner = float(inner_ranks(ranks, stride, node))
    assert 1.0 <= inner <= ranks
    assert inner <= max(1.0, node / stride)
    assert inner_ranks(ranks, 1.0, 1e9) == ranks


def test_gradients_beside_a_jump_hold_the_count():
    """Where layers divide evenly the number of layers of a stage does not move, and virtual_stages cancels."""
    slope = jax.jit(jax.grad(lambda v: parallelism.fullest_stage_layers(96.0, 8.0, v)))
    np.testing.assert_allclose(slope(3.0), 4.0)  # four layers in each of three virtual stages
    inside = jax.jit(jax.grad(lambda node: inner_ranks(16.0, 2.0, node)))
    np.testing.assert_allclose([inside(8.0), inside(64.0), inside(1.0)], [0.5, 0.0, 0.0])


switches = st.floats(0.0, 1.0)
GPT3 = {"tokens": 2048.0, "hidden": 12288.0, "heads": 96.0, "sequence": 2048.0, "undivided": 10.0, "divided": 24.0}
ADAM = {"weight_bytes": 2.0, "gradient_bytes": 4.0, "optimizer_bytes": 12.0}


def activations(tensor=1.0, sequence_parallel=0.0, keep_scores=1.0, recompute_full=0.0):
    return float(
        layer_activation_bytes(
            **GPT3,
            tensor=tensor,
            sequence_parallel=sequence_parallel,
            keep_scores=keep_scores,
            recompute_full=recompute_full,
        )
    )


@given(parameters=switches, gradients=switches, optimizer=switches, ranks=st.floats(1.0, 1e4))
def test_sharded_states_lie_between_one_nth_and_all(parameters, gradients, optimizer, ranks):
    bytes_ = float(
        state_bytes_per_parameter(
            **ADAM, shard_parameters=parameters, shard_gradients=gradients, shard_optimizer=optimizer, ranks=ranks
        )
    )
    assert 18.0 / ranks * (1.0 - 1e-12) <= bytes_ <= 18.0 * (1.0 + 1e-12)


def test_stored_bytes_and_activations_by_hand():
    single, two = (float(divided_bytes_per_unit(3.25, 2.125, copies)) for copies in (1.0, 2.0))
    np.testing.assert_allclose(two - single, 4.0 * 3.25)
    np.testing.assert_allclose(divided_bytes_per_unit(4.0, 4.0, 1.0), 24.0)
    # Korthikanti et al. 2022, table 2, with s b h = 2048 x 12288 and 5 a s / h = 80.
    unit = 2048.0 * 12288.0
    np.testing.assert_allclose(activations(), unit * (34.0 + 80.0))
    np.testing.assert_allclose(activations(tensor=8.0), unit * (10.0 + 24.0 / 8.0 + 80.0 / 8.0))
    np.testing.assert_allclose(activations(tensor=8.0, sequence_parallel=1.0), unit * (34.0 + 80.0) / 8.0)
    np.testing.assert_allclose(activations(tensor=8.0, sequence_parallel=1.0, keep_scores=0.0), unit * 34.0 / 8.0)
    np.testing.assert_allclose(activations(recompute_full=1.0), unit * 2.0)


@given(tensor=st.floats(1.0, 64.0), sequence=switches, scores=switches, full=switches)
def test_less_is_stored_the_more_is_divided_or_recomputed(tensor, sequence, scores, full):
    held = activations(tensor, sequence, scores, full)
    assert 0.0 < held <= activations() * (1.0 + 1e-12)
    assert activations(tensor, 1.0, scores, full) <= held * (1.0 + 1e-12)
    assert activations(tensor, sequence, 0.0, full) <= held * (1.0 + 1e-12)
    assert activations(tensor, sequence, scores, 1.0) <= held * (1.0 + 1e-12)
