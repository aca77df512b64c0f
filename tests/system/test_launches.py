"""Do layers with experts wait longer for the host to launch kernels, and do CUDA graphs end the wait?"""

import equinox as eqx
import jax
import numpy as np
import pytest

from compiled_once import derivative_once
from energymodel.calibration.cluster_source import cluster_system
from energymodel.calibration.layout_table import INPUTS, layouts
from energymodel.calibration.step_prediction import predict_row
from energymodel.errors import InputError
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once
from experiment import Experiment

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
def run():
    return jax.jit(predict_row)


@pytest.fixture(scope="module")
def system():
    at = lambda s: (  # noqa: E731
        s.accelerator.launch_overhead,
        s.software.expert_launch,
        s.software.microbatch_time,
        s.production_slowdown,
    )
    return eqx.tree_at(at, cluster_system(ROW["cluster"]), (LAUNCH, 0.85, 0.003, 1.0))


def columns(**changes):
    table = layouts([{**ROW, **changes}])
    return {column.name: table.columns[column.name][0] for column in INPUTS}


def test_launches_by_hand(system, run):
    # 8 micro-batches of 4 layers, half of which launch 0.85 more: 32 * 10 ms * 1.425 = 456 ms less what kernels take.
    time = run(system, columns()).step_time
    np.testing.assert_allclose(time.host + time.compute + time.memory, 0.456, rtol=0.01)
    # Without experts 320 ms, and 8 micro-batches launch 3 ms each outside their layers.
    dense = run(system, columns(experts=1, active_experts=1, dense_layers=0)).step_time
    np.testing.assert_allclose(dense.host + dense.compute + dense.memory, 0.320, rtol=0.01)
    without = eqx.tree_at(lambda s: s.software.microbatch_time, system, 0.0)
    more = dense.overhead - run(without, columns(experts=1, active_experts=1, dense_layers=0)).step_time.overhead
    np.testing.assert_allclose(more, 0.024, rtol=1e-6)


def test_graphs_replay_a_share_of_the_launches(system, run):
    times = [run(system, columns(cuda_graphs=share)).step_time for share in (0.0, 0.5, 1.0)]
    waits = [time.host + time.compute + time.memory for time in times]
    np.testing.assert_allclose(waits[1], 0.5 * waits[0], rtol=0.01)
    assert waits[2] < 0.05 * waits[0]
    assert times[2].overhead < times[1].overhead < times[0].overhead


def test_no_slope_is_infinite_without_launches(system):
    row = {name: np.asarray(value) for name, value in columns(cuda_graphs=1.0).items()}
    slopes = derivative_once(jax.grad, lambda row: predict_row(system, row).step_time.total, row)
    assert all(np.isfinite(slope) for slope in slopes.values())
    assert slopes["cuda_graphs"] <= 0.0


def test_a_scenario_may_have_graphs():
    waits = []
    for share in (0.0, 1.0):
        changes = {"plan.layout.cuda_graphs": share, "system.accelerator.launch_overhead": "20 ms"}
        scenario = load_scenario("deepseek-v3-h800", changes)
        with jax.enable_x64(True):
            waits.append(float(evaluate_once(scenario.system, scenario.plan).step_time.host))
    assert waits[1] < 0.1 * waits[0]
    with pytest.raises(InputError, match=r"plan\.layout\.cuda_graphs: 1\.5 .*share"):
        load_scenario("deepseek-v3-h800", {"plan.layout.cuda_graphs": 1.5})
    with pytest.raises(InputError, match=r"cuda_graphs: 2 cannot be.*at most 1"):
        layouts([{**ROW, "cuda_graphs": 2}])


def test_preset_is_what_the_pairs_say():
    expert_launch = Experiment("17_kernels").module("expert_launch")
    found = expert_launch.pairs(expert_launch.DATA)
    value, low, high = expert_launch.excess(found)
    stated = read_preset("software", "megatron")["expert_launch"]["value"]
    np.testing.assert_allclose(value, stated, rtol=0.02)
    assert low < stated < high
    # Each platform is within 0.2 of what the others say.
    for platform in ("dgx_a100", "dgx_h100", "dgx_gb200"):
        own = [pair for pair in found if pair.platform == platform]
        assert abs(expert_launch.excess(own)[0] - stated) < 0.2
