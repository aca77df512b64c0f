"""What do converters in front of the chip and gates inside it save and cost?"""

import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.physics.delivery import Regulator
from energymodel.system.evaluate import evaluate_once

SMALL = "test-1b-h100"
CONVERTER = "system.facility.bus_converter"
SUPPLY = "system.facility.power_supply.rated_power"
GATE = "system.accelerator.gate"
LAYOUT = tuple(f"plan.layout.{name}" for name in ("tensor", "pipeline", "context", "microbatch", "virtual_stages"))


def outcome(changes):
    scenario = em.load_scenario(SMALL, changes)
    with jax.enable_x64(True):
        return evaluate_once(scenario.system, scenario.plan)


def test_a_converter_without_losses_and_price_is_none():
    free = {f"{CONVERTER}.{name}": 0.0 for name in ("fixed_loss", "proportional_loss", "quadratic_loss")}
    lossless = outcome({CONVERTER: "bus-converter", **free, f"{CONVERTER}.rating_price": "0 USD/W"})
    without = outcome({})
    for one, other in zip(jax.tree.leaves(lossless), jax.tree.leaves(without), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_each_converter_adds_its_loss_by_load():
    without, board, die = (
        outcome(one) for one in ({}, {CONVERTER: "bus-converter"}, {"system.facility.point_of_load": "point-of-load"})
    )
    for found in (board, die):
        assert found.energy.delivery_loss > without.energy.delivery_loss
        assert found.money > without.money
        assert found.slack.facility_power < without.slack.facility_power
    lower = outcome({CONVERTER: "bus-converter", "plan.power_cap": "300 W"})
    capped = outcome({"plan.power_cap": "300 W"})
    losses = [
        (one.energy.delivery_loss - other.energy.delivery_loss) / other.energy.total
        for one, other in ((board, without), (lower, capped))
    ]
    assert losses[1] > losses[0]  # the loss at no load weighs more


@pytest.mark.slow
def test_the_best_rating_of_a_supply_has_the_best_load():
    scenario = em.load_scenario(SMALL)
    supply = scenario.system.facility.power_supply
    assert isinstance(supply, Regulator)
    found = em.optimize(
        scenario, vary={SUPPLY: (500.0, 20e3)}, fix=["plan.chips", "plan.batch", *LAYOUT], tolerance=0.0
    )
    energy, time = found.outcome.energy, found.outcome.time * found.plan.chips
    load = (energy.total - energy.cooling - energy.other - energy.delivery_loss) / time
    best = np.sqrt(float(supply.fixed_loss) / float(supply.quadratic_loss))  # of highest efficiency
    np.testing.assert_allclose(load / found.found[SUPPLY], best, rtol=0.02)  # the wires to it lose a little


def test_an_overloaded_supply_exits_with_3_and_says_what_to_do():
    given = ["--set", f"{CONVERTER}=bus-converter", "--set", f"{CONVERTER}.rated_power=800 W"]
    result = run("evaluate", SMALL, *given)
    assert result.exit_code == 3
    assert "supplies: " in result.stderr
    assert "Raise rated_power" in result.stderr
    assert run("evaluate", SMALL, "--set", f"{CONVERTER}=bus-convertor").exit_code == 2


def test_gates_save_leakage_and_cost_their_waking():
    plain, instant = outcome({}), outcome({f"{GATE}.fraction": 1.0, f"{GATE}.wake_time": "0 s"})
    np.testing.assert_allclose(instant.step_time.total, plain.step_time.total, rtol=1e-12)
    assert instant.energy.idle_wait < plain.energy.idle_wait
    half = outcome({f"{GATE}.fraction": 0.5, f"{GATE}.wake_time": "0 s"})
    saved = [float(plain.energy.idle_wait - one.energy.idle_wait) for one in (half, instant)]
    np.testing.assert_allclose(saved[1], 2.0 * saved[0], rtol=1e-9)
    slow = outcome({f"{GATE}.fraction": 1.0, f"{GATE}.wake_time": "1 ms"})
    assert slow.step_time.overhead > plain.step_time.overhead
    assert slow.energy.total > instant.energy.total


def test_waits_shorter_than_the_break_even_time_are_not_gated():
    costly = outcome({f"{GATE}.fraction": 1.0, f"{GATE}.wake_energy": "1 MJ"})
    np.testing.assert_allclose(costly.energy.total, outcome({}).energy.total, rtol=1e-9)
