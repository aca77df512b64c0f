"""Memory of layers with experts on the rank that holds nothing else."""

import csv
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.performance.workload import Transformer
from energymodel.scenarios.layers import layout_switches
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.division import divide
from energymodel.system.memory import activation_bytes
from energymodel.system.shard import shard
from energymodel.system.work import layer_work
from outcomes import outcome_of, prediction, replaced, row_inputs

DATA = Path(__file__).parents[2] / "experiments" / "data"
SHAPE = {
    "layers": 4.0,
    "hidden": 1024.0,
    "heads": 8.0,
    "kv_heads": 8.0,
    "head_size": 128.0,
    "feed_forward": 512.0,
    "gated": 1.0,
    "vocabulary": 32000.0,
    "sequence": 2048.0,
    "experts": 16.0,
    "active_experts": 4.0,
    "shared_experts": 1.0,
    "dense_layers": 1.0,
    "dense_feed_forward": 2560.0,
}


def case(pipeline=4.0, **shape):
    """A system with the shape above, a plan with so many pipeline ranks, and the counts that follow."""
    scenario = load_scenario("test-1b-h100")
    system = eqx.tree_at(lambda s: s.workload, scenario.system, Transformer(**{**SHAPE, **shape}))
    plan = replaced(scenario.plan, {"chips": 8, "layout.pipeline": pipeline, "layout.microbatch": 1})
    return system, plan, divide(system, plan, 8.0 * 2048.0)


@pytest.mark.parametrize(("pipeline", "alternating", "share"), [(4.0, 0.0, 1 / 3), (4.0, 1.0, 1 / 4), (1.0, 0.0, 1.0)])
def test_routed_parameters_by_hand(pipeline, alternating, share):
    # Three of four layers have experts, and a rank with one layer has one of these three.
    inputs = case(pipeline, alternating_dense=alternating)
    routed = 3 * 16 * 3 * 1024 * 512
    np.testing.assert_allclose(shard(*inputs).routed, share * routed, rtol=1e-6)


def test_activations_by_hand():
    # 12 + 4 for norms, query, keys and values, output; five experts keep 4 r each, r = 1/2, and the product behind
    # their gate, 2 r, and each of the four routed ones a sorted copy of the token, 2.
    per_unit = 12 + 4 + 5 * (4 + 2) * 0.5 + 4 * 2
    np.testing.assert_allclose(activation_bytes(*case()), 2048 * 1024 * per_unit, rtol=1e-6)
    # On a single rank a fourth of the layers is dense: 6 r with r = 5/2.
    mean = 12 + 4 + 0.75 * (5 * 6 * 0.5 + 4 * 2) + 0.25 * 6 * 2.5
    np.testing.assert_allclose(activation_bytes(*case(1.0)), 2048 * 1024 * mean, rtol=1e-6)
    # An expert with half more tokens than the mean keeps half more.
    more = per_unit + 0.5 * 4 * (4 * 0.5 + 2 + 2 * 0.5)
    np.testing.assert_allclose(activation_bytes(*case(expert_imbalance=1.5)), 2048 * 1024 * more, rtol=1e-6)


def test_inputs_of_expert_products_in_their_format():
    system, plan, division = case()
    held = 4 * (2 + 2 * 0.5)
    without = replaced(system, {"software.kept_expert_inputs": 0.0})
    np.testing.assert_allclose(activation_bytes(without, plan, division), 2048 * 1024 * (12 + 4 + 11), rtol=1e-6)
    for name, value, share in ("fp8", 1.0, 0.5), ("fp4", 1.0, 0.25), ("fp8", 0.5, 0.75):
        narrow = replaced(plan, {f"layout.{name}": value})
        # In 8 bits, two outputs of norms and the product of the shared expert take half, for both formats.
        of_block = 12 + 4 + 10 - 2 * value + 1 - 0.5 * value
        expected = 2048 * 1024 * (of_block + share * held)
        np.testing.assert_allclose(activation_bytes(system, narrow, division), expected, rtol=1e-6)


