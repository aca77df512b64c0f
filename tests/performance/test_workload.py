import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.performance.workload import (
    attention_flops_per_token,
    attention_parameters,
    feed_forward_parameters,
    latent_attention_parameters,
    training_flops_per_token,
    window_length,
)
from energymodel.scenarios.scenario import load_scenario
from outcomes import replaced

DEEPSEEK = load_scenario("deepseek-v3-h800").system.workload  # without its prediction of a second token
sizes = st.floats(1.0, 1e5)


def dense(**changes):
    """A transformer of the shape of Llama 3.1 405B."""
    return replaced(load_scenario("llama-3.1-405b-h100").system.workload, changes)


def mixture(**changes):
    """64 experts, 4 of them active beside a shared one; the first of 10 layers is dense."""
    shape = {"layers": 10, "experts": 64, "active_experts": 4, "shared_experts": 1, "dense_layers": 1}
    return dense(**(shape | {"dense_feed_forward": 1000, "feed_forward": 500} | changes))


def test_parameters_by_hand():
    # 126 (2 x 16384 x 136 x 128 + 3 x 16384 x 53248) + 2 x 128256 x 16384
    assert dense().parameters == 405_849_243_648
    # With two norms a layer and one at the end, 253 x 16384 weights: the 405,853,388,800 of the published checkpoint.
    assert dense().parameters + 253 * 16384 == 405_853_388_800
    hidden = 12288.0
    block = attention_parameters(hidden, 96.0, 96.0, 128.0) + feed_forward_parameters(hidden, 4.0 * hidden, 0.0)
    assert block == 12.0 * hidden**2
    # Moonlight: 2048 x 16 x 192 + 2048 x 576 + 512 x 16 x 256 + 2048 x 2048
    block = latent_attention_parameters(2048.0, 16.0, 192.0, 128.0, 64.0, 0.0, 512.0)
    assert block == 6_291_456 + 1_179_648 + 2_097_152 + 4_194_304
    model, expert = mixture(), 3.0 * 16384 * 500
    layers = 10 * 570_425_344 + 3.0 * 16384 * 1000
    embeddings = 4_202_692_608
    assert model.parameters == layers + 9 * 65 * expert + embeddings
    assert model.active_parameters == layers + 9 * 5 * expert + embeddings
    assert model.sizes().routed == 9 * 64 * expert


@given(parameters=st.floats(1e6, 1e13), layers=sizes, width=sizes, sequence=sizes)
def test_training_operations_lie_above_six_n_and_reach_it_for_short_contexts(parameters, layers, width, sequence):
    flops = training_flops_per_token(parameters, layers, width, sequence)
    assert flops >= 6.0 * parameters
    np.testing.assert_allclose(training_flops_per_token(parameters, layers, width, 0.0), 6.0 * parameters, rtol=1e-12)
    np.testing.assert_allclose(
        flops - 6.0 * parameters,
        attention_flops_per_token(layers, width, sequence),
        rtol=1e-3,
        atol=1e-12 * float(flops),
    )


@given(active=st.floats(1.0, 64.0))
def test_active_parameters_do_not_exceed_all_and_meet_them_when_all_experts_act(active):
    assert mixture(active_experts=active).active_parameters <= mixture().parameters * (1.0 + 1e-12)
    np.testing.assert_allclose(mixture(active_experts=64.0).active_parameters, mixture().parameters, rtol=1e-12)


@pytest.mark.parametrize("model", [dense, mixture])
def test_gradients_in_every_number_of_the_shape_are_finite(model):
    gradient = jax.jit(jax.grad(lambda shape: jnp.log(shape.parameters) + jnp.log(shape.flops_per_token)))(model())
    assert np.all(np.isfinite(jax.tree.leaves(gradient)))


def test_latent_attention_of_deepseek_v3_by_hand():
    # q_a, q_b, kv_a, kv_b and o of the checkpoint: 7168 x 1536, 1536 x 24576, 7168 x 576, 512 x 32768, 16384 x 7168
    by_hand = 11_010_048 + 37_748_736 + 4_128_768 + 16_777_216 + 117_440_512
    assert DEEPSEEK.attention_block == by_hand
    # Checkpoint without router (58 x 256 x 7169), norms and second-token module: 671.03e9 parameters in all.
    assert float(DEEPSEEK.parameters) == pytest.approx(671.026e9 - 58 * 256 * 7169, rel=1e-5)
    assert float(DEEPSEEK.active_parameters) == pytest.approx(37.5e9, rel=0.01)
    model = DEEPSEEK
    assert model.attention_width == 128 * (192 + 128) / 2
    assert model.kv_width == 128 * (192 + 128)
    # 2 s (d + d_v) operations per token, head and layer forward, three times with the backward pass, half masked
    operations = model.flops_per_token - 6.0 * model.active_parameters
    np.testing.assert_allclose(operations, 61 * 128 * 3 * 2 * 4096 * (192 + 128) / 2, rtol=1e-12)


def test_attended_lengths_and_widths_by_hand():
    # Causal with window 4 in 8 tokens: 1 + 2 + 3 + 4 x 5 = 26 scores of 36; by the limit, 6 of 8.
    assert window_length(4.0, 8.0) == 6.0
    scores = sum(min(i + 1, 400) for i in range(800))
    np.testing.assert_allclose(window_length(400.0, 800.0) * 800.0 / 2.0, scores, rtol=3e-3)
    # Gemma 2: every other layer sees 4096 of 8192 tokens: (8192 + 4096 x 1.5) / 2
    assert dense(window=4096.0, local_layers=0.5).attended_length == (8192 + 6144) / 2
    assert dense().attention_width == dense().query_width == dense().value_width == 16384
    assert dense().kv_width == 2 * 8 * 128
    assert dense().sizes().kept_attention == 2 * 16384 + 2 * 1024
    assert dense().attended_length == 8192
    model = dense()
    assert model.flops_per_token / (6.0 * model.parameters) - 1.0 == pytest.approx(0.0417, abs=5e-5)


@given(window=st.floats(1.0, 1e5), sequence=st.floats(1.0, 1e5), local=st.floats(0.0, 1.0))
def test_windows_never_attend_to_more_than_the_mask_leaves(window, sequence, local):
    length = dense(sequence=sequence, window=window, local_layers=local).attended_length
    assert length <= sequence * (1.0 + 1e-12)
    if window >= sequence:
        np.testing.assert_allclose(length, sequence, rtol=1e-12)


@pytest.mark.parametrize("name", ["test-1b", "deepseek-v3"])
def test_traced_shapes_have_the_same_parameters(name):
    # A stated size of the attention block is 0 where the formula counts; traced, it is not known to be.
    model = load_scenario("test-1b-h100", [f"system.workload={name}"]).system.workload
    np.testing.assert_allclose(jax.jit(lambda shape: shape.parameters)(model), model.parameters, rtol=1e-12)
