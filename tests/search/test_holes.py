"""Holes through which a search once saved what nobody can save, one test each.

Each test compares two plans, or asks for what cannot be; nothing is searched but where the search itself was the hole.
"""

import dataclasses
import re
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.search.problem import formulate
from energymodel.search.rounding import nearby_counts
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan_rules import torus_chips, torus_fault, torus_sides

LARGE, SMALL, BLACKWELL, TPU = "llama-3.1-405b-h100", "test-1b-h100", "llama-3.1-70b-b200", "chinchilla-70b-tpu-v4"


@cache
def outcome(name, **changes):
    """Evaluate a scenario with changes, whose paths have double underscores for dots."""
    scenario = em.load_scenario(name, {path.replace("__", "."): value for path, value in changes.items()})
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))


def energy(name, **changes):
    return float(outcome(name, **changes).energy.total)


def changed(name, path, value):
    """A scenario in which a number was replaced after it was read, as with `eqx.tree_at`."""
    scenario = em.load_scenario(name)
    root, *names = path.split(".")

    def number(tree):
        for name in names:
            tree = getattr(tree, name)
        return tree

    tree = eqx.tree_at(number, getattr(scenario, root), np.asarray(value, np.float64))
    return dataclasses.replace(scenario, **{root: tree})


# What cannot be built, run or measured: path, value in SI, what the message says.
IMPOSSIBLE = [
    (LARGE, "plan.batch", 5 * 128 * 8192, "5 micro-batches for each replica"),
    (LARGE, "plan.layout.virtual_stages", 16, "130 of pipeline 16 x virtual stages 16 = 256 slots empty"),
    (LARGE, "plan.layout.shard_parameters", 1, "does not shard parameters (ZeRO 3) with pipeline parallelism"),
    (LARGE, "plan.layout.fp4", 0.5, "NVIDIA H100 SXM5, 80 GB has no fp4"),
    (LARGE, "plan.power_cap", 2000, "2 kW is above 700 W, the rated power"),
    (LARGE, "plan.clock", np.nan, "not a finite number"),
    (LARGE, "plan.chips", 16383, "does not divide plan.chips = 16383"),
    (LARGE, "plan.coolant_temperature", 400, "126.8 °C is impossible"),
    (LARGE, "system.accelerator.leakage.power", 700, "leave -11.81 W of busy_power 800 W for switching"),
    (LARGE, "system.accelerator.leakage.power", -10, "-10 W is impossible; give a value between 0 W"),
    (LARGE, "system.accelerator.gemm_efficiency", 1.5, "1.5 is impossible; give a share between 1e-09 and 1"),
    (LARGE, "system.network.link.lanes", 400, "16384 chips take 1.6384e+06 ports"),
    (LARGE, "system.network.link.lanes", 1, "1 is less than the 4 lanes whose power and price are in those of chip"),
    (LARGE, "system.network.topology.radix", 6.3, "no switch has 6.3 ports"),
    (LARGE, "system.network.topology.radix", 10000, "no switch has 10000 ports"),
    (LARGE, "system.network.topology.oversubscription", 0.5, "0.5 is impossible; give a value between 1 and"),
    (LARGE, "system.software.communicated_bytes", 0.5, "less than the 1 B of the narrowest format"),
    (LARGE, "system.software.optimizer_bytes", 0.1, "hold no optimizer state"),
    (TPU, "system.software.gradient_bytes", 1, "less than the 2 B of the narrowest format"),
    (TPU, "plan.layout.fp8", 0.5, "Google TPU v4, 32 GB has no fp8"),
    (TPU, "plan.chips", 832, "832 chips make a torus of 1 x 1 x 13 blocks of 64"),
    (TPU, "plan.chips", 1000, "1000 chips are 15.62 blocks of 64"),
]


@pytest.mark.parametrize(("name", "path", "value", "words"), IMPOSSIBLE, ids=lambda value: str(value)[:40])
def test_what_a_file_may_not_say_is_refused_in_python_too(name, path, value, words):
    with pytest.raises(em.InputError, match=re.escape(words)):
        em.optimize(changed(name, path, value))


