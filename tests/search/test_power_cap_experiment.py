"""The experiment on a site with a power cap: stated plans and prices."""

import itertools
import math

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.runtime.compilation import compiler_options
from energymodel.system.evaluate import evaluate, evaluate_once
from experiment import Experiment

EXPERIMENT = Experiment("10_power_cap")
SERIES = ("time", "energy", "money")
DAY = 86400.0


@pytest.fixture(scope="module")
def stated():
    return EXPERIMENT.stated()


def scenario_of(row, loss):
    """The stated plan, read as a scenario, which refuses fractions of replicas and micro-batches."""
    changes = {
        "plan.chips": row["chips"],
        "plan.batch": f"{row['plan']['batch']!r} token",
        "plan.clock": row["plan"]["clock"],
        "plan.coolant_temperature": f"{row['plan']['coolant_temperature']!r} K",
        "plan.goal": {"loss": f"{loss!r} nat/token"},
    }
    layout = {f"plan.layout.{name}": value for name, value in row["layout"].items()}
    return em.load_scenario("llama-3.1-405b-h100", {**changes, **layout})


def test_stated_plans_are_whole_obey_the_site_and_give_the_stated_outcomes(stated):
    for name in SERIES:
        for row in stated[name]:
            scenario = scenario_of(row, stated["loss"])
            outcome = evaluate_once(scenario.system, scenario.plan)
            np.testing.assert_allclose(outcome.time, row["days"] * DAY, rtol=1e-7)
            np.testing.assert_allclose(outcome.energy.total, row["energy_gwh"] * 3.6e12, rtol=1e-7)
            np.testing.assert_allclose(outcome.money, row["money_musd"] * 1e6, rtol=1e-7)
            np.testing.assert_allclose(outcome.loss, stated["loss"], rtol=1e-9)
            assert float(outcome.power_peak) <= row["site_mw"] * 1e6 * (1.0 + 1e-6)
            assert float(outcome.memory_per_chip) <= 80e9 * (1.0 + 1e-6)
            assert float(outcome.temperature) <= 360.15 + 1e-3


def test_a_larger_site_is_faster_and_a_stated_plan_beats_the_published_one(stated):
    for name in SERIES:
        assert np.all(np.diff([row["days"] for row in stated[name]]) < 0.0)
    for row, old in zip(stated["time"], stated["published"], strict=True):
        assert row["days"] < 0.95 * old["days"]
    for fast, thrifty, cheap in zip(*(stated[name] for name in SERIES), strict=True):
        assert thrifty["energy_gwh"] <= min(fast["energy_gwh"], cheap["energy_gwh"]) * (1.0 + 1e-3)
        assert cheap["money_musd"] <= min(fast["money_musd"], thrifty["money_musd"]) * (1.0 + 1e-3)


def test_the_price_of_a_megawatt_is_what_solving_again_gives(stated):
    check = stated["check"]
    np.testing.assert_allclose(check["price"], check["quotient"], rtol=0.01)
    known = [(one, two) for one, two in itertools.pairwise(stated["time"]) if one["active"] and two["active"]]
    assert len(known) >= 5  # a search that ends at a kink has no price
    for row, _ in known:
        # Between sites the price is not constant: the mean of both elasticities says the way to a few percent.
        np.testing.assert_allclose(row["next_by_prices"], row["next_found"], rtol=0.06)
    money = stated["deadlines"]
    for one, following in itertools.pairwise(money):
        quotient = (one["money_musd"] - following["money_musd"]) / (following["days"] - one["days"])
        # Less than the price at the earlier deadline, but for the rounding to whole replicas and micro-batches.
        assert quotient < one["musd_per_day"] + 0.005 * one["money_musd"] / (following["days"] - one["days"])


@pytest.mark.slow
def test_random_plans_about_the_stated_ones_are_no_faster(stated):
    @eqx.filter_jit(compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
    def outcomes(system, plans):
        return jax.vmap(evaluate, in_axes=(None, 0))(system, plans)

    rng, count = np.random.default_rng(0), 2048
    for row in stated["time"]:
        scenario, layout = scenario_of(row, stated["loss"]), row["layout"]
        factors = np.exp(10.0 ** rng.uniform(-4.0, -1.0, (count, 1)) * rng.standard_normal((count, 3)))
        chips = row["chips"] * factors[:, 0]
        replicas = chips / (layout["tensor"] * layout["pipeline"] * layout["context"])
        batch = np.maximum(row["plan"]["batch"] * factors[:, 1], replicas * layout["microbatch"] * 8192.0)
        clock = np.clip(row["plan"]["clock"] * factors[:, 2], 0.2, 1.0)
        inlet = scenario.system.facility.cooling.inlet
        ends = float(inlet.recommended_lowest), float(inlet.recommended_highest)
        coolant = np.clip(row["plan"]["coolant_temperature"] + rng.standard_normal(count), *ends)
        plans = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (count, *np.shape(leaf))), scenario.plan)
        plans = eqx.tree_at(
            lambda plan: (plan.chips, plan.batch, plan.clock, plan.coolant_temperature),
            plans,
            (chips, batch[:, None], clock, coolant),
        )
        found = outcomes(scenario.system, plans)
        allowed = (
            (np.asarray(found.power_peak) <= row["site_mw"] * 1e6)
            & (np.asarray(found.temperature) <= 360.15)
            & (np.asarray(found.memory_per_chip) <= 80e9)
            & (chips <= 131072.0)
        )
        assert allowed.any()
        least = float(np.min(np.asarray(found.time)[allowed])) / DAY
        # Fractions of replicas and micro-batches are allowed here: they gain at most the stated gap.
        assert math.log(row["days"] / least) < row["gap"] + 1e-3
