"""When sharded gradients leave, what that sends and keeps, and which framework runs it with pipelines."""

import itertools

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.performance.parallelism import ScatterEachMicrobatch, ScatterEachRound, ScatterOnce, last_round_share
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.chip_load import operating_point
from energymodel.system.layouts import candidates
from energymodel.system.step import pass_times, step_time, step_work

SCENARIO = "llama-3.1-405b-h100"  # 16 micro-batches on 16 pipeline ranks of 8 virtual stages
RULES = [ScatterEachMicrobatch, ScatterOnce, ScatterEachRound]
UNEVEN = {"system.software.empty_slots": 2}  # 126 layers in 128 slots


def work_of(**changes):
    paths = {key: "plan.layout." if key == "zero" else "system.software." for key in changes}
    scenario = load_scenario(SCENARIO, {f"{paths[key]}{key}": value for key, value in changes.items()})
    return scenario, step_work(scenario.system, scenario.plan, scenario.plan.batch[0])


def rule(name):
    return {"sharded_gradients": {"component": name}, "zero_with_pipeline": 3}


@pytest.mark.parametrize(
    ("kind", "scatters", "held"),
    # micro-batches, pipeline, virtual stages: (1, 1, 1), (8, 1, 1), (5, 8, 16), (64, 8, 4)
    [
        (ScatterEachMicrobatch, [1, 8, 5, 64], [0, 0, 0, 0]),
        (ScatterOnce, [1, 1, 1, 1], [0, 1, 1, 1]),
        (ScatterEachRound, [1, 8, 1, 8], [0, 0, 1 / 16, 1 / 4]),
    ],
)
def test_scatters_and_kept_gradients_by_hand(kind, scatters, held):
    m, p, v = np.array([[1, 1, 1], [8, 1, 1], [5, 8, 16], [64, 8, 4]], dtype=float).T
    rounds = kind().rounds(m, p, v)
    np.testing.assert_array_equal([rounds.scatters, rounds.held], [scatters, held])


def test_only_the_last_round_hides_gradients_that_are_summed():
    m, p, v = np.array([[1, 1, 1], [8, 1, 1], [64, 8, 1], [64, 8, 4], [5, 8, 16]], dtype=float).T
    # One micro-batch of 8 and of 64, one round of 8 of 64, and a step that is a single round.
    np.testing.assert_array_equal(last_round_share(m, p, v), [1, 1 / 8, 1 / 64, 1 / 8, 1])
    np.testing.assert_array_equal(ScatterOnce().rounds(m, p, v).window, last_round_share(m, p, v))
    for kind in (ScatterEachMicrobatch, ScatterEachRound):
        np.testing.assert_array_equal(kind().rounds(m, p, v).window, 1.0)


@pytest.mark.parametrize("microbatches", [1, 8])
def test_more_micro_batches_do_not_hide_more_of_one_exchange(microbatches):
    """A slow network, all of whose time may hide: what does not is the exchange less one backward pass."""
    changes = {"system.network.link.lane_bandwidth": "0.2 GB/s", "system.software.data_overlap": 1, "plan.chips": 128}
    changes |= {"plan.batch": f"{microbatches * 128 * 4 * 2048} tokens", "plan.layout.zero": 1}
    with jax.enable_x64(True):
        scenario = load_scenario("test-1b-h100", changes)
        system, plan = scenario.system, scenario.plan
        work = step_work(system, plan, plan.batch[0])
        point = operating_point(system, plan, work.coolant, work.load)
        time = step_time(system, plan, work, point, pass_times(system, plan, work, point))
        entry = (time.compute + time.memory + time.host + time.bubble) / microbatches
        np.testing.assert_allclose(work.division.microbatches, microbatches)
        np.testing.assert_allclose(time.data, work.traffic.data.time - entry * 2.0 / 3.0, rtol=1e-9)


@pytest.mark.parametrize("kind", RULES)
def test_fewer_scatters_keep_more(kind):
    # Between sending everything for each micro-batch and keeping everything there is no free choice.
    for m, p, v in itertools.product((2.0, 16.0, 64.0), (2.0, 8.0), (1.0, 4.0)):
        assert float(kind().rounds(m, p, v).scatters) == m or float(kind().rounds(m, p, v).held) >= 1.0 / v


