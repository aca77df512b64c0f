"""Searches of a batch along the run and of power by stage: limits, savings, refusals."""

import shlex

import equinox as eqx
import numpy as np
import pytest

from cli.shell import numbers, run, run_json
from energymodel.errors import InputError
from energymodel.report.answers.search_parts import evaluate_command, refinement_sentence
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.optimize import optimize
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan import TargetLoss

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def both():
    scenario = load_scenario(SMALL)
    return optimize(scenario, tolerance=0.0), optimize(scenario, vary=["plan.batch@0..1:5"], tolerance=0.0)


@pytest.mark.slow
def test_a_schedule_saves_beside_the_best_constant_batch(both):
    constant, optimum = both
    assert optimum.success
    assert len(optimum.refinements) == 1
    assert optimum.refinements[0].converged
    assert optimum.value < constant.value
    assert optimum.refinements[0].saving == pytest.approx(constant.value - optimum.value, rel=1e-6)
    # docs/physics.md A0.12: it grows with the critical batch, and saves a few percent at most.
    batch = np.asarray(optimum.plan.batch)
    assert np.all(np.diff(batch) >= 0.0)
    assert batch[0] < float(np.ravel(constant.plan.batch)[0]) < batch[-1]
    assert 0.001 < optimum.refinements[0].saving / constant.value < 0.05
    assert sum(optimum.saving.values()) == pytest.approx(optimum.baseline_value - optimum.value, rel=1e-9)


@pytest.mark.slow
def test_it_keeps_the_limits_and_has_whole_micro_batches(both):
    optimum = both[1]
    outcome = evaluate_once(optimum.scenario.system, optimum.plan)
    assert float(outcome.energy.total) == pytest.approx(optimum.value, rel=1e-9)
    assert float(outcome.time) <= optimum.limits["time"] * (1 + 1e-6)
    assert float(outcome.loss) == pytest.approx(optimum.limits["loss"], rel=1e-9)
    layout = optimum.plan.layout
    replicas = float(optimum.plan.chips / (layout.tensor * layout.pipeline * layout.context))
    unit = replicas * float(layout.microbatch) * float(optimum.scenario.system.workload.sequence)
    counts = np.asarray(optimum.plan.batch) / unit
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)


@pytest.mark.slow
def test_the_printed_command_evaluates_the_plan(both):
    command = shlex.split(evaluate_command(both[1]))
    printed = run_json(*command[1:])
    assert numbers(printed)["energy"] == pytest.approx(both[1].value, rel=1e-8)
    assert "beside the best plan with a batch of" in refinement_sentence(both[1], both[1].refinements[0]).words


@pytest.fixture(scope="module")
def question():
    # 61 layers on 7 stages: the first has 8 layers, those between 9, the last 8 and the head.
    layout = {"tensor": 2, "pipeline": 7, "expert": 16, "virtual_stages": 1, "microbatch": 1, "recompute_attention": 0}
    fixed = [f"plan.layout.{name}={value}" for name, value in layout.items()]
    scenario = load_scenario("deepseek-v3-h800", ["plan.chips=2016", "plan.batch=21233664 token", *fixed])
    fixed_paths = tuple(f"plan.layout.{name}" for name in layout)
    return scenario.with_question(vary=["plan.power.*"], fix=fixed_paths, tolerance=0.0)


@pytest.fixture(scope="module")
def staged(question):
    return optimize(question)


@pytest.mark.slow
def test_power_by_stage_saves_where_a_stage_has_less_work(staged):
    assert staged.success
    (power,) = staged.refinements
    assert len(power.added.stages) == 3
    assert power.converged
    assert 0.002 < power.saving / staged.value < 0.05  # what clocks by rank save, docs/design_search.md
    caps = staged.plan.power
    assert float(caps.first_stage) < float(caps.middle_stages)
    assert float(evaluate_once(staged.scenario.system, staged.plan).time) <= staged.limits["time"] * (1 + 1e-6)


@pytest.mark.slow
def test_no_cap_of_a_stage_could_be_better(staged):
    for name in ("first_stage", "middle_stages", "last_stage"):
        for factor in (0.98, 1.02):
            plan = eqx.tree_at(
                lambda plan, name=name: getattr(plan.power, name),
                staged.plan,
                getattr(staged.plan.power, name) * factor,
            )
            plan = eqx.tree_at(lambda plan: plan.goal, plan, TargetLoss(staged.limits["loss"]))
            moved = evaluate_once(staged.scenario.system, plan)
            late = float(moved.time) > staged.limits["time"]
            assert late or float(moved.energy.total) > staged.value * (1.0 - 2e-6)


@pytest.mark.slow
def test_both_together_are_at_least_as_good_as_each(question, staged):
    optimum = optimize(question, vary=["plan.batch@0..1:3"])
    schedule, power, joint = optimum.refinements
    assert (schedule.added.knots, schedule.added.stages, power.added.knots, len(power.added.stages)) == (3, (), 0, 3)
    assert power.saving == pytest.approx(staged.refinements[0].saving, rel=1e-6)
    assert joint.saving >= max(schedule.saving, power.saving)
    assert optimum.value <= staged.value * (1.0 + 1e-9)


@pytest.mark.parametrize(
    "command", [["pareto", SMALL], ["sensitivity", SMALL, "--optimum"], ["optimize", SMALL, "--vary", "model.*"]]
)
@pytest.mark.parametrize("option", ["plan.power.*", "plan.batch@0..1"])
def test_searches_that_do_not_refine_refuse_schedules_and_power_by_stage(command, option):
    result = run(*command, "--vary", option)
    assert result.exit_code == 2
    assert "only optimize lets it vary" in result.stderr


def test_a_plan_with_a_schedule_is_searched_with_one():
    own = load_scenario(SMALL, [f"plan.batch=[{', '.join(['262144 token'] * 5)}]"])
    with pytest.raises(InputError, match=r"plan\.batch: it has 5 knots, .*--vary plan\.batch@0\.\.1"):
        optimize(own)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("plan.chips@0..1", "only plan.batch follows the progress"),
        ("plan.batch@0..1:one", "give the knots as @0..1:8"),
        ("plan.batch@0..1:1", "1 make no schedule"),
        ("plan.batch@0..1:33", "Give 2 to 32"),
        ("plan.batch@0..1=4 Mi token", "is not a range"),
    ],
)
def test_bad_schedules_are_refused(asked, message):
    result = run("optimize", SMALL, "--vary", asked)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_range_bounds_every_knot_and_the_question_is_kept():
    scenario = load_scenario(SMALL).with_question(vary=["plan.batch@0..1:4=100 k token:200 k token"])
    assert scenario.optimize.knots == 4
    assert scenario.optimize.vary["plan.batch"] == (1e5, 2e5)
    assert load_scenario({**scenario.tables, "name": SMALL}).optimize == scenario.optimize
    with pytest.raises(InputError, match=r"fix: plan\.batch is to vary"):
        load_scenario(SMALL).with_question(vary=["plan.batch@0..1"], fix=["plan.batch"])
