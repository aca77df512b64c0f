"""Power and temperature over time: bounds, what smooths them, and what smoothing costs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.evaluate import evaluate_once
from energymodel.system.over_time import temperature_over_time
from energymodel.system.step import training_step
from gradients import interpreted
from outcomes import assert_log_slopes, outcome_of, replaced

LARGE, SMALL = "llama-3.1-405b-h100", "test-1b-h100"
STORAGE = "system.facility.storage"
CHARGED = {f"{STORAGE}.power": "400 W", f"{STORAGE}.energy": "300 J"}


def changed(name, changes):
    return outcome_of(name, *(f"{path}={value}" for path, value in changes.items()))


@pytest.fixture(scope="module")
def large():
    return outcome_of(LARGE)


@pytest.mark.parametrize("name", [LARGE, SMALL, "deepseek-v3-h800", "chinchilla-70b-tpu-v4", "near-limit-hardware"])
def test_swings_lie_within_the_power_of_the_job(name):
    run = outcome_of(name)
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


def test_a_pipeline_rises_slowly_and_fast_steps_are_smoothed(large):
    # Filling 16 ranks takes as long as the bubble; a stop waits for nobody.
    slow = large.checkpoint_swing / large.power_ramp
    assert 0.9 * large.step_time.bubble < slow < 1.1 * (large.step_time.bubble + 0.016)
    np.testing.assert_allclose(large.stop_ramp, large.stop_swing / 0.016, rtol=1e-6)
    slow = outcome_of(LARGE, "system.facility.response_time=60 s")
    assert slow.power_swing < 0.1 * large.power_swing
    np.testing.assert_allclose(slow.energy.total, large.energy.total, rtol=1e-12)


def test_twice_the_jobs_swing_twice_as_far():
    """More replicas of the same step: everything but stragglers is the same for each chip."""
    even = {"system.reliability.straggler_variation": 0}
    entry = changed(LARGE, even)
    two = changed(LARGE, even | {"plan.chips": 32768, "plan.batch": "32 Mi tokens"})
    np.testing.assert_allclose(two.stop_swing / entry.stop_swing, 2.0, rtol=0.01)
    np.testing.assert_allclose(two.power_swing / entry.power_swing, 2.0, rtol=0.05)


def test_what_takes_no_time_is_no_checkpoint():
    run = outcome_of(SMALL)
    scenario = em.load_scenario(SMALL)
    system = replaced(scenario.system, {"reliability.checkpoint_time": 0.0})
    with jax.enable_x64(True):
        none = evaluate_once(system, scenario.plan)
    assert float(none.checkpoint_swing) == float(none.checkpoint_frequency) == 0.0
    np.testing.assert_allclose(none.power_swing, run.power_swing)
    assert float(none.power_ramp) < run.power_ramp


def test_a_floor_trades_energy_for_swing(large):
    """At a floor of 1 chips draw busy power throughout: no swing in steps, and all waiting costs full power."""
    half, full = (outcome_of(LARGE, f"plan.power_floor={floor}") for floor in (0.6, 1))
    assert full.power_swing < 1e-6 * large.power_swing
    assert full.checkpoint_swing < half.checkpoint_swing < large.checkpoint_swing
    assert full.power_swing < half.power_swing < large.power_swing
    assert large.energy.total < half.energy.total < full.energy.total
    assert half.energy.idle_wait > large.energy.idle_wait
    assert full.energy.dynamic == large.energy.dynamic
    np.testing.assert_allclose(full.stop_swing, full.power_busy * 16384, rtol=0.25)
    low = outcome_of(LARGE, "plan.power_floor=0.1")  # below what waiting chips draw anyway
    np.testing.assert_allclose(low.energy.total, large.energy.total, rtol=1e-12)


def test_storage_trades_money_and_losses_for_swing(large):
    stored = changed(LARGE, CHARGED)
    assert stored.power_swing < 0.5 * large.power_swing
    assert (stored.power_ramp < large.power_ramp, stored.stop_ramp < large.stop_ramp) == (True, True)
    np.testing.assert_allclose(stored.energy.dynamic, large.energy.dynamic, rtol=1e-12)
    lossless = changed(LARGE, CHARGED | {f"{STORAGE}.efficiency": 1})
    np.testing.assert_allclose(lossless.energy.delivery_loss, large.energy.delivery_loss, rtol=1e-12)
    assert stored.energy.delivery_loss > large.energy.delivery_loss
    free = changed(LARGE, CHARGED | {f"{STORAGE}.energy_price": "0 USD/J", f"{STORAGE}.power_price": "0 USD/W"})
    assert large.money < free.money < stored.money  # losses are paid for, too


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"plan.power_floor": 0.5}, marks=pytest.mark.slow),
        CHARGED,
    ],
)
def test_gradients_match_differences(changes):
    numbers = {"plan.power_floor": 0.5, f"{STORAGE}.power": 400.0, f"{STORAGE}.energy": 300.0}
    point = {"plan.clock": 0.9} | {path: numbers[path] for path in changes}
    scenario = em.load_scenario(LARGE, changes)
    swings = lambda result: (result.power_swing, result.power_ramp, result.stop_ramp)  # noqa: E731
    assert_log_slopes(swings, scenario, point, rtol=1e-3)

    def total(plan, storage):
        run = em.evaluate(eqx.tree_at(lambda system: system.facility.storage, scenario.system, storage), plan)
        return run.power_swing + run.power_ramp + run.money

    slopes = interpreted(jax.grad(total, argnums=(0, 1)))(scenario.plan, scenario.system.facility.storage)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


def test_swings_of_a_schedule_and_limits_of_the_grid(large):
    knots = ["16 Mi tokens", "32 Mi tokens"]
    single = [outcome_of(LARGE, f"plan.batch={batch}") for batch in knots]
    both = outcome_of(LARGE, f"plan.batch=[{', '.join(knots)}]")
    np.testing.assert_allclose(both.power_swing, max(run.power_swing for run in single), rtol=1e-9)
    tight = outcome_of(LARGE, "system.facility.swing_limit=5 MW", "system.facility.power_ramp_limit=600 MW/min")
    np.testing.assert_allclose(tight.slack.power_swing, np.log(5e6 / large.power_swing))
    np.testing.assert_allclose(tight.slack.power_ramp, np.log(10e6 / large.power_ramp))
    assert min(large.slack.power_swing, large.slack.power_ramp) > 10.0


LAYOUT = tuple(f"plan.layout.{name}" for name in ("tensor", "pipeline", "context", "microbatch", "virtual_stages"))


SCENARIO = em.load_scenario(LARGE)


@jax.jit
def warmth(heat_capacity):
    """Step and temperatures of a run at a heat capacity of its chips [J/K]."""
    system = replaced(SCENARIO.system, {"accelerator.heat_capacity": heat_capacity})
    step = training_step(system, SCENARIO.plan, jnp.reshape(SCENARIO.plan.batch, ()))
    return step, temperature_over_time(system, step)


with jax.enable_x64(True):
    COOLANT = SCENARIO.system.facility.cooling.at(SCENARIO.plan.coolant_temperature)
    RESISTANCE, LAST = float(SCENARIO.system.accelerator.thermal_resistance + COOLANT.resistance), float(COOLANT.last)


def test_peak_and_trough_are_those_of_the_integrated_heat_balance():
    step, result = warmth(jnp.asarray(250.0))
    low = float(step.time.data + step.time.overhead + step.time.straggler + step.time.bubble)
    high = float(step.time.total) - low
    temperature, seen = LAST, []
    for _ in range(60):  # steps of 6 s, a time constant of 15 s
        for power, time in ((step.levels.waiting, low), (step.levels.working, high)):
            for _ in range(400):
                slope = (float(power) - (temperature - LAST) / RESISTANCE) / 250.0
                temperature += slope * time / 400
            seen.append(temperature)
    np.testing.assert_allclose([result.temperature_trough, result.temperature_peak], seen[-2:], atol=5e-3)


def test_light_chips_follow_their_power_and_heavy_ones_keep_its_mean():
    step, light = warmth(jnp.asarray(1e-2))
    for name, level in (("peak", "working"), ("trough", "waiting"), ("checkpoint", "writing")):
        np.testing.assert_allclose(
            getattr(light, f"temperature_{name}"), LAST + RESISTANCE * getattr(step.levels, level), rtol=1e-9
        )
    _, heavy = warmth(jnp.asarray(1e7))
    np.testing.assert_allclose(heavy.temperature_peak, LAST + RESISTANCE * step.power.chip, rtol=1e-6)
    np.testing.assert_allclose(heavy.temperature_peak - heavy.temperature_trough, 0.0, atol=1e-3)
    assert light.temperature_peak < light.temperature + 1.0  # what lasting busy power would reach sets the limit


def test_the_first_chip_is_that_of_the_coolant_supply():
    step, result = warmth(jnp.asarray(250.0))
    chip, point = SCENARIO.system.accelerator, step.point
    base = point.busy_power - point.static_power + chip.fixed_power
    leak, leakage = chip.leakage(point.voltage, chip.leakage.reference_temperature), chip.leakage
    exact = leakage_temperature(
        base, leak, SCENARIO.plan.coolant_temperature, RESISTANCE, leakage.temperature_sensitivity,
        leakage.reference_temperature,
    )  # fmt: skip
    np.testing.assert_allclose(result.temperature_first, exact, atol=0.2)


def test_gradients_of_temperatures_are_those_of_differences():

    def values(heat_capacity):
        result = warmth(heat_capacity)[1]
        return jnp.stack(
            [result.temperature_peak, result.temperature_trough, result.temperature_checkpoint, result.temperature_ramp]
        )

    slope = jax.jacfwd(values)(jnp.asarray(250.0))
    np.testing.assert_allclose(slope, (values(251.0) - values(249.0)) / 2.0, rtol=1e-4)


def test_the_hottest_point_sets_the_limit_and_a_steep_start_exits_with_3():
    scenario = em.load_scenario(SMALL)
    spot = em.load_scenario(SMALL, {"system.accelerator.hot_spot_resistance": "0.02 K/W"})
    plain, result = (em.evaluate(entry.system, entry.plan) for entry in (scenario, spot))
    np.testing.assert_allclose(result.temperature, plain.temperature + 0.02 * plain.power_busy, rtol=1e-12)
    assert result.slack.temperature < plain.slack.temperature
    np.testing.assert_allclose(result.energy.total, plain.energy.total, rtol=1e-12)
    result = run("evaluate", SMALL, "--set", "system.facility.ramp_limit=2 K/s", "--full")
    assert result.exit_code == 3
    ramp = f"{float(plain.temperature_ramp):.3f}"
    assert f"ramp: {ramp} K/s exceeds the limit 2 K/s" in result.stderr
    assert "temperature after checkpoints" in result.stdout


@pytest.mark.slow
def test_best_flow_is_inside_its_range_and_moves_as_the_laws_say():
    scenario = em.load_scenario(SMALL, {"system.facility": "direct-liquid"})
    path = "system.facility.cooling.loop.flow"
    fix = ["plan.chips", "plan.batch", "plan.coolant_temperature", *LAYOUT]
    result = em.optimize(scenario, vary={path: (0.2, 3.0)}, fix=fix, tolerance=0.0)
    best = result.found[path]
    evaluate = jax.jit(
        lambda flow: em.evaluate(
            eqx.tree_at(lambda tree: tree.facility.cooling.loop.flow, scenario.system, flow), result.plan
        )
    )
    energies = [float(evaluate(jnp.asarray(best * factor)).energy.total) for factor in (0.8, 1.0, 1.25)]
    assert 0.25 < best < 1.0
    assert energies[1] == min(energies)
    # Fans and pumps take eight times, for half the rise along the row.
    tree, two, three = (evaluate(jnp.asarray(flow)) for flow in (1.0, 2.0, 3.0))
    cubes = (three.energy.host - tree.energy.host) / (two.energy.host - tree.energy.host)
    np.testing.assert_allclose(cubes, 26.0 / 7.0, rtol=0.02)  # leakage and thus the heat of the chips change a little
    assert two.temperature - two.temperature_first < 0.51 * (tree.temperature - tree.temperature_first)
    own = em.evaluate(scenario.system, result.plan)
    np.testing.assert_allclose(own.energy.total, tree.energy.total, rtol=1e-12)
