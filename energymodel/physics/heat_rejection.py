"""Heat rejection to the outside without a chiller: temperatures, power and water.

Shared arguments: `free` and `dry`, shares of the heat that the outside removes at all and without evaporating water;
`work`, electric work of the chiller over the heat [1].
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, degrees, real, share, softplus
from energymodel.physics.weather import LEAST_SPREAD, Hour
from energymodel.ranges import Range

LATENT_HEAT = 2.43e9
"""Heat that evaporates a cubic meter of water at 30 °C [J/m^3] [ASHRAE Fundamentals 2021, ch. 1]."""
LOGISTIC_SCALE = 0.5513
"""Scale of a logistic distribution over its standard deviation, sqrt(3) / pi [1]."""


def free_cooling_share(
    supply_temperature: Numeric, rise: Numeric, source_temperature: Numeric, spread: Numeric
) -> Values:
    """Share of heat that the outside removes before a chiller does the rest, averaged over days.

    A heat exchanger ahead of the chiller cools the return at T + dT towards the source at X, so that the share is
    `clip((T + dT - X) / dT, 0, 1)`; over days whose X is logistic with scale s it is on average
    `s / dT (softplus((T + dT - X) / s) - softplus((T - X) / s))` [derivation: integral of the logistic distribution].

    **Arguments:**

    - `supply_temperature`: T [K].
    - `rise`: of the coolant from supply to return, dT [K], above 0.
    - `source_temperature`: to which the outside cools it, in the mean of the days, X [K].
    - `spread`: standard deviation of the days [K]; at least `LEAST_SPREAD` is taken.

    **Returns:** share [1], 0 to 1.
    """
    scale = LOGISTIC_SCALE * jnp.maximum(jnp.asarray(spread), LEAST_SPREAD)
    margin = jnp.asarray(supply_temperature) - source_temperature
    return (softplus((margin + rise) / scale) - softplus(margin / scale)) * (scale / rise)


def evaporated_water(heat: Numeric, makeup: Numeric) -> Values:
    """Water that a heat takes along, `V = m Q / h` with h the latent heat of a volume [definition].

    **Arguments:**

    - `heat`: carried off by evaporation, Q [W] or [J].
    - `makeup`: water taken in over water evaporated, m [1]: C / (C - 1) for C cycles of concentration.

    **Returns:** water [m^3/s] or [m^3].
    """
    return jnp.asarray(heat) * makeup / LATENT_HEAT


class Outside(NamedTuple):
    """Temperatures of an hour [K]: to which the outside cools the coolant, the same without evaporating water, and that
    of what cools the condenser of a chiller.
    """

    source: Numeric
    dry_source: Numeric
    condenser: Numeric


class CoolingDemand(NamedTuple):
    """Electric power [W] and water [m^3/s] that a heat takes, or both over the heat [1], [m^3/J]."""

    power: Values
    water: Values


class AbstractHeatRejection(eqx.Module):
    """What hands the heat of the building to the outside, by itself or behind a chiller."""

    @abc.abstractmethod
    def at(self, hour: Hour) -> Outside:
        """Temperatures in an hour."""

    @abc.abstractmethod
    def per_heat(self, free: Numeric, dry: Numeric, work: Numeric) -> CoolingDemand:
        """Power of fans and pumps [1] and water taken in [m^3/J], over the heat."""


class CoolingTower(AbstractHeatRejection):
    """Wet towers, which also cool the condensers of chillers: all heat leaves as vapor and warm air."""

    approach: Real = degrees(doc="tower water above wet bulb")
    work_fraction: Real = share(doc="power of tower fans and condenser pumps over the heat rejected")
    evaporated_share: Real = share(doc="of the heat that leaves with water vapor")
    makeup: Real = real("1", doc="water taken in over water evaporated", within=Range(1.0, 1e3))

    def at(self, hour: Hour) -> Outside:
        """Tower water, in every hour."""
        water = hour.wet_bulb + self.approach
        return Outside(water, water, water)

    def per_heat(self, free: Numeric, dry: Numeric, work: Numeric) -> CoolingDemand:
        """Of the heat and the work of the chiller."""
        rejected = 1.0 + jnp.asarray(work)
        water = evaporated_water(self.evaporated_share * rejected, self.makeup)
        return CoolingDemand(self.work_fraction * rejected, water)


class DryCooler(AbstractHeatRejection):
    """Dry coolers and air-cooled chillers, whose COP holds the fans of their condensers: no water."""

    approach: Real = degrees(doc="coolant above dry bulb")
    work_fraction: Real = share(doc="power of fans over the heat that they reject without the chiller")

    def at(self, hour: Hour) -> Outside:
        """Outside air, with a heat exchanger before the coolant."""
        source = hour.dry_bulb + self.approach
        return Outside(source, source, hour.dry_bulb)

    def per_heat(self, free: Numeric, dry: Numeric, work: Numeric) -> CoolingDemand:
        """Fans for the heat that air removes."""
        return CoolingDemand(self.work_fraction * jnp.asarray(free), 0.0 * jnp.asarray(free))


class EvaporativeAir(AbstractHeatRejection):
    """Outside air, cooled by evaporating water in the hours that need it, with air-cooled chillers for the rest."""

    approach: Real = degrees(doc="supply above the air that enters")
    effectiveness: Real = share(doc="share of the way from dry to wet bulb that evaporation cools the air")
    work_fraction: Real = share(doc="power of fans over the heat that outside air removes")
    makeup: Real = real("1", doc="water taken in over water evaporated", within=Range(1.0, 1e3))

    def at(self, hour: Hour) -> Outside:
        """Outside air, cooled on its way to the wet bulb or dry."""
        dry = jnp.asarray(hour.dry_bulb)
        cooled = dry - self.effectiveness * (dry - hour.wet_bulb) + self.approach
        return Outside(cooled, dry + self.approach, hour.dry_bulb)

    def per_heat(self, free: Numeric, dry: Numeric, work: Numeric) -> CoolingDemand:
        """Fans for the heat that air removes, and water for what it does not remove dry."""
        wetted = jnp.maximum(jnp.asarray(free) - dry, 0.0)  # in float32 the difference may be a little less
        return CoolingDemand(self.work_fraction * jnp.asarray(free), evaporated_water(wetted, self.makeup))
