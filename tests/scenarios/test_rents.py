"""Rents by contract: medians of quotes, priors where nobody quotes; they follow the accelerator. Owned hours."""

import datetime
import math

import pytest

from energymodel.economics.cost import Usage
from energymodel.errors import InputError
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.rents import CONTRACTS, rent
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once

RENT = "system.market.price.chip_time"
QUOTES = read_preset("prices", "_quotes")["quotes"]


def hourly(quantity):
    return quantity["value"] * 3600.0


def of(scenario):
    return float(scenario.system.market.price.chip_time) * 3600.0


def test_quotes_are_of_known_accelerators_and_contracts_with_day_and_publisher():
    for chip, contract, day, usd, publisher in QUOTES:
        assert chip in names("hardware")
        assert contract in CONTRACTS.values()
        assert datetime.date(2024, 12, 1) < day < datetime.date(2026, 12, 1)
        assert 0.1 < usd < 30.0
        assert len(publisher) > 2
    assert len({(*row[:3], row[4]) for row in QUOTES}) == len(QUOTES)


def test_a_rent_is_the_median_of_its_quotes_with_their_spread():
    found = rent(read_preset("hardware", "mi325x"), "on-demand")
    # 2.00, 2.25 and 3.80 USD/h: the variance of their logarithms is 0.0778, a third of 0.4^2 is 0.0533.
    assert hourly(found) == pytest.approx(2.25)
    assert found["distribution"] == "lognormal 0.36"
    assert found["kind"] == "published"
    assert "Vultr 2.00 (2026-07-31)" in found["source"]


@pytest.mark.parametrize("preset", CONTRACTS)
def test_a_preset_shows_the_rent_of_an_h100(preset):
    found = rent(read_preset("hardware", "h100-sxm"), CONTRACTS[preset])
    assert hourly(read_preset("prices", preset)["chip_time"]) == pytest.approx(hourly(found))


def test_a_chip_without_quote_has_a_wide_prior_from_another_contract_or_its_price():
    chip = read_preset("hardware", "gb300")
    of_contract, quoted = rent(chip, "reserved"), rent(chip, "on-demand")
    assert of_contract["kind"] == "prior"
    assert 0.5 * hourly(quoted) < hourly(of_contract) < hourly(quoted)
    assert float(of_contract["distribution"].split()[1]) > float(quoted["distribution"].split()[1])
    own = {"title": "My chip", "price": {"value": 1e4}}
    cheap, dear = rent(own, "reserved"), rent({**own, "price": {"value": 3e4}}, "reserved")
    assert math.isclose(hourly(dear), 3.0 * hourly(cheap))
    assert (cheap["kind"], "purchase price" in cheap["source"]) == ("prior", True)
    with pytest.raises(InputError, match=r"nobody quotes a spot rent of My chip.*chip_time"):
        rent({**own, "price": {"value": 0.0}}, "spot")


def test_the_rent_follows_the_accelerator_unless_the_scenario_states_one():
    rented = ["system.market.price=rented-on-demand", "plan.power_cap=600 W"]
    own = load_scenario("test-1b-h100", rented)
    for source in ("test-1b-h100", own.named_tables):  # also from tables with every number written out
        moved = load_scenario(source, [*rented, "system.accelerator=mi325x"])
        assert of(moved) == pytest.approx(2.25)
    assert "reserved" in load_scenario(own.named_tables, ["system.market.price=rented"]).provenance[RENT].source
    stated = load_scenario("test-1b-h100", [*rented, f"{RENT}=3 USD/h", "system.accelerator=b200-sxm"])
    assert of(stated) == pytest.approx(3.0)
    assert of(load_scenario(stated.named_tables, ["system.accelerator=h100-sxm"])) == pytest.approx(3.0)
    assert of(load_scenario("deepseek-v3-h800")) == pytest.approx(2.0)


def test_an_owned_h100_hour_costs_what_epoch_states():
    # 30,000 USD x 1.35 for chip and server; 0.23181 a year (8 %, 5.5 years) and 0.06 for repairs, over 8,760 h x 0.84.
    scenario = load_scenario("llama-3.1-405b-h100")
    chip_hour = scenario.system.market.price.cost(Usage(30e3, 1.0, 3600.0, energy=0.0, power=0.0))
    assert float(chip_hour) == pytest.approx(40_500 * 0.29181 / 7358.4, rel=1e-4)
    outcome = evaluate_once(scenario.system, scenario.plan)
    hour = float(outcome.money / (outcome.time / 3600.0 * scenario.plan.chips))
    # Epoch AI: 73.4 million USD, over the 30.84 million chip hours that Meta states or the 35.1 that Epoch counts.
    assert 0.8 * 2.38 < hour < 2.38
    assert hour == pytest.approx(2.09, rel=0.1)
