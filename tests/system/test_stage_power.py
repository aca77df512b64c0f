"""Power caps by pipeline stage: the uniform limit, the slowest rank, gradients, and the simulation of the schedule."""

import equinox as eqx
import jax
import numpy as np
import pytest

from compiled_once import derivative_once
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.pipeline import step_timeline
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan import EvenPower, StagePower
from energymodel.system.step import training_step

DEEPSEEK, LLAMA = "deepseek-v3-h800", "llama-3.1-405b-h100"
ONE_CHUNK = ("plan.layout.virtual_stages=1",)


def with_caps(plan, *caps):
    return eqx.tree_at(lambda one: one.power, plan, StagePower(*caps))


OF_EACH_RANK = ("swing", "ramp", "temperature_", "power_peak", "chilled_heat", "facility_power", "supplies")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (LLAMA, []),
        (LLAMA, ONE_CHUNK),
        (DEEPSEEK, []),
        (DEEPSEEK, ["plan.layout.schedule=dualpipe"]),
        ("test-1b-h100", []),
        ("test-1b-h100", ["plan.layout.pipeline=2"]),
        ("test-1b-h100", ["plan.layout.pipeline=4", "plan.layout.last_stage_layers=1"]),
    ],
)
def test_equal_caps_are_one_cap(name, changes):
    scenario = load_scenario(name, changes)
    system, plan = scenario.system, eqx.tree_at(lambda one: one.power_cap, scenario.plan, 330.0)
    even, staged = evaluate_once(system, plan), evaluate_once(system, with_caps(plan, 330.0, 500.0, 330.0))
    # The cap of the plan binds everywhere. Swings of power and temperature are those of the mean rank, a little other;
    # the peak of each rank is at least its own mean, and with it what the building must carry away.
    for (path, value), other in zip(jax.tree_util.tree_leaves_with_path(staged), jax.tree.leaves(even), strict=True):
        close = 3e-3 if any(word in jax.tree_util.keystr(path) for word in OF_EACH_RANK) else 1e-9
        np.testing.assert_allclose(value, other, rtol=close, atol=1e-12, err_msg=jax.tree_util.keystr(path))


def test_a_rank_with_less_work_draws_less_power_at_no_cost_of_time():
    scenario = load_scenario(DEEPSEEK)  # the first rank has 3 layers, those between have 4
    own, slower, slowest = (
        evaluate_once(scenario.system, with_caps(scenario.plan, *caps))
        for caps in ((700.0, 700.0, 700.0), (330.0, 700.0, 700.0), (700.0, 330.0, 700.0))
    )
    assert float(slower.time / own.time) == pytest.approx(1.0, abs=5e-4)
    assert float(slower.energy.total / own.energy.total) < 0.995
    assert float(slowest.time / own.time) > 1.05
    assert float(slowest.temperature) == pytest.approx(float(own.temperature), rel=1e-3)  # of the hottest chip


@pytest.mark.parametrize("name", [LLAMA, DEEPSEEK])
@pytest.mark.parametrize("caps", [(700.0, 300.0, 700.0), (700.0, 700.0, 300.0), (400.0, 330.0, 380.0)])
def test_the_step_is_that_of_the_simulated_schedule(name, caps):
    scenario = load_scenario(name)
    timeline = step_timeline(scenario.system, with_caps(scenario.plan, *caps))
    assert timeline.closed_form_time == pytest.approx(timeline.pipeline_time, rel=0.02)


def test_gradients_by_the_caps_are_right():
    scenario = load_scenario(LLAMA)
    with jax.enable_x64(True):

        def energy_per_step(caps):
            step = training_step(scenario.system, with_caps(scenario.plan, *caps), scenario.plan.batch[0])
            return step.power.total * step.time.total

        caps = np.array([450.0, 500.0, 480.0])
        gradient = derivative_once(jax.grad, energy_per_step, caps)
        for place in range(3):
            change = 1e-3 * np.eye(3)[place]
            slope = (energy_per_step(caps + change) - energy_per_step(caps - change)) / 2e-3
            assert float(gradient[place]) == pytest.approx(float(slope), rel=1e-5)


def test_a_file_names_the_stages_that_differ():
    scenario = load_scenario(LLAMA, ["plan.power.last_stage=500 W"])
    assert scenario.plan.power == StagePower(700.0, 700.0, 500.0)
    assert load_scenario({**scenario.tables, "name": LLAMA}).plan.power == scenario.plan.power
    assert load_scenario(LLAMA).plan.power == EvenPower()
    assert provenance_unit(scenario) == "W"
    varied = load_scenario(LLAMA).with_question(vary=["plan.power.*"])
    assert varied.optimize.vary["plan.power.middle_stages"] == (pytest.approx(210.0), 700.0)
    assert varied.plan.power == StagePower(700.0, 700.0, 700.0)
    assert load_scenario({**varied.tables, "name": LLAMA}).optimize == varied.optimize


def provenance_unit(scenario):
    return scenario.provenance["plan.power.first_stage"].unit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("plan.power.last_stage=900 W", r"plan\.power\.last_stage: 900 W is above 700 W"),
        ("plan.power.last_stage=0 W", "0 W is impossible"),
        ("plan.power.last_stag=500 W", 'unknown quantity "last_stag"'),
        ("plan.power=500 W", "the cap of all chips is plan.power_cap"),
    ],
)
def test_bad_caps_are_refused(change, message):
    with pytest.raises(InputError, match=f"(?i){message}"):
        load_scenario(LLAMA, [change])
