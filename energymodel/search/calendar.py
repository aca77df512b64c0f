"""Start, power and end of a run over the hours of a grid, at the lowest money, carbon or energy.

Learning does not depend on the clock at a fixed batch, so that tokens may be made when energy is cheap or clean, while
holding the equipment costs in every hour. Speeds, starts and prices of a token are enumerated: at a price, each hour
passes at the speed whose cost less the worth of its tokens is lowest.
"""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from energymodel.economics.cost import HOUR, YEAR, OwnedPrice, pause_price, series_total
from energymodel.errors import InputError
from energymodel.scenarios.grid_hours import GridHours, hours_of
from energymodel.scenarios.scenario import Scenario
from energymodel.search.hourly_power import ROUNDING, Levels, cooling_of, levels_of
from energymodel.units import format_quantity, parse_quantity

OBJECTIVES = {"money": "USD", "carbon": "kg", "carbon_operational": "kg", "energy": "J"}
USUAL_SLACK = 1.25  # deadline over the time at the highest speed
CAPS = 7  # highest speeds that are tried where a demand charge makes the highest hour dear
TOKEN_PRICES = np.geomspace(0.1, 10.0, 91)  # over the cost of a token at the highest speed
ZOOMS, ZOOM = 6, 33  # rounds between the neighbors of the best price, and prices in each
STARTS = 24  # of a rule, those of the lowest cost before the demand charge is known
TIE = 1e-4  # by which later hours count as dearer, so that like hours change their speed one by one


class Terms(NamedTuple):
    """The question in SI: objective, longest time, hour of the start, charges of an owner, price of carbon.

    `contract_power` is paid in every hour of the run, used or not [W], at `contract_price` [USD/J].
    """

    minimize: str
    deadline: float | None
    start: int | None
    demand_charge: float
    contract_power: float
    contract_price: float
    carbon_price: float
    owned: bool


class HourlyRun(NamedTuple):
    """A run from an hour of a grid on, at a speed for each of its hours, and its totals.

    - `speeds`, `occupied`, `power`: by hour the index of the speed, the share before the end, and the mean power [W].
    - `value`: its cost in the unit of the objective; `peak`: its highest hour [W]; `clock`: the mean [1].
    - `held`, `bought`, `contract`, `demand`: parts of the money: equipment over time, energy at hourly prices, the
      contract, and the demand charge. `price` and `intensity`: what a joule costs and emits in the mean. What is not
      known by the hour is None.
    """

    start: int
    speeds: np.ndarray
    occupied: np.ndarray
    power: np.ndarray
    value: float
    time: float = 0.0
    tokens: float = 0.0
    energy: float = 0.0
    peak: float = 0.0
    clock: float = 0.0
    money: float | None = None
    held: float = 0.0
    bought: float | None = None
    contract: float = 0.0
    demand: float = 0.0
    carbon_operational: float | None = None
    carbon_embodied: float = 0.0
    price: float | None = None
    intensity: float | None = None


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
    hourly: HourlyRun
    constant: HourlyRun
    pause_above: float | None
    notes: tuple[str, ...]

    @property
    def saving(self) -> float:
        """Share of the cost of the constant run [1]."""
        return 1.0 - self.hourly.value / self.constant.value


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
    pays_energy = minimize == "money" and terms.owned
    needs = ["price"] * pays_energy + ["carbon"] * (minimize.startswith("carbon") or terms.carbon_price > 0.0)
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
    best = _cheapest((constant, problem.best_hourly(starts, horizon))) or constant
    notes, pause_above = hours.notes, None
    if minimize == "money" and not terms.owned:
        notes += ("The rent of the scenario includes energy: its price by the hour does not enter the money.",)
    if minimize in ("carbon_operational", "energy"):
        notes += (f"Holding the equipment costs no {minimize}: only the deadline keeps the run from waiting.",)
    with jax.enable_x64(True):
        if series.price is not None and pays_energy:
            running = float(np.mean(problem.powers[:, int(constant.speeds[0])]))
            held = levels.money_held + terms.demand_charge * running
            paused = float(np.mean(levels.paused(cooling)))
            pause_above = float(pause_price(held, float(np.mean(series.price)), running, paused))
        hourly, constant = (_with_totals(run, levels, series, terms) for run in (best, constant))
    own_hours = series.window(best.start, len(best.occupied))
    return Calendar(scenario, terms, limit, levels, own_hours, hourly, constant, pause_above, notes)


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
    owned = isinstance(price, OwnedPrice)
    for name, text in (("demand_charge", demand_charge), ("contract", contract), ("carbon_price", carbon_price)):
        if text is not None and minimize != "money":
            raise InputError(f"{name}: {text} does not enter {minimize}. Leave it out, or minimize money.")
        if text is not None and name != "carbon_price" and not owned:
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
            charge = parse_quantity(demand_charge, "USD/W", "demand_charge") / (YEAR / 12.0)
        except InputError:
            charge = parse_quantity(demand_charge, "USD/(W s)", "demand_charge")
    power, worth = 0.0, 0.0
    if contract is not None:
        rate, at, block = contract.partition(" at ")
        if not at:
            raise InputError(f'contract: "{contract}" has no power. Write it such as "0.04 USD/kWh at 20 MW".')
        power = parse_quantity(block, "W", "contract power")
        worth = parse_quantity(rate, "USD/J", "contract price")
    longest = None if deadline is None else parse_quantity(deadline, "s", "deadline")
    carbon = 0.0 if carbon_price is None else parse_quantity(carbon_price, "USD/kg", "carbon_price")
    return Terms(minimize, longest, begin, charge, power, worth, carbon, owned)