@pytest.mark.parametrize(
    ("path", "ends", "words"),
    [
        ("system.accelerator.leakage.power", ("10 W", "700 W"), "leave -11.81 W"),
        ("system.accelerator.idle_power", ("10 W", "8 kW"), "8 kW is more than busy_power"),
        ("system.accelerator.peak_flops", ("1e15 FLOP/s", "1e30 FLOP/s"), "below Landauer's bound"),
        ("system.accelerator.gemm_efficiency", (0.5, 1.5), "1.5 is impossible"),
        ("system.network.link.lanes", (4, 4000), "three tiers of 64-port switches"),
        ("system.network.link.lanes", (0.5, 8), "0.5 is less than the 4 lanes"),
        ("system.software.communicated_bytes", ("0.1 B", "2 B"), "narrowest format"),
        ("plan.power_cap", ("350 W", "2 kW"), "2 kW is above 700 W"),
        ("plan.layout.fp4", (0, 1), "has no fp4"),
        ("plan.chips", (16384, 1e6), "ports, and three tiers"),
    ],
)
def test_no_range_ends_where_no_number_may_be(path, ends, words):
    with pytest.raises(em.InputError, match=re.escape(words)):
        em.load_scenario(LARGE).with_question(vary={path: ends})


def test_ranges_that_end_well_alone_end_well_together():
    power = {f"system.accelerator.{name}": ("10 W", "500 W") for name in ("leakage.power", "fixed_power")}
    scenario = em.load_scenario(LARGE)
    for path, ends in power.items():
        scenario.with_question(vary={path: ends})
    words = "leakage.power = 500 and system.accelerator.fixed_power = 500 cannot be together"
    with pytest.raises(em.InputError, match=re.escape(words)):
        scenario.with_question(vary=power)


def test_fewer_micro_batches_than_ranks_wait():
    # Five of sixteen ranks work: (p - 1) / m of the work is added [Narayanan et al. 2021, sec. 2.2].
    step = outcome(LARGE, plan__layout__virtual_stages=1, plan__batch="5242880 tokens").step_time
    assert float(step.bubble) >= 15.0 / 5.0 * 0.99 * float(step.compute)


def test_unsharded_gradients_are_not_sharded_by_zero_2():
    plain, unsharded = outcome(LARGE), outcome(LARGE, plan__layout__shard_gradients=0)
    np.testing.assert_allclose(unsharded.memory_per_chip, outcome(LARGE, plan__layout__zero=1).memory_per_chip)
    assert float(unsharded.memory_per_chip) > float(plain.memory_per_chip)


def test_sharded_gradients_are_sent_for_every_micro_batch():
    changes = {"plan__layout__pipeline": 1, "plan__layout__virtual_stages": 1, "plan__batch": "64 Mi tokens"}
    first, second = (outcome(BLACKWELL, **changes, plan__layout__zero=stage) for stage in (1, 2))
    assert float(second.memory_per_chip) < float(first.memory_per_chip)
    assert float(second.step_time.data) > float(first.step_time.data)


def test_narrow_products_cost_loss():
    at = {share: float(outcome(BLACKWELL, plan__layout__fp8=share).loss) for share in (0.0, 0.5, 1.0)}
    assert at[0.0] < at[0.5] < at[1.0] < float(outcome(BLACKWELL, plan__layout__fp4=1.0).loss)


def test_narrow_products_fall_short_of_the_ratio_of_peaks():
    # Twice the peak in nine tenths of the products: 1 / (0.1 + 0.9 / 2) = 1.82 times as fast at best.
    plain, narrow = (float(outcome(LARGE, plan__layout__fp8=share).step_time.compute) for share in (0.0, 0.9))
    assert 1.2 < plain / narrow < 1.7


