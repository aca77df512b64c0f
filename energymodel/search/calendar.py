"""Start, power and end of a run over the hours of a grid, at the lowest money, carbon or energy.

Learning does not depend on the clock at a fixed batch, so that tokens may be made when energy is cheap or clean, while
holding the equipment costs in every hour. Hourly power is compared with the best constant one.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.economics.cost import HOUR, YEAR, OwnedPrice, pause_price
from energymodel.errors import InputError
from energymodel.physics.weather import Hour
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.grid_hours import GridHours, hours_of
from energymodel.scenarios.scenario import Scenario
from energymodel.search.hourly_run import ROUNDING, HourlyProblem, HourlyRun, cheapest, metered_peaks
from energymodel.system.evaluate import evaluate
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem, as_designed
from energymodel.units import format_quantity, parse_quantity

OBJECTIVES = {"money": "USD", "carbon": "kg", "carbon_operational": "kg", "energy": "J"}
CARBON = ("carbon_operational", "carbon_embodied")
COUNTED = {"money": ("held", "contract", "bought"), "carbon": CARBON}
"""Parts of a run that an objective adds up, beside the demand charge and priced carbon; else the one of its name."""
CLOCKS = 33  # from the accelerator's lowest to its highest
OF_CLOCK = ("temperature", "facility_power", "heat_flux", "ramp", "power_swing", "power_ramp")
"""Limits that a clock may violate."""
USUAL_SLACK = 1.25  # deadline over the time at the highest speed


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


class Levels(NamedTuple):
    """Speeds of a run, slowest first, and its pause.

    Arrays over speeds: `clock` as the chip reaches it [1], `rate` over calendar time [token/s], `base`, power of the
    facility without cooling [W], and `heat` to be cooled [W]. `paused_base` and `paused_heat` are those of idle chips,
    with hosts and links on; `money_held` and `carbon_held` what a second of holding all equipment costs [USD/s, kg/s].
    """

    clock: np.ndarray
    rate: np.ndarray
    base: np.ndarray
    heat: np.ndarray
    paused_base: float
    paused_heat: float
    money_held: float
    carbon_held: float
    tokens: float


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
    deadline: str | None = None,
    start: str | int = "any",
    demand_charge: str | None = None,
    contract: str | None = None,
    carbon_price: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Calendar:
    """Find the start and the power of each hour of a scenario's run over the hours of a grid.

    **Arguments:**

    - `grid`: CSV file as in `scenarios.grid_hours`, or hours; without it the market and weather of the scenario.
    - `zone`: of the file. `weather`: "file", or "scenario" for the mean cooling of the scenario's year.
    - `minimize`: one of `OBJECTIVES`; "carbon" adds the embodied carbon to that of the energy.
    - `deadline`: longest time from start to end, such as "120 d"; 1.25 times that at the highest speed unless given.
    - `start`: an hour of the file, or "any".
    - `demand_charge`: for a month's highest hour, as "15 USD/kW" or over time; the scenario's unless given.
    - `contract`: such as "0.04 USD/kWh at 20 MW", paid in every hour of the run, used or not.
    - `carbon_price`: of all carbon, added to money, such as "100 USD/t".

    **Raises:** `InputError` for what cannot be read or does not fit, and where no speed meets the deadline.
    """
    tell = progress or (lambda sentence: None)
    terms = terms_of(
        scenario, minimize, deadline, start, demand_charge=demand_charge, contract=contract, carbon_price=carbon_price
    )
    pays_energy = minimize == "money" and terms.owned
    needs = ["price"] * pays_energy + ["carbon"] * (minimize.startswith("carbon") or terms.carbon_price > 0.0)
    hours = hours_of(scenario, grid, zone, weather, needs)
    tell("evaluating the clocks ...")
    levels = levels_of(scenario)
    shortest = levels.tokens / float(levels.rate[-1])
    limit = USUAL_SLACK * shortest if terms.deadline is None else terms.deadline
    horizon, starts = int(limit / HOUR), hours.starts(terms.start, shortest)
    series = hours.window(0, hours.hours + horizon) if hours.repeats else hours
    powers, paused = hourly_powers(scenario, levels, series)
    parts = _parts(series, levels, terms, powers)
    costs = np.zeros_like(powers)
    for names, weight in ((COUNTED.get(minimize, (minimize,)), 1.0), (CARBON, terms.carbon_price)):
        costs += HOUR * weight * sum(parts[name] for name in names if name in parts)
    charge = terms.demand_charge if minimize == "money" else 0.0
    problem = HourlyProblem(HOUR * levels.rate, levels.tokens, powers, costs, HOUR * charge, series.month)
    tell("comparing constant and hourly power ...")
    constant = problem.best_constant(starts, horizon)
    if constant is None:
        raise InputError(
            f"deadline: a run of {format_quantity(shortest, 's')} at its highest speed ends at no constant speed by "
            f"{format_quantity(limit, 's')} within the {hours.hours:,} hours of {hours.name}. Give more time or chips."
        )
    hourly = cheapest((constant, problem.best_hourly(starts, horizon))) or constant
    notes, pause_above = hours.notes, None
    if minimize == "money" and not terms.owned:
        notes += ("The rent of the scenario includes energy: its price by the hour does not enter the money.",)
    if minimize in ("carbon_operational", "energy"):
        notes += (f"Holding the equipment costs no {minimize}: only the deadline keeps the run from waiting.",)
    if series.price is not None and pays_energy:
        running = float(np.mean(powers[:, constant.speeds[0]]))
        held = levels.money_held + terms.demand_charge * running
        with jax.enable_x64(True):
            pause_above = float(pause_price(held, np.mean(series.price), running, np.mean(paused)))
    own_hours = series.window(hourly.start, len(hourly.occupied))
    hourly, constant = (_with_totals(run, parts, levels, series, terms) for run in (hourly, constant))
    return Calendar(scenario, terms, limit, levels, own_hours, hourly, constant, pause_above, notes)


def terms_of(
    scenario: Scenario,
    minimize: str = "money",
    deadline: str | None = None,
    start: str | int = "any",
    **paid: str | None,
) -> Terms:
    """The arguments of `calendar`, checked and in SI; `paid` are its last three.

    **Raises:** `InputError` for what cannot be read, or does not enter the objective or the price of the scenario.
    """
    if minimize not in OBJECTIVES:
        raise InputError(f'minimize: "{minimize}" is no objective of a calendar. Give one of {", ".join(OBJECTIVES)}.')
    price, asked = scenario.system.market.price, {name: text for name, text in paid.items() if text is not None}
    for name, text in asked.items():
        if minimize != "money":
            raise InputError(f"{name}: {text} does not enter {minimize}. Leave it out, or minimize money.")
        if name != "carbon_price" and not isinstance(price, OwnedPrice):
            raise InputError(
                f"{name}: {text}, but the rent of the scenario includes energy. Set system.market.price=owned, or "
                "leave it out."
            )
    try:
        begin = None if str(start) == "any" else int(str(start))
    except ValueError:
        raise InputError(f'start: "{start}" is no hour of the file. Give a whole number, or any.') from None
    charge = float(price.demand_charge) if isinstance(price, OwnedPrice) else 0.0
    if "demand_charge" in asked:
        try:  # over time, or for a month: "15 USD/(kW month)" or "15 USD/kW"
            charge = parse_quantity(asked["demand_charge"], "USD/(W s)", "demand_charge")
        except InputError:
            charge = parse_quantity(asked["demand_charge"], "USD/W", "demand_charge") / (YEAR / 12.0)
    rate, at, block = asked.get("contract", "0 USD/kWh at 0 W").partition(" at ")
    if not at:
        raise InputError(f'contract: "{rate}" has no power. Write it such as "0.04 USD/kWh at 20 MW".')
    return Terms(
        minimize,
        None if deadline is None else parse_quantity(deadline, "s", "deadline"),
        begin,
        charge,
        contract_power=parse_quantity(block, "W", "contract power"),
        contract_price=parse_quantity(rate, "USD/J", "contract price"),
        carbon_price=parse_quantity(asked.get("carbon_price", "0 USD/kg"), "USD/kg", "carbon_price"),
        owned=isinstance(price, OwnedPrice),
    )


def levels_of(scenario: Scenario) -> Levels:
    """Speeds of a scenario's plan between the lowest and the highest clock of its accelerator.

    **Raises:** `InputError` for a batch that changes with progress, and where no clock keeps the limits of the system.
    """
    if scenario.plan.knots > 1:
        raise InputError("plan.batch: a calendar needs one value, so that every token takes as long. Give one number.")
    with jax.enable_x64(True):
        system, plan = as_designed(scenario.system, scenario.plan)
        chip, clocks = system.accelerator, np.linspace(float(system.accelerator.minimum_clock), 1.0, CLOCKS)
        held = scenario.system
        if isinstance(held.market.price, OwnedPrice):  # energy and the demand charge are priced by the hour
            held = eqx.tree_at(lambda s: (s.market.price.electricity, s.market.price.demand_charge), held, (0.0, 0.0))
        run = jax.tree.map(np.asarray, _at_clocks(held, scenario.plan, jnp.asarray(clocks)))
        fits = np.flatnonzero(np.min([getattr(run.slack, name) for name in OF_CLOCK], axis=0) >= 0.0)
        if not len(fits):
            raise InputError(
                f"plan.clock: no clock from {clocks[0]:.3g} to 1 keeps the limits of the system (temperature, facility "
                "power, heat flux, ramps). `energymodel evaluate` says which one is violated; relax it or cool more."
            )
        rate, energy = run.tokens / run.time, run.energy.total
        fits = fits[np.append(True, np.diff(rate[fits]) > ROUNDING * rate[fits][1:])]  # each rate once
        # While all chips idle, hosts and links stay on.
        idle, coolant = jnp.asarray(chip.idle_power), system.facility.cooling.at(plan.coolant_temperature)
        load = idle + system.links(plan.chips).power + system.host_power(idle, coolant)
        power = system.facility.power(load, coolant)
        base, heat = (energy - run.energy.cooling) / run.time, energy / run.pue / run.time
        held = (run.money / run.time)[fits[-1]], (run.carbon_embodied / run.time)[fits[-1]]
        return Levels(
            *(run.clock[fits], rate[fits], base[fits], heat[fits]),
            float((load + power.delivery_loss + power.other) * plan.chips),
            float(power.equipment * plan.chips),
            *map(float, (*held, run.tokens[fits[-1]])),
        )


@Compiled
def _at_clocks(system: TrainingSystem, plan: TrainingPlan, clocks: Float[Array, " clocks"]) -> TrainingOutcome:
    return jax.lax.map(lambda clock: evaluate(system, eqx.tree_at(lambda leaf: leaf.clock, plan, clock)), clocks)


def hourly_powers(scenario: Scenario, levels: Levels, hours: GridHours) -> tuple[np.ndarray, np.ndarray]:
    """Power at the meter by hour and speed, and of a pause by hour [W].

    Where hours have no weather, cooling takes its mean of the scenario's year.
    """
    cooling = scenario.system.facility.cooling
    with jax.enable_x64(True):
        coolant = cooling.at(scenario.plan.coolant_temperature)
        if hours.dry_bulb is None or hours.wet_bulb is None:
            over_heat = np.full(hours.hours, float(cooling.demand(1.0, coolant).power))
        else:
            outside = Hour(jnp.asarray(hours.dry_bulb), jnp.asarray(hours.wet_bulb), jnp.asarray(hours.spread))
            over_heat = np.asarray(cooling.hour_demand(jnp.ones(hours.hours), coolant, outside).power)
    return levels.base + levels.heat * over_heat[:, None], levels.paused_base + levels.paused_heat * over_heat


def _parts(hours: GridHours, levels: Levels, terms: Terms, powers: np.ndarray) -> dict[str, np.ndarray]:
    """What a second costs by hour and speed, by part: fields of `HourlyRun`, where known by the hour."""
    steady = {"held": levels.money_held, "contract": terms.contract_price * terms.contract_power}
    steady["carbon_embodied"] = levels.carbon_held
    parts = {"energy": powers, **{name: np.full_like(powers, value) for name, value in steady.items()}}
    if hours.price is not None:
        market = hours.price[:, None]
        parts["price"] = market * powers
        if terms.owned:
            parts["bought"] = market * bought_power(market, powers, terms.contract_power)
    if hours.carbon is not None:
        parts["carbon_operational"] = hours.carbon[:, None] * powers
    return parts


def _with_totals(
    run: HourlyRun, parts: dict[str, np.ndarray], levels: Levels, series: GridHours, terms: Terms
) -> HourlyRun:
    """The run with its totals, and its start as an hour of the file."""
    occupied, index = run.occupied, run.start + np.arange(len(run.occupied))
    totals = {name: HOUR * float(part[index, run.speeds] @ occupied) for name, part in parts.items()}
    if "bought" in totals:
        totals["demand"] = terms.demand_charge * HOUR * metered_peaks(series.month[index], run.power, occupied)
    if "bought" in totals or not terms.owned:
        totals["money"] = sum(totals.get(name, 0.0) for name in ("held", "contract", "bought", "demand"))
    for name, of in (("price", "price"), ("intensity", "carbon_operational")):
        if of in totals:
            totals[name] = totals[of] / totals["energy"]
    return run._replace(
        start=series.first + run.start,
        time=HOUR * float(np.sum(occupied)),
        tokens=HOUR * float(levels.rate[run.speeds] @ occupied),
        peak=float(np.max(run.power)),
        clock=float(levels.clock[run.speeds] @ occupied / np.sum(occupied)),
        **totals,
    )


def bought_power(market: np.ndarray, power: np.ndarray, contract: float | np.ndarray) -> np.ndarray:
    """Power bought at the price of the hour [W]: what exceeds a contract, and all of it where the price is negative."""
    return np.where(market < 0.0, power, np.maximum(power - contract, 0.0))
