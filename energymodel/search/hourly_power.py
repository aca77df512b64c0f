"""Speeds of a plan between the lowest and the highest clock, and their power by the weather of each hour."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.economics.cost import OwnedPrice, Usage
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
            money_held=float(price.cost(Usage(chip.price, plan.chips, 1.0, 0.0, peak, equipment))),
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