def test_colder_coolant_takes_more_work_where_it_is_warmer():
    weather = "system__facility__cooling__weather"
    here, there = (
        [float(outcome(LARGE, plan__coolant_temperature=f"{t} °C", **{weather: where}).pue) for t in (18, 27)]
        for where in ("great-britain-weather", "singapore-weather")
    )
    assert here[0] > here[1]
    assert there[0] > there[1]
    assert there[0] - there[1] > 2.0 * (here[0] - here[1])


def test_fans_and_leakage_charge_for_warm_coolant():
    cool, warm = (outcome(LARGE, plan__coolant_temperature=f"{t} °C") for t in (27, 35))
    assert float(warm.energy.host) > 1.02 * float(cool.energy.host)
    assert float(warm.energy.static) > float(cool.energy.static)


def test_coolant_stays_within_the_class_of_the_equipment():
    assert float(outcome(LARGE, plan__coolant_temperature="45 °C").slack.coolant) < 0.0
    with pytest.raises(em.InputError, match="which the equipment takes"):
        em.optimize(em.load_scenario(LARGE), vary={"plan.coolant_temperature": ("10 °C", "60 °C")})


def test_a_continued_run_starts_with_the_tokens_it_has_seen():
    fresh, seen = outcome(SMALL), outcome(SMALL, system__tokens_seen="100 G tokens")
    assert float(seen.loss) < float(fresh.loss)
    assert float(seen.time) == pytest.approx(float(fresh.time))


def test_lanes_cost_energy_and_money():
    for path, lanes in ("system__network__link__lanes", 40), ("system__node__scale_up__lanes", 1800):
        own, wide = outcome(LARGE), outcome(LARGE, **{path: lanes})
        assert float(wide.step_time.total) < float(own.step_time.total)
        assert float(wide.energy.total) > float(own.energy.total)
        assert float(wide.money) > float(own.money)


def test_no_part_of_the_energy_is_negative():
    for name in (LARGE, SMALL, TPU):
        assert min(float(part) for part in jax.tree.leaves(outcome(name).energy)) >= 0.0


def test_a_chip_stays_above_landauers_bound():
    with pytest.raises(em.InputError, match=r"landauer_multiple: 0\.5 is impossible"):
        em.load_scenario("near-limit-hardware", {"system.accelerator.landauer_multiple": 0.5})


def test_eighty_layers_do_not_fill_81_slots():
    changes = {"plan.layout.pipeline": 3, "plan.layout.virtual_stages": 27, "plan.chips": 1536}
    with pytest.raises(em.InputError, match="80 layers leave 1 of pipeline 3 x virtual stages 27 = 81 slots empty"):
        em.load_scenario(BLACKWELL, changes)


def test_the_sides_of_a_torus():
    # By hand: 2 x 2 x 4 = 16, 2 x 2 x 3 = 12, and 13 is prime.
    assert torus_sides(16, 3) == (2, 2, 4)
    assert torus_sides(12, 3) == (2, 2, 3)
    assert torus_sides(13, 3) == (1, 1, 13)
    assert torus_sides(32, 2) == (4, 8)
    system = em.load_scenario(TPU).system
    assert torus_fault(system, 768.0) is None
    assert torus_chips(system, 832.0, 1024.0) == [768.0, 1024.0]
    assert torus_chips(system, 832.0, 1024.0, group=3) == [768.0]
    assert torus_fault(em.load_scenario(LARGE).system, 13.0 * 8.0) is None


def test_the_search_offers_no_torus_that_is_a_ring_of_blocks():
    scenario = em.load_scenario(TPU).with_question(vary={"plan.chips": (100, 1030)})  # no end is a torus
    problem = formulate(scenario, outcome(TPU))
    layout = jax.tree.map(lambda leaf: np.asarray(leaf)[None], scenario.plan.layout)
    point = np.array(
        [float(problem.formulation.coordinate(path, problem.start(path))) for path in problem.formulation.paths]
    )
    point[problem.index("plan.chips")] = np.log(832.0)
    counts = nearby_counts(problem, layout, 0, point, 1)
    assert {8 * count.data for count in counts} == {768, 1024}
