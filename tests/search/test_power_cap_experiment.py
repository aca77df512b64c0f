"""The experiment on a site with a power cap: stated plans and prices."""

import itertools

import numpy as np
import pytest

import energymodel as em
from energymodel.system.evaluate import evaluate_once
from experiment import Experiment

EXPERIMENT = Experiment("10_power_cap")
SERIES = ("time", "energy", "money")
DAY = 86400.0


@pytest.fixture(scope="module")
def published():
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


def test_stated_plans_are_whole_obey_the_site_and_give_the_stated_outcomes(published):
    for name in SERIES:
        for row in published[name]:
            scenario = scenario_of(row, published["loss"])
            outcome = evaluate_once(scenario.system, scenario.plan)
            np.testing.assert_allclose(outcome.time, row["days"] * DAY, rtol=1e-7)
            np.testing.assert_allclose(outcome.energy.total, row["energy_gwh"] * 3.6e12, rtol=1e-7)
            np.testing.assert_allclose(outcome.money, row["money_musd"] * 1e6, rtol=1e-7)
            np.testing.assert_allclose(outcome.loss, published["loss"], rtol=1e-9)
            assert float(outcome.power_peak) <= row["site_mw"] * 1e6 * (1.0 + 1e-6)
            assert float(outcome.memory_per_chip) <= 80e9 * (1.0 + 1e-6)
            assert float(outcome.temperature) <= 360.15 + 1e-3


def test_a_larger_site_is_faster_and_a_stated_plan_beats_the_published_one(published):
    for name in SERIES:
        assert np.all(np.diff([row["days"] for row in published[name]]) < 0.0)
    for row, old in zip(published["time"], published["published"], strict=True):
        assert row["days"] < 0.95 * old["days"]
    for fast, thrifty, cheap in zip(*(published[name] for name in SERIES), strict=True):
        assert thrifty["energy_gwh"] <= min(fast["energy_gwh"], cheap["energy_gwh"]) * (1.0 + 1e-3)
        assert cheap["money_musd"] <= min(fast["money_musd"], thrifty["money_musd"]) * (1.0 + 1e-3)


def test_the_price_of_a_megawatt_is_what_solving_again_gives(published):
    check = published["check"]
    np.testing.assert_allclose(check["price"], check["quotient"], rtol=0.01)
    priced = [
        (row, following)
        for row, following in itertools.pairwise(published["time"])
        if row["active"] and following["active"]
    ]
    assert len(priced) >= 5  # a search that ends at a kink has no price
    for row, _ in priced:
        # Between sites the price is not constant: the mean of both elasticities says the way to a few percent.
        np.testing.assert_allclose(row["next_by_prices"], row["next_found"], rtol=0.06)
    money = published["deadlines"]
    for row, following in itertools.pairwise(money):
        quotient = (row["money_musd"] - following["money_musd"]) / (following["days"] - row["days"])
        # Less than the price at the earlier deadline, but for the rounding to whole replicas and micro-batches.
        assert quotient < row["musd_per_day"] + 0.005 * row["money_musd"] / (following["days"] - row["days"])
