"""Power of a whole job over time: bounds, what smooths it, and what smoothing costs."""

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from compiled_once import derivative_once
from energymodel.scenarios.components import build, preset_in_si
from energymodel.system.evaluate import evaluate_once
from energymodel.system.facility import NO_LIMIT, Facility
from energymodel.system.step import training_step

LARGE, SMALL = "llama-3.1-405b-h100", "test-1b-h100"
STORAGE = "system.facility.storage"
CHARGED = {f"{STORAGE}.power": "400 W", f"{STORAGE}.energy": "300 J"}


def outcome(name, **changes):
    scenario = em.load_scenario(name, {key.replace("__", "."): value for key, value in changes.items()})
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))


def changed(name, changes):
    return outcome(name, **changes)


@pytest.fixture(scope="module")
def large():
    return outcome(LARGE)


@pytest.mark.parametrize("name", [LARGE, SMALL, "deepseek-v3-h800", "chinchilla-70b-tpu-v4", "near-limit-hardware"])
def test_swings_lie_within_the_power_of_the_job(name):
    run = outcome(name)
    assert 0.0 <= run.power_swing < run.power_peak
    assert 0.0 < run.checkpoint_swing < run.power_peak
    assert run.power_swing <= max(run.checkpoint_swing, run.stop_swing)
    assert 0.0 < run.power_ramp <= max(run.checkpoint_swing, run.stop_swing, run.power_swing) / 0.016 * (1 + 1e-9)
    np.testing.assert_allclose(run.swing_frequency, 1.0 / run.step_time.total)
    assert run.checkpoint_frequency < run.swing_frequency


def test_levels_give_the_mean_power_of_the_step():
    scenario = em.load_scenario(LARGE)
    with jax.enable_x64(True):
        step = training_step(scenario.system, scenario.plan, scenario.plan.batch[0])
        time, levels = step.time, step.levels
        apart = time.bubble + time.data + time.overhead + time.straggler
        mean = (levels.working * (time.total - apart) + levels.waiting * apart) / time.total
        np.testing.assert_allclose(mean, step.power.chip)
        assert levels.stopped < levels.writing < levels.waiting < levels.working < step.point.busy_power * 1.01


def test_a_pipeline_rises_slowly_but_stops_at_once(large):
    """Filling 16 ranks takes as long as the bubble; a stop waits for nobody."""
    slow = large.checkpoint_swing / large.power_ramp
    assert 0.9 * large.step_time.bubble < slow < 1.1 * (large.step_time.bubble + 0.016)
    np.testing.assert_allclose(large.stop_ramp, large.stop_swing / 0.016, rtol=1e-6)


def test_twice_the_jobs_swing_twice_as_far():
    """More replicas of the same step: everything but stragglers is the same for each chip."""
    even = {"system.reliability.straggler_variation": 0}
    one = changed(LARGE, even)
    two = changed(LARGE, even | {"plan.chips": 32768, "plan.batch": "32 Mi tokens"})
    np.testing.assert_allclose(two.stop_swing / one.stop_swing, 2.0, rtol=0.01)
    np.testing.assert_allclose(two.power_swing / one.power_swing, 2.0, rtol=0.05)


def test_fast_steps_are_smoothed_by_the_supplies(large):
    slow = outcome(LARGE, system__facility__response_time="60 s")
    assert slow.power_swing < 0.1 * large.power_swing
    np.testing.assert_allclose(slow.energy.total, large.energy.total, rtol=1e-12)


def test_what_takes_no_time_is_no_checkpoint():
    run = outcome(SMALL)
    scenario = em.load_scenario(SMALL)
    system = eqx.tree_at(lambda system: system.reliability.checkpoint_time, scenario.system, np.asarray(0.0))
    with jax.enable_x64(True):
        none = evaluate_once(system, scenario.plan)
    assert float(none.checkpoint_swing) == float(none.checkpoint_frequency) == 0.0
    np.testing.assert_allclose(none.power_swing, run.power_swing)
    assert float(none.power_ramp) < run.power_ramp


def test_a_floor_trades_energy_for_swing(large):
    """At a floor of 1 chips draw busy power throughout: no swing in steps, and all waiting costs full power."""
    half, full = outcome(LARGE, plan__power_floor=0.6), outcome(LARGE, plan__power_floor=1)
    assert full.power_swing < 1e-6 * large.power_swing
    assert full.checkpoint_swing < half.checkpoint_swing < large.checkpoint_swing
    assert full.power_swing < half.power_swing < large.power_swing
    assert large.energy.total < half.energy.total < full.energy.total
    assert half.energy.idle_wait > large.energy.idle_wait
    assert full.energy.dynamic == large.energy.dynamic
    np.testing.assert_allclose(full.stop_swing, full.power_busy * 16384, rtol=0.25)
    low = outcome(LARGE, plan__power_floor=0.1)  # below what waiting chips draw anyway
    np.testing.assert_allclose(low.energy.total, large.energy.total, rtol=1e-12)