class HourlyProblem(NamedTuple):
    """All hours at all speeds: `tokens` of an hour by speed, `powers` [W] and `costs`, the demand charge apart.

    `peak` is what a watt of a month's highest hour costs for an hour of the run; `goal` the tokens of the run.
    """

    tokens: np.ndarray
    goal: float
    powers: np.ndarray
    costs: np.ndarray
    peak: float
    month: np.ndarray

    def best_constant(self, starts: np.ndarray, horizon: int) -> HourlyRun | None:
        """The cheapest run at one speed, from its best start."""
        rules = (np.full(len(self.month), speed) for speed in range(len(self.tokens)))
        return _cheapest(self._best_start(rule, starts, horizon) for rule in rules)

    def best_hourly(self, starts: np.ndarray, horizon: int) -> HourlyRun | None:
        """The cheapest run whose hours each have the best speed at one price of a token, below one highest speed."""
        fastest = len(self.tokens) - 1
        caps = np.linspace(0, fastest, CAPS).round().astype(int) if self.peak > 0.0 else [fastest]
        usual = max(float(np.mean(self.costs[:, -1])) / self.tokens[-1], np.finfo(float).tiny)
        scores = self.costs * (1.0 + TIE * np.linspace(0.0, 1.0, len(self.month)))[:, None]
        best, prices = None, TOKEN_PRICES * usual
        for _ in range(1 + ZOOMS):
            trials = []
            for index, price in enumerate(prices):
                net = scores - price * self.tokens
                for cap in caps:
                    run = self._best_start(np.argmin(net[:, : cap + 1], axis=1), starts, horizon)
                    trials += [(run, index, cap)] if run is not None else []
            if not trials:
                return best
            run, index, cap = min(trials, key=lambda trial: trial[0].value)
            best = run if best is None or run.value < best.value else best
            caps, starts = [cap], np.array([best.start])
            prices = np.geomspace(prices[max(index - 1, 0)], prices[min(index + 1, len(prices) - 1)], ZOOM)
        return best

    def _best_start(self, rule: np.ndarray, starts: np.ndarray, horizon: int) -> HourlyRun | None:
        """The cheapest run by a rule, which gives the speed of every hour; None where it does not end in time."""
        every = np.arange(len(rule))
        made = np.concatenate([[0.0], np.cumsum(self.tokens[rule])])
        costs = self.costs[every, rule] + self.peak * self.powers[every, rule]
        spent = np.concatenate([[0.0], np.cumsum(costs)])
        wanted = made[starts] + self.goal
        last = np.searchsorted(made, wanted * (1.0 - ROUNDING), side="left") - 1  # the hour in which the run ends
        within = np.minimum(last, len(rule) - 1)
        share = (wanted - made[within]) / self.tokens[rule[within]]
        total = spent[within] - spent[starts] + share * costs[within]
        in_time = np.flatnonzero((last < len(rule)) & (last - starts + share <= horizon))
        order = in_time[np.argsort(total[in_time], kind="stable")[: STARTS if self.peak > 0.0 else 1]]
        return _cheapest(self._run(rule, int(starts[i]), int(last[i]), float(share[i])) for i in order)

    def _run(self, rule: np.ndarray, start: int, last: int, share: float) -> HourlyRun:
        index = np.arange(start, last + 1)
        speeds, occupied = rule[index], np.ones(len(index))
        occupied[-1] = min(share, 1.0)
        power = self.powers[index, speeds] * occupied
        peaks = self.peak * metered_peaks(self.month[index], power, occupied)
        return HourlyRun(start, speeds, occupied, power, float(self.costs[index, speeds] @ occupied) + peaks)