LATENT = {"kv_rank": 256.0, "query_rank": 512.0, "rope_head_size": 32.0, "value_head_size": 128.0}
DENSE = {"experts": 1.0, "active_experts": 1.0, "shared_experts": 0.0, "dense_layers": 0.0}


# Bytes per token and hidden unit that modules free. Five experts, one of them shared, have 4 r and the product behind
# their gate, 2 r, with r = 1/2; the routed ones a copy of a token, 2. A norm is 2.
@pytest.mark.parametrize(
    ("word", "shape", "pipeline", "freed"),
    [
        ("layernorm", {}, 4.0, 2.0),
        ("layernorm", LATENT, 4.0, 4.0),
        ("layernorm", DENSE, 1.0, 0.0),
        ("moe_act", {}, 4.0, 4 * 2 * 0.5),
        ("moe_act", {"gated": 0.0}, 4.0, 4 * 2 * 0.5),
        ("shared_experts", {}, 4.0, 6 * 0.5),
        ("moe", {}, 4.0, 5 * 6 * 0.5 + 4 * 2),
        ("moe+moe_act+shared_experts", {}, 4.0, 5 * 6 * 0.5 + 4 * 2),
        ("moe+layernorm", {}, 4.0, 5 * 6 * 0.5 + 4 * 2 + 2),
        ("mlp", {}, 4.0, 0.0),
        # A fourth of the layers of the only rank is dense: 6 r with r = 5/2, and its norm.
        ("mlp", {}, 1.0, 0.25 * (6 * 2.5 + 2)),
        ("mlp", DENSE, 1.0, 6 * 0.5 + 2),
        # 8 heads with 128 entries of queries, keys and values: 3 x 1024 of 2 bytes over 1024 hidden units.
        ("mla_up_proj", LATENT, 4.0, 6.0),
        ("mla_up_proj+layernorm", LATENT, 4.0, 10.0),
    ],
)
def test_modules_that_are_recomputed_by_hand(word, shape, pipeline, freed):
    system, plan, division = case(pipeline, **shape)
    fields = {f"layout.{name}": on for name, on in layout_switches({"recomputation": word}, "").items()}
    less = activation_bytes(system, plan, division) - activation_bytes(system, replaced(plan, fields), division)
    np.testing.assert_allclose(less, 2048 * 1024 * freed, rtol=1e-6, atol=1.0)


def test_measured_peaks_of_nemotron():
    """23 of 52 layers of Nemotron 3 Nano have experts; other layers keep the same. Nothing is fitted."""
    with (DATA / "megatron_bridge_ablations.csv").open(encoding="utf-8") as file:
        peaks = {row["variant"]: row["peak_allocated_gb"] for row in csv.DictReader(file) if "Nano" in row["model"]}
    shape = {"hidden": 2688.0, "feed_forward": 1856.0, "gated": 0.0, "experts": 128.0, "active_experts": 6.0}
    shape |= {"shared_experts": 2.0, "dense_layers": 0.0, "sequence": 8192.0}

    def held(word):
        system, plan, division = case(1.0, **shape)
        fields = {f"layout.{name}": on for name, on in layout_switches({"recomputation": word}, "").items()}
        return 23.0 * float(activation_bytes(system, replaced(plan, fields), division))

    for less, more in ("moe_act", "none"), ("moe+layernorm", "moe"):
        measured = 1e9 * (float(peaks[more]) - float(peaks[less]))
        np.testing.assert_allclose(held(more) - held(less), measured, rtol=0.002)


