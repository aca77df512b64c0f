"""Time and memory of pipeline plans, even or cut by hand, against simulations of their schedules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.errors import InputError
from energymodel.performance.parallelism import uneven_stage_layers
from energymodel.performance.pipeline_simulator import PassTimes, simulate_pipeline
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.chip_load import operating_point
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.memory import chip_memory, reserved_memory
from energymodel.system.step import pass_times, step_time, step_work
from outcomes import prediction, replaced, row_inputs

SWITCH = {"gpipe": "gpipe", "zb-h1": "zero_bubble", "zb-h2": "zero_bubble_h2", "zb-v": "zero_bubble_v"}
SWITCH |= {"dualpipe": "dual_pipe"}
CASE = load_scenario("llama-3.1-405b-h100")
LAYERS, SEQUENCE = 128.0, 8192.0
# Schedule, ranks, virtual stages, micro-batches: also fewer than ranks, and not a multiple of them.
PIPELINES = [
    ("1f1b", 16, 1, 16),
    ("1f1b", 16, 1, 5),
    ("1f1b", 8, 1, 37),
    ("1f1b", 16, 8, 16),
    ("1f1b", 16, 8, 5),
    ("1f1b", 8, 4, 24),
    ("1f1b", 8, 4, 21),
    ("1f1b", 4, 32, 64),
    ("1f1b", 1, 1, 3),
    ("gpipe", 8, 1, 24),
    ("zb-h1", 16, 1, 48),
    ("zb-h1", 16, 1, 5),
    ("zb-h2", 8, 1, 40),
    ("zb-h2", 8, 1, 5),
    ("zb-v", 8, 2, 40),
    ("zb-v", 8, 2, 5),
    ("dualpipe", 16, 1, 64),
    ("dualpipe", 8, 1, 16),
]


@pytest.fixture(scope="module")
def system():
    """Llama 3.1 405B with 128 layers, and micro-batches that are also taken in groups other than of the ranks."""
    return replaced(CASE.system, {"workload.layers": LAYERS, "software.whole_groups": 0.0})


def plan_of(pipeline):
    schedule, ranks, chunks, microbatches = pipeline
    layout = {"layout.pipeline": ranks, "layout.virtual_stages": chunks}
    layout |= {f"layout.{SWITCH[schedule]}": 1.0} if schedule in SWITCH else {}
    return replaced(CASE.plan, {**layout, "chips": 8 * ranks * 64, "batch": 64 * microbatches * SEQUENCE})


@eqx.filter_jit
def published(system, plan):
    work = step_work(system, plan, jnp.reshape(plan.batch, ()))
    point = operating_point(system, plan, work.coolant, work.load)
    return work, step_time(system, plan, work, point, pass_times(system, plan, work, point)), point


@pytest.mark.parametrize("pipeline", PIPELINES, ids=str)
def test_step_time_is_that_of_the_simulated_schedule(system, pipeline):
    schedule, ranks, chunks, microbatches = pipeline
    work, time, point = published(system, plan_of(pipeline))
    kernels = float(time.compute + time.memory + time.host + time.tensor + time.context + time.expert)
    head = float(work.head.arithmetic / point.clock + work.head.elementwise)
    layer = (kernels * ranks / microbatches - head) / LAYERS
    stages = np.full(ranks * chunks, layer * LAYERS / (ranks * chunks))
    stages[-1] += head
    # Who sends is busy for the exposed half: forward but for the last stage, backward but for the first.
    crossed = 2 * (ranks * chunks - (2 if schedule == "zb-v" else 1))
    hop = float(time.pipeline) * ranks / microbatches / crossed if ranks > 1 else 0.0
    third = stages / 3.0
    sent = np.arange(ranks * chunks)
    turns = chunks == 2 and schedule == "zb-v"
    forward = third + hop * ((sent < ranks * chunks - 1) & ~(turns & (sent == ranks - 1)))
    backward = third + hop * ((sent > 0) & ~(turns & (sent == ranks)))
    step = simulate_pipeline(schedule, ranks, microbatches, chunks, PassTimes(forward, backward, third))
    simulated = step.period if schedule in ("zb-h2", "zb-v") else step.time
    np.testing.assert_allclose(kernels + float(time.pipeline + time.bubble), simulated, rtol=0.01)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=str)
def test_memory_is_that_of_the_simulated_schedule(system, pipeline):
    schedule, ranks, chunks, microbatches = pipeline
    plan = plan_of(pipeline)
    offloaded = replaced(plan, {"layout.offload_activations": 1.0})
    division = published(system, plan)[0].division
    held = chip_memory(system, plan, division)
    without = chip_memory(system, offloaded, division)
    result = float((held.total - without.total) / system.software.memory_overhead)
    logits = 8.0 * float(division.tokens) * 128256.0 / 8.0 * (microbatches if schedule == "gpipe" else 1)
    sizes = float(held.activations) * LAYERS / (ranks * chunks)
    of_ranks = simulate_pipeline(schedule, ranks, microbatches, chunks, sizes=sizes).held
    last = 0 if schedule in ("zb-v", "dualpipe") else -1
    of_ranks[last] += logits
    np.testing.assert_allclose(result, of_ranks.max(), rtol=0.01)


def test_dualpipe_keeps_two_stages_on_a_rank(system):
    plain, dual = plan_of(("1f1b", 16, 1, 64)), plan_of(("dualpipe", 16, 1, 64))
    parts = [chip_memory(system, plan, published(system, plan)[0].division).shard for plan in (plain, dual)]
    embedding = 128256.0 * 16384.0 / 8.0
    blocks = [float(part.dense) - count * embedding for part, count in zip(parts, (1.0, 2.0), strict=True)]
    np.testing.assert_allclose(blocks[1], 2.0 * blocks[0], rtol=1e-12)
    assert parts[1].dense_ranks == 2.0 * parts[0].dense_ranks


def test_evaluate_refuses_known_numbers_and_takes_traced_ones():
    plan = replaced(CASE.plan, {"batch": 5.0 * 128.0 * SEQUENCE})
    with pytest.raises(InputError, match="5 micro-batches for each replica"):
        evaluate(CASE.system, plan)
    traced = Compiled.__call__(evaluate_once, CASE.system, plan)
    # At most 5 of 16 ranks work.
    assert float(traced.step_time.bubble) > (16.0 / 5.0 - 1.0) * float(traced.step_time.compute)


CHANGES = {"system.software": "megatron", "system.software.empty_slots": 2, "plan.layout.zero": 1}
CUT_LAYERS, RANKS, TENSOR, MICROBATCHES = 120.0, 8, 8, 32


@pytest.fixture(scope="module")
def megatron():
    """Llama 3.1 405B with 120 layers on Megatron-LM, whose hops between ranks take no time."""
    case = load_scenario("llama-3.1-405b-h100", CHANGES).system
    return replaced(case, {"workload.layers": CUT_LAYERS, "software.pipeline_overlap": 1.0})


def cut_plan(first, last, chunks=1):
    layout = {"pipeline": RANKS, "virtual_stages": chunks, "tensor": TENSOR, "shard_gradients": 0}
    layout |= {"first_stage_layers": first, "last_stage_layers": last}
    numbers = {"chips": RANKS * TENSOR * 16, "batch": 16 * MICROBATCHES * SEQUENCE}
    return replaced(CASE.plan, numbers | {f"layout.{name}": value for name, value in layout.items()})


def step_of(megatron, plan):
    batch = plan.batch[0]
    work = step_work(megatron, plan, batch)
    point = operating_point(megatron, plan, work.coolant, work.load, sum(work.traffic.exposed))
    return work, step_time(megatron, plan, work, point, pass_times(megatron, plan, work, point))


@pytest.mark.parametrize(
    ("case", "expected"),
    [  # 61 layers of DeepSeek-V3 on 16 ranks, 4 on the first and 1 on the last: 56 on 14 others
        ((61.0, 16.0, 4.0, 1.0), (4.0, 4.0, 1.0)),
        ((61.0, 16.0, 0.0, 1.0), (4.0, 4.0, 1.0)),
        ((62.0, 8.0, 6.0, 0.0), (6.0, 8.0, 8.0)),
    ],
)
def test_layers_by_hand(case, expected):
    assert uneven_stage_layers(*case) == expected
    assert uneven_stage_layers(*case).fullest == max(expected)


@pytest.mark.parametrize(("first", "last", "chunks"), [(12, 12, 1), (14, 10, 1), (18, 12, 1), (12, 12, 2), (0, 8, 1)])
def test_the_step_is_that_of_the_simulation(first, last, chunks, megatron):
    with jax.enable_x64(True):
        plan = cut_plan(first, last, chunks)
        work, time = step_of(megatron, plan)
        cut = uneven_stage_layers(CUT_LAYERS, float(RANKS), float(first), float(last))
        # The mean rank works as long as an eighth of all layers and of the output head, which is on the last.
        busy = float(time.compute + time.memory + time.host + time.tensor)
        head = work.head.arithmetic / plan.clock + work.head.elementwise
        layer = (RANKS * busy / MICROBATCHES - float(head)) / CUT_LAYERS
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
def test_the_fullest_rank_has_what_the_simulation_holds(first, last, chunks, megatron):
    with jax.enable_x64(True):
        plan = cut_plan(first, last, chunks)
        memory = chip_memory(megatron, plan, step_of(megatron, plan)[0].division)
    cut = uneven_stage_layers(CUT_LAYERS, float(RANKS), float(first), float(last))
    ranks = np.asarray([float(cut.first), *[float(cut.middle)] * (RANKS - 2), float(cut.last)])
    sizes = np.tile(ranks / chunks, chunks)
    run = simulate_pipeline("1f1b", RANKS, MICROBATCHES, chunks, PassTimes(), sizes)
    workload, software, tokens = megatron.workload, megatron.software, 8192.0
    weights = float(workload.sizes().replicated) / CUT_LAYERS * ranks
    table = float(workload.vocabulary * workload.hidden)
    weights[0] += table
    weights[-1] += table
    states = (2.0 + 4.0 + 12.0 / 16.0) * weights / TENSOR
    held = run.held * float(memory.activations)
    logits = 4.0 * tokens * float(workload.vocabulary) / TENSOR
    expected = states + held
    expected[-1] += logits
    own = (float(memory.total) - float(reserved_memory(megatron, plan))) / float(software.memory_overhead)
    np.testing.assert_allclose(own, np.max(expected) + 4.0 * table / TENSOR, rtol=1e-3)


def test_equal_ends_are_no_cut(megatron):
    with jax.enable_x64(True):
        even, cut = (step_of(megatron, cut_plan(*ends)) for ends in ((0, 0), (15, 15)))
    np.testing.assert_allclose(cut[1].total, even[1].total, rtol=1e-6)
    np.testing.assert_allclose(cut[0].memory.shard.dense, even[0].memory.shard.dense, rtol=1e-12)


CUT_ROW = {"cluster": "megatron-a100", "model": "llama-2-70b", "chips": 64, "batch_sequences": 64, "tensor": 8}


def test_a_table_may_cut_the_ends_as_can_be():
    own = cluster_scenario("megatron-a100").system
    cut = {"first_stage_layers": 17, "last_stage_layers": 9}
    heavy, even = (prediction(own, row_inputs(CUT_ROW, pipeline=8, **changes)) for changes in (cut, {}))
    # The slowest rank has 17 layers instead of 10, for 8 micro-batches.
    assert heavy.step_time.bubble > even.step_time.bubble + 7.0 / 10.0 * 0.5 * even.step_time.compute
    assert heavy.memory > even.memory
    with pytest.raises(InputError, match=r"first_stage_layers = 81 do not cut 80 layers over 8 pipeline"):
        row_inputs(CUT_ROW, pipeline=8, first_stage_layers=81)
    with pytest.raises(InputError, match="over 1 pipeline ranks"):
        row_inputs(CUT_ROW, last_stage_layers=8)


def test_the_first_rank_has_the_embedding_in_the_place_of_a_layer(megatron):
    """126 layers on 8 ranks of 16: two slots are empty. A middle rank has 16 layers, the first 15 and the embedding."""
    own = replaced(megatron, {"workload.layers": 126.0})
    plan = cut_plan(0, 0)
    balanced = replaced(plan, {"layout.embedding_balanced": 1.0})
    with jax.enable_x64(True):
        usual, less = (float(step_of(own, single)[0].memory.shard.dense) * TENSOR for single in (plan, balanced))
    layer, table = float(own.workload.sizes().replicated) / 126.0, float(own.workload.vocabulary) * 16384.0
    np.testing.assert_allclose(usual, 16.0 * layer + table, rtol=1e-9)
    np.testing.assert_allclose(less, max(16.0 * layer, 15.0 * layer + table), rtol=1e-9)
