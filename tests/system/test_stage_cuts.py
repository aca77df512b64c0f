"""Do pipelines whose ends are cut by hand take the time and memory that a simulation has, and who may cut them how?"""

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_system
from energymodel.calibration.layout_table import INPUTS, layouts
from energymodel.calibration.step_prediction import predict_row
from energymodel.errors import InputError
from energymodel.performance.parallelism import uneven_stage_layers
from energymodel.performance.pipeline_simulator import PassTimes, simulate_pipeline
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.memory import chip_memory
from energymodel.system.operating_point import operating_point
from energymodel.system.step import step_time, step_work

CHANGES = {"system.software": "megatron", "system.software.empty_slots": 2, "plan.layout.zero": 1}
LAYERS, RANKS, TENSOR, MICROBATCHES = 120.0, 8, 8, 32


@pytest.fixture(scope="module")
def system():
    """Llama 3.1 405B with 120 layers on Megatron-LM, whose hops between ranks take no time."""
    given = load_scenario("llama-3.1-405b-h100", CHANGES).system
    at = lambda s: (s.workload.layers, s.software.pipeline_overlap)  # noqa: E731
    return eqx.tree_at(at, given, (np.asarray(LAYERS), np.asarray(1.0)))


def plan_of(first, last, chunks=1):
    plan = load_scenario("llama-3.1-405b-h100").plan
    names = ("pipeline", "virtual_stages", "tensor", "shard_gradients", "first_stage_layers", "last_stage_layers")
    values = map(float, (RANKS, chunks, TENSOR, 0.0, first, last))
    layout = plan.layout
    for name, value in zip(names, values, strict=True):
        layout = eqx.tree_at(lambda one, name=name: getattr(one, name), layout, np.asarray(value))
    chips = float(RANKS * TENSOR * 16)
    batch = np.asarray([16.0 * MICROBATCHES * 8192.0])
    return eqx.tree_at(lambda p: (p.chips, p.batch, p.layout), plan, (np.asarray(chips), batch, layout))


def step_of(system, plan):
    batch = plan.batch[0]
    work = step_work(system, plan, batch)
    return work, step_time(
        system, plan, work, operating_point(system, plan, work.coolant, work.load, sum(work.exposed))
    )


def test_layers_by_hand():
    # 61 layers of DeepSeek-V3 on 16 ranks, 4 on the first and 1 on the last: 56 on 14 others.
    assert uneven_stage_layers(61.0, 16.0, 4.0, 1.0) == (4.0, 4.0, 1.0)
    assert uneven_stage_layers(61.0, 16.0, 0.0, 1.0) == (4.0, 4.0, 1.0)
    assert uneven_stage_layers(62.0, 8.0, 6.0, 0.0) == (6.0, 8.0, 8.0)
    assert uneven_stage_layers(62.0, 8.0, 6.0, 0.0).fullest == 8.0


@pytest.mark.parametrize(("first", "last", "chunks"), [(12, 12, 1), (14, 10, 1), (18, 12, 1), (12, 12, 2), (0, 8, 1)])
def test_the_step_is_that_of_the_simulation(first, last, chunks, system):
    with jax.enable_x64(True):
        plan = plan_of(first, last, chunks)
        work, time = step_of(system, plan)
        cut = uneven_stage_layers(LAYERS, float(RANKS), float(first), float(last))
        # The mean rank works as long as an eighth of all layers and of the output head, which is on the last.
        busy = float(time.compute + time.memory + time.host + time.tensor)
        head = work.head.time / plan.clock + work.layer.head_bytes / system.accelerator.sustained_bandwidth
        layer = (RANKS * busy / MICROBATCHES - float(head)) / LAYERS
        middle = [float(cut.middle)] * (RANKS - 2)
        passes = np.asarray([float(cut.first), *middle, float(cut.last)]) * layer / chunks
        passes = np.tile(passes, chunks)
        passes[-1] += float(head)
        run = simulate_pipeline(
            "1f1b", RANKS, MICROBATCHES, chunks, PassTimes(passes / 3.0, passes / 3.0, passes / 3.0)
        )
        # A flow shop: a slow first rank, which here starts ahead of the others, waits a little less.
        assert 0.99 * run.time <= busy + float(time.bubble + time.pipeline) <= 1.04 * run.time


