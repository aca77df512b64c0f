"""What does a calendar cost at one speed throughout, and below which cost is none, from each start of a year?

Without a battery the hours are independent once a token has a price: the Lagrangian of the tokens bounds all calendars
of a start, with any end and any pauses [Boyd & Vandenberghe 2004, ch. 5].
"""

import numpy as np
from scipy.ndimage import minimum_filter1d

from energymodel.economics.series import HOUR
from energymodel.search.calendar_program import HourlyProblem, Schedule, bought_power, metered_peaks

TOKEN_PRICES = np.geomspace(0.1, 10.0, 91)
"""Prices of a token that are tried, over the cost of a token at the highest speed. Any of them gives a bound."""


def hour_costs(problem: HourlyProblem, powers: np.ndarray) -> np.ndarray:
    """Cost of each hour at a power, by hour and speed.

    A month's highest hour is taken as the hour itself, which bounds the demand charge from below.
    """
    costs, contract = problem.costs, problem.contract
    market, use = costs.market[:, None], costs.use[:, None]
    of_energy = use * powers + market * bought_power(market, powers, contract)
    contracted = costs.contract * contract.power if contract else 0.0
    return HOUR * (of_energy + costs.peak * powers + costs.held + contracted)


def start_bounds(problem: HourlyProblem, deadline: int, starts: np.ndarray) -> np.ndarray:
    """Lower bounds of the cost from some starts, infinite where the tokens do not fit before the deadline.

    **Arguments:**

    - `problem`: all hours of the series.
    - `deadline`: hours that a run may take.
    - `starts`: hours at which it may begin.
    """
    running, paused = hour_costs(problem, problem.powers), hour_costs(problem, problem.paused[:, None])
    tokens = HOUR * problem.rates
    usual = max(float(np.mean(running[:, -1])) / tokens[-1], np.finfo(float).tiny)
    best = np.full(len(starts), -np.inf)
    for price in TOKEN_PRICES * usual:
        value = np.minimum((running - price * tokens).min(axis=1), paused[:, 0])
        sums = np.concatenate([[0.0], np.cumsum(value)])
        # The lowest sum within the hours after a start: the window of the filter begins at the hour itself.
        window = deadline + 1
        lowest = minimum_filter1d(sums, window, mode="constant", cval=np.inf, origin=-(window // 2))
        best = np.maximum(best, price * problem.tokens + lowest[starts] - sums[starts])
    fits = tokens[-1] * np.minimum(deadline, problem.hours - starts) >= problem.tokens
    return np.where(fits, best, np.inf)


def constant_schedule(problem: HourlyProblem, speed: int) -> Schedule | None:
    """A run at one speed from the first hour on, without a battery; None where it does not end in time."""
    hours = problem.tokens / (HOUR * problem.rates[speed])
    count = int(np.ceil(hours - 1e-9))
    if count > problem.hours:
        return None
    part = problem.until(count)
    occupied = np.ones(count)
    occupied[-1] -= count - hours
    shares = np.zeros((count, len(problem.rates)))
    shares[:, speed] = occupied
    power = part.powers[:, speed] * occupied
    empty = np.zeros(count)
    found = Schedule(shares, occupied, 0.0, power, empty, 0.0, 0.0)
    return found._replace(value=schedule_cost(part, found))


def schedule_cost(problem: HourlyProblem, schedule: Schedule) -> float:
    """What a schedule costs at the prices of a problem, which need not be those that it was made for."""
    costs, contract, occupied = problem.costs, problem.contract, schedule.occupied
    power = schedule.power
    of_energy = costs.use * power + costs.market * bought_power(costs.market, power, contract, occupied)
    of_time = costs.held + (costs.contract * contract.power if contract else 0.0)
    peaks = costs.peak * metered_peaks(problem.month, power, occupied)
    return HOUR * float(np.sum(of_energy) + of_time * np.sum(occupied) + peaks)


def best_constant(
    problem: HourlyProblem, deadline: int, starts: np.ndarray, candidates: int = 24
) -> tuple[int, int, Schedule] | None:
    """The cheapest run at one speed: its start, its speed and its schedule; None where no speed is in time."""
    costs = hour_costs(problem, problem.powers)
    sums = np.concatenate([np.zeros((1, costs.shape[1])), np.cumsum(costs, axis=0)])
    ranked = []
    for speed, rate in enumerate(problem.rates):
        hours = problem.tokens / (HOUR * rate)
        whole = int(hours)
        ending = starts[starts + whole + 1 <= problem.hours]
        if hours > deadline or not len(ending):
            continue
        total = sums[ending + whole, speed] - sums[ending, speed] + (hours - whole) * costs[ending + whole, speed]
        ranked += [(total[at], int(ending[at]), speed) for at in np.argsort(total, kind="stable")[:candidates]]
    found = []
    for _, start, speed in sorted(ranked)[:candidates]:
        one = constant_schedule(window_of(problem, start, deadline), speed)
        if one is not None:
            found.append((start, speed, one))
    return min(found, key=lambda one: one[2].value, default=None)


def window_of(problem: HourlyProblem, start: int, deadline: int) -> HourlyProblem:
    """The hours from a start to the deadline or the end of the series."""
    costs = problem.costs
    chosen = slice(start, start + deadline)
    parts = {name: getattr(problem, name)[chosen] for name in ("powers", "paused", "month")}
    return problem._replace(costs=costs._replace(market=costs.market[chosen], use=costs.use[chosen]), **parts)
