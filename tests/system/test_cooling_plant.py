"""What do chillers of a given size cost and save, and when are they too small?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.physics.chiller import LiftChiller
from energymodel.system.outputs import output
from gradients import check_grads

SMALL = "test-1b-h100"
CAPACITY = "system.facility.cooling.chiller_capacity"
WARM = {"system.facility": "air-cooled", "system.facility.cooling.weather": "singapore-weather"}
LAYOUT = tuple(f"plan.layout.{name}" for name in ("tensor", "pipeline", "context", "microbatch", "virtual_stages"))


@pytest.fixture(scope="module")
def outcome_of():
    """Outcome of a run in a warm place with chillers of a capacity per chip [W]."""
    scenario = em.load_scenario(SMALL, WARM)

    @jax.jit
    def outcome(capacity):
        system = eqx.tree_at(lambda one: one.facility.cooling.chiller_capacity, scenario.system, capacity)
        return em.evaluate(system, scenario.plan)

    return outcome, scenario


def test_a_plant_for_all_heat_is_that_of_the_building(outcome_of):
    # Machines that carry all heat in the hottest hour at the stated load never run at a higher one.
    outcome, scenario = outcome_of
    free = outcome(jnp.zeros(()))
    load = float(scenario.system.facility.cooling.chiller.load)
    large = outcome(jnp.asarray(2.0 * float(free.power_peak) / scenario.plan.chips / load))
    for name in ("energy", "power_peak", "water", "time"):
        np.testing.assert_allclose(output(large, name), output(free, name), rtol=1e-12)
    assert float(large.money) > float(free.money)


def test_each_watt_of_chillers_has_its_price(outcome_of):
    outcome, scenario = outcome_of
    price, run_time = scenario.system.market.price, outcome(jnp.zeros(())).time
    one, two = outcome(jnp.asarray(20e3)), outcome(jnp.asarray(21e3))
    recovery = price.cost(0.0, scenario.plan.chips, run_time, 0.0, 0.0, 0.0, 0.5 * 1e3)
    np.testing.assert_allclose(two.money - one.money, recovery, rtol=1e-6)


def test_limit_binds_where_a_hot_day_asks_more(outcome_of):
    outcome, scenario = outcome_of
    heat = float(outcome(jnp.zeros(())).chilled_heat) / float(scenario.plan.chips)
    np.testing.assert_allclose(outcome(jnp.asarray(heat)).slack.chillers, 0.0, atol=1e-9)
    np.testing.assert_allclose(outcome(jnp.asarray(0.5 * heat)).slack.chillers, np.log(0.5), rtol=1e-9)


def test_gradient_with_capacity(outcome_of):
    outcome, _ = outcome_of
    for capacity in (1100.0, 1500.0):  # part load of the year above that of the machines that run
        check_grads(
            lambda c: jnp.log(jnp.stack([outcome(c).energy.total, outcome(c).money])),
            (capacity,),
            order=1,
            loops=True,
            rtol=1e-4,
        )


@pytest.mark.slow
def test_search_finds_the_load_of_lowest_work_and_money_asks_for_less():
    scenario = em.load_scenario(SMALL, WARM)
    vary, fix = {CAPACITY: (100.0, 5000.0)}, ["plan.chips", "plan.batch", "plan.coolant_temperature", *LAYOUT]
    energy, money = (
        em.optimize(scenario, minimize=one, vary=vary, fix=fix, tolerance=0.0) for one in ("energy", "money")
    )
    chiller = scenario.system.facility.cooling.chiller
    assert isinstance(chiller, LiftChiller)
    best = np.sqrt(float(chiller.fixed_work) / float(chiller.quadratic_work))  # of lowest work per heat
    on_a_hot_day = float(np.exp(-energy.outcome.slack.chillers))
    assert best < on_a_hot_day < 1.1 * best  # lower on other days: the year has the best load in its mean
    assert best < on_a_hot_day < float(np.exp(-money.outcome.slack.chillers)) <= 1.0 + 1e-6
    assert float(energy.outcome.money) > float(money.outcome.money)


def test_too_small_a_plant_exits_with_3_and_says_what_to_do():
    result = run("evaluate", SMALL, "--set", f"{CAPACITY}=100 W")
    assert result.exit_code == 3
    assert "chillers: " in result.stderr
    assert "Raise system.facility.cooling.chiller_capacity to" in result.stderr
    refused = run("evaluate", SMALL, "--set", f"{CAPACITY}=-100 W")
    assert refused.exit_code == 2
    assert "chiller_capacity" in refused.stderr