def _cheapest(runs: Iterable[HourlyRun | None]) -> HourlyRun | None:
    return min((run for run in runs if run is not None), key=lambda run: run.value, default=None)


def _problem_of(hours: GridHours, levels: Levels, terms: Terms, powers: np.ndarray) -> HourlyProblem:
    """All hours at all speeds, with costs in the unit of the objective."""
    zeros = np.zeros(hours.hours)
    use, market, held, peak = zeros if hours.carbon is None else hours.carbon, zeros, 0.0, 0.0
    if terms.minimize == "money":
        use, peak = terms.carbon_price * use, terms.demand_charge
        held = levels.money_held + terms.carbon_price * levels.carbon_held
        held += terms.contract_price * terms.contract_power
        market = hours.price if terms.owned and hours.price is not None else zeros
    elif terms.minimize == "energy":
        use = zeros + 1.0
    elif terms.minimize == "carbon":
        held = levels.carbon_held
    bought = bought_power(market[:, None], powers, terms.contract_power)
    costs = HOUR * (use[:, None] * powers + market[:, None] * bought + held)
    return HourlyProblem(HOUR * levels.rate, levels.tokens, powers, costs, HOUR * peak, hours.month)


def _with_totals(run: HourlyRun, levels: Levels, series: GridHours, terms: Terms) -> HourlyRun:
    """The run with its totals, and its start as an hour of the file."""
    hours, occupied, power = series.window(run.start, len(run.occupied)), run.occupied, run.power
    time, energy = HOUR * float(np.sum(occupied)), HOUR * float(np.sum(power))
    held, demand, bought = levels.money_held * time, 0.0, None
    if terms.owned and hours.price is not None:
        bought = float(series_total(hours.price, bought_power(hours.price, power, terms.contract_power * occupied)))
        demand = terms.demand_charge * HOUR * metered_peaks(hours.month, power, occupied)
    contract = terms.contract_price * terms.contract_power * time
    operational = None if hours.carbon is None else float(series_total(hours.carbon, power))
    return run._replace(
        start=series.first + run.start,
        time=time,
        tokens=HOUR * float(levels.rate[run.speeds] @ occupied),
        energy=energy,
        peak=float(np.max(power)),
        clock=float(levels.clock[run.speeds] @ occupied / np.sum(occupied)),
        money=held + contract + demand + bought if bought is not None else None if terms.owned else held,
        held=held,
        bought=bought,
        contract=contract,
        demand=demand,
        carbon_operational=operational,
        carbon_embodied=levels.carbon_held * time,
        price=None if hours.price is None else float(series_total(hours.price, power)) / energy,
        intensity=None if operational is None else operational / energy,
    )


def bought_power(market: np.ndarray, power: np.ndarray, contract: float | np.ndarray) -> np.ndarray:
    """Power bought at the price of the hour [W]: what exceeds a contract, and all of it where the price is negative."""
    return np.where(market < 0.0, power, np.maximum(power - contract, 0.0))


def metered_peaks(month: np.ndarray, power: np.ndarray, occupied: np.ndarray) -> float:
    """Sum over months of the highest power, each for the time of the run in it [W h]."""
    firsts = np.flatnonzero(np.diff(month, prepend=month[0] - 1))
    return float(np.maximum.reduceat(power, firsts) @ np.add.reduceat(occupied, firsts))
