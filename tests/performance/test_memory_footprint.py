import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.memory_footprint import (
    layer_activation_bytes,
    logit_bytes,
    state_bytes_per_parameter,
    stored_bytes_per_unit,
)

few = settings(max_examples=25, deadline=None)
counts = st.integers(1, 128).map(float)
switches = st.floats(0.0, 1.0)
GPT3 = {"tokens": 2048.0, "hidden": 12288.0, "heads": 96.0, "sequence": 2048.0, "stored": 34.0}
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


@few
@given(parameters=switches, gradients=switches, optimizer=switches, ranks=st.floats(1.0, 1e4))
def test_sharded_states_lie_between_one_nth_and_all(parameters, gradients, optimizer, ranks):
    bytes_ = float(
        state_bytes_per_parameter(
            **ADAM, shard_parameters=parameters, shard_gradients=gradients, shard_optimizer=optimizer, ranks=ranks
        )
    )
    assert 18.0 / ranks * (1.0 - 1e-12) <= bytes_ <= 18.0 * (1.0 + 1e-12)


def test_a_single_rank_has_nothing_to_shard():
    switched_on = {"shard_parameters": 1.0, "shard_gradients": 1.0, "shard_optimizer": 1.0}
    assert state_bytes_per_parameter(**ADAM, **switched_on, ranks=1.0) == 18.0


def test_stored_bytes_grow_with_the_experts_that_act():
    one, two = (float(stored_bytes_per_unit(1.0, 3.25, 2.125, copies)) for copies in (1.0, 2.0))
    np.testing.assert_allclose(two - one, 4.0 * 3.25)
    np.testing.assert_allclose(stored_bytes_per_unit(0.0, 4.0, 4.0, 1.0), 34.0)


def test_activations_of_gpt3_in_the_cases_of_the_paper():
    """Korthikanti et al. 2022, table 2, with s b h = 2048 x 12288 and 5 a s / h = 80."""
    unit = 2048.0 * 12288.0
    np.testing.assert_allclose(activations(), unit * (34.0 + 80.0))
    np.testing.assert_allclose(activations(tensor=8.0), unit * (10.0 + 24.0 / 8.0 + 80.0 / 8.0))
    np.testing.assert_allclose(activations(tensor=8.0, sequence_parallel=1.0), unit * (34.0 + 80.0) / 8.0)
    np.testing.assert_allclose(activations(tensor=8.0, sequence_parallel=1.0, keep_scores=0.0), unit * 34.0 / 8.0)
    np.testing.assert_allclose(activations(recompute_full=1.0), unit * 2.0)


@few
@given(tensor=st.floats(1.0, 64.0), sequence=switches, scores=switches, full=switches)
def test_less_is_stored_the_more_is_divided_or_recomputed(tensor, sequence, scores, full):
    kept = activations(tensor, sequence, scores, full)
    assert 0.0 < kept <= activations() * (1.0 + 1e-12)
    assert activations(tensor, 1.0, scores, full) <= kept * (1.0 + 1e-12)
    assert activations(tensor, sequence, 0.0, full) <= kept * (1.0 + 1e-12)
    assert activations(tensor, sequence, scores, 1.0) <= kept * (1.0 + 1e-12)


@few
@given(tokens=counts, vocabulary=st.floats(1e3, 3e5), tensor=counts)
def test_logits_are_divided_over_the_tensor_group(tokens, vocabulary, tensor):
    np.testing.assert_allclose(
        logit_bytes(tokens, vocabulary, tensor) * tensor, logit_bytes(tokens, vocabulary, 1.0), rtol=1e-12
    )
