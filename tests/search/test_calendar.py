"""The enumeration of speeds and starts against arithmetic by hand and against every combination."""

from itertools import product

import numpy as np
import pytest

from energymodel.economics.cost import HOUR
from energymodel.search.calendar import bought_power
from energymodel.search.hourly_run import HourlyProblem, metered_peaks

RATES = np.array([1.0, 1.5, 2.0])
POWERS = np.array([5.0, 7.0, 11.0])


def problem(price, tokens, *, held=0.0, peak=0.0, month=None):
    """Hours at such prices, three speeds of which the fastest costs most energy, tokens in hours at rate 1."""
    price = np.asarray(price, float)
    powers = np.tile(POWERS, (len(price), 1))
    costs = HOUR * (price[:, None] * powers + held)
    months = np.zeros(len(price), int) if month is None else np.asarray(month)
    return HourlyProblem(HOUR * RATES, tokens * HOUR, powers, costs, HOUR * peak, months)


def best(schedule):
    """A schedule that exists."""
    assert schedule is not None
    return schedule


def every_value(case, start, horizon):
    """Costs of all combinations of speeds from a start."""
    for speeds in product(range(len(RATES)), repeat=horizon):
        made = np.cumsum(RATES[list(speeds)])
        goal = case.goal / HOUR
        if made[-1] < goal - 1e-9:
            continue
        last = int(np.searchsorted(made, goal - 1e-9))
        occupied = np.append(np.ones(last), 1.0 - (made[last] - goal) / RATES[speeds[last]])
        index, used = np.arange(start, start + last + 1), np.array(speeds[: last + 1])
        peaks = metered_peaks(case.month[index], case.powers[index, used] * occupied, occupied)
        yield float(case.costs[index, used] @ occupied) + case.peak * peaks


@pytest.mark.parametrize(("held", "peak"), [(0.0, 0.0), (3.0, 0.0), (3.0, 0.7)])
def test_hourly_speeds_come_near_the_best_of_all_combinations(held, peak):
    case = problem(np.random.default_rng(1).uniform(0.1, 3.0, 10), 10.0, held=held, peak=peak)
    run = best(case.best_hourly(np.arange(3), 8))
    lowest = min(min(every_value(case, start, 8)) for start in range(3))
    assert lowest * (1.0 - 1e-9) <= run.value <= 1.03 * lowest
    np.testing.assert_allclose(RATES[run.speeds] @ run.occupied, 10.0, rtol=1e-9)


def test_cost_by_hand_of_a_dear_hour():
    # 5.5 tokens within 3 hours: 2 in each cheap hour at 11 W, 1.5 in the dear one at 7 W.
    run = best(problem([1.0, 10.0, 1.0], 5.5).best_hourly(np.array([0]), 3))
    np.testing.assert_allclose(run.value, HOUR * (11.0 + 70.0 + 11.0), rtol=1e-9)
    assert run.speeds.tolist() == [2, 1, 2]


def test_like_hours_change_their_speed_one_by_one():
    # 160 tokens in 100 hours at one price: 80 hours at rate 1.5 and 20 at rate 2, or at one speed 80 hours at rate 2.
    case = problem(np.ones(100), 160.0)
    np.testing.assert_allclose(
        best(case.best_hourly(np.array([0]), 100)).value, HOUR * (80 * 7.0 + 20 * 11.0), rtol=1e-9
    )
    np.testing.assert_allclose(best(case.best_constant(np.array([0]), 100)).value, HOUR * 80 * 11.0, rtol=1e-9)


def test_a_demand_charge_levels_the_power():
    prices = np.tile([0.5, 1.5], 10)
    assert best(problem(prices, 30.0).best_hourly(np.array([0]), 20)).power.max() == pytest.approx(11.0)
    charged = best(problem(prices, 30.0, peak=100.0).best_hourly(np.array([0]), 20))
    np.testing.assert_allclose(charged.value, HOUR * (20 * 7.0 * 100.0 + 7.0 * prices.sum()), rtol=1e-9)


def test_the_constant_run_is_the_best_of_all_starts_and_speeds():
    case = problem(np.random.default_rng(3).uniform(0.1, 3.0, 48), 20.0, held=2.0, peak=0.4, month=np.arange(48) // 24)
    constant = best(case.best_constant(np.arange(30), 18))
    values = []
    for start, speed in product(range(30), (1, 2)):  # the slowest takes 20 hours
        hours = 20.0 / RATES[speed]
        occupied = np.append(np.ones(int(hours)), hours - int(hours))
        index = np.arange(start, start + len(occupied))
        peaks = sum(
            np.max(occupied[case.month[index] == m]) * POWERS[speed] * np.sum(occupied[case.month[index] == m])
            for m in np.unique(case.month[index])
        )
        values.append(float(case.costs[index, speed] @ occupied) + 0.4 * HOUR * peaks)
    np.testing.assert_allclose(constant.value, min(values), rtol=1e-12)


def test_tokens_that_do_not_fit_have_no_schedule():
    late = problem(np.ones(5), 10.1)
    assert late.best_hourly(np.array([0]), 5) is None
    assert late.best_constant(np.array([0]), 5) is None
    assert problem(np.ones(9), 10.0).best_constant(np.array([0, 5]), 4) is None


def test_a_contract_covers_its_power_where_the_price_is_positive():
    market, power = np.array([1.0, -1.0, 1.0]), np.array([11.0, 11.0, 4.0])
    np.testing.assert_allclose(bought_power(market, power, 6.0), [5.0, 11.0, 0.0])
    np.testing.assert_array_equal(bought_power(market, power, 0.0), power)
