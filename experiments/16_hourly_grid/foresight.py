"""The best calendar of hours that are all known, with a bound that no calendar undercuts, and one that knows no future.

The hours are independent once a token has a price: the Lagrangian of the tokens bounds all calendars of a start, with
any end and any pauses [Boyd & Vandenberghe 2004, ch. 5].
"""

from typing import Any, NamedTuple

import numpy as np
from hourly_program import (
    CLOSE,
    HourlyProblem,
    Schedule,
    best_schedule,
    hourly_problem,
    relaxed_schedule,
    schedule_cost,
)
from scipy.ndimage import minimum_filter1d

from energymodel.economics.cost import HOUR
from energymodel.scenarios.grid_hours import GridHours
from energymodel.scenarios.scenario import Scenario
from energymodel.search.calendar import USUAL_SLACK, Levels, levels_of, terms_of

TOKEN_PRICES = np.geomspace(0.1, 10.0, 91)
"""Prices of a token that are tried, over the cost of a token at the highest speed. Any of them gives a bound."""
SPEEDS = 7  # of the calendar, evenly spaced in clock, beside that of the best constant speed
FEWEST_STARTS = 3  # whose calendars are computed, more of short runs
MOST_HOURS = 7_000  # of all programs together, beyond those


class Foresight(NamedTuple):
    """The best calendar, its start, and the best constant speed; no calendar costs less than `bound`."""

    levels: Levels
    horizon: int
    start: int
    schedule: Schedule
    value: float
    constant_clock: float
    constant_value: float
    bound: float


def foresight(scenario: Scenario, hours: GridHours, start: int | None, **options: Any) -> Foresight:
    """The best calendar of a scenario, from one start or the best, by the deadline of `energymodel calendar`."""
    terms, levels = terms_of(scenario, **options), levels_of(scenario)
    shortest = levels.tokens / float(levels.rate[-1])
    horizon = int(USUAL_SLACK * shortest / HOUR)
    series = hours.window(0, hours.hours + horizon) if hours.repeats else hours
    last = hours.hours - (1 if hours.repeats else int(np.ceil(shortest / HOUR)))
    starts = np.arange(last + 1) if start is None else np.array([start])
    problem = hourly_problem(scenario, series, levels, terms)
    steady = best_constant(problem, horizon, starts)
    assert steady is not None
    constant_start, speed, constant = steady
    # Slower speeds than that of the lowest energy above a pause are left out: that one and pauses take less.
    first = int(np.argmin((levels.base - levels.paused_base) / levels.rate))
    evenly = np.linspace(first, len(levels.rate) - 1, SPEEDS).round().astype(int)
    chosen = np.unique(np.append(evenly, speed))
    few = problem._replace(rates=problem.rates[chosen], powers=problem.powers[:, chosen])
    begin, schedule, bound = _search(few, horizon, starts, (constant_start, constant))
    arrays = {name: getattr(levels, name)[chosen] for name in ("clock", "rate", "base", "heat")}
    clock = float(levels.clock[speed])
    return Foresight(levels._replace(**arrays), horizon, begin, schedule, schedule.value, clock, constant.value, bound)


