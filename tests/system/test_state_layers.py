"""Models some of whose layers keep a state, and models whose attention reads chosen keys."""

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.performance.workload import Transformer
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.division import divide
from energymodel.system.layouts import candidates
from energymodel.system.memory import activation_bytes, chip_memory
from energymodel.system.work import layer_work
from outcomes import replaced

SHAPE = {"layers": 4.0, "hidden": 1024.0, "heads": 8.0, "kv_heads": 8.0, "head_size": 128.0, "feed_forward": 4096.0}
SHAPE |= {"gated": 0.0, "vocabulary": 32000.0, "sequence": 2048.0}
STATE = {"state_layers": 4.0, "state_heads": 24.0, "state_key_heads": 8.0, "state_key_size": 128.0}
STATE |= {"state_value_size": 64.0, "state_chunk": 128.0, "state_weights": 8192.0 * 1024.0}
# Beside 1536 columns of values that leave the state, 8192 - 1536 = 6656 enter it.
INPUTS, VALUES = 6656, 1536


def case(tensor=1.0, **shape):
    """A system with the shape above, a plan on eight chips, and the counts that follow."""
    scenario = load_scenario("test-1b-h100")
    system = eqx.tree_at(lambda s: s.workload, scenario.system, Transformer(**{**SHAPE, **shape}))
    plan = replaced(scenario.plan, {"chips": 8, "layout.tensor": tensor, "layout.microbatch": 1})
    return system, plan, divide(system, plan, 8.0 * 2048.0)


def test_parameters_and_operations_by_hand():
    workload = case(**STATE)[0].workload
    assert float(workload.parameters) == 4 * (8192 * 1024 + 2 * 1024 * 4096) + 2 * 32000 * 1024
    chunks = 3 * (2 * 128 * (8 * 128 + 24 * 64) + 4 * 24 * 128 * 64)
    np.testing.assert_allclose(workload.flops_per_token, 6 * float(workload.parameters) + 4 * chunks, rtol=1e-6)
    assert float(workload.cache_width) == 4 * 24 * 128 * 64 / 2048  # a state for each sequence, not for each token
    work = layer_work(*case(**STATE))
    np.testing.assert_allclose(work.attention_flops, 2048 * chunks, rtol=1e-6)


@pytest.mark.parametrize(
    ("delta", "kept"),
    # Keys and queries of 2 x 8 x 128 and the values are kept a second time where the delta rule takes them.
    [(0.0, INPUTS + 2 * VALUES), (1.0, INPUTS + 2 * VALUES + 2048 + VALUES)],
)
def test_activations_by_hand(delta, kept):
    # 8 bytes of norms, 4 r = 16 of the feed-forward block.
    per_token = 1024 * (8 + 16) + 2 * kept
    np.testing.assert_allclose(activation_bytes(*case(**STATE, state_delta=delta)), 2048 * per_token, rtol=1e-6)


def test_half_of_the_layers_do_half_of_the_work():
    full, half, none = (layer_work(*case(**STATE | {"state_layers": n})) for n in (4.0, 2.0, 0.0))
    for name in ("flops", "elementwise_bytes", "attention_flops"):
        first, second = float(getattr(full, name)), float(getattr(none, name))
        np.testing.assert_allclose(getattr(half, name), 0.5 * (first + second), rtol=1e-6)


def test_heads_are_divided_and_states_of_a_chunk_held_once():
    one, four = (chip_memory(*case(tensor, **STATE)) for tensor in (1.0, 4.0))
    assert float(four.activations) < 0.5 * float(one.activations)
    # 4 H N P / C bytes a token of one layer, beside what chunks as long as a sequence need.
    long = chip_memory(*case(**STATE | {"state_chunk": 2048.0}))
    overhead = float(load_scenario("test-1b-h100").system.software.memory_overhead)
    held = 2048 * 4 * 24 * 128 * 64 * (1 / 128 - 1 / 2048) * overhead
    np.testing.assert_allclose(float(one.total) - float(long.total), held, rtol=1e-6)
    system, plan, _ = case(**STATE)
    found = candidates(system, plan.layout, 8.0, microbatches=(1.0,))
    assert set(np.asarray(found.tensor)) == {1.0, 2.0, 4.0, 8.0}
    odd = eqx.tree_at(lambda s: s.workload.state_heads, system, np.asarray(12.0))
    assert set(np.asarray(candidates(odd, plan.layout, 8.0, microbatches=(1.0,)).tensor)) == {1.0, 2.0, 4.0}


def test_an_indexer_scores_all_keys_and_attention_the_chosen_ones():
    full = case()[0].workload
    sparse = case(window=256.0, local_layers=1.0, index_heads=4.0, index_size=64.0)[0].workload
    scores = 6 * 4 * 1024 * (2048 - 256 * (2 - 256 / 2048))
    saved = scores - 4 * 3 * 4 * 64 * 2048
    np.testing.assert_allclose(float(full.flops_per_token) - float(sparse.flops_per_token), saved, rtol=1e-6)


def test_experts_of_a_latent_are_wide_and_their_tokens_narrow():
    mixture = {"experts": 8.0, "active_experts": 2.0, "feed_forward": 512.0}
    inputs = case(**mixture, expert_latent=0.5)
    # Blocks of 512 x 1024 weights are 1024 wide where they take 512 entries: 2 x 4 bytes inside, 2 x 2 / 2 of the
    # copies, beside 8 of norms and 2 x 4 of queries, keys, values and output.
    np.testing.assert_allclose(activation_bytes(*inputs), 2048 * 1024 * (8 + 8 + 2 * 4 * 1.0 + 2 * 2 * 0.5), rtol=1e-6)
    assert float(inputs[0].workload.parameters) == float(case(**mixture)[0].workload.parameters)


def test_traced_shapes_without_a_state_have_the_same_work():
    # As in a compiled `evaluate`, which does not know that there are no such layers.
    system, plan, _ = case()

    def work(shape):
        traced = eqx.tree_at(lambda s: s.workload, system, shape)
        return layer_work(traced, plan, divide(traced, plan, 8.0 * 2048.0))

    for known, traced in zip(
        *map(jax.tree.leaves, (work(system.workload), jax.jit(work)(system.workload))), strict=True
    ):
        np.testing.assert_allclose(traced, known, rtol=1e-12)
