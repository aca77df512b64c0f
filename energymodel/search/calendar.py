"""Start, power and end of a run over the hours of a grid, at the lowest money, carbon or energy.

Learning does not depend on the clock at a fixed batch, so that tokens may be made when energy is cheap or clean, while
holding the equipment costs in every hour. Speeds, starts and prices of a token are enumerated: at a price, each hour
passes at the speed whose cost less the worth of its tokens is lowest.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from energymodel.economics.cost import HOUR, YEAR, OwnedPrice, pause_price, series_total
from energymodel.errors import InputError
from energymodel.scenarios.grid_hours import GridHours, hours_of
from energymodel.scenarios.scenario import Scenario
from energymodel.search.hourly_power import (
    Contract,
    HourlyProblem,
    Levels,
    Schedule,
    bought_power,
    cooling_of,
    levels_of,
    metered_peaks,
)
from energymodel.units import format_quantity, parse_quantity

OBJECTIVES = {"money": "USD", "carbon": "kg", "carbon_operational": "kg", "energy": "J"}
MONTH = YEAR / 12.0
USUAL_SLACK = 1.25  # deadline over the time at the highest speed


class Terms(NamedTuple):
    """The question in SI: objective, longest time, hour of the start, charges of an owner, price of carbon."""

    minimize: str
    deadline: float | None
    start: int | None
    demand_charge: float
    contract: Contract | None
    carbon_price: float
    owned: bool


class CalendarRun(NamedTuple):
    """Totals of a run by a schedule. Money is None where prices are not known by the hour.

    `held`, `bought`, `contract` and `demand` are parts of the money: equipment over time, energy at hourly prices,
    the contract, and the demand charge. `price` and `intensity` are what a joule costs and emits in the mean.
    """

    schedule: Schedule
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
    clock: float
    price: float | None
    intensity: float | None


@dataclasses.dataclass(frozen=True)
class Calendar:
    """The best start and hourly power, beside the best constant speed from its best start.

    - `hours`: those of the calendar, from its start to its end; `deadline` [s].
    - `pause_above`: price of energy from which an hour's pause would pay [USD/J].
    """

    scenario: Scenario
    terms: Terms
    deadline: float
    levels: Levels
    hours: GridHours
    hourly: CalendarRun
    constant: CalendarRun
    pause_above: float | None
    notes: tuple[str, ...]

    @property
    def saving(self) -> float:
        """Share of the cost of the constant run [1]."""
        return 1.0 - self.hourly.schedule.value / self.constant.schedule.value


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
    contract: str | None = None,
    carbon_price: str | float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Calendar:
    """Find the start and the power of each hour of a scenario's run over the hours of a grid.

    **Arguments:**

    - `grid`: CSV file as in `scenarios.grid_hours`, or hours; without it the market and weather of the scenario.
    - `zone`: of the file. `weather`: "file", or "scenario" for the mean cooling of the scenario's year.
    - `minimize`: one of `OBJECTIVES`; "carbon" adds the embodied carbon to that of the energy.
    - `deadline`: longest time from start to end [s]; 1.25 times that at the highest speed unless given.
    - `start`: an hour of the file, or "any".
    - `demand_charge`: for a month's highest hour, as "15 USD/kW" or [USD/(W s)]; the scenario's unless given.
    - `contract`: such as "0.04 USD/kWh at 20 MW", paid in every hour of the run, used or not.
    - `carbon_price`: of all carbon, added to money [USD/kg].

    **Raises:** `InputError` for what cannot be read or does not fit, and where no speed meets the deadline.
    """
    tell = progress or (lambda sentence: None)
    terms = terms_of(scenario, minimize, deadline, start, demand_charge, contract, carbon_price)
    carbon = terms.minimize.startswith("carbon") or terms.carbon_price > 0.0
    needs = ["price"] * (terms.minimize == "money" and terms.owned) + ["carbon"] * carbon
    hours = hours_of(scenario, grid, zone, weather, needs)
    tell("evaluating the clocks ...")
    levels = levels_of(scenario)
    shortest = levels.tokens / float(levels.rate[-1])
    limit = USUAL_SLACK * shortest if terms.deadline is None else terms.deadline
    if limit < shortest:
        raise InputError(
            f"deadline: {format_quantity(limit, 's')} is shorter than the run at its highest speed, "
            f"{format_quantity(shortest, 's')}. Give more time or chips."
        )
    horizon, starts = int(limit / HOUR), hours.starts(terms.start, shortest)
    series = hours.window(0, hours.hours + horizon) if hours.repeats else hours
    cooling = cooling_of(scenario.system, scenario.plan, series)
    problem = _problem_of(series, levels, terms, levels.powers(cooling))
    tell("comparing constant and hourly power ...")
    constant = problem.best_constant(starts, horizon)
    if constant is None:
        raise InputError(
            f"deadline: no constant speed ends a run of {format_quantity(shortest, 's')} or more by "
            f"{format_quantity(limit, 's')} within the {hours.hours:,} hours of {hours.name}. Give more time or hours."
        )
    hourly = problem.best_hourly(starts, horizon)
    best = hourly if hourly is not None and hourly.value < constant.value else constant
    notes, pause_above = hours.notes, None
    if minimize == "money" and not terms.owned:
        notes += ("The rent of the scenario includes energy: its price by the hour does not enter the money.",)
    if minimize in ("carbon_operational", "energy"):
        notes += (f"Holding the equipment costs no {minimize}: only the deadline keeps the run from waiting.",)
    if series.price is not None and minimize == "money" and terms.owned:
        running = float(np.mean(problem.powers[:, int(constant.speeds[0])]))
        held = levels.money_held + terms.demand_charge * running
        with jax.enable_x64(True):
            paused = float(np.mean(levels.paused(cooling)))
            pause_above = float(pause_price(held, float(np.mean(series.price)), running, paused))
    return Calendar(
        scenario=scenario,
        terms=terms,
        deadline=limit,
        levels=levels,
        hours=series.window(best.start, len(best.occupied)),
        hourly=_run_of(levels, series, best, terms),
        constant=_run_of(levels, series, constant, terms),
        pause_above=pause_above,
        notes=notes,
    )


def _problem_of(hours: GridHours, levels: Levels, terms: Terms, powers: np.ndarray) -> HourlyProblem:
    zeros, contract = np.zeros(hours.hours), terms.contract
    use, market, held, peak = zeros if hours.carbon is None else hours.carbon, zeros, 0.0, 0.0
    if terms.minimize == "money":
        use, peak = terms.carbon_price * use, terms.demand_charge
        held = levels.money_held + terms.carbon_price * levels.carbon_held
        held += contract.price * contract.power if contract else 0.0
        market = hours.price if terms.owned and hours.price is not None else zeros
    elif terms.minimize == "energy":
        use = zeros + 1.0
    elif terms.minimize == "carbon":
        held = levels.carbon_held
    bought = bought_power(market[:, None], powers, contract)
    costs = HOUR * (use[:, None] * powers + market[:, None] * bought + held)
    return HourlyProblem(HOUR * levels.rate, levels.tokens, powers, costs, HOUR * peak, hours.month)


def _run_of(levels: Levels, series: GridHours, schedule: Schedule, terms: Terms) -> CalendarRun:
    hours = series.window(schedule.start, len(schedule.occupied))
    occupied, power, block = schedule.occupied, schedule.power, terms.contract
    time, energy = HOUR * float(np.sum(occupied)), HOUR * float(np.sum(power))
    held, demand, bought = levels.money_held * time, 0.0, None

    def total(values: np.ndarray, power: np.ndarray) -> float:
        with jax.enable_x64(True):
            return float(series_total(values, power))

    if terms.owned and hours.price is not None:
        bought = total(hours.price, bought_power(hours.price, power, block, occupied))
        demand = terms.demand_charge * HOUR * metered_peaks(hours.month, power, occupied)
    contracted = block.price * block.power * time if block else 0.0
    operational = None if hours.carbon is None else total(hours.carbon, power)
    return CalendarRun(
        schedule=schedule,
        start=series.first + schedule.start,
        time=time,
        tokens=HOUR * float(levels.rate[schedule.speeds] @ occupied),
        energy=energy,
        money=held + contracted + demand + bought if bought is not None else None if terms.owned else held,
        held=held,
        bought=bought,
        contract=contracted,
        demand=demand,
        carbon_operational=operational,
        carbon_embodied=levels.carbon_held * time,
        peak=float(np.max(power)),
        clock=float(levels.clock[schedule.speeds] @ occupied / np.sum(occupied)),
        price=None if hours.price is None else total(hours.price, power) / energy,
        intensity=None if operational is None else operational / energy,
    )


def terms_of(
    scenario: Scenario,
    minimize: str = "money",
    deadline: str | float | None = None,
    start: str | int = "any",
    demand_charge: str | float | None = None,
    contract: str | None = None,
    carbon_price: str | float | None = None,
) -> Terms:
    """The arguments of `calendar`, checked and in SI.

    **Raises:** `InputError` for what cannot be read, or does not enter the objective or the price of the scenario.
    """
    if minimize not in OBJECTIVES:
        raise InputError(f'minimize: "{minimize}" is no objective of a calendar. Give one of {", ".join(OBJECTIVES)}.')
    price = scenario.system.market.price
    for name, text in (("demand_charge", demand_charge), ("contract", contract), ("carbon_price", carbon_price)):
        if text is not None and minimize != "money":
            raise InputError(f"{name}: {text} does not enter {minimize}. Leave it out, or minimize money.")
        if text is not None and name != "carbon_price" and not isinstance(price, OwnedPrice):
            raise InputError(
                f"{name}: {text}, but the rent of the scenario includes energy. Set system.market.price=owned, or "
                "leave it out."
            )
    try:
        begin = None if str(start) == "any" else int(str(start))
    except ValueError:
        raise InputError(f'start: "{start}" is no hour of the file. Give a whole number, or any.') from None
    charge = float(price.demand_charge) if isinstance(price, OwnedPrice) else 0.0
    if demand_charge is not None:  # over time, or for a month: "15 USD/(kW month)" or "15 USD/kW"
        try:
            charge = parse_quantity(demand_charge, "USD/W", "demand_charge") / MONTH
        except InputError:
            charge = parse_quantity(demand_charge, "USD/(W s)", "demand_charge")
    block = None
    if contract is not None:
        worth, at, power = contract.partition(" at ")
        if not at:
            raise InputError(f'contract: "{contract}" has no power. Write it such as "0.04 USD/kWh at 20 MW".')
        block = Contract(parse_quantity(power, "W", "contract power"), parse_quantity(worth, "USD/J", "contract price"))
    longest = None if deadline is None else parse_quantity(deadline, "s", "deadline")
    carbon = 0.0 if carbon_price is None else parse_quantity(carbon_price, "USD/kg", "carbon_price")
    return Terms(minimize, longest, begin, charge, block, carbon, isinstance(price, OwnedPrice))