@pytest.mark.parametrize("name", [kind.__name__ for kind in RULES])
def test_a_step_sends_and_keeps_what_the_framework_does(name):
    with jax.enable_x64(True):
        _, sharded = work_of(zero=2, **rule(name))
        scenario, total = work_of(zero=1, **rule(name))
        kind = scenario.system.software.sharded_gradients
        software, ranks = scenario.system.software, float(total.memory.shard.dense_ranks)
        parameters, sent = float(total.memory.shard.dense), float(software.communicated_bytes)
        more = float(sharded.traffic.data.outer_bytes - total.traffic.data.outer_bytes)
        again = float(kind.rounds(16.0, 16.0, 8.0).scatters) - 1.0
        np.testing.assert_allclose(more, again * sent * parameters * (1.0 - 1.0 / ranks), rtol=1e-9, atol=1.0)
        # Gradients of 4 bytes are saved but for what is kept, and the layer at work is sent from a buffer.
        layer = float(scenario.system.workload.sizes().replicated) / 126.0 / 8.0
        saved = 4.0 * parameters * (1.0 - float(kind.rounds(16.0, 16.0, 8.0).held)) - sent * layer
        saved = float(software.memory_overhead) * saved * (1.0 - 1.0 / ranks)
        np.testing.assert_allclose(total.memory.total - sharded.memory.total, saved, rtol=1e-9)


def test_a_step_gathers_and_keeps_what_the_framework_says():
    with jax.enable_x64(True):
        once, again = (work_of(zero=2, regather=flag, **rule("ScatterOnce"))[1] for flag in (0, 1))
        more = float(again.traffic.data.outer_bytes - once.traffic.data.outer_bytes)
        shard = once.memory.shard
        np.testing.assert_allclose(more, 15.0 * 2.0 * shard.dense * (1.0 - 1.0 / shard.dense_ranks), rtol=1e-9)
    # 12.7e9 parameters per chip keep 4 bytes of gradient each: 51 GB.
    layout = {"tensor": 4, "pipeline": 8, "virtual_stages": 16, "context": 2}
    changes = {f"plan.layout.{name}": value for name, value in layout.items()}
    changes |= {"plan.batch": "16777216 tokens", "system.software": "megatron", **UNEVEN}
    changes["system.software.zero_with_pipeline"] = 3

    def memory(zero):
        scenario = load_scenario(SCENARIO, {**changes, "plan.layout.zero": zero})
        return float(step_work(scenario.system, scenario.plan, scenario.plan.batch[0]).memory.total)

    with jax.enable_x64(True):
        np.testing.assert_allclose(memory(1) - memory(2), 51e9, rtol=0.02)


@pytest.mark.parametrize(
    ("software", "zero", "words", "highest"),
    [
        ("megatron", 2, ["plan.layout.zero", "Megatron-LM", "gradients", "ZeRO 2", "16 stages", "zero = 1"], 1),
        ("deepspeed", 3, ["DeepSpeed", "parameters", "ZeRO 3", "zero = 1"], 1),
        ("fsdp", 2, ["PyTorch FSDP", "zero = 1"], 1),
        ("meta-fsdp", 3, ["Meta", "ZeRO 3", "zero = 2"], 2),
    ],
)
def test_what_a_framework_does_not_run_with_pipelines_is_refused_and_not_offered(software, zero, words, highest):
    with pytest.raises(InputError) as refused:
        load_scenario(SCENARIO, {"system.software": software, "plan.layout.zero": zero, **UNEVEN})
    assert all(word in str(refused.value) for word in words), refused.value
    load_scenario(SCENARIO, {"system.software": software, "plan.layout.zero": 1, **UNEVEN})
    scenario = load_scenario("llama-3.1-70b-b200", {"system.software": software})
    lattice = candidates(scenario.system, scenario.plan.layout, 64.0)
    stage = lattice.shard_optimizer + lattice.shard_gradients + lattice.shard_parameters
    assert set(stage[lattice.pipeline > 1]) == set(range(1, highest + 1))
    assert set(stage[lattice.pipeline == 1]) == {1, 2, 3}
