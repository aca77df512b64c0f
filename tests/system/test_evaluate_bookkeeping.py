"""Do the parts of a run add up, and does it reduce to the closed forms of docs/physics.md E?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.scenarios.files import names
from energymodel.system.evaluate import parameters_in_loss
from energymodel.system.plan import TargetLoss

SCENARIOS = [name for name in names("scenarios") if not name.startswith("_")]
LLAMA = "llama-3.1-405b-h100"
SMALL = "test-1b-h100"


def real(value):
    return np.asarray(value, np.float64)


def ideal_building(system):
    """No conversion loss, refrigeration for nothing, no fans, no lights."""
    facility = system.facility
    zero_losses = lambda regulator: (regulator.fixed_loss, regulator.proportional_loss, regulator.quadratic_loss)  # noqa: E731
    facility = eqx.tree_at(
        lambda f: (
            *zero_losses(f.power_supply),
            *zero_losses(f.uninterruptible),
            f.transformer_loss,
            f.distribution.resistance,
            f.cooling.loop.mover_power_fraction,
            f.cooling.rejection.work_fraction,
            f.miscellaneous_fraction,
        ),
        facility,
        [real(0.0)] * 11,
    )
    facility = eqx.tree_at(lambda f: f.cooling.chiller.quality, facility, real(1e15))
    return eqx.tree_at(lambda s: s.facility, system, facility)


def busy_alone(system):
    """A chip without host, network, launches, overhead and failures: it is busy all the time."""
    return eqx.tree_at(
        lambda s: (
            s.accelerator.launch_overhead,
            s.accelerator.overhead_time,
            s.accelerator.gate.fraction,
            s.node.overhead_power,
            s.node.fan_power,
            s.node.fan_fraction,
            s.node.scale_up.lane_power,
            s.network.static_power,
            s.network.switch_lane_power,
            s.network.link.lane_power,
            s.reliability.checkpoint_time,
            s.reliability.restart_time,
            s.software.microbatch_time,
            s.accelerator.product_latency,
        ),
        system,
        [real(0.0)] * 14,
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_energy_parts_and_step_times_add_up_and_none_is_negative(name, scenario, run):
    given = scenario(name)
    system, plan = given.system, given.plan
    outcome = run(system, plan)
    parts = jax.tree.leaves(outcome.energy)
    assert len(parts) == 9
    assert all(part >= 0.0 for part in parts)

    # What the chips, links and hosts draw, carried through the building, is the whole (docs/physics.md E).
    energy = outcome.energy
    load = sum(parts[:6]) / outcome.chip_time
    assert parts[5] is energy.idle_wait
    meter = system.facility.power(load, system.facility.cooling.at(plan.coolant_temperature)).total(load)
    np.testing.assert_allclose(sum(parts), meter * outcome.chip_time, rtol=1e-9)
    np.testing.assert_allclose(sum(parts), energy.total, rtol=1e-12)
    np.testing.assert_allclose(energy.total, outcome.power_average * outcome.time, rtol=1e-12)
    assert 1.0 <= outcome.pue < 2.0

    terms = jax.tree.leaves(outcome.step_time)
    assert len(terms) == 12
    assert all(term >= 0.0 for term in terms)
    productive = outcome.steps * sum(terms)
    np.testing.assert_allclose(outcome.time, productive / outcome.availability * (1 + system.other_stages), rtol=1e-9)
    np.testing.assert_allclose(outcome.token_rate * productive, outcome.tokens, rtol=1e-12)


def test_production_slowdown_lengthens_a_run_at_the_same_power(scenario, run):
    given, slow = scenario(SMALL), scenario(SMALL, "system.production_slowdown=1.5")
    tuned, found = run(given.system, given.plan), run(slow.system, slow.plan)
    for name in ("time", "chip_time"):
        np.testing.assert_allclose(getattr(found, name), 1.5 * getattr(tuned, name), rtol=1e-9)
    for name in ("power_average", "power_busy", "power_peak", "pue", "memory_per_chip", "loss"):
        np.testing.assert_allclose(getattr(found, name), getattr(tuned, name), rtol=1e-9)
    np.testing.assert_allclose(jax.tree.leaves(found.energy), 1.5 * np.array(jax.tree.leaves(tuned.energy)), rtol=1e-9)
    np.testing.assert_allclose(1.5 * found.mfu, tuned.mfu, rtol=1e-9)


@pytest.mark.parametrize("name", [LLAMA, "near-limit-hardware", SMALL])
def test_an_ideal_building_adds_nothing(name, scenario, run):
    given = scenario(name)
    outcome = run(ideal_building(given.system), given.plan)
    energy = outcome.energy
    chips_and_network = energy.dynamic + energy.static + energy.memory + energy.idle_wait + energy.network
    np.testing.assert_allclose(energy.total, chips_and_network + energy.host, rtol=1e-9)
    np.testing.assert_allclose(outcome.pue, 1.0, rtol=1e-9)


def test_a_chip_that_is_always_busy_pays_for_switching_leakage_and_memory(scenario, run):
    given = scenario(SMALL, "plan.chips=1")
    system = busy_alone(ideal_building(given.system))
    system = eqx.tree_at(lambda s: s.accelerator.leakage.temperature_sensitivity, system, real(0.0))
    outcome = run(system, given.plan)
    energy, chip, model = outcome.energy, system.accelerator, system.workload
    assert outcome.availability == 1.0
    np.testing.assert_allclose(energy.total, energy.dynamic + energy.static + energy.memory, rtol=1e-9)
    # At clock 1 voltage is 1, and without feedback leakage is that of the data sheet.
    np.testing.assert_allclose(energy.static, (chip.leakage.power + chip.fixed_power) * outcome.time, rtol=1e-9)
    # Every weight but the embedding, which is looked up, multiplies: 6 per weight and token, and causal attention.
    weights = model.active_parameters - model.embeddings + model.vocabulary * model.hidden
    operations = (6.0 * weights + 6.0 * model.layers * model.attention_width * model.sequence) * outcome.tokens
    busy = operations / system.software.product_efficiency
    np.testing.assert_allclose(energy.dynamic, chip.energy_per_flop * busy, rtol=1e-9)

    # Without memory traffic in the power it is the sources' E = E_dynamic + E_static.
    free = eqx.tree_at(lambda s: s.accelerator.memory_energy, system, real(0.0))
    energy = run(free, given.plan).energy
    np.testing.assert_allclose(energy.total, energy.dynamic + energy.static, rtol=1e-9)


def test_a_vanishing_batch_wastes_no_tokens(scenario, run):
    given = scenario(LLAMA)
    size = parameters_in_loss(given.system)
    free = given.system.learning.loss(size, given.plan.goal.tokens)
    waste = [
        float(run(given.system, eqx.tree_at(lambda p: p.batch, given.plan, real([batch]))).loss - free)
        for batch in (1.0, 1e3, 1e6, 1e7)
    ]
    np.testing.assert_allclose(waste[0] / free, 0.0, atol=1e-8)
    assert waste == sorted(waste)


def test_batch_may_be_a_scalar_or_one_knot(scenario, run):
    given = scenario(LLAMA)
    scalar = eqx.tree_at(lambda p: p.batch, given.plan, np.reshape(given.plan.batch, ()))
    for one, other in zip(
        jax.tree.leaves(run(given.system, given.plan)), jax.tree.leaves(run(given.system, scalar)), strict=True
    ):
        assert one.shape == other.shape == ()
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.slow
def test_a_schedule_of_equal_knots_is_the_constant_batch(scenario, run):
    given = scenario(LLAMA)
    schedule = eqx.tree_at(lambda p: p.batch, given.plan, np.repeat(given.plan.batch, 3))
    constant, scheduled = run(given.system, given.plan), run(given.system, schedule)
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(constant), jax.tree.leaves(scheduled), strict=True
    ):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-12, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("name", [LLAMA, "deepseek-v3-h800", SMALL])
def test_the_loss_of_a_token_budget_asks_for_the_same_tokens(name, scenario, run):
    given = scenario(name)
    outcome = run(given.system, given.plan)
    back = run(given.system, eqx.tree_at(lambda p: p.goal, given.plan, TargetLoss(outcome.loss)))
    np.testing.assert_allclose(back.tokens, outcome.tokens, rtol=1e-9)
    np.testing.assert_allclose(back.loss, outcome.loss, rtol=1e-12)
    np.testing.assert_allclose(back.energy.total, outcome.energy.total, rtol=1e-9)


def test_at_a_constant_batch_time_and_energy_grow_with_tokens(scenario, run):
    given = scenario(LLAMA)
    twice = eqx.tree_at(lambda p: p.goal.tokens, given.plan, 2.0 * given.plan.goal.tokens)
    one, two = run(given.system, given.plan), run(given.system, twice)
    for name in ("time", "steps", "money", "carbon"):
        np.testing.assert_allclose(getattr(two, name), 2.0 * getattr(one, name), rtol=1e-9)
    np.testing.assert_allclose(two.energy.total, 2.0 * one.energy.total, rtol=1e-9)
    assert two.loss < one.loss


def test_llama_405b_at_its_disclosed_plan(scenario, run):
    # Llama team 2024, table 4: 38 to 43 % MFU on 8,192 to 16,384 H100; model card: 30.84 million H100 hours.
    given = scenario(LLAMA)
    layout = given.plan.layout
    assert (layout.tensor, layout.pipeline, given.plan.chips) == (8.0, 16.0, 16384.0)
    assert given.plan.chips / (layout.tensor * layout.pipeline) == 128.0
    assert given.plan.batch == 16 * 2**20
    assert given.system.workload.sequence == 8192.0
    outcome = run(given.system, given.plan)
    assert 0.36 <= outcome.mfu <= 0.45
    np.testing.assert_allclose(outcome.chip_time / 3600.0, 30.84e6, rtol=0.15)
    assert outcome.slack.memory > 0.0
    assert jnp.isfinite(outcome.carbon)
