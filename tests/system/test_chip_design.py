"""A designed chip beside its reference: its laws in `evaluate`, and what they cost."""

from functools import partial
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.constants import BOLTZMANN
from energymodel.scenarios.components import build
from energymodel.scenarios.files import names
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.accelerator import Accelerator
from energymodel.system.evaluate import evaluate_once
from energymodel.system.training_system import as_designed
from outcomes import assert_log_slopes, replaced

NAME = "test-1b-h100"
CATALOG = load_scenario(NAME)
SCENARIO = load_scenario(NAME, {"system.chip_design": "scaled"})
REFERENCE = CATALOG.system.accelerator
CHOICES = (
    *("generations", "voltage", "area", "registers", "local_memory", "cache", "memory_stacks"),
    *("link_lanes", "number_bits", "error_margin"),
)


def changed(**choices):
    return replaced(SCENARIO.system, {f"chip_design.{name}": value for name, value in choices.items()})


def chip(**choices):
    return as_designed(changed(**choices), SCENARIO.plan).system.accelerator


def outcome(**choices):
    return evaluate_once(changed(**choices), SCENARIO.plan)


def test_a_chip_of_the_catalog_is_the_one_of_the_system():
    system, plan = as_designed(CATALOG.system, CATALOG.plan)
    assert system is CATALOG.system
    assert plan is CATALOG.plan


def test_the_choices_of_the_reference_give_the_reference():
    system, plan = as_designed(SCENARIO.system, SCENARIO.plan)
    same = eqx.tree_at(lambda tree: tree.chip_design, system, CATALOG.system.chip_design)
    pairs = zip(jax.tree.leaves((same, plan)), jax.tree.leaves((CATALOG.system, CATALOG.plan)), strict=True)
    for made, own in pairs:
        np.testing.assert_allclose(made, own, rtol=1e-12)
    own, made = evaluate_once(CATALOG.system, CATALOG.plan), outcome()
    for name in ("energy.total", "money", "carbon"):
        np.testing.assert_allclose(attrgetter(name)(made), attrgetter(name)(own), rtol=1e-12)


def test_voltage_sets_switching_energy_speed_and_floor():
    # The bound of 32 bits with a margin of 100 does not fall with the voltage: 32 x 100 x 1.38e-23 x theta.
    bound = 3200.0 * BOLTZMANN * REFERENCE.leakage.reference_temperature
    ratio = (chip(voltage=0.8).energy_per_flop - bound) / (REFERENCE.energy_per_flop - bound)
    np.testing.assert_allclose(ratio, 0.64, rtol=1e-6)
    made = chip(voltage=0.9)
    assert made.peak_flops < 0.95 * REFERENCE.peak_flops
    np.testing.assert_allclose(made.peak_flops / REFERENCE.peak_flops, made.reference_clock / REFERENCE.reference_clock)
    # At a tenth of the clock the curve lies on its floor.
    np.testing.assert_allclose(made.voltage(0.1) * 0.9, REFERENCE.voltage(0.1), rtol=1e-3)


@pytest.mark.parametrize("choice", ["registers", "local_memory", "cache", "memory_stacks", "link_lanes"])
def test_cache_interfaces_and_links_take_area_from_the_arithmetic(choice):
    more = chip(**{choice: 1.5})
    assert more.peak_flops < REFERENCE.peak_flops
    np.testing.assert_allclose(more.die_area, REFERENCE.die_area)


def test_larger_memories_in_the_cores_speed_up_products_and_leak():
    larger = chip(registers=2, local_memory=2)
    assert REFERENCE.gemm_efficiency < larger.gemm_efficiency
    assert REFERENCE.attention_efficiency < larger.attention_efficiency < 1.02 * REFERENCE.attention_efficiency
    energies = [
        np.asarray(entry.energy_per_flop).item() for entry in (chip(local_memory=2), REFERENCE, chip(registers=2))
    ]
    assert energies == sorted(energies)
    # On a die with room for 132 x (3 x 256 + 228) KiB more, in cells of 20 W/GB: 2.69 W.
    room = 1.0 + 132 * 996 * 1024 * 8 * 2.1e-14 / 0.42 / REFERENCE.die_area
    wider = chip(registers=2, local_memory=2, area=room)
    np.testing.assert_allclose(wider.leakage.power - REFERENCE.leakage.power, 2.6926, rtol=1e-3)


@pytest.mark.parametrize(("choice", "low", "high"), [("registers", 0.1, 4.0), ("local_memory", 0.25, 8.0)])
def test_the_best_memories_in_the_cores_lie_between_small_and_large(choice, low, high):
    ends = [float(outcome(**{choice: size}).etp) for size in (low, 1.5 if choice == "local_memory" else 0.5, high)]
    assert ends[1] < min(ends[0], ends[2])