def _search(
    problem: HourlyProblem, horizon: int, starts: np.ndarray, first: tuple[int, Schedule]
) -> tuple[int, Schedule, float]:
    """Start and schedule of the lowest cost, and what no start undercuts; starts in the order of their bounds."""
    same = constant_schedule(problem.window(first[0], horizon), first[1])
    best = first[0], same
    low = dict(zip(starts.tolist(), start_bounds(problem, horizon, starts).tolist(), strict=True))
    price, most = 0.0, max(FEWEST_STARTS, MOST_HOURS // horizon)
    for number, start in enumerate(list(dict.fromkeys([first[0], *sorted(low, key=lambda hour: low[hour])]))[:most]):
        if number and best[1].value <= min(low.values()) * (1.0 + CLOSE):
            break
        part = problem.window(start, horizon)
        relaxed = relaxed_schedule(part)
        if relaxed is None:
            continue
        low[start] = max(relaxed.value, low[start])
        price = price or relaxed.token_price
        run = best_schedule(part, relaxed, len(first[1].occupied))
        if run is not None:
            run = run._replace(value=schedule_cost(part.until(len(run.occupied)), run))
            best = min(best, (start, run), key=lambda pair: pair[1].value)
    start, schedule = best
    return start, schedule._replace(token_price=schedule.token_price or price), min(low.values())


def hour_costs(problem: HourlyProblem, powers: np.ndarray) -> np.ndarray:
    """Cost of each hour at a power, by hour and speed, with the month's highest hour taken as the hour itself."""
    return HOUR * ((problem.costs.use[:, None] + problem.costs.peak) * powers + problem.costs.held)


def start_bounds(problem: HourlyProblem, deadline: int, starts: np.ndarray) -> np.ndarray:
    """Lower bounds of the cost from some starts, infinite where the tokens do not fit before the deadline [h]."""
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


def constant_run(problem: HourlyProblem, speed: int) -> Schedule | None:
    """A run at one speed from the first hour on; None where it does not end in time."""
    hours = problem.tokens / (HOUR * problem.rates[speed])
    count = int(np.ceil(hours - 1e-9))
    if count > problem.hours:
        return None
    part, occupied = problem.until(count), np.ones(count)
    occupied[-1] -= count - hours
    shares = np.zeros((count, len(problem.rates)))
    shares[:, speed] = occupied
    run = Schedule(shares, occupied, 0.0, part.powers[:, speed] * occupied, 0.0, 0.0)
    return run._replace(value=schedule_cost(part, run))


def constant_schedule(problem: HourlyProblem, run: Schedule) -> Schedule:
    """A run at one speed among fewer speeds, where it is one of them."""
    speeds = np.flatnonzero(np.isclose(problem.powers[0], run.power[0], rtol=1e-9))
    same = constant_run(problem, int(speeds[0])) if len(speeds) else None
    return run if same is None else same


def best_constant(
    problem: HourlyProblem, deadline: int, starts: np.ndarray, candidates: int = 24
) -> tuple[int, int, Schedule] | None:
    """The cheapest run at one speed: its start, its speed and its schedule; None where no speed is in time."""
    costs = hour_costs(problem, problem.powers)
    sums = np.concatenate([np.zeros((1, costs.shape[1])), np.cumsum(costs, axis=0)])
    ranked = []
    for speed, rate in enumerate(problem.rates):
        hours = problem.tokens / (HOUR * rate)
        full = int(hours)
        ending = starts[starts + full + 1 <= problem.hours]
        if hours > deadline or not len(ending):
            continue
        total = sums[ending + full, speed] - sums[ending, speed] + (hours - full) * costs[ending + full, speed]
        ranked += [(total[at], int(ending[at]), speed) for at in np.argsort(total, kind="stable")[:candidates]]
    runs = [
        (start, speed, run)
        for _, start, speed in sorted(ranked)[:candidates]
        if (run := constant_run(problem.window(start, deadline), speed)) is not None
    ]
    return min(runs, key=lambda entry: entry[2].value, default=None)


def followed(problem: HourlyProblem, token_price: float, most_power: float = np.inf) -> Schedule | None:
    """Each hour at the speed, or paused, of the lowest cost where a token is worth a price that other hours gave.

    Prices of an hour are known when it begins, as those of a day-ahead market are. Where the deadline needs it, the
    run goes at its highest speed; it never pauses for what a restart would lose. None where the tokens do not fit.
    `most_power` is the highest that a run takes unless it would be late [W].
    """
    running, paused = hour_costs(problem, problem.powers), hour_costs(problem, problem.paused[:, None])[:, 0]
    made, top = HOUR * problem.rates, HOUR * float(problem.rates[-1])
    lost = problem.stop_time * float(problem.rates[-1])
    hours, speeds = problem.powers.shape
    shares, occupied, power = np.zeros((hours, speeds)), np.zeros(hours), np.zeros(hours)
    left, stopped, restarts = problem.tokens, False, 0
    for hour in range(hours):
        restart = lost if stopped else 0.0
        late = left + lost > (hours - hour - 1) * top
        value = np.where(problem.powers[hour] <= most_power, running[hour] - token_price * made, np.inf)
        speed = speeds - 1 if late else int(np.argmin(value))
        occupied[hour] = 1.0
        if not late and value[speed] + token_price * (restart if stopped else lost) > paused[hour]:
            power[hour], stopped = problem.paused[hour], True
            continue
        left += restart
        restarts += stopped
        stopped = False
        part = min(1.0, left / made[speed])
        shares[hour, speed] = occupied[hour] = part
        power[hour] = part * problem.powers[hour, speed]
        left -= part * made[speed]
        if left <= 1e-9 * problem.tokens:
            end = hour + 1
            run = Schedule(shares[:end], occupied[:end], float(restarts), power[:end], 0.0, token_price)
            return run._replace(value=schedule_cost(problem.until(end), run))
    return None
