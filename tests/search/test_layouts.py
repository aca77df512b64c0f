"""Pipelines that a framework runs, in the lattice of layouts and in rounded counts."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.problem import formulate
from energymodel.search.rounding import at_counts, nearby_counts
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import FIELDS, candidates, fastest_layout
from energymodel.system.plan import SCHEDULES
from energymodel.system.plan_rules import OF_STAGES, stage_fault

SCENARIOS = ["llama-3.1-405b-h100", "llama-3.1-70b-b200", "deepseek-v3-h800", "gpt3-175b-h100"]


def lattice_of(name, changes=(), ranges=None):
    scenario = load_scenario(name, changes)
    lattice = candidates(scenario.system, scenario.plan.layout, float(scenario.plan.chips), ranges)
    stages = np.stack([np.asarray(getattr(lattice, field)) for field in OF_STAGES], axis=1)
    return scenario, [dict(zip(OF_STAGES, map(float, row), strict=True)) for row in np.unique(stages, axis=0)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_layout_has_stages_that_run(name):
    scenario, stages = lattice_of(name)
    assert [stage_fault(scenario.system, stage) for stage in stages] == [None] * len(stages)
    layers, spare = float(scenario.system.workload.layers), float(scenario.system.software.empty_slots)
    for stage in stages:
        slots = stage["pipeline"] * stage["virtual_stages"]
        assert np.ceil(layers / slots) * slots - layers <= spare
    assert len({stage["pipeline"] for stage in stages}) > 3


def test_a_list_of_values_is_all_that_a_field_takes():
    scenario = load_scenario("gpt3-175b-h100")
    asked = scenario.with_question(
        vary=["plan.layout.pipeline=8, 1", "plan.layout.microbatch=1,3", "plan.layout.fp8=0,1"]
    )
    ranges = {path.removeprefix("plan.layout."): values for path, values in asked.optimize.vary.items()}
    lattice = candidates(scenario.system, scenario.plan.layout, float(scenario.plan.chips), ranges)
    taken = {name: set(getattr(lattice, name).tolist()) for name in ranges}
    assert taken == {"pipeline": {1.0, 8.0}, "microbatch": {1.0, 3.0}, "fp8": {0.0, 1.0}}
    again = load_scenario(asked.tables)  # as a file of it reads
    assert again.optimize.vary == asked.optimize.vary


def test_equal_stages_divide_the_layers():
    _, stages = lattice_of("llama-3.1-70b-b200")
    assert all(80.0 % (stage["pipeline"] * stage["virtual_stages"]) == 0.0 for stage in stages)


def test_a_stated_number_of_slots_may_stay_empty():
    _, stages = lattice_of("llama-3.1-70b-b200", ["system.software.empty_slots=1"])
    assert any(stage["pipeline"] == 3.0 and stage["virtual_stages"] == 27.0 for stage in stages)


@pytest.mark.parametrize(("software", "most"), [("automodel", 1.0), ("torchtitan", 8.0)])
def test_experts_are_not_divided_by_tensors_where_the_software_cannot(software, most):
    changes = [f"system.software={software}", "plan.layout.zero=1"]
    for name, degree in (("deepseek-v3-h800", most), ("llama-3.1-405b-h100", 8.0)):
        scenario = load_scenario(name, changes)
        lattice = candidates(scenario.system, scenario.plan.layout, float(scenario.plan.chips))
        assert np.max(lattice.tensor) == degree


def test_a_given_layout_without_a_tensor_group_is_a_single_one():
    scenario = load_scenario("llama-3.1-70b-b200", ["plan.layout.tensor=1", "plan.chips=512"])
    ranges = {name: (value, value) for name in FIELDS[:6] for value in [float(getattr(scenario.plan.layout, name))]}
    lattice = candidates(scenario.system, scenario.plan.layout, float(scenario.plan.chips), ranges)
    assert np.all(np.asarray(lattice.sequence_parallel) == float(scenario.plan.layout.sequence_parallel))


def test_torchtitan_places_any_number_of_layers_on_stages_that_hold_something():
    system = load_scenario("deepseek-v3-h800", ["system.software=torchtitan"]).system
    stages = dict.fromkeys(OF_STAGES, 0.0)
    # 61 layers on 32 stages of two leave 3 slots empty.
    assert stage_fault(system, stages | {"pipeline": 4.0, "virtual_stages": 8.0}) is None
    assert "leave 67 of" in str(stage_fault(system, stages | {"pipeline": 64.0, "virtual_stages": 2.0}))


def test_schedules_that_vary_keep_their_virtual_stages():
    ranges = {"zero_bubble": (0.0, 1.0), "zero_bubble_v": (0.0, 1.0)}
    scenario, stages = lattice_of("llama-3.1-70b-b200", ranges=ranges)
    assert [stage_fault(scenario.system, stage) for stage in stages] == [None] * len(stages)
    for name, chunks in (("zero_bubble", 1.0), ("zero_bubble_v", 2.0)):
        chosen = [stage for stage in stages if stage[name] and stage["pipeline"] > 1.0]
        assert chosen
        assert all(stage["virtual_stages"] == chunks for stage in chosen)
    assert all(sum(stage[name] for name in SCHEDULES) <= 1.0 for stage in stages)


def test_the_fastest_layout_fits_and_takes_the_time_that_it_promises():
    times, fitting = [], []
    for memory in ("80 GB", "16 GB"):
        scenario = load_scenario("test-1b-h100", [f"system.accelerator.memory_capacity={memory}"])
        system, plan = scenario.system, scenario.plan
        best = fastest_layout(system, plan)
        outcome = evaluate_once(system, eqx.tree_at(lambda plan: plan.layout, plan, best.layout))
        np.testing.assert_allclose(outcome.step_time.total, best.step_time, rtol=1e-9)
        assert float(outcome.out_of_memory) <= 0.05 * (1.0 + 1e-6)
        times.append(best.step_time)
        fitting.append(best.fitting)
    assert times[0] <= float(evaluate_once(system, plan).step_time.total)
    assert times[0] < times[1]
    assert fitting[0] > fitting[1]


def test_replicas_divide_a_batch_that_is_fixed():
    # 384 sequences of 2,048 tokens, one chip a replica, nodes of 8 chips: 8, 16, 24 and 32 divide 384.
    changes = ["plan.chips=40", "plan.batch=786432 token", "plan.layout.microbatch=1"]
    scenario = load_scenario("test-1b-h100", changes).with_question(fix=["plan.batch"])
    problem = formulate(scenario, evaluate_once(scenario.system, scenario.plan))
    lattice = jax.tree.map(lambda leaf: np.array([leaf]), scenario.plan.layout)
    point = np.array([np.log(problem.start(path)) for path in problem.formulation.paths])
    counts = nearby_counts(problem, lattice, 0, point, 3)
    assert [(of.data, of.microbatches) for of in counts] == [(16, 24), (24, 16), (32, 12)]
    blocks = formulate(scenario.with_question(block="16"), evaluate_once(scenario.system, scenario.plan))
    assert [of.data for of in nearby_counts(blocks, lattice, 0, point, 3)] == [16, 32]


def test_counts_of_the_system_are_whole():
    lanes, ranges = "system.network.link.lanes", {"system.network.link.lanes": (4, 6), "plan.spares": (0, 3.5)}
    scenario = load_scenario("test-1b-h100").with_question(vary=ranges)
    problem = formulate(scenario, evaluate_once(scenario.system, scenario.plan))
    assert set(problem.counts) == set(ranges)  # neither clock nor coolant
    lattice = jax.tree.map(lambda leaf: np.array([leaf]), scenario.plan.layout)
    values = {path: problem.start(path) for path in problem.formulation.paths} | {lanes: 4.3, "plan.spares": 3.2}
    point = np.array([problem.formulation.coordinate(path, value) for path, value in values.items()])
    trials = nearby_counts(problem, lattice, 0, point, 1)[:1]
    trials = [trials[0]._replace(up=up) for up in (False, True)]
    fixed = at_counts(problem, lattice, trials, np.stack([point, point]))
    found = [problem.values_at(start, scenario.plan) for start in fixed.start]
    assert [(of[lanes], of["plan.spares"]) for of in found] == [(4.0, 3.0), (5.0, 3.0)]
    for side in fixed.bounds:
        np.testing.assert_array_equal(side[:, problem.index(lanes)], np.log([4.0, 5.0]))
    again = at_counts(problem, lattice, trials, fixed.start)  # what is whole stays
    np.testing.assert_array_equal(again.start, fixed.start)


def test_a_layout_that_nobody_gave_leaves_time():
    scenario = load_scenario("test-1b-h100")
    baseline = evaluate_once(scenario.system, scenario.plan)
    chosen = dataclasses.replace(scenario, chosen=("layout",))
    times = [formulate(asked, baseline).limits["time"] for asked in (scenario, chosen)]
    np.testing.assert_allclose(np.array(times) / float(baseline.time), [1.0, 1.05])


def test_own_chips_are_whole_blocks():
    # 36 chips are four and a half nodes of 8: blocks have 4 chips.
    scenario = load_scenario("test-1b-h100", ["plan.chips=36", "plan.batch=589824 token"])
    problem = formulate(scenario, evaluate_once(scenario.system, scenario.plan))
    lattice = jax.tree.map(lambda leaf: np.array([leaf]), scenario.plan.layout)
    point = np.array([np.log(problem.start(path)) for path in problem.formulation.paths])
    assert {of.data for of in nearby_counts(problem, lattice, 0, point, 2)} == {32, 36}


@pytest.mark.parametrize(
    ("block", "fix", "words"),
    [
        ("8", ["plan.chips"], "block: 8, but plan.chips is fixed"),
        (64, [], "block: 64 chips are more than the 8 that there may be"),
        ("-8", [], "block: '-8' is not a whole number of chips"),
        ("7.5", [], "is not a whole number of chips"),
    ],
)
def test_what_is_no_block_is_refused(block, fix, words):
    scenario = load_scenario("test-1b-h100")
    with pytest.raises(InputError, match=words):
        formulate(scenario.with_question(fix=fix, block=block), evaluate_once(scenario.system, scenario.plan))


@pytest.mark.parametrize("whole_groups", [0, 1])
def test_counts_near_an_optimum_are_those_that_the_schedule_takes(whole_groups):
    scenario = load_scenario("llama-3.1-405b-h100", [f"system.software.whole_groups={whole_groups}"])
    problem = formulate(scenario, evaluate_once(scenario.system, scenario.plan))
    lattice = candidates(problem.run.system, problem.run.plan.layout, float(scenario.plan.chips))
    index = problem.index("plan.batch")
    point = np.zeros(len(problem.formulation.paths))
    for path in problem.formulation.paths:
        point[problem.index(path)] = np.log(problem.start(path))
    ranks_seen, others_seen = set(), set()  # pipelines of which the micro-batches are a multiple, and not
    for batch in (8.3e6, 16.8e6, 40e6):
        point[index] = np.log(batch)
        for lane in range(0, len(lattice.tensor), 97):
            ranks, chunks = float(lattice.pipeline[lane]), float(lattice.virtual_stages[lane])
            for counts in nearby_counts(problem, lattice, lane, point, 3):
                assert counts.microbatches >= 1
                if chunks > 1.0:
                    (others_seen if counts.microbatches % ranks else ranks_seen).add(ranks)
    assert len(ranks_seen) > 3
    assert bool(others_seen) == (not whole_groups)


def test_a_range_without_a_pipeline_that_runs_is_refused():
    with pytest.raises(InputError, match="no layout has pipeline 3 to 3"):
        lattice_of("llama-3.1-70b-b200", ranges={"pipeline": (3.0, 3.0)})