def test_what_is_larger_has_its_price_carbon_and_power_and_no_part_is_negative():
    for name in ("price", "embodied_carbon", "leakage.power"):
        assert attrgetter(name)(chip(area=1.2)) > attrgetter(name)(REFERENCE)
    assert chip(generations=1).price > REFERENCE.price
    few, many = chip(memory_stacks=1), chip(memory_stacks=2)
    assert (many.price > few.price, many.busy_power > few.busy_power) == (True, True)
    assert all(part >= 0.0 for part in jax.tree.leaves(outcome(link_lanes=0.25).energy))


def test_energy_nears_the_bound_of_reliable_operations_with_the_generations():
    temperature = REFERENCE.leakage.reference_temperature
    # 0.69^60 = 2e-10 of today's energy is left above the bound.
    for more, margin in (({}, 100), ({"error_margin": 50}, 50)):
        made = chip(generations=60, **more)
        np.testing.assert_allclose(made.energy_per_flop, 32 * margin * BOLTZMANN * temperature, rtol=1e-4)


def test_hosts_and_links_improve_with_the_generations():
    system, _ = as_designed(changed(generations=2.0), SCENARIO.plan)
    ratios = {
        "node.overhead_power": 0.86,
        "node.scale_up.lane_bandwidth": 1.25,
        "network.link.energy": 0.74,
        "network.switch_lane_power": 1.25 * 0.74,
        "accelerator.launch_overhead": 0.92,
    }
    for path, ratio in ratios.items():
        of = attrgetter(path)
        np.testing.assert_allclose(of(system), of(SCENARIO.system) * ratio**2, rtol=1e-9, err_msg=path)


def test_noise_costs_time_and_narrow_numbers_loss():
    # e^-40 x 32 bit x 1e15/s x 0.1 is an error per chip in 74 s, e^-100 none in the age of the universe.
    assert outcome(error_margin=40).time > 2.0 * outcome().time
    np.testing.assert_allclose(outcome(error_margin=150).time, outcome().time, rtol=1e-9)
    narrow, own = outcome(number_bits=8), outcome()
    np.testing.assert_allclose(chip(number_bits=8).peak_flops / REFERENCE.peak_flops, 2.0, rtol=1e-12)
    assert narrow.loss > own.loss
    assert narrow.energy.total < own.energy.total


def test_gradients_reach_loss_and_energy():
    design = SCENARIO.system.chip_design
    point = {name: float(getattr(design, name)) for name in CHOICES}
    point |= {"voltage": 0.95, "number_bits": 12.0, "error_margin": 45.0, "generations": 0.5}
    assert_log_slopes(
        lambda result: (result.energy.total, result.time, result.money, result.loss),
        SCENARIO,
        {f"system.chip_design.{name}": value for name, value in point.items()},
        rtol=2e-3,
        atol=1e-8,
    )


# Parts that add up to others, and what they make.
PARTS = (
    *("energy_per_flop", "leakage.power", "fixed_power", "memory_energy", "busy_power", "idle_power", "rated_power"),
    *("peak_flops", "gemm_efficiency", "memory_bandwidth", "memory_capacity", "product_latency", "price"),
)


@jax.jit
@partial(jax.vmap, in_axes=(None, None, 0))
def parts_of(reference, link_rate, choices):
    """Parts of an accelerator by the choices of its design."""
    design = eqx.tree_at(
        lambda tree: [getattr(tree, name) for name in CHOICES], SCENARIO.system.chip_design, [*choices]
    )
    made = design.build(reference, link_rate).accelerator
    return jnp.stack([jnp.asarray(attrgetter(name)(made)) for name in PARTS])


def test_every_accelerator_can_be_designed_a_little_differently():
    """No part falls below zero, and none changes by more than ten times a choice, near the limits either."""
    usual = np.array([float(np.asarray(getattr(SCENARIO.system.chip_design, name))) for name in CHOICES])
    usual[CHOICES.index("generations")] = 1.0
    step = 0.01
    choices = np.stack([usual, *(usual * (1.0 + side * step * row) for row in np.eye(len(usual)) for side in (1, -1))])
    far = np.tile(usual, (5, 1))
    extremes = {"cache": 0.5, "registers": 0.3, "local_memory": 3.0, "area": 4.0, "memory_stacks": 0.1}
    for row, (name, value) in zip(far, extremes.items(), strict=True):
        row[CHOICES.index(name)] = value
    for name in names("hardware"):
        reference = build(name, Accelerator, name, {})
        made = np.asarray(parts_of(reference, 450e9, np.concatenate([choices, far])))
        assert np.all(np.isfinite(made)), name
        assert np.all(made > 0.0), (name, dict(zip(PARTS, np.min(made, axis=0), strict=True)))
        slopes = (np.log(made[1 : len(choices)]) - np.log(made[0])) / step
        assert np.max(np.abs(slopes)) < 10.0, (name, np.unravel_index(np.argmax(np.abs(slopes)), slopes.shape))
    assert "near-limit" in names("hardware")
