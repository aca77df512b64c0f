"""Work, launches and memory of layers: attention, frozen parameters, CUDA graphs, optimizers on hosts."""

from functools import partial

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import layouts
from energymodel.calibration.step_prediction import predict, predict_row
from energymodel.errors import InputError
from energymodel.performance.workload import attention_flops_per_token
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.division import divide
from energymodel.system.memory import activation_bytes
from energymodel.system.step import step_work
from energymodel.system.work import attention_passes
from experiment import Experiment
from gradients import interpreted
from outcomes import outcome_of, prediction, replaced, row_inputs

SCENARIO = em.load_scenario("llama-3.1-405b-h100")
DIVISION = divide(SCENARIO.system, SCENARIO.plan, 2.0**24)
SCORED = 8192.0 * 6.0 * 16384.0 * 8192.0 / 8.0


def passes(again=0.0, plan=SCENARIO.plan, **workload):
    system = replaced(SCENARIO.system, {f"workload.{name}": value for name, value in workload.items()})
    return attention_passes(system, plan, DIVISION, SCORED, again)


@pytest.mark.parametrize(("flash", "backward"), [(1.0, 2.9), (0.0, 2.0)])
def test_recomputation_repeats_the_forward_pass(flash, backward):
    plain, again = passes(flash=flash), passes(1.0, flash=flash)
    np.testing.assert_allclose(plain.backward, backward * plain.forward, rtol=1e-12)
    np.testing.assert_allclose(again.total - plain.total, plain.forward, rtol=1e-12)


def test_each_step_of_a_ring_sees_its_part_of_the_keys():
    # 4096 keys on average, and n_0 = 596 once in each of 4 kernels
    ring = replaced(SCENARIO.plan, {"layout.context": 4.0})
    ratio = passes(plan=ring).forward / passes().forward
    np.testing.assert_allclose(ratio, (4096.0 + 4.0 * 596.0) / (4096.0 + 596.0), rtol=1e-12)


def test_unfused_products_are_slower_where_heads_are_not_aligned_and_fused_heads_are_padded():
    even, near, odd = (passes(flash=0.0, head_size=size).forward for size in (128.0, 104.0, 108.0))
    chip = SCENARIO.system.accelerator
    exponent = float(chip.alignment_exponent)
    np.testing.assert_allclose(near / even, 8.0**exponent, rtol=1e-9)  # 64 over the 8 that divides 104
    # 64 over the 4 that divides 108, which is less than 16 bytes
    np.testing.assert_allclose(odd / even, float(chip.unaligned_slowdown) * 16.0**exponent, rtol=1e-9)
    even, odd = (passes(head_size=size).forward for size in (112.0, 108.0))
    np.testing.assert_allclose(odd / even, 112.0 / 108.0, rtol=1e-9)  # for the same operations


# 4 layers, 2 of them with experts, 8 micro-batches, so small that steps wait for launches.
ROW = {
    "cluster": "megatron-bridge-h100",
    "layers": 4,
    "hidden": 64,
    "heads": 1,
    "vocabulary": 128,
    "sequence": 64,
    "chips": 1,
    "batch_sequences": 8,
    "dense_layers": 2,
    "dense_feed_forward": 256,
    "experts": 8,
    "active_experts": 2,
}
LAUNCH = 0.01  # s, far above all kernels


@pytest.fixture(scope="module")
def launching():
    numbers = {"accelerator.launch_overhead": LAUNCH, "software.expert_launch": 0.85}
    numbers |= {"software.microbatch_time": 0.003, "production_slowdown": 1.0}
    return replaced(cluster_scenario(ROW["cluster"]).system, numbers)


columns = partial(row_inputs, ROW)


def test_launches_by_hand_and_graphs_that_replay_them(launching):
    # 8 micro-batches of 4 layers, half of which launch 0.85 more: 32 * 10 ms * 1.425 = 456 ms less what kernels take.
    time = prediction(launching, columns()).step_time
    np.testing.assert_allclose(time.host + time.compute + time.memory, 0.456, rtol=0.01)
    # Without experts 320 ms, and 8 micro-batches launch 3 ms each outside their layers.
    dense = prediction(launching, columns(experts=1, active_experts=1, dense_layers=0)).step_time
    np.testing.assert_allclose(dense.host + dense.compute + dense.memory, 0.320, rtol=0.01)
    without = replaced(launching, {"software.microbatch_time": 0.0})
    more = dense.overhead - prediction(without, columns(experts=1, active_experts=1, dense_layers=0)).step_time.overhead
    np.testing.assert_allclose(more, 0.024, rtol=1e-6)
    times = [prediction(launching, columns(cuda_graphs=share)).step_time for share in (0.0, 0.5, 1.0)]
    waits = [time.host + time.compute + time.memory for time in times]
    np.testing.assert_allclose(waits[1], 0.5 * waits[0], rtol=0.01)
    assert waits[2] < 0.05 * waits[0]
    assert times[2].overhead < times[1].overhead < times[0].overhead
    with pytest.raises(InputError, match=r"cuda_graphs: 2 cannot be.*at most 1"):
        columns(cuda_graphs=2)


