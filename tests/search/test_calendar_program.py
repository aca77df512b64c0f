"""Is the linear program over the hours that of the arithmetic by hand, and do its bounds hold?"""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from energymodel.economics.series import HOUR, pause_price
from energymodel.search.calendar_bound import (
    best_constant,
    constant_schedule,
    hour_costs,
    schedule_cost,
    start_bounds,
    window_of,
)
from energymodel.search.calendar_program import (
    Battery,
    Contract,
    HourlyCosts,
    HourlyProblem,
    best_schedule,
    relaxed_schedule,
)

RATES = np.array([1.0, 1.5, 2.0])
POWERS = np.array([5.0, 7.0, 11.0])
PAUSED = 2.0


def problem(price, tokens, *, held=0.0, stop=0.0, peak=0.0, battery=None, contract=None, month=None):
    """Hours at such prices, three speeds of which the fastest costs most energy, tokens in hours at rate 1."""
    price = np.asarray(price, float)
    return HourlyProblem(
        rates=RATES,
        powers=np.tile(POWERS, (len(price), 1)),
        paused=np.full(len(price), PAUSED),
        tokens=tokens * HOUR,
        stop_time=stop * HOUR,
        month=np.zeros(len(price), int) if month is None else np.asarray(month),
        costs=HourlyCosts(price, np.zeros(len(price)), held, peak, 0.5 if contract else 0.0),
        battery=battery,
        contract=contract,
    )


def solved(given):
    relaxed = relaxed_schedule(given)
    assert relaxed is not None
    found = best_schedule(given, relaxed)
    assert found is not None
    return relaxed, found


@pytest.mark.parametrize("held", [0.0, 3.0, 30.0])
def test_program_is_the_dual_with_one_price_of_a_token(held):
    # Without pause costs the hours are independent at a price of a token: an oracle that solves no linear program.
    given = problem(np.random.default_rng(1).uniform(0.1, 3.0, 60), 50.0, held=held)
    running, paused = hour_costs(given, given.powers), hour_costs(given, given.paused[:, None])[:, 0]

    def dual(price):
        value = np.minimum((running - price * HOUR * RATES).min(axis=1), paused)
        sums = np.concatenate([[0.0], np.cumsum(value)])
        return price * given.tokens + sums.min()  # the run ends wherever that is lowest

    found: Any = minimize_scalar(
        lambda price: -dual(price), bounds=(0.0, 100.0), method="bounded", options={"xatol": 1e-10}
    )
    relaxed = relaxed_schedule(given)
    assert relaxed is not None
    np.testing.assert_allclose(relaxed.value, -found.fun, rtol=1e-7)


def test_price_of_a_token_is_the_slope_of_the_cost():
    price = np.random.default_rng(2).uniform(0.1, 3.0, 40)
    low, here, high = (relaxed_schedule(problem(price, tokens, held=2.0)) for tokens in (39.99, 40.0, 40.01))
    assert low is not None
    assert here is not None
    assert high is not None
    np.testing.assert_allclose(here.token_price, (high.value - low.value) / (0.02 * HOUR), rtol=1e-6)


def test_cost_by_hand_of_two_prices():
    # 3 hours, 3 tokens, nothing held: pausing draws 2, so 1.5 at 7 in each cheap hour: 2 x 7 + 10 x 2 x 1 for the rest.
    given = problem([1.0, 10.0, 1.0], 3.0)
    _, found = solved(given)
    np.testing.assert_allclose(found.value, HOUR * (7.0 + 10.0 * 2.0 + 7.0), rtol=1e-9)
    np.testing.assert_allclose(found.paused, [0.0, 1.0, 0.0], atol=1e-9)
    assert found.restarts == 1.0
    np.testing.assert_allclose(schedule_cost(given.until(3), found), found.value, rtol=1e-12)