@pytest.mark.parametrize(
    ("word", "shape", "operations", "moved", "sums", "sent"),
    [
        # Experts of 3 x 1024 x 512 weights, 2 operations each: 4 routed ones and a shared one in three of four layers.
        ("moe", {}, 2 * 0.75 * 5 * 3 * 1024 * 512, 0.5 * 0.75 * (5 * 6 * 0.5 + 8 * 4), 0.75, 0.75),
        ("shared_experts", {}, 2 * 0.75 * 3 * 1024 * 512, 0.5 * 0.75 * 6 * 0.5, 0.0, 0.0),
        ("moe_act", {}, 0.0, 0.5 * 0.75 * 4 * 6 * 0.5, 0.0, 0.0),
        ("moe_act", {"dense_layers": 0.0}, 0.0, 0.5 * 4 * 6 * 0.5, 0.0, 0.0),
        # Half of 2 x 2 bytes of a norm, written and read.
        ("layernorm", {}, 0.0, 0.75 * 2.0, 0.0, 0.0),
        ("mlp", {}, 2 * 0.25 * 3 * 1024 * 2560, 0.25 * (0.5 * 16 + 2.0), 0.25, 0.0),
        ("mlp", DENSE, 2 * 3 * 1024 * 512, 0.5 * 16 + 2.0, 1.0, 0.0),
        # Queries of 512 and keys and values of 256 latents; 32 entries of a key are not made of these.
        ("mla_up_proj", LATENT, 2 * (512 * 8 * 128 + 256 * 8 * (96 + 128)), 0.0, 0.0, 0.0),
    ],
)
def test_work_of_modules_by_hand(word, shape, operations, moved, sums, sent):
    system, plan, division = case(1.0, **shape)
    fields = {f"layout.{name}": on for name, on in layout_switches({"recomputation": word}, "").items()}
    once, again = (layer_work(system, of, division) for of in (plan, replaced(plan, fields)))
    np.testing.assert_allclose(again.flops - once.flops, 2048 * operations, rtol=1e-6, atol=float(once.flops) * 1e-9)
    repeated = again.repeated
    np.testing.assert_allclose(repeated.divided + repeated.undivided, moved, rtol=1e-9)
    np.testing.assert_allclose(np.array([repeated.sums, repeated.dispatched]), [sums, sent], rtol=1e-9)
    bytes_again = float(system.software.elementwise_passes) * 2048 * 1024 * moved
    np.testing.assert_allclose(again.elementwise_bytes - once.elementwise_bytes, bytes_again, rtol=1e-6)
    # Layers that are recomputed whole repeat no module.
    full = replaced(plan, fields | {"layout.recompute_full": 1.0})
    np.testing.assert_allclose(np.array(layer_work(system, full, division).repeated), np.zeros(5))


def test_the_disclosed_layout_of_deepseek_fits():
    memory = outcome_of("deepseek-v3-h800").memory_per_chip
    assert memory < float(load_scenario("deepseek-v3-h800").system.accelerator.memory_capacity)


# Moonlight 16B as its configuration has it; latent attention as heads of as many stored bytes. The recipe keeps 16-bit
# gradients and 16-bit moments beside 32-bit master weights.
MOONLIGHT = {
    "cluster": "megatron-bridge-h100",
    "gated": 1,
    "layers": 27,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 16,
    "head_size": 160,
    "feed_forward": 1408,
    "experts": 64,
    "active_experts": 6,
    "shared_experts": 2,
    "dense_layers": 1,
    "dense_feed_forward": 11264,
    "vocabulary": 163840,
    "sequence": 4096,
    "chips": 8,
    "batch_sequences": 4,
    "tensor": 2,
    "expert": 4,
    "zero": 1,
}


def test_measured_peak_of_moonlight():
    with (DATA / "megatron_bridge_ablations.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "Moonlight 16B" and row["variant"] == "none"]
    # What tensors occupy, without what the allocator and the driver add.
    own = replaced(cluster_scenario("megatron-bridge-h100").system, {"software.optimizer_bytes": 8.0})
    memory = float(prediction(own, row_inputs(MOONLIGHT)).allocated)
    np.testing.assert_allclose(memory, 1e9 * float(rows[0]["peak_allocated_gb"]), rtol=0.03)
