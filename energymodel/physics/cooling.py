"""How much power does cooling take: coolant loop, chiller, free cooling and PUE?"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real
from energymodel.physics.chiller import AbstractChiller, chiller_power, free_cooling_fraction
from energymodel.physics.flow import convection_resistance, mover_power
from energymodel.physics.phase_change import coolant_flow, critical_heat_flux

UNLIMITED_HEAT_FLUX = 1e12
"""Stands for "no limit" [W/m^2] in `SinglePhaseLoop.heat_flux_capability`, so that gradients stay finite."""


def power_usage_effectiveness(
    distribution: Numeric, mover: Numeric, chilled_share: Numeric, performance: Numeric, miscellaneous: Numeric
) -> Float[Array, "..."]:
    """Facility power over IT power, `PUE = 1 + p_dist + p_move + f_chill / COP + p_misc` [ISO/IEC 30134-2:2016].

    Fans inside servers belong to the IT power; do not count them twice.

    **Arguments:**

    - `distribution`: loss of transformers, UPS and cables over IT power, p_dist [1].
    - `mover`: fans and pumps of the building over IT power, p_move [1].
    - `chilled_share`: share of heat removed by the chiller, f_chill [1].
    - `performance`: COP of the chiller [1].
    - `miscellaneous`: lighting and other loads over IT power, p_misc [1].

    **Returns:** PUE [1], at least 1.
    """
    chiller = chiller_power(chilled_share, performance)
    return 1.0 + jnp.asarray(distribution) + mover + chiller + miscellaneous


class AbstractCoolantLoop(eqx.Module):
    """The loop that carries heat from the chip packages to the chiller."""

    @abc.abstractmethod
    def thermal_resistance(self) -> Float[Array, "..."]:
        """Case to coolant, per chip [K/W]."""

    @abc.abstractmethod
    def mover_power(self, heat: Numeric) -> Float[Array, "..."]:
        """Power of fans or pumps [W] for a heat [W]."""

    @abc.abstractmethod
    def heat_flux_limit(self) -> Float[Array, "..."]:
        """Largest heat flux of a die [W/m^2]."""

    @abc.abstractmethod
    def rise(self) -> Float[Array, "..."]:
        """Coolant at the last row above supply [K]."""


class SinglePhaseLoop(AbstractCoolantLoop):
    """Air or liquid without boiling, with `R_th = R_0 + R_1 u^-0.8`, `P = p Q u^3` and `dT = dT_1 / u`."""

    base_resistance: Real = real("K/W", doc="conduction")
    flow_resistance: Real = real("K/W", doc="convection at rated flow")
    flow: Real = real("1", doc="flow over rated flow")
    mover_power_fraction: Real = real("1", doc="power of fan or pump per heat at rated flow")
    coolant_rise: Real = real("K", doc="coolant at the last row above supply, at rated flow", difference=True)
    heat_flux_capability: Real = real("W/m^2", doc="largest heat flux of a die")

    def thermal_resistance(self) -> Float[Array, "..."]:
        """Case to coolant, per chip [K/W]."""
        return convection_resistance(self.base_resistance, self.flow_resistance, self.flow)

    def mover_power(self, heat: Numeric) -> Float[Array, "..."]:
        """Power of fan or pump [W] for a heat [W]."""
        return mover_power(self.mover_power_fraction * jnp.asarray(heat), self.flow)

    def heat_flux_limit(self) -> Float[Array, "..."]:
        """Largest heat flux of a die [W/m^2]."""
        return jnp.asarray(self.heat_flux_capability)

    def rise(self) -> Float[Array, "..."]:
        """Coolant at the last row above supply [K]; less flow warms up more."""
        return jnp.asarray(self.coolant_rise) / self.flow


class TwoPhaseLoop(AbstractCoolantLoop):
    """Coolant that boils on the chips: small resistance, and a heat flux below the boiling crisis."""

    resistance: Real = real("K/W", doc="case to coolant, per chip")
    mover_power_fraction: Real = real("1", doc="power of the pump per heat")
    coolant_rise: Real = real("K", doc="saturation temperature at the last row above supply", difference=True)
    latent_heat: Real = real("J/kg")
    vapor_density: Real = real("kg/m^3")
    liquid_density: Real = real("kg/m^3")
    surface_tension: Real = real("N/m")
    quality: Real = real("1", doc="share of vapor at the outlet")
    area_enhancement: Real = real("1", doc="boiling area per die area")
    heat_flux_margin: Real = real("1", doc="share of the critical heat flux that is allowed")

    def thermal_resistance(self) -> Float[Array, "..."]:
        """Case to coolant, per chip [K/W]."""
        return jnp.asarray(self.resistance)

    def mover_power(self, heat: Numeric) -> Float[Array, "..."]:
        """Power of the pump [W] for a heat [W]."""
        return jnp.asarray(heat) * self.mover_power_fraction

    def heat_flux_limit(self) -> Float[Array, "..."]:
        """Largest heat flux of a die [W/m^2], `margin x enhancement x CHF`."""
        crisis = critical_heat_flux(self.latent_heat, self.vapor_density, self.liquid_density, self.surface_tension)
        return crisis * self.area_enhancement * self.heat_flux_margin

    def rise(self) -> Float[Array, "..."]:
        """Coolant at the last row above supply [K]."""
        return jnp.asarray(self.coolant_rise)

    def mass_flow(self, heat: Numeric) -> Float[Array, "..."]:
        """Coolant that must flow [kg/s] for a heat [W]."""
        return coolant_flow(heat, self.latent_heat, self.quality)


class Cooling(eqx.Module):
    """Loop and chiller with free cooling: `P = Q (1 - f_free) / COP + P_move`."""

    loop: AbstractCoolantLoop
    chiller: AbstractChiller
    wet_bulb_temperature: Real = real("K", doc="of the outside air, mean of the run")
    approach: Real = real("K", doc="tower water above wet bulb", difference=True)
    blend_width: Real = real("K", doc="spread of the wet bulb about its mean", difference=True)

    def free_fraction(self, supply_temperature: Numeric) -> Float[Array, "..."]:
        """Share of heat removed without the chiller [1] at a supply temperature [K]."""
        return free_cooling_fraction(supply_temperature, self.wet_bulb_temperature, self.approach, self.blend_width)

    def power(self, heat: Numeric, supply_temperature: Numeric) -> Float[Array, "..."]:
        """Electric power of the cooling [W] for a heat [W] at a supply temperature [K]."""
        chilled = jnp.asarray(heat) * (1.0 - self.free_fraction(supply_temperature))
        tower = jnp.asarray(self.wet_bulb_temperature) + self.approach
        performance = self.chiller.performance(supply_temperature, tower)
        return chiller_power(chilled, performance) + self.loop.mover_power(heat)

    def thermal_resistance(self) -> Float[Array, "..."]:
        """Case to coolant, per chip [K/W]."""
        return self.loop.thermal_resistance()

    def heat_flux_limit(self) -> Float[Array, "..."]:
        """Largest heat flux of a die [W/m^2]."""
        return self.loop.heat_flux_limit()

    @property
    def coolant_rise(self) -> Float[Array, "..."]:
        """Coolant at the last row above supply [K]."""
        return self.loop.rise()