def test_no_slope_is_infinite_without_launches(launching):
    row = {name: np.asarray(value) for name, value in columns(cuda_graphs=1.0).items()}
    slopes = interpreted(jax.grad(lambda row: predict_row(launching, row).step_time.total))(row)
    assert all(np.isfinite(slope) for slope in slopes.values())
    assert slopes["cuda_graphs"] <= 0.0


def test_preset_is_what_the_pairs_say():
    expert_launch = Experiment("17_kernels").expert_launch
    result = expert_launch.pairs(expert_launch.DATA)
    value, low, high = expert_launch.excess(result)
    published = read_preset("software", "megatron")["expert_launch"]["value"]
    np.testing.assert_allclose(value, published, rtol=0.02)
    assert low < published < high
    # Each platform is within 0.2 of what the others say.
    for platform in ("dgx_a100", "dgx_h100", "dgx_gb200"):
        own = [pair for pair in result if pair.platform == platform]
        assert abs(expert_launch.excess(own)[0] - published) < 0.2


ADAPTERS = 0.005  # share of the parameters in low-rank adapters


@pytest.fixture(scope="module")
def trained():
    return load_scenario("llama-3.1-70b-b200", {"plan.layout.zero": 1})


def work_of(trained, share, zero_stage_3=0.0):
    plan = replaced(trained.plan, {"trained_share": share, "layout.shard_parameters": zero_stage_3})
    with jax.enable_x64(True):
        return step_work(trained.system, plan, plan.batch[0])


def test_operations_and_states_of_frozen_parameters_by_hand(trained):
    workload, tensor = trained.system.workload, float(trained.plan.layout.tensor)
    total, frozen = work_of(trained, 1.0), work_of(trained, 0.25)
    weights = float(workload.active_layer_parameters / workload.layers)
    tokens = float(total.division.tokens)
    # Of the gradients of the weights, 2 w operations per token, a quarter is computed.
    np.testing.assert_allclose(total.layer.flops - frozen.layer.flops, 0.75 * 2 * weights * tokens / tensor, rtol=1e-6)
    np.testing.assert_allclose(frozen.layer.head_flops / total.layer.head_flops, 4.5 / 6.0, rtol=1e-6)
    # Attention has no weights.
    assert frozen.layer.attention == total.layer.attention
    # A recomputed layer repeats its whole forward pass, 2 w and a third of attention.
    full = load_scenario("llama-3.1-70b-b200", {"plan.layout.zero": 1, "plan.layout.recomputation": "full"})
    again = work_of(full, 0.25).layer.flops - frozen.layer.flops
    attention = float(attention_flops_per_token(1.0, workload.attention_width, workload.sequence))
    np.testing.assert_allclose(again, tokens * (2 * weights + attention / 3.0) / tensor, rtol=1e-6)
    total, frozen = total.memory, frozen.memory
    assert frozen.stored.weight == total.stored.weight
    for name in ("gradient", "optimizer", "sent"):
        np.testing.assert_allclose(getattr(frozen.stored, name), 0.25 * getattr(total.stored, name), rtol=1e-12)
    np.testing.assert_allclose(frozen.optimizer_traffic, 0.25 * total.optimizer_traffic, rtol=1e-12)
    assert frozen.total < total.total


def test_time_energy_and_utilization_of_frozen_parameters():
    shares = (1.0, 0.5, ADAPTERS)
    outcomes = [
        outcome_of("llama-3.1-70b-b200", "plan.layout.zero=1", f"plan.trained_share={share}") for share in shares
    ]
    times = [float(outcome.step_time.total) for outcome in outcomes]
    assert times[0] > times[1] > times[2] > 2.0 / 3.0 * 0.9 * times[0]
    assert outcomes[0].energy.total > outcomes[1].energy.total > outcomes[2].energy.total
    # Operations that are not done do not count as used.
    rates = [float(outcome.mfu * outcome.step_time.total) for outcome in outcomes]
    np.testing.assert_allclose(rates[2] / rates[0], (4.0 + 2.0 * ADAPTERS) / 6.0, rtol=1e-6)


def test_only_trained_parameters_travel_with_a_finite_slope(trained):
    def sent(share, stage_3):
        data = work_of(trained, share, stage_3).traffic.data
        return float(data.inner_bytes + data.outer_bytes)

    np.testing.assert_allclose(sent(0.25, 0.0), 0.25 * sent(1.0, 0.0), rtol=1e-9)
    # Sharded parameters are gathered whether they are trained or not.
    assert sent(0.25, 1.0) > 0.5 * sent(1.0, 1.0)

    def memory(share):
        plan = replaced(trained.plan, {"trained_share": share})
        return step_work(trained.system, plan, plan.batch[0]).memory.total

    assert 0.0 < interpreted(jax.grad(memory))(0.5) < np.inf


