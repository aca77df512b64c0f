"""Speeds of a plan and their power by the weather of each hour, and the cheapest start and speeds over many hours."""

from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.economics.cost import OwnedPrice
from energymodel.errors import InputError
from energymodel.physics.weather import Hour
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.grid_hours import GridHours
from energymodel.scenarios.scenario import Scenario
from energymodel.system.evaluate import evaluate
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem, as_designed

CLOCKS = 33  # from the accelerator's lowest to its highest
OF_CLOCK = ("temperature", "facility_power", "heat_flux", "ramp", "power_swing", "power_ramp")
"""Limits that a clock may violate."""
ROUNDING = 1e-9  # relative difference of numbers that are the same
CAPS = 7  # highest speeds that are tried where a demand charge makes the highest hour dear
TOKEN_PRICES = np.geomspace(0.1, 10.0, 91)  # over the cost of a token at the highest speed
ZOOMS, ZOOM = 6, 33  # rounds between the neighbors of the best price, and prices in each
STARTS = 24  # of a rule, those of the lowest cost before the demand charge is known
TIE = 1e-4  # by which later hours count as dearer, so that like hours change their speed one by one


class Contract(NamedTuple):
    """Power that is paid in every hour of the run, used or not [W], at a price [USD/J]."""

    power: float
    price: float


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

    def powers(self, cooling: np.ndarray) -> np.ndarray:
        """Power at the meter by hour and speed [W], for the cooling of a watt in each hour [1]."""
        return self.base + self.heat * cooling[:, None]

    def paused(self, cooling: np.ndarray) -> np.ndarray:
        """Power at the meter by hour of a pause [W]."""
        return self.paused_base + self.paused_heat * cooling


def levels_of(scenario: Scenario) -> Levels:
    """Speeds of a scenario's plan between the lowest and the highest clock of its accelerator.

    **Raises:** `InputError` for a batch that changes with progress, and where no clock keeps the limits of the system.
    """
    if scenario.plan.knots > 1:
        raise InputError("plan.batch: a calendar needs one value, so that every token takes as long. Give one number.")
    with jax.enable_x64(True):
        system, plan = as_designed(scenario.system, scenario.plan)
        chip, price = system.accelerator, system.market.price
        clocks = np.linspace(float(chip.minimum_clock), 1.0, CLOCKS)
        speeds = jax.tree.map(np.asarray, _speeds(scenario.system, scenario.plan, jnp.asarray(clocks)))
        fits = np.flatnonzero(speeds["slack"] >= 0.0)
        if not len(fits):
            raise InputError(
                f"plan.clock: no clock from {clocks[0]:.3g} to 1 keeps the limits of the system (temperature, facility "
                "power, heat flux, ramps). `energymodel evaluate` says which one is violated; relax it or cool more."
            )
        rates = speeds["rate"][fits]
        fits = fits[np.append(True, np.diff(rates) > ROUNDING * rates[1:])]  # each rate once
        # While all chips idle, hosts and links stay on.
        idle, coolant = jnp.asarray(chip.idle_power), system.facility.cooling.at(plan.coolant_temperature)
        load = idle + system.links_power(system.network_shape(plan.chips)) + system.host_power(idle, coolant)
        power = system.facility.power(load, coolant)
        if isinstance(price, OwnedPrice):  # the price of a second beside energy and the demand charge
            price = eqx.tree_at(lambda leaf: leaf.demand_charge, price, 0.0)
        equipment = system.links_price(system.network_shape(plan.chips)) + system.facility.storage.price()
        peak = float(speeds["peak"][fits[-1]])
        return Levels(
            *(speeds[name][fits] for name in ("clock", "rate", "base", "heat")),
            paused_base=float((load + power.delivery_loss + power.other) * plan.chips),
            paused_heat=float(power.equipment * plan.chips),
            money_held=float(price.cost(chip.price, plan.chips, 1.0, 0.0, peak, equipment)),
            carbon_held=float(system.market.carbon.embodied(chip.embodied_carbon, plan.chips, 1.0)),
            tokens=float(speeds["tokens"][fits[-1]]),
        )


@Compiled
def _speeds(system: TrainingSystem, plan: TrainingPlan, clocks: Float[Array, " clocks"]) -> dict[str, Array]:
    def at(clock: Float[Array, ""]) -> dict[str, Array]:
        outcome = evaluate(system, eqx.tree_at(lambda leaf: leaf.clock, plan, clock))
        energy = outcome.energy.total
        return {
            "clock": outcome.clock,
            "rate": outcome.tokens / outcome.time,
            "base": (energy - outcome.energy.cooling) / outcome.time,
            "heat": energy / outcome.pue / outcome.time,
            "peak": outcome.power_peak,
            "slack": jnp.min(jnp.stack([getattr(outcome.slack, name) for name in OF_CLOCK])),
            "tokens": outcome.tokens,
        }

    return jax.lax.map(at, clocks)


