"""Memory of layers with experts on the rank that holds nothing else."""

import csv
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_system
from energymodel.performance.workload import Transformer
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.division import divide
from energymodel.system.memory import activation_bytes, shard
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
    own = replaced(cluster_system("megatron-bridge-h100"), {"software.optimizer_bytes": 8.0})
    memory = float(prediction(own, row_inputs(MOONLIGHT)).allocated)
    np.testing.assert_allclose(memory, 1e9 * float(rows[0]["peak_allocated_gb"]), rtol=0.03)
