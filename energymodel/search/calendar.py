"""When should a run start, at which power should it run hour by hour, and when should it pause, over a year of a grid?

Learning does not depend on the clock at a fixed batch, so that tokens may be made when energy is cheap or clean.
Holding the equipment costs in every hour, also in pauses.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from energymodel.economics.cost import OwnedPrice
from energymodel.economics.series import HOUR, pause_price, series_total
from energymodel.errors import InputError
from energymodel.scenarios.grid_hours import GridHours, read_grid, region_hours
from energymodel.scenarios.scenario import Scenario
from energymodel.search.calendar_bound import best_constant, constant_schedule, schedule_cost, start_bounds, window_of
from energymodel.search.calendar_levels import Levels, cooling_of, levels_of
from energymodel.search.calendar_program import (
    CLOSE,
    HourlyCosts,
    HourlyProblem,
    Schedule,
    best_schedule,
    bought_power,
    metered_peaks,
    relaxed_schedule,
)
from energymodel.search.calendar_terms import EFFICIENCY, OBJECTIVES, Terms, notes_of, terms_of
from energymodel.units import format_quantity

SPEEDS = 7  # of the calendar, evenly spaced in clock, beside that of the best constant speed
FEWEST_STARTS = 3  # whose calendars are computed, more of short runs
MOST_HOURS = 7_000  # of all programs together, beyond those
USUAL_SLACK = 1.25  # deadline over the time at the highest speed


class CalendarRun(NamedTuple):
    """What a run takes by a schedule. Money is None where prices are not known by the hour.

    `held`, `bought`, `contract` and `demand` are parts of the money: equipment over time, energy at hourly prices,
    the contract, and the demand charge. `price` and `intensity` are what a joule costs and emits in the mean.
    """

    start: int
    time: float
    tokens: float
    energy: float
    money: float | None
    held: float
    bought: float | None
    contract: float
    demand: float
    carbon_operational: float | None
    carbon_embodied: float
    peak: float
    paused_time: float
    restarts: float
    clock: float
    price: float | None
    intensity: float | None
    value: float


@dataclasses.dataclass(frozen=True)
class Calendar:
    """The best calendar that was found, beside the best constant speed from its best start.

    - `hours`: those of the calendar, from its start to its end; `schedule` as in `calendar_program`.
    - `token_price`: of one more token, in `unit`.
    - `bound`: no calendar costs less, from any start that was asked for, or from this start alone with a battery.
    - `pause_above`: price of energy from which an hour's pause would pay [USD/J].
    - `battery_saving`: what the battery saves, in `unit`.
    """

    scenario: Scenario
    grid: str
    minimize: str
    unit: str
    deadline: float
    carbon_price: float
    levels: Levels
    hours: GridHours
    problem: HourlyProblem
    schedule: Schedule
    found: CalendarRun
    constant: CalendarRun
    constant_schedule: Schedule
    token_price: float
    bound: float
    pause_above: float | None
    battery_saving: float | None
    notes: tuple[str, ...]

    @property
    def saving(self) -> float:
        """Share of the cost of the constant run [1]."""
        return 1.0 - self.found.value / self.constant.value

    @property
    def gap(self) -> float:
        """Share of the cost by which the calendar may be above the lowest one [1]."""
        return 1.0 - self.bound / self.found.value


def calendar(
    scenario: Scenario,
    *,
    grid: str | Path | GridHours | None = None,
    zone: str | None = None,
    weather: str = "file",
    minimize: str = "money",
    deadline: str | float | None = None,
    start: str | int = "any",
    demand_charge: str | float | None = None,
    battery: str | None = None,
    battery_efficiency: float = EFFICIENCY,
    contract: str | None = None,
    carbon_price: str | float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Calendar:
    """Find start, speed and pauses of a scenario's run over the hours of a grid.

    **Arguments:**

    - `grid`: CSV file as in `presets.grid_hours`, or hours; without it the market and weather of the scenario.
    - `zone`: of the file. `weather`: "file", or "scenario" for the mean cooling of the scenario's year.
    - `minimize`: one of `OBJECTIVES`; "carbon" adds the embodied carbon to that of the energy.
    - `deadline`: longest time from start to end [s]; 1.25 times that at the highest speed unless given.
    - `start`: an hour of the file, or "any".
    - `demand_charge`: for a month's highest hour, as "15 USD/kW" or [USD/(W s)]; the scenario's unless given.
    - `battery`: such as "50 MWh at 12 MW", empty at the start; its power is that of four hours unless given.
    - `contract`: such as "0.04 USD/kWh at 20 MW", paid in every hour of the run, used or not.
    - `carbon_price`: of all carbon, added to money [USD/kg].

    **Raises:** `InputError` for what cannot be read or does not fit, and where no speed meets the deadline.
    """
    tell = progress or (lambda sentence: None)
    terms = terms_of(
        scenario, minimize, deadline, start, demand_charge, battery, battery_efficiency, contract, carbon_price
    )
    owned = isinstance(scenario.system.market.price, OwnedPrice)
    hours = _hours(scenario, grid, zone, weather, terms, owned)
    tell("evaluating the clocks ...")
    levels = levels_of(scenario)
    shortest = levels.tokens / float(levels.rate[-1])
    limit = USUAL_SLACK * shortest if terms.deadline is None else terms.deadline
    if limit < shortest:
        raise InputError(
            f"deadline: {format_quantity(limit, 's')} is shorter than the run at its highest speed, "
            f"{format_quantity(shortest, 's')}. Give more time or chips."
        )
    horizon = int(limit / HOUR)
    series = hours if not hours.repeats else hours.window(0, hours.hours + horizon)
    starts = _starts(hours, terms.start, shortest)
    whole = hourly_problem(scenario, series, levels, terms)
    tell("comparing constant speeds ...")
    steady = best_constant(whole, horizon, starts)
    if steady is None:
        raise InputError(
            f"deadline: no constant speed ends a run of {format_quantity(shortest, 's')} or more by "
            f"{format_quantity(limit, 's')} within the {hours.hours:,} hours of {hours.name}. Give more time or hours."
        )
    constant_start, speed, constant = steady
    chosen = _speeds(levels, speed)
    few = whole._replace(rates=whole.rates[chosen], powers=whole.powers[:, chosen])
    bounds = start_bounds(few, horizon, starts)
    same = constant_schedule(window_of(few, constant_start, horizon), int(np.searchsorted(chosen, speed)))
    first = (constant_start, constant if same is None else same)
    start_hour, schedule, bound = _search(few, horizon, starts, bounds, first, tell)
    part = window_of(few, start_hour, len(schedule.occupied))
    steady_part = window_of(whole, constant_start, len(constant.occupied))
    return Calendar(
        scenario=scenario,
        grid=hours.name,
        minimize=minimize,
        unit=OBJECTIVES[minimize],
        deadline=limit,
        carbon_price=terms.carbon_price,
        levels=levels.some(chosen),
        hours=series.window(start_hour, len(schedule.occupied)),
        problem=part,
        schedule=schedule,
        found=run_of(levels.some(chosen), series, part, schedule, start_hour, terms, owned),
        constant=run_of(levels, series, steady_part, constant, constant_start, terms, owned),
        constant_schedule=constant,
        token_price=schedule.token_price,
        bound=bound,
        pause_above=_pause_above(levels, series, whole, speed, terms, owned),
        battery_saving=_battery_saving(window_of(few, start_hour, horizon), schedule) if terms.battery else None,
        notes=(*hours.notes, *notes_of(terms, owned)),
    )


def _search(
    problem: HourlyProblem,
    horizon: int,
    starts: np.ndarray,
    bounds: np.ndarray,
    first: tuple[int, Schedule],
    tell: Callable[[str], None],
) -> tuple[int, Schedule, float]:
    """Start and schedule of the lowest cost that was found, and what no start undercuts.

    Starts are tried in the order of their lower bounds, that of the constant run first. With a battery, to which those
    bounds do not apply, it is the only one.
    """
    best, low = first, dict(zip(starts.tolist(), bounds.tolist(), strict=True))
    ordered = sorted(low, key=lambda start: low[start])
    price = 0.0
    most = max(FEWEST_STARTS, MOST_HOURS // horizon)
    for number, start in enumerate(list(dict.fromkeys([first[0], *ordered]))[:most]):
        near = best[1].value <= min(low.values()) * (1.0 + CLOSE)
        if number and (problem.battery or near):
            break
        tell(f"dividing the hours from start {number + 1} ...")
        part = window_of(problem, start, horizon)
        relaxed = relaxed_schedule(part)
        if relaxed is None:
            continue
        low[start] = relaxed.value if problem.battery else max(relaxed.value, low[start])
        price = price or relaxed.token_price
        found = best_schedule(part, relaxed, len(first[1].occupied))
        if found is not None:
            found = found._replace(value=schedule_cost(part.until(len(found.occupied)), found))
            best = min(best, (start, found), key=lambda one: one[1].value)
    start, schedule = best
    if schedule.token_price == 0.0:
        schedule = schedule._replace(token_price=price)
    return start, schedule, low[start] if problem.battery else min(low.values())


def hourly_problem(scenario: Scenario, hours: GridHours, levels: Levels, terms: Terms) -> HourlyProblem:
    """All hours with what they cost in the unit of the objective."""
    cooling = cooling_of(scenario.system, scenario.plan, hours)
    owned, none = isinstance(scenario.system.market.price, OwnedPrice), np.zeros(hours.hours)
    carbon = none if hours.carbon is None else hours.carbon
    if terms.minimize == "money":
        market = hours.price if owned and hours.price is not None else none
        held = levels.money_held + terms.carbon_price * levels.carbon_held
        contract = terms.contract.price if terms.contract else 0.0
        costs = HourlyCosts(market, terms.carbon_price * carbon, held, terms.demand_charge, contract)
    elif terms.minimize == "energy":
        costs = HourlyCosts(none, none + 1.0)
    else:
        costs = HourlyCosts(none, carbon, levels.carbon_held if terms.minimize == "carbon" else 0.0)
    return HourlyProblem(
        rates=levels.rate,
        powers=levels.powers(cooling),
        paused=levels.paused(cooling),
        tokens=levels.tokens,
        stop_time=levels.stop_time,
        month=hours.month,
        costs=costs,
        battery=terms.battery,
        contract=terms.contract,
    )


def run_of(
    levels: Levels, series: GridHours, part: HourlyProblem, schedule: Schedule, start: int, terms: Terms, owned: bool
) -> CalendarRun:
    """Time, energy, money and carbon of a schedule."""
    hours, occupied, power = series.window(start, len(schedule.occupied)), schedule.occupied, schedule.power
    time, energy = HOUR * float(np.sum(occupied)), HOUR * float(np.sum(power))
    held, demand, block = levels.money_held * time, 0.0, terms.contract
    bought = None
    if owned and hours.price is not None:
        bought = _total(hours.price, bought_power(hours.price, power, block, occupied))
        demand = terms.demand_charge * HOUR * metered_peaks(hours.month, power, occupied)
    lost = schedule.restarts * part.stop_time * float(levels.rate[-1])
    contracted = block.price * block.power * time if block else 0.0
    money = held + contracted + demand + bought if bought is not None else None if owned else held
    return CalendarRun(
        start=series.first + start,
        time=time,
        tokens=HOUR * float(np.sum(schedule.shares @ levels.rate)) - lost,
        energy=energy,
        money=money,
        held=held,
        bought=bought,
        contract=contracted,
        demand=demand,
        carbon_operational=None if hours.carbon is None else _total(hours.carbon, power),
        carbon_embodied=levels.carbon_held * time,
        peak=float(np.max(power)),
        paused_time=HOUR * float(np.sum(schedule.paused)),
        restarts=schedule.restarts,
        clock=float(np.sum(schedule.shares @ levels.clock) / np.sum(schedule.shares)),
        price=None if hours.price is None else _total(hours.price, power) / energy,
        intensity=None if hours.carbon is None else _total(hours.carbon, power) / energy,
        value=schedule.value,
    )


def _total(values: np.ndarray, powers: np.ndarray) -> float:
    with jax.enable_x64(True):
        return float(series_total(values, powers))


def _hours(
    scenario: Scenario, grid: str | Path | GridHours | None, zone: str | None, weather: str, terms: Terms, owned: bool
) -> GridHours:
    if weather not in ("file", "scenario"):
        raise InputError(f'weather: "{weather}" is unknown. Give file or scenario.')
    if grid is None:
        if zone is not None:
            raise InputError(f'zone: "{zone}" needs the file that has it. Give --grid FILE.csv as well.')
        return region_hours(scenario.system)
    if isinstance(grid, GridHours):
        return grid
    carbon = terms.minimize.startswith("carbon") or terms.carbon_price > 0.0
    needs = ["price"] * (terms.minimize == "money" and owned) + ["carbon"] * carbon
    spread = float(scenario.system.facility.cooling.weather.spread)
    return read_grid(grid, zone, needs=needs, weather=weather == "file", spread=spread)


def _starts(hours: GridHours, start: int | None, shortest: float) -> np.ndarray:
    """Hours of the series at which a run may begin, counted from its first."""
    last = hours.hours - 1 if hours.repeats else hours.hours - int(np.ceil(shortest / HOUR))
    if last < 0:
        raise InputError(
            f"{hours.name}: {hours.hours:,} hours are fewer than the {shortest / HOUR:,.0f} of the run at its highest "
            "speed. Give more hours, or more chips."
        )
    if start is None:
        return np.arange(last + 1)
    if not 0 <= start - hours.first <= last:
        raise InputError(
            f"start: hour {start} leaves no time for the run. Give {hours.first} to {hours.first + last}, or any."
        )
    return np.array([start - hours.first])


def _speeds(levels: Levels, speed: int) -> np.ndarray:
    """Speeds that the hours are divided over.

    Slower ones than that of the least energy above a pause are left out: that one and pauses together take less.
    """
    first = int(np.argmin((levels.base - levels.paused_base) / levels.rate))
    return np.unique(np.append(np.linspace(first, len(levels.rate) - 1, SPEEDS).round().astype(int), speed))


def _pause_above(
    levels: Levels, series: GridHours, problem: HourlyProblem, speed: int, terms: Terms, owned: bool
) -> float | None:
    if series.price is None or terms.minimize != "money" or not owned:
        return None
    running, paused = float(np.mean(problem.powers[:, speed])), float(np.mean(problem.paused))
    held = levels.money_held + terms.demand_charge * running
    with jax.enable_x64(True):
        return float(pause_price(held, float(np.mean(series.price)), running, paused))


def _battery_saving(problem: HourlyProblem, schedule: Schedule) -> float | None:
    """What the same start costs more without the battery."""
    bare = problem._replace(battery=None)
    relaxed = relaxed_schedule(bare)
    found = relaxed and best_schedule(bare, relaxed)
    if found is None:
        return None
    return schedule_cost(bare.until(len(found.occupied)), found) - schedule.value
