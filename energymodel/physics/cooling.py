"""Coolant of a loop, and the power and water that cooling takes over the hours of a year."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.constants import STANDARD_GRAVITY
from energymodel.numerics import Numeric, Real, Values, component, degrees, real, share
from energymodel.physics.chiller import AbstractChiller, chiller_power, plant_load, plant_price
from energymodel.physics.flow import controlled_flow, convection_resistance, mover_power, row_coolant_temperature
from energymodel.physics.heat_rejection import AbstractHeatRejection, CoolingDemand, free_cooling_share
from energymodel.physics.weather import Hour, Weather
from energymodel.ranges import ABOVE_ZERO, ABSOLUTE, SHARE, SHARE_ABOVE_ZERO, Range

UNLIMITED_HEAT_FLUX = 1e12
"""Stands for "no limit" [W/m^2] in `SinglePhaseLoop.heat_flux_capability`, so that gradients stay finite."""


ZUBER_COEFFICIENT = 0.131
"""Coefficient of the hydrodynamic limit, pi / 24 [Zuber 1959]."""


def critical_heat_flux(
    latent_heat: Numeric,
    vapor_density: Numeric,
    liquid_density: Numeric,
    surface_tension: Numeric,
    gravity: Numeric = STANDARD_GRAVITY,
) -> Values:
    """Boiling crisis [W/m^2], `q'' = 0.131 h_fg sqrt(rho_v) (sigma g (rho_l - rho_v))^(1/4)` [Zuber 1959].

    Pool boiling of a saturated liquid on a large flat plate facing up.

    **Arguments:**

    - `latent_heat`: h_fg [J/kg].
    - `vapor_density`, `liquid_density`: rho_v, rho_l [kg/m^3].
    - `surface_tension`: sigma [kg/s^2], the same as N/m.
    - `gravity`: g [m/s^2].
    """
    vapor = jnp.asarray(vapor_density)
    buoyancy = jnp.asarray(surface_tension) * gravity * (jnp.asarray(liquid_density) - vapor)
    return ZUBER_COEFFICIENT * jnp.asarray(latent_heat) * jnp.sqrt(vapor) * jnp.sqrt(jnp.sqrt(buoyancy))


class Coolant(NamedTuple):
    """Coolant of a loop at a supply temperature.

    - `supply` [K]; `rise` of the coolant at the last row above supply, and `return_rise` of what goes back to the
      outside [K].
    - `resistance`: case to coolant, per chip [K/W].
    - `mover_share`: power of the building's fans or pumps over the heat [1].
    - `fan_effort`: power of the fans inside servers over their rated power [1].
    """

    supply: Values
    rise: Values
    return_rise: Values
    resistance: Values
    mover_share: Values
    fan_effort: Values

    @property
    def last(self) -> Values:
        """Coolant at the last chip of a row, the hottest [K]."""
        return row_coolant_temperature(self.supply, 1.0, self.rise)


class AbstractCoolantLoop(eqx.Module):
    """The loop that carries heat from the chip packages to the chiller."""

    @abc.abstractmethod
    def at(self, supply_temperature: Numeric) -> Coolant:
        """The coolant at a supply temperature [K]."""

    @abc.abstractmethod
    def heat_flux_limit(self) -> Values:
        """Largest heat flux of a die [W/m^2]."""


class SinglePhaseLoop(AbstractCoolantLoop):
    """Air or liquid without boiling, with `R_th = R_0 + R_1 u^-0.8`, `P = p Q u^3` and `dT = dT_1 / u`.

    Fans speed up with the temperature of the air they get, see `controlled_flow`; pumps do not.
    """

    base_resistance: Real = real("K/W", doc="conduction")
    flow_resistance: Real = real("K/W", doc="convection at rated flow")
    flow: Real = real("1", doc="flow over rated flow", within=ABOVE_ZERO)
    mover_power_fraction: Real = share(doc="power of fan or pump per heat at rated flow")
    coolant_rise: Real = real(
        "K",
        doc="coolant at the last row above supply, at rated flow",
        difference=True,
        within=Range(0.0, 100.0, above=True),
    )
    heat_flux_capability: Real = real("W/m^2", doc="largest heat flux of a die", within=ABOVE_ZERO)
    air_share: Real = share(0.0, doc="share of the heat that fans inside the servers move")
    flow_growth: Real = real("1/K", 0.0, doc="relative growth of the flow with supply temperature", within=SHARE)
    rated_temperature: Real = real(
        "K", 295.15, doc="supply temperature up to which the flow is the stated one", within=ABSOLUTE
    )

    def at(self, supply_temperature: Numeric) -> Coolant:
        """The coolant at a supply temperature [K]; less flow warms up more."""
        flow = controlled_flow(self.flow, self.flow_growth, supply_temperature, self.rated_temperature)
        rise = jnp.asarray(self.coolant_rise) / flow
        return Coolant(
            supply=jnp.asarray(supply_temperature),
            rise=rise,
            return_rise=rise,
            resistance=convection_resistance(self.base_resistance, self.flow_resistance, flow),
            mover_share=mover_power(self.mover_power_fraction, flow),
            fan_effort=mover_power(self.air_share, flow),
        )

    def heat_flux_limit(self) -> Values:
        """Largest heat flux of a die [W/m^2]."""
        return jnp.asarray(self.heat_flux_capability)


class TwoPhaseLoop(AbstractCoolantLoop):
    """Coolant that boils on the chips: small resistance, and a heat flux below the boiling crisis."""

    resistance: Real = real("K/W", doc="case to coolant, per chip")
    mover_power_fraction: Real = share(doc="power of the pump per heat")
    coolant_rise: Real = degrees(doc="saturation temperature at the last row above supply")
    latent_heat: Real = real("J/kg", within=ABOVE_ZERO)
    vapor_density: Real = real("kg/m^3", within=ABOVE_ZERO)
    liquid_density: Real = real("kg/m^3", within=ABOVE_ZERO)
    surface_tension: Real = real("N/m", within=ABOVE_ZERO)
    quality: Real = real("1", doc="share of vapor at the outlet", within=SHARE_ABOVE_ZERO)
    area_enhancement: Real = real("1", doc="boiling area per die area", within=ABOVE_ZERO)
    heat_flux_margin: Real = real("1", doc="share of the critical heat flux that is allowed", within=SHARE_ABOVE_ZERO)
    water_rise: Real = degrees(8.0, doc="water that condenses the vapor, from supply to return")

    def at(self, supply_temperature: Numeric) -> Coolant:
        """The coolant at a supply temperature [K]; a bath has no fans."""
        return Coolant(
            supply=jnp.asarray(supply_temperature),
            rise=jnp.asarray(self.coolant_rise),
            return_rise=jnp.asarray(self.water_rise),
            resistance=jnp.asarray(self.resistance),
            mover_share=jnp.asarray(self.mover_power_fraction),
            fan_effort=jnp.asarray(0.0),
        )

    def heat_flux_limit(self) -> Values:
        """Largest heat flux of a die [W/m^2], `margin x enhancement x CHF`."""
        crisis = critical_heat_flux(self.latent_heat, self.vapor_density, self.liquid_density, self.surface_tension)
        return crisis * self.area_enhancement * self.heat_flux_margin


class InletClass(eqx.Module):
    """Coolant temperatures that equipment of a class takes [ASHRAE TC 9.9 2021, tables 2.1 and 3.1]."""

    lowest: Real = real("K", doc="allowed", within=ABSOLUTE)
    highest: Real = real("K", doc="allowed", within=ABSOLUTE)
    recommended_lowest: Real = real("K", within=ABSOLUTE)
    recommended_highest: Real = real("K", within=ABSOLUTE)

    def slack(self, supply_temperature: Numeric) -> Values:
        """Logarithm of the nearer allowed end over the temperature [1]; negative outside."""
        supply = jnp.asarray(supply_temperature)
        return jnp.minimum(jnp.log(self.highest / supply), jnp.log(supply / self.lowest))


class Cooling(eqx.Module):
    """From the coolant loop through a heat exchanger to the outside, with a chiller for what the outside leaves.

    `P = Q ((1 - f) / COP + p_out) + P_move`, in the mean over the hours of a year, with f the share that the outside
    removes and p_out the power of fans and pumps there over the heat. The chiller sees the mean condenser of an hour.

    `chiller_capacity` is per chip of the site. Without one the plant suits the heat, as a building's price has it.
    """

    loop: AbstractCoolantLoop = component()
    chiller: AbstractChiller = component()
    rejection: AbstractHeatRejection = component()
    weather: Weather = component()
    inlet: InletClass = component()
    coil_approach: Real = degrees(doc="supply of coolant above the water or air that cools it")
    chiller_capacity: Real | None = real("W", doc="of all chillers, per chip", within=ABOVE_ZERO, optional=True)
    chiller_price: Real = real("USD/W", 0.0, doc="of installed chillers, per heat that they remove")

    def at(self, supply_temperature: Numeric) -> Coolant:
        """The coolant of the loop at a supply temperature [K]."""
        return self.loop.at(supply_temperature)

    def demand(self, heat: Numeric, coolant: Coolant) -> CoolingDemand:
        """Mean power [W] and water [m^3/s] over the year for a heat [W]."""
        per_heat = self.weather.year_mean(lambda hour: self._per_heat(heat, coolant, hour))
        return self._of_heat(heat, coolant, per_heat)

    def hour_demand(self, heat: Numeric, coolant: Coolant, hour: Hour) -> CoolingDemand:
        """Power [W] and water [m^3/s] for a heat [W] in one hour, with the outside air of that hour."""
        return self._of_heat(heat, coolant, self._per_heat(heat, coolant, hour))

    def hottest_demand(self, heat: Numeric, coolant: Coolant) -> CoolingDemand:
        """Power [W] and water [m^3/s] for a heat [W] in the hottest hour, for which a building is sized."""
        return self.hour_demand(heat, coolant, self.weather.hottest())

    def _of_heat(self, heat: Numeric, coolant: Coolant, per_heat: CoolingDemand) -> CoolingDemand:
        heat = jnp.asarray(heat)
        return CoolingDemand(heat * (per_heat.power + coolant.mover_share), heat * per_heat.water)

    def chilled_heat(self, heat: Numeric, coolant: Coolant) -> Values:
        """Heat that the outside leaves to the chillers on a hot day [W]."""
        hour = self.weather.hot_day()
        return (1.0 - self._free(coolant, self.rejection.at(hour).source, hour)) * jnp.asarray(heat)

    def chiller_load(self, chilled: Numeric) -> Values:
        """Heat that the chillers remove [W] over their capacity [1]; 0 where they suit the heat."""
        return jnp.zeros_like(chilled) if self.chiller_capacity is None else plant_load(chilled, self.chiller_capacity)

    def added_price(self, heat: Numeric) -> Values:
        """Purchase price per chip of the chillers beyond those for all heat [W], which the building has [USD]."""
        capacity = self.chiller_capacity
        return jnp.zeros_like(heat) if capacity is None else plant_price(heat, capacity, self.chiller_price)

    def _free(self, coolant: Coolant, source: Numeric, hour: Hour) -> Values:
        """Share of the heat that a source outside removes."""
        return free_cooling_share(coolant.supply - self.coil_approach, coolant.return_rise, source, hour.spread)

    def _per_heat(self, heat: Numeric, coolant: Coolant, hour: Hour) -> CoolingDemand:
        """Power [1] and water [m^3/J] over the heat in an hour, beyond the loop."""
        outside, supply = self.rejection.at(hour), coolant.supply - self.coil_approach
        free, dry = (self._free(coolant, source, hour) for source in (outside.source, outside.dry_source))
        load = self.chiller_load((1.0 - free) * jnp.asarray(heat))
        work = chiller_power(1.0 - free, self.chiller.performance(supply, outside.condenser, load))
        power, water = self.rejection.per_heat(free, dry, work)
        return CoolingDemand(work + power, jnp.asarray(water))
