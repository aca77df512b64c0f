"""Does a plan take the time and memory that a simulation of its pipeline takes, and is one that cannot run refused?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.performance.pipeline_simulator import PassTimes, simulate_pipeline
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate
from energymodel.system.memory import chip_memory
from energymodel.system.operating_point import operating_point
from energymodel.system.plan import ParallelLayout
from energymodel.system.step import step_time, step_work

SWITCH = {"gpipe": "gpipe", "zb-h1": "zero_bubble", "zb-h2": "zero_bubble_h2", "zb-v": "zero_bubble_v"}
SWITCH |= {"dualpipe": "dual_pipe"}
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
    given = load_scenario("llama-3.1-405b-h100").system
    return eqx.tree_at(
        lambda system: (system.workload.layers, system.software.whole_groups),
        given,
        (np.asarray(LAYERS), np.asarray(0.0)),
    )


def plan_of(pipeline):
    schedule, ranks, chunks, microbatches = pipeline
    plan = load_scenario("llama-3.1-405b-h100").plan
    chips = 8.0 * ranks * 64.0
    changes = {"pipeline": ranks, "virtual_stages": chunks} | ({SWITCH[schedule]: 1.0} if schedule in SWITCH else {})
    layout = plan.layout
    for name, value in changes.items():
        layout = eqx.tree_at(lambda one, name=name: getattr(one, name), layout, np.asarray(float(value)))
    batch = np.asarray(64.0 * microbatches * SEQUENCE)
    return eqx.tree_at(lambda plan: (plan.layout, plan.chips, plan.batch), plan, (layout, np.asarray(chips), batch))


@eqx.filter_jit
def stated(system, plan):
    work = step_work(system, plan, jnp.reshape(plan.batch, ()))
    point = operating_point(system, plan, work.coolant, work.load)
    return work, step_time(system, plan, work, point), point


@pytest.mark.parametrize("pipeline", PIPELINES, ids=str)
def test_step_time_is_that_of_the_simulated_schedule(system, pipeline):
    schedule, ranks, chunks, microbatches = pipeline
    work, time, point = stated(system, plan_of(pipeline))
    kernels = float(time.compute + time.memory + time.host + time.tensor + time.context + time.expert)
    head = float(work.head.time / point.clock + work.layer.head_bytes / system.accelerator.sustained_bandwidth)
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
    offloaded = eqx.tree_at(lambda plan: plan.layout.offload_activations, plan, np.asarray(1.0))
    division = stated(system, plan)[0].division
    held = chip_memory(system, plan, division)
    without = chip_memory(system, offloaded, division)
    found = float((held.total - without.total) / system.software.memory_overhead)
    logits = 8.0 * float(division.tokens) * 128256.0 / 8.0 * (microbatches if schedule == "gpipe" else 1)
    sizes = float(held.activations) * LAYERS / (ranks * chunks)
    of_ranks = simulate_pipeline(schedule, ranks, microbatches, chunks, sizes=sizes).held
    last = 0 if schedule in ("zb-v", "dualpipe") else -1
    of_ranks[last] += logits
    np.testing.assert_allclose(found, of_ranks.max(), rtol=0.01)


def test_dualpipe_keeps_two_stages_on_a_rank(system):
    plain, dual = plan_of(("1f1b", 16, 1, 64)), plan_of(("dualpipe", 16, 1, 64))
    parts = [chip_memory(system, plan, stated(system, plan)[0].division).shard for plan in (plain, dual)]
    embedding = 128256.0 * 16384.0 / 8.0
    blocks = [float(part.dense) - count * embedding for part, count in zip(parts, (1.0, 2.0), strict=True)]
    np.testing.assert_allclose(blocks[1], 2.0 * blocks[0], rtol=1e-12)
    assert parts[1].dense_ranks == 2.0 * parts[0].dense_ranks


REFUSED = [
    (["plan.layout.virtual_stages=16"], "leave 130 of pipeline 16 x virtual stages 16 = 256 slots empty"),
    (["plan.layout.virtual_stages=4", "plan.layout.pipeline=31", "plan.chips=15872"], "allows 2"),
    (["plan.batch=20 Mi tokens"], "in groups of 16 pipeline ranks"),
    (
        ["plan.batch=15 Mi tokens"],
        "15 micro-batches for each replica, but an interleaved schedule of 16 ranks needs 16",
    ),
    (["plan.layout.virtual_stages=1", "plan.batch=16.5 Mi tokens"], "16.5 micro-batches .* whole micro-batches"),
    (["plan.layout.schedule=zb-h1"], "virtual_stages: 8, but ZB-H1 has 1 on each rank"),
    (["plan.layout.schedule=zb-v"], "virtual_stages: 8, but ZB-V has 2 on each rank"),
    (["plan.layout.schedule=dualpipe", "plan.layout.virtual_stages=1"], "DualPipe on 16 ranks needs 32"),
    (
        ["plan.layout.zero_bubble=1", "plan.layout.gpipe=1"],
        "gpipe = 1 and zero_bubble = 1, but a pipeline has one schedule",
    ),
    (["plan.layout.schedule=2f2b"], 'plan.layout.schedule: unknown "2f2b"'),
    (["plan.layout.pipeline=1"], "8 on one pipeline rank, which has nothing to interleave"),
    (["system.software.empty_slots=0"], "the framework needs equal stages"),
    (["system.software.balanced_stages=1"], "do not interleave"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[" ".join(changes) for changes, _ in REFUSED])
def test_pipelines_that_cannot_run_are_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        load_scenario("llama-3.1-405b-h100", ["system.software.whole_groups=1", *changes])


def test_odd_ranks_have_no_dualpipe():
    changes = [
        "plan.layout.schedule=dualpipe",
        "plan.layout.virtual_stages=1",
        "plan.layout.pipeline=7",
        "plan.chips=14336",
    ]
    with pytest.raises(InputError, match="7 ranks, but DualPipe pairs ranks"):
        load_scenario("llama-3.1-405b-h100", [*changes, "plan.batch=32 Mi tokens"])


def test_equal_stages_refuse_81_slots_for_80_layers():
    changes = ["plan.layout.pipeline=3", "plan.layout.virtual_stages=27", "plan.chips=1536"]
    with pytest.raises(InputError, match="80 layers leave 1 of pipeline 3 x virtual stages 27 = 81 slots empty"):
        load_scenario("llama-3.1-70b-b200", changes)


def test_any_number_of_groups_needs_at_least_the_ranks():
    changes = ["system.software.whole_groups=0", "plan.batch=20 Mi tokens"]
    assert load_scenario("llama-3.1-405b-h100", changes).plan.batch == 20.0 * 2**20
    with pytest.raises(InputError, match="interleaved schedule of 16 ranks needs 16"):
        load_scenario("llama-3.1-405b-h100", [*changes, "plan.batch=12 Mi tokens"])


def test_evaluate_refuses_known_numbers_and_takes_traced_ones():
    scenario = load_scenario("llama-3.1-405b-h100")
    plan = eqx.tree_at(lambda plan: plan.batch, scenario.plan, np.asarray(5.0 * 128.0 * SEQUENCE))
    with pytest.raises(InputError, match="5 micro-batches for each replica"):
        evaluate(scenario.system, plan)
    traced = jax.jit(evaluate)(scenario.system, plan)
    # At most 5 of 16 ranks work.
    assert float(traced.step_time.bubble) > (16.0 / 5.0 - 1.0) * float(traced.step_time.compute)


def test_a_layout_that_states_nothing_divides_nothing():
    layout = ParallelLayout()
    for name in ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch"):
        assert getattr(layout, name) == 1.0
