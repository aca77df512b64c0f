from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.workload import (
    Transformer,
    attention_flops_per_token,
    attention_parameters,
    embedding_parameters,
    feed_forward_parameters,
    training_flops_per_token,
)
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
sizes = st.floats(1.0, 1e5)


def dense(**changes):
    """A transformer of the shape of Llama 3.1 405B."""
    shape = {
        "layers": 126.0,
        "hidden": 16384.0,
        "heads": 128.0,
        "kv_heads": 8.0,
        "head_size": 128.0,
        "feed_forward": 53248.0,
        "gated": 1.0,
        "vocabulary": 128256.0,
        "sequence": 8192.0,
    }
    return Transformer(**(shape | changes))


def mixture(**changes):
    """64 experts, 4 of them active beside a shared one; the first of 10 layers is dense."""
    shape = {"layers": 10.0, "experts": 64.0, "active_experts": 4.0, "shared_experts": 1.0, "dense_layers": 1.0}
    return dense(**({"dense_feed_forward": 1000.0, "feed_forward": 500.0} | shape | changes))


def test_parameters_of_llama_405b_by_hand():
    # 126 (2 x 16384 x 136 x 128 + 3 x 16384 x 53248) + 2 x 128256 x 16384
    assert dense().parameters == 405_849_243_648
    # With two norms a layer and one at the end, 253 x 16384 weights: the 405,853,388,800 of the published checkpoint.
    assert dense().parameters + 253 * 16384 == 405_853_388_800


def test_gpt_block_has_12_h_squared_parameters():
    hidden = 12288.0
    block = attention_parameters(hidden, 96.0, 96.0, 128.0) + feed_forward_parameters(hidden, 4.0 * hidden, 0.0)
    assert block == 12.0 * hidden**2


def test_tied_embeddings_count_once():
    assert embedding_parameters(51200.0, 4096.0, 0.0) == 2.0 * embedding_parameters(51200.0, 4096.0, 1.0)


@few
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


def test_operations_of_llama_405b_add_four_percent_for_attention():
    model = dense()
    assert model.flops_per_token / (6.0 * model.parameters) - 1.0 == pytest.approx(0.0417, abs=5e-5)


def test_dense_model_is_its_own_active_part():
    assert dense().active_parameters == dense().parameters
    assert dense().routed_parameters == 0.0


def test_mixture_by_hand():
    model, expert = mixture(), 3.0 * 16384 * 500
    layers = 10 * 570_425_344 + 3.0 * 16384 * 1000
    embeddings = 4_202_692_608
    assert model.parameters == layers + 9 * 65 * expert + embeddings
    assert model.active_parameters == layers + 9 * 5 * expert + embeddings
    assert model.routed_parameters == 9 * 64 * expert


@few
@given(active=st.floats(1.0, 64.0))
def test_active_parameters_do_not_exceed_all_and_meet_them_when_all_experts_act(active):
    assert mixture(active_experts=active).active_parameters <= mixture().parameters * (1.0 + 1e-12)
    np.testing.assert_allclose(mixture(active_experts=64.0).active_parameters, mixture().parameters, rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (attention_parameters, (16.0, 4.0, 2.0, 3.0)),
        (feed_forward_parameters, (16.0, 40.0, 1.0)),
        (embedding_parameters, (100.0, 16.0, 0.5)),
        (training_flops_per_token, (100.0, 2.0, 16.0, 32.0)),
        (attention_flops_per_token, (2.0, 16.0, 32.0)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_gradients(function, arguments):
    check_grads(jax.jit(function), tuple(map(jnp.asarray, arguments)), order=1, modes=("fwd", "rev"))


@pytest.mark.parametrize("model", [dense, mixture])
def test_gradients_in_every_number_of_the_shape_are_finite(model):
    gradient = jax.jit(jax.grad(lambda shape: jnp.log(shape.parameters) + jnp.log(shape.flops_per_token)))(model())
    assert np.all(np.isfinite(jax.tree.leaves(gradient)))
    size = jax.jit(partial(lambda build, hidden: build(hidden=hidden).parameters * 1e-9, model))
    check_grads(size, (jnp.asarray(16384.0),), order=1, modes=("rev",), eps=1.0)