@pytest.mark.parametrize(("factor", "pauses"), [(0.98, False), (1.02, True)])
def test_pauses_start_at_the_pause_price(factor, pauses):
    # One dear hour in the middle of a run at one speed, whose end may move by an hour.
    held, price = 4.0, 0.3
    limit = float(pause_price(held, price, 5.0, PAUSED))
    prices = np.full(12, price)
    prices[5] = factor * limit
    given = problem(prices, 10.0, held=held)
    given = given._replace(rates=RATES[:1], powers=given.powers[:, :1])
    _, found = solved(given)
    np.testing.assert_allclose(found.paused.sum(), float(pauses), atol=1e-9)
    np.testing.assert_allclose(found.occupied.sum(), 10.0 + pauses, rtol=1e-9)


def test_a_restart_that_takes_long_keeps_the_run_going():
    prices = np.full(12, 0.3)
    prices[5] = 5.0
    for stop, paused in ((0.0, 1.0), (5.0, 0.0)):
        _, found = solved(problem(prices, 16.0, stop=stop))
        np.testing.assert_allclose(found.paused.sum(), paused, atol=1e-9)


def test_battery_earns_the_difference_of_prices_by_hand():
    # Taken 4 in the cheap hour at 1, given 0.8 x 4 in the dear one at 3, twice: 2 x (3.2 x 3 - 4 x 1) saved.
    prices = [1.0, 3.0, 1.0, 3.0]
    bare = problem(prices, 8.0)
    stored = bare._replace(battery=Battery(3.2 * HOUR, 4.0, 0.8))
    _, without = solved(bare)
    _, found = solved(stored)
    np.testing.assert_allclose(without.value - found.value, HOUR * 2 * (3.2 * 3.0 - 4.0), rtol=1e-7)
    np.testing.assert_allclose(found.stored, HOUR * np.array([3.2, 0.0, 3.2, 0.0]), atol=1e-6 * HOUR)


def test_contract_is_paid_whether_it_is_used_or_not_by_hand():
    # 11 drawn, 6 of them under contract at 0.5, 5 bought; the cheap hour buys nothing that the contract covers.
    given = problem([1.0, 0.1], 4.0, contract=Contract(6.0, 0.5))
    _, found = solved(given)
    np.testing.assert_allclose(found.value, HOUR * (2 * 6.0 * 0.5 + 5.0 * 1.0 + 5.0 * 0.1), rtol=1e-8)
    np.testing.assert_allclose(schedule_cost(given, found), found.value, rtol=1e-8)


def test_a_demand_charge_levels_the_power():
    prices = np.tile([0.5, 1.5], 10)
    _, free = solved(problem(prices, 30.0))
    _, charged = solved(problem(prices, 30.0, peak=100.0))
    assert free.power.max() == pytest.approx(11.0)
    assert charged.power.max() == pytest.approx(7.0, rel=1e-6)  # 30 tokens in 20 hours are 1.5 in each
    np.testing.assert_allclose(charged.value, HOUR * (20 * 7.0 * 100.0 + 7.0 * prices.sum()), rtol=1e-7)


def test_no_start_undercuts_its_bound_and_the_constant_run_is_the_best_of_all():
    price = np.random.default_rng(3).uniform(0.1, 3.0, 48)
    given, horizon = problem(price, 20.0, held=2.0, peak=0.4, month=np.arange(48) // 24), 18
    starts = np.arange(48 - horizon)
    bounds = start_bounds(given, horizon, starts)
    every = []
    for start in range(48 - horizon):
        part = window_of(given, start, horizon)
        relaxed, found = solved(part)
        assert bounds[start] <= relaxed.value * (1.0 + 1e-9)
        assert relaxed.value <= schedule_cost(part.until(len(found.occupied)), found) * (1.0 + 1e-9)
        assert bounds[start] > 0.97 * relaxed.value
        every += [(one.value, start) for speed in range(3) if (one := constant_schedule(part, speed)) is not None]
    best = best_constant(given, horizon, starts)
    assert best is not None
    np.testing.assert_allclose(best[2].value, min(every)[0], rtol=1e-12)


def test_tokens_that_do_not_fit_have_no_schedule():
    assert relaxed_schedule(problem(np.ones(5), 10.1)) is None
    assert start_bounds(problem(np.ones(5), 10.1), 5, np.array([0]))[0] == np.inf
    assert best_constant(problem(np.ones(5), 10.1), 5, np.array([0])) is None
