"""Are the halves of the year apart, and does the experiment state what its calendars may claim?"""

import numpy as np
import pytest

from energymodel.scenarios.grid_hours import GridHours
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.calendar import calendar
from experiment import Experiment

EXPERIMENT = Experiment("16_hourly_grid")


@pytest.fixture(scope="module")
def experiment():
    return EXPERIMENT.module("run")


@pytest.fixture(scope="module")
def year() -> GridHours:
    """A year whose values say which hour they are from."""
    hours = np.arange(8784)
    price = (20.0 + 10.0 * np.sin(2 * np.pi * hours / 24) + hours * 1e-6) / 3.6e9
    return GridHours("made", price, price * 5.0, None, None, 0.1, hours // 732, False)


def test_halves_share_no_hour(experiment, year):
    odd, even = (experiment.half(year, first) for first in (0, 1))
    assert odd.hours == even.hours == 26 * 168
    assert not set(odd.price.tolist()) & set(even.price.tolist())
    assert odd.price[168] == year.price[336]


def test_a_forecast_repeats_the_mean_day_of_its_week(experiment, year):
    seen = experiment.half(year, 0)
    days = experiment.forecast(seen).price.reshape(26, 7, 24)
    np.testing.assert_allclose(days.std(axis=1), 0.0, atol=1e-18)
    np.testing.assert_allclose(days.mean(axis=1), seen.price.reshape(26, 7, 24).mean(axis=1))


def test_a_calendar_made_for_one_half_is_judged_on_the_other(experiment, year):
    halves = [experiment.half(year, first) for first in (0, 1)]
    scenario, options = load_scenario("test-1b-h100"), {"minimize": "carbon_operational"}
    best = [calendar(scenario, grid=one, start=0, minimize="carbon_operational") for one in halves]
    row = experiment.judged(scenario, *best, *halves, options)
    assert row["rule_saving"] <= row["bound_saving"] + 1e-9
    assert row["plan_saving"] <= row["bound_saving"] + 1e-9
    assert row["oracle_saving"] >= row["rule_saving"] - 0.05


def test_what_is_stated_keeps_to_its_bounds():
    stated = EXPERIMENT.stated()
    assert {row["judged_on"] for row in stated["unseen"]} == {"odd weeks", "even weeks"}
    for row in stated["unseen"]:
        for name in ("plan_saving", "rule_saving", "oracle_saving"):
            assert row[name] <= row["bound_saving"] + 1e-9, row["case"]
    # The README's claim: with the full cost of the equipment no hour of the year is worth a pause.
    assert stated["pause"][0]["hours_of_the_year_above"] == 0
    assert stated["pause"][0]["pause_above_usd_per_mwh"] > stated["pause"][0]["highest_usd_per_mwh"]