def cooling_of(system: TrainingSystem, plan: TrainingPlan, hours: GridHours) -> np.ndarray:
    """Power of cooling over heat in each hour [1]; the mean of the scenario's year where hours have no weather."""
    cooling = system.facility.cooling
    with jax.enable_x64(True):
        coolant = cooling.at(plan.coolant_temperature)
        if hours.dry_bulb is None or hours.wet_bulb is None:
            return np.full(hours.hours, float(cooling.demand(1.0, coolant).power))
        outside = Hour(jnp.asarray(hours.dry_bulb), jnp.asarray(hours.wet_bulb), jnp.asarray(hours.spread))
        return np.asarray(cooling.hour_demand(jnp.ones(hours.hours), coolant, outside).power)


class Schedule(NamedTuple):
    """A run from an hour of the series on: by hour its speed, share before the end and mean power [W]; its cost."""

    start: int
    speeds: np.ndarray
    occupied: np.ndarray
    power: np.ndarray
    value: float


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

    def best_constant(self, starts: np.ndarray, horizon: int) -> Schedule | None:
        """The cheapest run at one speed, from its best start."""
        rules = (np.full(len(self.month), speed) for speed in range(len(self.tokens)))
        return _cheapest(self._best_start(rule, starts, horizon) for rule in rules)

    def best_hourly(self, starts: np.ndarray, horizon: int) -> Schedule | None:
        """The cheapest run whose hours each have the best speed at one price of a token, below one highest speed."""
        fastest = len(self.tokens) - 1
        caps = np.linspace(0, fastest, CAPS).round().astype(int) if self.peak > 0.0 else [fastest]
        usual = max(float(np.mean(self.costs[:, -1])) / self.tokens[-1], np.finfo(float).tiny)
        scores = self.costs * (1.0 + TIE * np.linspace(0.0, 1.0, len(self.month)))[:, None]
        best, prices = None, TOKEN_PRICES * usual
        for _ in range(1 + ZOOMS):
            tried, nearest = None, (0, fastest)
            for index, price in enumerate(prices):
                net = scores - price * self.tokens
                for cap in caps:
                    schedule = self._best_start(np.argmin(net[:, : cap + 1], axis=1), starts, horizon)
                    if schedule is not None and (tried is None or schedule.value < tried.value):
                        tried, nearest = schedule, (index, int(cap))
            best = _cheapest((best, tried))
            if best is None:
                return None
            index, cap = nearest
            caps, starts = caps if tried is None else [cap], np.array([best.start])
            prices = np.geomspace(prices[max(index - 1, 0)], prices[min(index + 1, len(prices) - 1)], ZOOM)
        return best

    def _best_start(self, rule: np.ndarray, starts: np.ndarray, horizon: int) -> Schedule | None:
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
        return _cheapest(self._schedule(rule, int(starts[i]), int(last[i]), float(share[i])) for i in order)

    def _schedule(self, rule: np.ndarray, start: int, last: int, share: float) -> Schedule:
        index = np.arange(start, last + 1)
        speeds, occupied = rule[index], np.ones(len(index))
        occupied[-1] = min(share, 1.0)
        power = self.powers[index, speeds] * occupied
        peaks = self.peak * metered_peaks(self.month[index], power, occupied)
        return Schedule(start, speeds, occupied, power, float(self.costs[index, speeds] @ occupied) + peaks)


def _cheapest(schedules: Iterable[Schedule | None]) -> Schedule | None:
    return min((run for run in schedules if run is not None), key=lambda run: run.value, default=None)


def bought_power(
    market: np.ndarray, power: np.ndarray, contract: Contract | None, occupied: float | np.ndarray = 1.0
) -> np.ndarray:
    """Power bought at the price of the hour [W]: what exceeds the contract, and all of it where the price is negative.

    `occupied` is the share of each hour that belongs to the run.
    """
    if contract is None:
        return power
    return np.where(market < 0.0, power, np.maximum(power - contract.power * occupied, 0.0))


def metered_peaks(month: np.ndarray, power: np.ndarray, occupied: np.ndarray) -> float:
    """Sum over months of the highest power, each for the time of the run in it [W h]."""
    firsts = np.flatnonzero(np.diff(month, prepend=month[0] - 1))
    return float(np.maximum.reduceat(power, firsts) @ np.add.reduceat(occupied, firsts))
