"""What do parameters that are not trained save in work, memory, traffic and energy?"""

import equinox as eqx
import jax
import numpy as np
import pytest

from compiled_once import derivative_once
from energymodel.calibration.layout_table import layouts
from energymodel.calibration.step_prediction import predict
from energymodel.errors import InputError
from energymodel.performance.workload import attention_flops_per_token
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once
from energymodel.system.step import step_work
from experiment import Experiment

ADAPTERS = 0.005  # share of the parameters in low-rank adapters


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("llama-3.1-70b-b200", {"plan.layout.zero": 1})


def work_of(scenario, share, zero_stage_3=0.0):
    plan = eqx.tree_at(lambda p: (p.trained_share, p.layout.shard_parameters), scenario.plan, (share, zero_stage_3))
    with jax.enable_x64(True):
        return step_work(scenario.system, plan, plan.batch[0])


def test_operations_by_hand(scenario):
    workload, tensor = scenario.system.workload, float(scenario.plan.layout.tensor)
    whole, frozen = work_of(scenario, 1.0), work_of(scenario, 0.25)
    weights = float(workload.active_layer_parameters / workload.layers)
    tokens = float(whole.division.tokens)
    # Of the gradients of the weights, 2 w operations per token, a quarter is computed.
    np.testing.assert_allclose(whole.layer.flops - frozen.layer.flops, 0.75 * 2 * weights * tokens / tensor, rtol=1e-6)
    np.testing.assert_allclose(frozen.layer.head_flops / whole.layer.head_flops, 4.5 / 6.0, rtol=1e-6)
    # Attention has no weights.
    assert frozen.layer.attention == whole.layer.attention
    # A recomputed layer repeats its whole forward pass, 2 w and a third of attention.
    full = load_scenario("llama-3.1-70b-b200", {"plan.layout.zero": 1, "plan.layout.recomputation": "full"})
    again = work_of(full, 0.25).layer.flops - frozen.layer.flops
    attention = float(attention_flops_per_token(1.0, workload.attention_width, workload.sequence))
    np.testing.assert_allclose(again, tokens * (2 * weights + attention / 3.0) / tensor, rtol=1e-6)


def test_states_by_hand(scenario):
    whole, frozen = work_of(scenario, 1.0).memory, work_of(scenario, 0.25).memory
    assert frozen.kept.weight == whole.kept.weight
    for name in ("gradient", "optimizer", "sent"):
        np.testing.assert_allclose(getattr(frozen.kept, name), 0.25 * getattr(whole.kept, name), rtol=1e-12)
    np.testing.assert_allclose(frozen.optimizer_traffic, 0.25 * whole.optimizer_traffic, rtol=1e-12)
    assert frozen.total < whole.total


def test_only_trained_parameters_travel(scenario):
    def sent(share, stage_3):
        data = work_of(scenario, share, stage_3).traffic.data
        return float(data.inner_bytes + data.outer_bytes)

    np.testing.assert_allclose(sent(0.25, 0.0), 0.25 * sent(1.0, 0.0), rtol=1e-9)
    # Sharded parameters are gathered whether they are trained or not.
    assert sent(0.25, 1.0) > 0.5 * sent(1.0, 1.0)


def test_time_energy_and_utilization(scenario):
    with jax.enable_x64(True):
        plans = [eqx.tree_at(lambda p: p.trained_share, scenario.plan, share) for share in (1.0, 0.5, ADAPTERS)]
        found = [evaluate_once(scenario.system, plan) for plan in plans]
    times = [float(one.step_time.total) for one in found]
    assert times[0] > times[1] > times[2] > 2.0 / 3.0 * 0.9 * times[0]
    assert found[0].energy.total > found[1].energy.total > found[2].energy.total
    # Operations that are not done do not count as used.
    rates = [float(one.mfu * one.step_time.total) for one in found]
    np.testing.assert_allclose(rates[2] / rates[0], (4.0 + 2.0 * ADAPTERS) / 6.0, rtol=1e-6)


def test_slope_is_finite(scenario):
    def total(share):
        plan = eqx.tree_at(lambda p: p.trained_share, scenario.plan, share)
        return step_work(scenario.system, plan, plan.batch[0]).memory.total

    assert 0.0 < derivative_once(jax.grad, total, 0.5) < np.inf


@pytest.mark.parametrize("share", [0.0, 1.5, "-10 %"])
def test_other_shares_are_refused(share):
    with pytest.raises(InputError, match=r"plan\.trained_share"):
        load_scenario("llama-3.1-70b-b200", {"plan.trained_share": share})


def test_published_runs_with_adapters():
    """Five runs of NeMo and Megatron-Bridge on H100 and GB300, on clusters fitted to training of all parameters."""
    adapters, throughput = Experiment("01_step_time").modules("adapters", "throughput")
    published = adapters.read(Experiment("data").folder / "throughput_tables.csv")
    rows = [
        {**throughput._common(row), **throughput.MODELS[row["model"]], "cluster": name, "zero": 1}
        | {"step_time_s": throughput._timed({**row, **throughput._common(row)})}
        for row in published
        for name in [("nemo-" if row["task"] == "LoRA" else "megatron-bridge-") + row["accelerator"].lower()]
        if (row["task"] == "LoRA" or "LoRA" in row["section"]) and row["model"] in throughput.MODELS
    ]
    assert len(rows) == 5
    measured = layouts(rows).columns["step_time_s"]
    errors = [
        np.abs(predict([{**row, "trained_share": share} for row in rows]).table()["step_time_s"] / measured - 1.0)
        for share in (1.0, ADAPTERS)
    ]
    assert np.mean(errors[0]) > 0.4
    assert np.max(errors[1]) < 0.3
    memory = predict([{**row, "trained_share": ADAPTERS} for row in rows]).table()["memory_b"]
    assert np.all(memory[[row["cluster"].endswith("h100") for row in rows]] < 80e9)
