"""Does a run that follows a price of a token end in time, and never undercut the best calendar?"""

import numpy as np

from energymodel.search.calendar_bound import schedule_cost
from energymodel.search.calendar_policy import followed
from search.test_calendar_program import problem, solved


def test_with_the_price_of_the_same_hours_it_comes_near_the_best():
    given = problem(np.random.default_rng(4).uniform(0.1, 3.0, 100), 110.0)
    relaxed, best = solved(given)
    found = followed(given, relaxed.token_price)
    assert found is not None
    np.testing.assert_allclose(np.sum(found.shares @ given.rates), given.tokens / 3600.0, rtol=1e-9)
    assert relaxed.value * (1 - 1e-9) <= best.value * (1 + 1e-9) <= found.value * (1 + 2e-9)
    assert found.value < 1.03 * best.value
    np.testing.assert_allclose(schedule_cost(given.until(len(found.occupied)), found), found.value)


def test_tokens_worth_nothing_are_made_as_late_as_the_deadline_allows():
    found = followed(problem(np.ones(30), 40.0), 0.0)
    assert found is not None
    np.testing.assert_allclose(found.paused.sum(), 10.0)  # 40 tokens at 2 an hour take the last 20 of 30 hours
    assert followed(problem(np.ones(30), 61.0), 0.0) is None


def test_tokens_worth_much_are_made_at_once():
    found = followed(problem(np.ones(30), 40.0), 1e6)
    assert found is not None
    np.testing.assert_allclose(found.occupied.sum(), 20.0)
    assert found.restarts == 0.0


def test_every_restart_loses_its_time():
    prices = np.tile([0.1] * 6 + [50.0] * 2, 10)
    given = problem(prices, 60.0, stop=0.5)
    found = followed(given, 4.0)
    assert found is not None
    assert found.restarts > 0
    made = np.sum(found.shares @ given.rates) * 3600.0
    np.testing.assert_allclose(made - found.restarts * given.stop_time * given.rates[-1], given.tokens, rtol=1e-9)


def test_the_highest_hour_is_kept():
    given = problem(np.ones(30), 40.0)
    found = followed(given, 1e6, 7.0)
    assert found is not None
    assert found.power.max() == 7.0
