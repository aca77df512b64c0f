"""How fast is a plan at each clock, and what does it draw in each hour's weather, also while it pauses?"""

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
from energymodel.system.designed import as_designed
from energymodel.system.evaluate import evaluate
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

CLOCKS = 33
"""Clocks at which a plan is evaluated, from the accelerator's lowest to its highest."""
OF_CLOCK = ("temperature", "facility_power", "heat_flux", "ramp", "power_swing", "power_ramp")
"""Limits that a clock may violate."""
SAME = 1e-9  # relative difference of two rates that are one


class Levels(NamedTuple):
    """Speeds of a run, slowest first, and its pause.

    Arrays over speeds: `clock` as the chip reaches it [1], `rate` over calendar time [token/s], `base`, power of the
    facility without cooling [W], and `heat` to be cooled [W]. `paused_base` and `paused_heat` are those of idle chips,
    with hosts and links on. `plant` is the peak that the facility provides [W], `money_held` and `carbon_held` what a
    second of holding all equipment costs [USD/s, kg/s], `stop_time` what a pause loses beyond itself [s].
    """

    clock: np.ndarray
    rate: np.ndarray
    base: np.ndarray
    heat: np.ndarray
    paused_base: float
    paused_heat: float
    plant: float
    money_held: float
    carbon_held: float
    stop_time: float
    tokens: float

    def some(self, chosen: np.ndarray) -> "Levels":
        """Some of the speeds."""
        return self._replace(**{name: getattr(self, name)[chosen] for name in ("clock", "rate", "base", "heat")})

    def powers(self, cooling: np.ndarray) -> np.ndarray:
        """Power at the meter by hour and speed [W], for the cooling of a watt in each hour [1]."""
        return self.base + self.heat * cooling[:, None]

    def paused(self, cooling: np.ndarray) -> np.ndarray:
        """Power at the meter by hour of a pause [W]."""
        return self.paused_base + self.paused_heat * cooling


def levels_of(scenario: Scenario) -> Levels:
    """Speeds of a scenario's plan between the lowest and the highest clock of its accelerator.

    **Raises:** `InputError` for a batch or a clock that changes with progress, and where no clock keeps the
    limits of the system.
    """
    system, plan = scenario.system, scenario.plan
    if not plan.is_steady:
        path = "plan.batch" if plan.knots > 1 else "plan.clock"
        raise InputError(f"{path}: a calendar needs one value, so that every token takes as long. Give one number.")
    with jax.enable_x64(True):
        clocks = np.linspace(float(as_designed(system, plan).system.accelerator.minimum_clock), 1.0, CLOCKS)
        speeds = jax.tree.map(np.asarray, _speeds(system, plan, jnp.asarray(clocks)))
        paused = _paused(system, plan)
        if not np.any(speeds.room >= 0.0):
            raise InputError(
                f"plan.clock: no clock from {clocks[0]:.3g} to 1 keeps the limits of the system (temperature, facility "
                "power, heat flux, ramps). `energymodel evaluate` says which one is violated; relax it or cool more."
            )
        kept = np.flatnonzero(speeds.room >= 0.0)
        kept = kept[np.concatenate([[True], np.diff(speeds.rate[kept]) > SAME * speeds.rate[kept][1:]])]
        plant = float(speeds.peak[kept[-1]])
        money_held, carbon_held = _held(system, plan, plant)
        return Levels(
            clock=speeds.clock[kept],
            rate=speeds.rate[kept],
            base=speeds.base[kept],
            heat=speeds.heat[kept],
            paused_base=paused[0],
            paused_heat=paused[1],
            plant=plant,
            money_held=money_held,
            carbon_held=carbon_held,
            stop_time=float(system.reliability.checkpoint_time) + float(system.reliability.restart_time),
            tokens=float(speeds.tokens[kept[-1]]),
        )


def cooling_of(system: TrainingSystem, plan: TrainingPlan, hours: GridHours) -> np.ndarray:
    """Power of cooling over heat in each hour [1]; the mean of the scenario's year where hours have no weather."""
    cooling, supply = system.facility.cooling, plan.coolant_temperature
    with jax.enable_x64(True):
        if hours.dry_bulb is None or hours.wet_bulb is None:
            return np.full(hours.hours, float(cooling.demand(1.0, supply).power))
        outside = Hour(jnp.asarray(hours.dry_bulb), jnp.asarray(hours.wet_bulb), jnp.asarray(hours.spread))
        return np.asarray(cooling.hour_demand(jnp.ones(hours.hours), supply, outside).power)


class _Speeds(NamedTuple):
    clock: Float[Array, " clocks"]
    rate: Float[Array, " clocks"]
    base: Float[Array, " clocks"]
    heat: Float[Array, " clocks"]
    peak: Float[Array, " clocks"]
    room: Float[Array, " clocks"]
    tokens: Float[Array, " clocks"]


def _at_clocks(system: TrainingSystem, plan: TrainingPlan, clocks: Float[Array, " clocks"]) -> _Speeds:
    def at(clock: Float[Array, ""]) -> _Speeds:
        outcome = evaluate(system, eqx.tree_at(lambda one: one.clock, plan, clock))
        energy = outcome.energy.total
        return _Speeds(
            clock=outcome.clock,
            rate=outcome.tokens / outcome.time,
            base=(energy - outcome.energy.cooling) / outcome.time,
            heat=energy / outcome.pue / outcome.time,
            peak=outcome.power_peak,
            room=jnp.min(jnp.stack([getattr(outcome.slack, name) for name in OF_CLOCK])),
            tokens=outcome.tokens,
        )

    return jax.lax.map(at, clocks)


_speeds = Compiled(_at_clocks)


def _paused(system: TrainingSystem, plan: TrainingPlan) -> tuple[float, float]:
    """Power of the facility without cooling, and heat to be cooled, while all chips idle [W]."""
    system, plan = as_designed(system, plan)
    idle = jnp.asarray(system.accelerator.idle_power)
    load = idle + system.links_power(plan.chips) + system.host_power(idle, plan.coolant_temperature)
    power = system.facility.power(load, plan.coolant_temperature)
    base = load + power.delivery_loss + power.other
    return float(base * plan.chips), float(power.equipment * plan.chips)


def _held(system: TrainingSystem, plan: TrainingPlan, plant: float) -> tuple[float, float]:
    """What a second costs beside energy and the demand charge [USD/s], and the embodied carbon of a second [kg/s]."""
    system, plan = as_designed(system, plan)
    price, chip = system.market.price, system.accelerator
    if isinstance(price, OwnedPrice):
        price = eqx.tree_at(lambda one: one.demand_charge, price, 0.0)
    equipment = system.links_price(plan.chips) + system.facility.storage.price()
    money = price.cost(chip.price, plan.chips, 1.0, 0.0, plant, equipment)
    return float(money), float(system.market.carbon.embodied(chip.embodied_carbon, plan.chips, 1.0))