@pytest.mark.parametrize(("first", "last", "chunks"), [(12, 12, 1), (14, 10, 1), (22, 14, 1), (12, 12, 2)])
def test_the_fullest_rank_has_what_the_simulation_holds(first, last, chunks, system):
    with jax.enable_x64(True):
        plan = plan_of(first, last, chunks)
        memory = chip_memory(system, plan, step_of(system, plan)[0].division)
    cut = uneven_stage_layers(LAYERS, float(RANKS), float(first), float(last))
    ranks = np.asarray([float(cut.first), *[float(cut.middle)] * (RANKS - 2), float(cut.last)])
    sizes = np.tile(ranks / chunks, chunks)
    run = simulate_pipeline("1f1b", RANKS, MICROBATCHES, chunks, PassTimes(), sizes)
    workload, software, tokens = system.workload, system.software, 8192.0
    weights = float(workload.sizes().replicated) / LAYERS * ranks
    table = float(workload.vocabulary * workload.hidden)
    weights[0] += table
    weights[-1] += table
    states = (2.0 + 4.0 + 12.0 / 16.0) * weights / TENSOR
    held = run.held * float(memory.activations)
    logits = 8.0 * tokens * float(workload.vocabulary) / TENSOR
    expected = states + held
    expected[-1] += logits
    own = (float(memory.total) - float(software.reserved_memory)) / float(software.memory_overhead)
    np.testing.assert_allclose(own, np.max(expected), rtol=1e-3)


def test_equal_ends_are_no_cut(system):
    with jax.enable_x64(True):
        even, cut = (step_of(system, plan_of(*ends)) for ends in ((0, 0), (15, 15)))
    np.testing.assert_allclose(cut[1].total, even[1].total, rtol=1e-6)
    np.testing.assert_allclose(cut[0].memory.shard.dense, even[0].memory.shard.dense, rtol=1e-12)


ROW = {"cluster": "megatron-a100", "model": "llama-2-70b", "chips": 64, "batch_sequences": 64, "tensor": 8}


def test_a_table_may_cut_the_ends():
    row = jax.jit(predict_row)
    own = cluster_system("megatron-a100")

    def total(**changes):
        table = layouts([{**ROW, "pipeline": 8, **changes}])
        return row(own, {column.name: table.columns[column.name][0] for column in INPUTS})

    heavy, even = total(first_stage_layers=17, last_stage_layers=9), total()
    # The slowest rank has 17 layers instead of 10, for 8 micro-batches.
    assert heavy.step_time.bubble > even.step_time.bubble + 7.0 / 10.0 * 0.5 * even.step_time.compute
    assert heavy.memory > even.memory


def test_a_table_with_a_cut_that_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"line 2: first_stage_layers = 81 .* do not cut 80 layers over 8 pipeline"):
        layouts([{**ROW, "pipeline": 8, "first_stage_layers": 81}])
    with pytest.raises(InputError, match="over 1 pipeline ranks"):
        layouts([{**ROW, "last_stage_layers": 8}])


REFUSED = [
    ({"first_stage_layers": 4}, "one pipeline rank has all layers"),
    ({"first_stage_layers": 16, "pipeline": 8}, "leave 110 of 126 layers for 7 stages"),
    ({"first_stage_layers": 15, "last_stage_layers": 15, "pipeline": 8, "virtual_stages": 2}, "multiple of them"),
    ({"first_stage_layers": 14, "pipeline": 8, "schedule": "zb-h1"}, "ZB-H1 divides the layers itself"),
    ({"first_stage_layers": 14, "pipeline": 8, "embedding_balanced": 1}, "embedding_balanced divides the layers"),
    ({"first_stage_layers": 60, "last_stage_layers": 60, "pipeline": 2}, "are not the 126 layers"),
    ({"first_stage_layers": 2.5, "pipeline": 8}, "not a whole number"),
]


@pytest.mark.parametrize(("layout", "message"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_megatron_refuses(layout, message):
    base = {"virtual_stages": 1, "tensor": 8, "pipeline": 1, "zero": 1}
    with pytest.raises(InputError, match=message):
        load_scenario("llama-3.1-405b-h100", {"plan": {"layout": {**base, **layout}}})


def test_embedding_balanced_allows_two_empty_slots():
    """126 layers on 128 slots: refused by Megatron-LM unless embedding and loss count as a layer each."""
    changes = {"system.software": "megatron", "plan.layout.zero": 1}
    with pytest.raises(InputError, match="embedding_balanced"):
        load_scenario("llama-3.1-405b-h100", changes)
    load_scenario("llama-3.1-405b-h100", {**changes, "plan.layout.embedding_balanced": 1})


def test_the_first_rank_has_the_embedding_in_the_place_of_a_layer(system):
    """126 layers on 8 ranks of 16: two slots are empty. A middle rank has 16 layers, the first 15 and the embedding."""
    own = eqx.tree_at(lambda s: s.workload.layers, system, np.asarray(126.0))
    plan = plan_of(0, 0)
    balanced = eqx.tree_at(lambda p: p.layout.embedding_balanced, plan, np.asarray(1.0))
    with jax.enable_x64(True):
        usual, less = (float(step_of(own, one)[0].memory.shard.dense) * TENSOR for one in (plan, balanced))
    layer, table = float(own.workload.sizes().replicated) / 126.0, float(own.workload.vocabulary) * 16384.0
    np.testing.assert_allclose(usual, 16.0 * layer + table, rtol=1e-9)
    np.testing.assert_allclose(less, max(16.0 * layer, 15.0 * layer + table), rtol=1e-9)