def test_published_runs_with_adapters():
    """Five runs of NeMo and Megatron-Bridge on H100 and GB300, on clusters fitted to training of all parameters."""
    adapters, throughput = (getattr(Experiment("01_step_time"), name) for name in ("adapters", "throughput"))
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


HOST_ROW = {"cluster": "megatron-bridge-h100", "model": "llama-3.1-8b", "chips": 16, "batch_sequences": 64, "zero": 1}


@pytest.fixture(scope="module")
def host_system():
    return replaced(cluster_scenario(HOST_ROW["cluster"]).system, {"production_slowdown": 1.0})


def run_on(host_system, **changes):
    return prediction(host_system, row_inputs(HOST_ROW, **changes))


def test_update_on_the_host_by_hand(host_system):
    # Each of 16 chips has a sixteenth of 8.03 billion parameters; 28 bytes of each pass at 20 GB/s: 703 ms.
    numbers = {"node.host_update_bandwidth": 20e9, "node.host_bandwidth": 1e18}
    own = replaced(host_system, numbers | {"reliability.straggler_variation": 0.0})
    on_chip, away = run_on(own), run_on(own, offload_optimizer=1)
    parameters = 32 * (2 * 4096 * (32 + 8) * 128 + 3 * 4096 * 14336) + 2 * 128256 * 4096
    update = 28 * parameters / 16 / 20e9
    np.testing.assert_allclose(away.step_time.host - on_chip.step_time.host, update, rtol=1e-6)
    # The chip no longer updates, and half of the optimizer takes half as long.
    assert away.step_time.optimizer < 1e-3 * on_chip.step_time.optimizer
    half = run_on(own, offload_optimizer=0.5)
    np.testing.assert_allclose(half.step_time.host - on_chip.step_time.host, 0.5 * update, rtol=1e-6)


def test_what_stays_on_the_chip(host_system):
    """Megatron-LM keeps 4 of 12 bytes a parameter there."""
    freed = []
    for kept in (4.0, 0.0, 99.0):
        own = replaced(host_system, {"software.offload_kept_bytes": kept, "software.memory_overhead": 1.0})
        freed.append(run_on(own).memory - run_on(own, offload_optimizer=1).memory)
    np.testing.assert_allclose(freed[0] / freed[1], 8 / 12, rtol=1e-9)
    # More than there is cannot stay.
    np.testing.assert_allclose(freed[2], 0.0, atol=1.0)


def test_memory_of_a_host_by_hand_and_its_limit():
    # OLMo 2 13B with ZeRO 1 in Megatron-LM: of 12 bytes 4 stay on the chip; weights and gradients go whole, 2 + 4.
    names = ("optimizer", "parameters", "gradients")
    changes = [*(f"plan.layout.offload_{name}=1" for name in names), "system.software=megatron", "system.node=dgx-h100"]
    outcome = outcome_of("olmo-2-13b-h100", *changes, "plan.layout.zero=1", "plan.chips=1024", "plan.layout.tensor=1")
    parameters = 40 * (4 * 5120**2 + 3 * 5120 * 13824) + 2 * 100352 * 5120
    used = 8 * parameters * (6 + 8 / 1024)
    np.testing.assert_allclose(np.exp(-outcome.slack.host_memory), used / 2e12, rtol=1e-3)
    # One micro-batch is in flight in 40 layers, and nothing is on the host unless it is sent.
    own = load_scenario("olmo-2-13b-h100", ["plan.layout.offload_activations=1", "system.node=dgx-h100"])
    away = outcome_of("olmo-2-13b-h100", "plan.layout.offload_activations=1", "system.node=dgx-h100")
    layer = activation_bytes(own.system, own.plan, divide(own.system, own.plan, float(own.plan.batch[0])))
    np.testing.assert_allclose(np.exp(-away.slack.host_memory), 8 * 40 * layer / 2e12, rtol=1e-6)
    assert outcome_of("olmo-2-13b-h100").slack.host_memory > 20.0


@pytest.mark.parametrize("share", ["25 %", "50 %", "75 %", "100 %"])
def test_measured_changes(share):
    """Qwen3 30B in Megatron-Bridge: more than 0.8 s and less than 3.8 GB for each quarter of the optimizer."""
    ablations = Experiment("17_kernels").ablations
    rows = ablations.read(ablations.DATA / "megatron_bridge_ablations.csv")
    change = next(entry for entry in ablations.CHANGES if entry.variants == ("0 %", share))
    result = ablations.compare(change, rows)
    np.testing.assert_allclose(result["predicted, s"], result["time, s"], rtol=0.21)
    np.testing.assert_allclose(result["predicted, GB"], result["memory, GB"], rtol=0.02)
