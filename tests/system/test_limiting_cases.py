"""Whole runs in cases that a closed form covers: an ideal building, a chip that is always busy, a vanishing batch."""

import jax
import numpy as np
import pytest

from energymodel.system.training_system import parameters_in_loss
from outcomes import outcome_of, replaced

LLAMA, SMALL = "llama-3.1-405b-h100", "test-1b-h100"
GATE = "system.accelerator.gate"


# No conversion loss, refrigeration for nothing, no fans, no lights.
IDEAL_BUILDING = {
    f"facility.{unit}.{loss}": 0.0
    for unit in ("power_supply", "uninterruptible")
    for loss in ("fixed_loss", "proportional_loss", "quadratic_loss")
}
IDEAL_BUILDING |= {
    f"facility.{name}": 0.0
    for name in ("transformer_loss", "distribution.resistance", "cooling.loop.mover_power_fraction")
}
IDEAL_BUILDING |= {"facility.cooling.rejection.work_fraction": 0.0, "facility.miscellaneous_fraction": 0.0}
IDEAL_BUILDING |= {"facility.cooling.chiller.rated_cop": 1e15}
# A chip without host, network, launches, overhead and failures, whose leakage does not feed back: always busy.
BUSY_ALONE = {
    f"{owner}.{name}": 0.0
    for owner, names in {
        "accelerator": ("launch_overhead", "overhead_time", "gate.fraction", "product_latency"),
        "accelerator.leakage": ("temperature_sensitivity",),
        "node": ("overhead_power", "fan_power", "fan_fraction", "scale_up.lane_power"),
        "network": ("static_power", "switch_lane_power", "link.lane_power"),
        "reliability": ("checkpoint_time", "restart_time"),
        "software": ("microbatch_time",),
    }.items()
    for name in names
}


@pytest.mark.parametrize("name", [LLAMA, "near-limit-hardware", SMALL])
def test_an_ideal_building_adds_nothing(name, scenario, run):
    case = scenario(name)
    outcome = run(replaced(case.system, IDEAL_BUILDING), case.plan)
    energy = outcome.energy
    chips_and_network = energy.dynamic + energy.static + energy.memory + energy.idle_wait + energy.network
    np.testing.assert_allclose(energy.total, chips_and_network + energy.host, rtol=1e-9)
    np.testing.assert_allclose(outcome.pue, 1.0, rtol=1e-9)


def test_a_chip_that_is_always_busy_pays_for_switching_leakage_and_memory(scenario, run):
    case = scenario(SMALL, "plan.chips=1")
    system = replaced(case.system, IDEAL_BUILDING | BUSY_ALONE)
    outcome = run(system, case.plan)
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
    energy = run(replaced(system, {"accelerator.memory_energy": 0.0}), case.plan).energy
    np.testing.assert_allclose(energy.total, energy.dynamic + energy.static, rtol=1e-9)


def test_a_vanishing_batch_wastes_no_tokens_where_small_ones_cost_none(scenario, run):
    learning = ("critical_batch.small_batch_share=0", "absorbed_overhead=0")
    case = scenario(LLAMA, *(f"system.learning.{change}" for change in learning))
    free = case.system.learning.loss(parameters_in_loss(case.system), case.plan.goal.tokens)
    waste = [
        float(run(case.system, replaced(case.plan, {"batch": batch})).loss - free) for batch in (1.0, 1e3, 1e6, 1e7)
    ]
    np.testing.assert_allclose(waste[0] / free, 0.0, atol=1e-8)
    assert waste == sorted(waste)


def test_at_a_constant_batch_time_and_energy_grow_with_tokens(scenario, run):
    case = scenario(LLAMA)
    plan = replaced(case.plan, {"goal.tokens": 2.0 * case.plan.goal.tokens})
    once, twice = run(case.system, case.plan), run(case.system, plan)
    for name in ("time", "steps", "money", "carbon"):
        np.testing.assert_allclose(getattr(twice, name), 2.0 * getattr(once, name), rtol=1e-9)
    np.testing.assert_allclose(twice.energy.total, 2.0 * once.energy.total, rtol=1e-9)
    assert twice.loss < once.loss


def test_production_slowdown_lengthens_a_run_at_the_same_power():
    tuned, slow = outcome_of(SMALL), outcome_of(SMALL, "system.production_slowdown=1.5")
    for name in ("time", "chip_time"):
        np.testing.assert_allclose(getattr(slow, name), 1.5 * getattr(tuned, name), rtol=1e-9)
    for name in ("power_average", "power_busy", "power_peak", "pue", "memory_per_chip", "loss"):
        np.testing.assert_allclose(getattr(slow, name), getattr(tuned, name), rtol=1e-9)
    np.testing.assert_allclose(jax.tree.leaves(slow.energy), 1.5 * np.array(jax.tree.leaves(tuned.energy)), rtol=1e-9)
    np.testing.assert_allclose(1.5 * slow.mfu, tuned.mfu, rtol=1e-9)


def test_gates_save_leakage_cost_their_waking_and_leave_short_waits():
    plain, instant, half, slow = (
        outcome_of(SMALL, *changes)
        for changes in (
            (),
            (f"{GATE}.fraction=1", f"{GATE}.wake_time=0 s"),
            (f"{GATE}.fraction=0.5", f"{GATE}.wake_time=0 s"),
            (f"{GATE}.fraction=1", f"{GATE}.wake_time=1 ms"),
        )
    )
    np.testing.assert_allclose(instant.step_time.total, plain.step_time.total, rtol=1e-12)
    assert instant.energy.idle_wait < plain.energy.idle_wait
    saved = [float(plain.energy.idle_wait - gated.energy.idle_wait) for gated in (half, instant)]
    np.testing.assert_allclose(saved[1], 2.0 * saved[0], rtol=1e-9)
    assert slow.step_time.overhead > plain.step_time.overhead
    assert slow.energy.total > instant.energy.total
    costly = outcome_of(SMALL, f"{GATE}.fraction=1", f"{GATE}.wake_energy=1 MJ")
    np.testing.assert_allclose(costly.energy.total, outcome_of(SMALL).energy.total, rtol=1e-9)
