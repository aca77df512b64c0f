"""How far and how fast does the temperature of a chip move, and which flow of coolant is best?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.over_time import temperature_over_time
from energymodel.system.step import training_step

SMALL = "test-1b-h100"
LARGE = "llama-3.1-405b-h100"
LAYOUT = tuple(f"plan.layout.{name}" for name in ("tensor", "pipeline", "context", "microbatch", "virtual_stages"))


@pytest.fixture(scope="module")
def warmth_of():
    """Step and temperatures of a run at a heat capacity of its chips [J/K]."""
    scenario = em.load_scenario(LARGE)

    @jax.jit
    def warmth(heat_capacity):
        system = eqx.tree_at(lambda one: one.accelerator.heat_capacity, scenario.system, heat_capacity)
        step = training_step(system, scenario.plan, jnp.reshape(scenario.plan.batch, ()))
        return step, temperature_over_time(system, step)

    return warmth, scenario


def resistance_and_coolant(scenario):
    coolant = scenario.system.facility.cooling.at(scenario.plan.coolant_temperature)
    return float(scenario.system.accelerator.thermal_resistance + coolant.resistance), float(coolant.last)


def test_peak_and_trough_are_those_of_the_integrated_heat_balance(warmth_of):
    warmth, scenario = warmth_of
    step, found = warmth(jnp.asarray(250.0))
    resistance, coolant = resistance_and_coolant(scenario)
    low = float(step.time.data + step.time.overhead + step.time.straggler + step.time.bubble)
    high = float(step.time.total) - low
    temperature, seen = coolant, []
    for _ in range(60):  # steps of 6 s, a time constant of 15 s
        for power, time in ((step.levels.waiting, low), (step.levels.working, high)):
            for _ in range(400):
                slope = (float(power) - (temperature - coolant) / resistance) / 250.0
                temperature += slope * time / 400
            seen.append(temperature)
    np.testing.assert_allclose([found.trough, found.peak], seen[-2:], atol=5e-3)


def test_light_chips_follow_their_power_and_heavy_ones_keep_its_mean(warmth_of):
    warmth, scenario = warmth_of
    resistance, coolant = resistance_and_coolant(scenario)
    step, light = warmth(jnp.asarray(1e-2))
    np.testing.assert_allclose(light.peak, coolant + resistance * step.levels.working, rtol=1e-9)
    np.testing.assert_allclose(light.trough, coolant + resistance * step.levels.waiting, rtol=1e-9)
    np.testing.assert_allclose(light.writing, coolant + resistance * step.levels.writing, rtol=1e-9)
    _, heavy = warmth(jnp.asarray(1e7))
    np.testing.assert_allclose(heavy.peak, coolant + resistance * step.power.chip, rtol=1e-6)
    np.testing.assert_allclose(heavy.peak - heavy.trough, 0.0, atol=1e-3)
    assert light.peak < light.hottest + 1.0  # what lasting busy power would reach sets the limit


def test_the_first_chip_is_that_of_the_coolant_supply(warmth_of):
    warmth, scenario = warmth_of
    step, found = warmth(jnp.asarray(250.0))
    chip, point = scenario.system.accelerator, step.point
    resistance, _ = resistance_and_coolant(scenario)
    base = point.busy_power - point.static_power + chip.fixed_power
    leak, leakage = chip.leakage(point.voltage, chip.leakage.reference_temperature), chip.leakage
    exact = leakage_temperature(
        base, leak, scenario.plan.coolant_temperature, resistance, leakage.temperature_sensitivity,
        leakage.reference_temperature,
    )  # fmt: skip
    np.testing.assert_allclose(found.first, exact, atol=0.2)


def test_gradients_of_temperatures_are_those_of_differences(warmth_of):
    warmth, _ = warmth_of

    def values(heat_capacity):
        found = warmth(heat_capacity)[1]
        return jnp.stack([found.peak, found.trough, found.writing, found.ramp])

    slope = jax.jacfwd(values)(jnp.asarray(250.0))
    np.testing.assert_allclose(slope, (values(251.0) - values(249.0)) / 2.0, rtol=1e-4)


def test_the_hottest_point_of_a_die_sets_the_limit():
    scenario = em.load_scenario(SMALL)
    spot = em.load_scenario(SMALL, {"system.accelerator.hot_spot_resistance": "0.02 K/W"})
    plain, found = (em.evaluate(one.system, one.plan) for one in (scenario, spot))
    np.testing.assert_allclose(found.temperature, plain.temperature + 0.02 * plain.power_busy, rtol=1e-12)
    assert found.slack.temperature < plain.slack.temperature
    np.testing.assert_allclose(found.energy.total, plain.energy.total, rtol=1e-12)


def test_a_steep_start_exits_with_3_and_temperatures_are_shown():
    result = run("evaluate", SMALL, "--set", "system.facility.ramp_limit=2 K/s", "--full")
    assert result.exit_code == 3
    assert "ramp: 2.309 K/s exceeds the limit 2 K/s" in result.stderr
    assert "temperature after checkpoints" in result.stdout


@pytest.mark.slow
def test_best_flow_is_inside_its_range_and_moves_as_the_laws_say():
    scenario = em.load_scenario(SMALL, {"system.facility": "direct-liquid"})
    path = "system.facility.cooling.loop.flow"
    fix = ["plan.chips", "plan.batch", "plan.coolant_temperature", *LAYOUT]
    found = em.optimize(scenario, vary={path: (0.2, 3.0)}, fix=fix, tolerance=0.0)
    best = found.found[path]
    evaluate = jax.jit(
        lambda flow: em.evaluate(
            eqx.tree_at(lambda one: one.facility.cooling.loop.flow, scenario.system, flow), found.plan
        )
    )
    energies = [float(evaluate(jnp.asarray(best * factor)).energy.total) for factor in (0.8, 1.0, 1.25)]
    assert 0.25 < best < 1.0
    assert energies[1] == min(energies)
    # Fans and pumps take eight times, for half the rise along the row.
    one, two, three = (evaluate(jnp.asarray(flow)) for flow in (1.0, 2.0, 3.0))
    cubes = (three.energy.host - one.energy.host) / (two.energy.host - one.energy.host)
    np.testing.assert_allclose(cubes, 26.0 / 7.0, rtol=0.02)  # leakage and thus the heat of the chips change a little
    assert two.temperature - two.temperature_first < 0.51 * (one.temperature - one.temperature_first)
    own = em.evaluate(scenario.system, found.plan)
    np.testing.assert_allclose(own.energy.total, one.energy.total, rtol=1e-12)
