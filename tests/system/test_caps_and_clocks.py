"""Power caps of chips and stages, the clock that they leave, and a lower clock between steps."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.physics.switching import low_clock_share
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.optimize import optimize
from energymodel.system.chip_load import operating_point
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan import EvenPower, StagePower
from energymodel.system.step import step_work, training_step
from energymodel.system.timeline import step_timeline
from outcomes import assert_log_slopes, outcome_of

GPT3 = load_scenario("gpt3-175b-h100")
GPT3_SYSTEM, CHIP = GPT3.system, GPT3.system.accelerator
BATCH = GPT3.plan.batch[0]


@jax.jit
def settled(cap, waiting):
    """Load and operating point of bf16 products, which draw more than the cap, beside waits of a layer [s]."""
    layout = dataclasses.replace(GPT3.plan.layout, fp8=np.asarray(0.0))
    plan = dataclasses.replace(GPT3.plan, power_cap=cap, layout=layout)
    work = step_work(GPT3_SYSTEM, plan, BATCH)
    return work.load, operating_point(GPT3_SYSTEM, plan, work.coolant, work.load, waiting)


def test_a_waiting_h100_draws_what_was_metered_and_spins_as_it_switches():
    # 70 W of leakage, 70 W fixed, 0.123 x 618 W of switching [experiments/04_metered_runs: 216 W]
    static = CHIP.static_power(1.0, CHIP.leakage.reference_temperature)
    np.testing.assert_allclose(static + CHIP.spin_power(1.0, 1.0), 216.0, rtol=1e-3)
    ratio = CHIP.spin_power(0.8, 0.9) / CHIP.spin_power(1.0, 1.0)
    np.testing.assert_allclose(ratio, 0.8 * 0.9**2, rtol=1e-12)


@given(st.floats(0.0, 2e-3), st.floats(0.0, 2e-3))
def test_waits_leave_power_for_a_higher_clock(entry, other):
    short, long = (settled(500.0, wait)[1] for wait in sorted((entry, other)))
    assert float(long.clock) >= float(short.clock) - 1e-12
    for point in (short, long):
        assert float(point.busy_power) <= 500.0 * (1.0 + 1e-9)


def test_a_cap_that_binds_is_the_mean_power():
    np.testing.assert_allclose(settled(500.0, 1e-4)[1].busy_power, 500.0, rtol=1e-6)


@pytest.mark.parametrize("waiting", [0.0, 1e-3])
def test_mean_power_is_energy_over_time(waiting):
    load, point = settled(1e4, waiting)
    busy = load.busy_time(CHIP, point.clock)
    energy = load.switching_energy * point.voltage**2 + load.memory_energy + point.spin_power * waiting
    np.testing.assert_allclose(point.busy_power - point.static_power, energy / (busy + waiting), rtol=1e-12)


def test_steps_settle_beside_their_exposed_communication():
    @jax.jit
    def both(batch):
        work = step_work(GPT3_SYSTEM, GPT3.plan, batch)
        expected = operating_point(GPT3_SYSTEM, GPT3.plan, work.coolant, work.load, sum(work.traffic.exposed))
        return training_step(GPT3_SYSTEM, GPT3.plan, batch).point, expected, work

    point, expected, work = both(BATCH)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), point, expected)
    assert float(jnp.asarray(sum(work.traffic.exposed))) > 0.0


SMALL = "test-1b-h100"
WAITS = "system.software.microbatch_time=10 ms"
"""Between micro-batches, long enough for a change of clock."""


def test_lower_clocks_save_waiting_energy_unless_there_is_none_or_switches_are_slow():
    lowest = float(load_scenario(SMALL).system.accelerator.minimum_clock)
    own, same = (outcome_of(SMALL, f"plan.clock={lowest}", f"plan.waiting_clock={share}") for share in (1.0, 0.5))
    for left, other in zip(jax.tree.leaves(own), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(other, left, rtol=1e-12)  # there is no lower clock
    own, low = outcome_of(SMALL, WAITS), outcome_of(SMALL, WAITS, "plan.waiting_clock=0.3")
    assert low.time == own.time
    assert low.energy.idle_wait < 0.8 * own.energy.idle_wait
    assert low.power_swing > own.power_swing
    assert low.checkpoint_swing > own.checkpoint_swing
    own = outcome_of(SMALL)
    slow = outcome_of(SMALL, "plan.waiting_clock=0.3", "system.accelerator.clock_switch_time=10 s")
    np.testing.assert_allclose(slow.energy.idle_wait, own.energy.idle_wait, rtol=0.02)  # but for checkpoints
    assert [low_clock_share(time, 0.1) for time in (0.5, 0.1, 0.0)] == pytest.approx([0.6, 0.0, 0.0])


@pytest.mark.slow
def test_a_search_takes_the_lowest_clock_unless_the_swing_is_limited():
    waiting = load_scenario(SMALL, [WAITS])
    free = optimize(waiting, vary={"plan.waiting_clock": (0.3, 1.0)}, tolerance=0.0)
    assert free.found["plan.waiting_clock"] == pytest.approx(0.3, abs=1e-3)
    assert free.value < optimize(waiting, tolerance=0.0).value
    most = float(free.outcome.power_swing) * 0.95
    held = optimize(waiting, vary={"plan.waiting_clock": (0.3, 1.0)}, limits={"power_swing": most}, tolerance=0.0)
    assert float(held.outcome.power_swing) <= most * (1 + 1e-6)
    assert held.value > free.value


DEEPSEEK, LLAMA = "deepseek-v3-h800", "llama-3.1-405b-h100"


def with_caps(plan, *caps):
    return eqx.tree_at(lambda tree: tree.power, plan, StagePower(*caps))


OF_EACH_RANK = ("swing", "ramp", "temperature_", "power_peak", "chilled_heat", "facility_power", "supplies")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param(LLAMA, [], marks=pytest.mark.slow),
        (DEEPSEEK, ["plan.layout.schedule=dualpipe"]),
        ("test-1b-h100", []),
        ("test-1b-h100", ["plan.layout.pipeline=4", "plan.layout.last_stage_layers=1"]),
    ],
)
def test_equal_caps_are_one_cap(name, changes):
    scenario = load_scenario(name, changes)
    system, plan = scenario.system, eqx.tree_at(lambda tree: tree.power_cap, scenario.plan, 330.0)
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


@pytest.mark.parametrize(("name", "caps"), [(LLAMA, (700.0, 300.0, 700.0)), (DEEPSEEK, (400.0, 330.0, 380.0))])
def test_the_step_is_that_of_the_simulated_schedule(name, caps):
    scenario = load_scenario(name)
    timeline = step_timeline(scenario.system, with_caps(scenario.plan, *caps))
    assert timeline.closed_form_time == pytest.approx(timeline.pipeline_time, rel=0.02)


def test_gradients_by_the_caps_are_right():
    scenario = load_scenario(LLAMA, ["plan.power.last_stage=500 W"])
    point = {"plan.power.first_stage": 450.0, "plan.power.middle_stages": 500.0, "plan.power.last_stage": 480.0}
    assert_log_slopes(lambda result: (result.energy.total, result.time), scenario, point, rtol=1e-5)


def test_a_file_names_the_stages_that_differ():
    scenario = load_scenario(LLAMA, ["plan.power.last_stage=500 W"])
    assert scenario.plan.power == StagePower(700.0, 700.0, 500.0)
    assert load_scenario({**scenario.tables, "name": LLAMA}).plan.power == scenario.plan.power
    assert load_scenario(LLAMA).plan.power == EvenPower()
    assert scenario.provenance["plan.power.first_stage"].unit == "W"
    varied = load_scenario(LLAMA).with_question(vary=["plan.power.*"])
    assert varied.optimize.vary["plan.power.middle_stages"] == (pytest.approx(210.0), 700.0)
    assert varied.plan.power == StagePower(700.0, 700.0, 700.0)
    assert load_scenario({**varied.tables, "name": LLAMA}).optimize == varied.optimize