def test_storage_trades_money_and_losses_for_swing(large):
    stored = changed(LARGE, CHARGED)
    assert stored.power_swing < 0.5 * large.power_swing
    assert stored.power_ramp < large.power_ramp
    assert stored.stop_ramp < large.stop_ramp
    assert stored.energy.delivery_loss > large.energy.delivery_loss
    assert stored.money > large.money
    np.testing.assert_allclose(stored.energy.dynamic, large.energy.dynamic, rtol=1e-12)
    lossless = changed(LARGE, CHARGED | {f"{STORAGE}.efficiency": 1})
    np.testing.assert_allclose(lossless.energy.delivery_loss, large.energy.delivery_loss, rtol=1e-12)
    free = changed(LARGE, CHARGED | {f"{STORAGE}.energy_price": "0 USD/J", f"{STORAGE}.power_price": "0 USD/W"})
    assert large.money < free.money < stored.money  # losses are paid for, too


@pytest.mark.parametrize(
    "at",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"plan.power_floor": 0.5}, marks=pytest.mark.slow),
        CHARGED,
    ],
)
def test_gradients_are_finite_and_match_differences(at):
    scenario = em.load_scenario(LARGE, at)
    with jax.enable_x64(True):

        def outputs(clock):
            plan = eqx.tree_at(lambda plan: plan.clock, scenario.plan, clock)
            run = em.evaluate(scenario.system, plan)
            return run.power_swing, run.power_ramp, run.stop_ramp

        compiled = jax.jit(outputs)
        slopes = derivative_once(jax.jacfwd, outputs, 0.9)
        step = 1e-5
        for slope, above, below in zip(slopes, compiled(0.9 + step), compiled(0.9 - step), strict=True):
            assert np.isfinite(slope)
            np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-3)
        for component in (scenario.plan, scenario.system.facility.storage):
            gradient = jax.grad(_swing_of(scenario, component))(component)
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def _swing_of(scenario, component):
    def of_plan(plan):
        return em.evaluate(scenario.system, plan).power_swing

    def of_storage(storage):
        system = eqx.tree_at(lambda system: system.facility.storage, scenario.system, storage)
        run = em.evaluate(system, scenario.plan)
        return run.power_swing + run.power_ramp + run.money

    return of_plan if component is scenario.plan else of_storage


def test_a_schedule_reports_its_widest_swing():
    knots = ["16 Mi tokens", "32 Mi tokens"]
    single = [outcome(LARGE, plan__batch=batch) for batch in knots]
    both = changed(LARGE, {"plan.batch": knots})
    np.testing.assert_allclose(both.power_swing, max(run.power_swing for run in single), rtol=1e-9)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("plan.power_floor", "1.2", "give a share"),
        ("plan.power_floor", "300 W", "plan.power_floor"),
        (f"{STORAGE}.energy", "65", "has no unit"),
        (f"{STORAGE}.efficiency", "0", "give a share between"),
        (f"{STORAGE}.capacity", "65 J", "unknown"),
        ("system.facility.swing_limit", "0 W", "give a value between"),
        ("system.facility.power_ramp_limit", "10 MW", "power ramp such as"),
        ("system.facility.response_time", "0 s", "give a value between"),
    ],
)
def test_bad_values_are_refused_by_name(path, value, words):
    with pytest.raises(em.InputError, match=words) as caught:
        em.load_scenario(LARGE, {path: value})
    assert path.rsplit(".", 1)[0] in str(caught.value)


def test_a_facility_of_the_last_version_has_neither_storage_nor_limits():
    table = preset_in_si("facilities", "hyperscale")
    old = {key: one for key, one in table.items() if key not in ("storage", "swing_limit", "power_ramp_limit")}
    origins = {}
    facility = build(old, Facility, "system.facility", origins)
    assert float(facility.storage.energy) == float(facility.storage.power) == 0.0
    assert origins[f"{STORAGE}.energy"].source == "default"
    assert float(facility.swing_limit) == float(facility.power_ramp_limit) == NO_LIMIT


def test_limits_of_the_grid_are_limits_of_the_run(large):
    tight = outcome(LARGE, system__facility__swing_limit="5 MW", system__facility__power_ramp_limit="600 MW/min")
    np.testing.assert_allclose(tight.slack.power_swing, np.log(5e6 / large.power_swing))
    np.testing.assert_allclose(tight.slack.power_ramp, np.log(10e6 / large.power_ramp))
    assert min(large.slack.power_swing, large.slack.power_ramp) > 10.0
