"""Experiment 16: halves of the year, its linear program by hand, and what its calendars may claim."""

import numpy as np
import pytest

from energymodel.scenarios.grid_hours import GridHours
from energymodel.scenarios.scenario import load_scenario
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("16_hourly_grid")


@pytest.fixture(scope="module")
def year() -> GridHours:
    """A year whose values say which hour they are from."""
    hours = np.arange(8784)
    price = (20.0 + 10.0 * np.sin(2 * np.pi * hours / 24) + hours * 1e-6) / 3.6e9
    return GridHours("made", price, price * 5.0, None, None, 0.1, hours // 732, False)


def test_halves_share_no_hour_and_a_forecast_repeats_the_mean_day_of_its_week(year):
    odd, even = (EXPERIMENT.run.half(year, first) for first in (0, 1))
    assert odd.hours == even.hours == 26 * 168
    assert not set(odd.price.tolist()) & set(even.price.tolist())
    assert odd.price[168] == year.price[336]
    seen = EXPERIMENT.run.half(year, 0)
    days = EXPERIMENT.run.forecast(seen).price.reshape(26, 7, 24)
    np.testing.assert_allclose(days.std(axis=1), 0.0, atol=1e-18)
    np.testing.assert_allclose(days.mean(axis=1), seen.price.reshape(26, 7, 24).mean(axis=1))


def test_a_calendar_made_for_one_half_is_judged_on_the_other(year):
    halves = [EXPERIMENT.run.half(year, first) for first in (0, 1)]
    scenario, options = load_scenario("test-1b-h100"), {"minimize": "carbon_operational"}
    best = [EXPERIMENT.foresight.foresight(scenario, hours, 0, **options) for hours in halves]
    row = EXPERIMENT.run.judged(scenario, *best, *halves, options)
    assert row["rule_saving"] <= row["bound_saving"] + 1e-9
    assert row["plan_saving"] <= row["bound_saving"] + 1e-9
    assert row["oracle_saving"] >= row["rule_saving"] - 0.05


def hourly_case(price, tokens, stop=0.0):
    """Hours at such prices, two speeds that draw 5 and 11 W, a pause that draws 2 W."""
    program, price = EXPERIMENT.hourly_program, np.asarray(price, float)
    shape = (len(price), 2)
    return program.HourlyProblem(
        rates=np.array([1.0, 2.0]),
        powers=np.broadcast_to([5.0, 11.0], shape).copy(),
        paused=np.full(len(price), 2.0),
        tokens=tokens * 3600.0,
        stop_time=stop * 3600.0,
        month=np.zeros(len(price), int),
        costs=program.HourlyCosts(price),
    )


@pytest.mark.parametrize(("stop", "paused"), [(0.0, 1.0), (5.0, 0.0)])
def test_a_dear_hour_is_paused_unless_a_restart_takes_long(stop, paused):
    foresight, program = EXPERIMENT.foresight, EXPERIMENT.hourly_program
    prices = np.full(12, 0.3)
    prices[5] = 5.0
    case = hourly_case(prices, 11.0, stop)
    relaxed = program.relaxed_schedule(case)
    best = program.best_schedule(case, relaxed)
    np.testing.assert_allclose(best.paused.sum(), paused, atol=1e-9)
    np.testing.assert_allclose(program.schedule_cost(case.until(len(best.occupied)), best), best.value, rtol=1e-9)
    bound = foresight.start_bounds(case, 12, np.array([0]))[0]
    rule = foresight.followed(case, relaxed.token_price)
    assert 0.9 * relaxed.value < bound <= relaxed.value * (1 + 1e-9) <= best.value * (1 + 2e-9)
    assert best.value <= rule.value * (1 + 1e-9)


def test_what_is_stated_keeps_to_its_bounds():
    assert {row["judged_on"] for row in EXPERIMENT.stored["unseen"]} == {"odd weeks", "even weeks"}
    for row in EXPERIMENT.stored["unseen"]:
        for name in ("plan_saving", "rule_saving", "oracle_saving"):
            assert row[name] <= row["bound_saving"] + 1e-9, row["case"]
    # The README's claim: with the full cost of the equipment no hour of the year is worth a pause.
    assert EXPERIMENT.stored["pause"][0]["hours_of_the_year_above"] == 0
    assert (
        EXPERIMENT.stored["pause"][0]["pause_above_usd_per_mwh"] > EXPERIMENT.stored["pause"][0]["highest_usd_per_mwh"]
    )
