"""Power conversion, cooling and the rest of the building, and the market that it buys in."""

from functools import reduce
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.economics.carbon import Carbon
from energymodel.economics.cost import AbstractPrice
from energymodel.numerics import Numeric, Real, Values, component, real, share
from energymodel.physics.cooling import Coolant, Cooling
from energymodel.physics.delivery import AbstractRegulator, Distribution, NoRegulator, Regulator
from energymodel.physics.heat_rejection import CoolingDemand
from energymodel.physics.power_swing import EnergyStorage
from energymodel.ranges import ABOVE_ZERO, Range

NO_LIMIT = 1e15
"""Swing [W] or ramp [W/s] beyond any site: that of a grid which states no limit."""


class Feed(NamedTuple):
    """Power per chip on its way to the chip [W]: the load, at the bus converter, at the power supply, into the
    equipment, and at the meter without cooling and the rest.
    """

    load: Values
    at_bus: Values
    supplied: Values
    equipment: Values
    meter: Values


class FacilityPower(NamedTuple):
    """Power per chip at the facility's meter, by where it goes [W], and water taken in [m^3/s]."""

    equipment: Values
    delivery_loss: Values
    cooling: Values
    other: Values
    water: Values

    def total(self, load: Numeric) -> Values:
        """Sum of the parts and the load they serve [W]."""
        return jnp.asarray(load) + self.delivery_loss + self.cooling + self.other


class Facility(eqx.Module):
    """Power delivery and cooling. Ratings of supplies and storage are per chip, with its share of the host.

    What meters of chips read includes the loss of the regulators on their boards: `point_of_load` is for dies whose
    power leaves it out, `bus_converter` for boards that do not take the voltage of the bus. `swing_limit` is what the
    grid allows to recur with every step, `power_ramp_limit` with steps and checkpoints.
    """

    power_supply: Regulator = component()
    uninterruptible: Regulator = component()
    transformer_loss: Real = real("1", within=Range(0.0, 0.9))
    distribution: Distribution = component()
    cooling: Cooling = component()
    miscellaneous_fraction: Real = share()
    power_limit: Real = real("W", within=ABOVE_ZERO)
    ramp_limit: Real = real("K/s", within=ABOVE_ZERO)
    response_time: Real = real(
        "s", 0.016, doc="time constant of the supplies, from the chips' power to the meter's", within=ABOVE_ZERO
    )
    storage: EnergyStorage = component(EnergyStorage())
    swing_limit: Real = real("W", NO_LIMIT, doc="at the meter, within a step", within=ABOVE_ZERO)
    power_ramp_limit: Real = real(
        "W/s", NO_LIMIT, doc="at the meter, within steps and at checkpoints", within=ABOVE_ZERO
    )
    point_of_load: AbstractRegulator = component(NoRegulator())
    bus_converter: AbstractRegulator = component(NoRegulator())

    def feed(self, load: Numeric) -> Feed:
        """Power at each point from the chips to the meter, for a direct-current load per chip [W].

        The load passes the regulators, the bus bar and the power supply (all inside the equipment, whose input power is
        the denominator of PUE), then the uninterruptible supply and the transformer.
        """
        at_bus = self.point_of_load.input_power(load)
        bus = self.bus_converter.input_power(at_bus)
        supplied = bus + self.distribution.loss(bus)
        equipment = self.power_supply.input_power(supplied)
        meter = self.uninterruptible.input_power(equipment) / (1.0 - self.transformer_loss)
        return Feed(jnp.asarray(load), at_bus, supplied, equipment, meter)

    def power(self, load: Numeric, coolant: Coolant) -> FacilityPower:
        """Mean power at the meter over the year for a direct-current load per chip.

        All equipment heat is cooled. Lights, offices and pumps that never stop draw a share of the rating of the
        uninterruptible supply at any load.

        **Arguments:**

        - `load`: direct-current power per chip, with its share of host and network [W].
        - `coolant`: of `cooling` at its supply temperature.
        """
        feed = self.feed(load)
        return self._power(feed, self.cooling.demand(feed.equipment, coolant))

    def hottest_power(self, load: Numeric, coolant: Coolant) -> FacilityPower:
        """Power at the meter in the hottest hour of the year, as `power`."""
        feed = self.feed(load)
        return self._power(feed, self.cooling.hottest_demand(feed.equipment, coolant))

    def supply_load(self, feed: Feed) -> Values:
        """Largest share of what it is rated for that a converter delivers [1]."""
        stages = (
            self.point_of_load.load(feed.load),
            self.bus_converter.load(feed.at_bus),
            self.power_supply.load(feed.supplied),
            self.uninterruptible.load(feed.equipment),
        )
        return reduce(jnp.maximum, stages)

    def equipment_price(self) -> Values:
        """Purchase price per chip of storage and of converters that servers do not include [USD]."""
        parts = (self.point_of_load, self.bus_converter, self.power_supply, self.uninterruptible)
        return reduce(jnp.add, [part.purchase_price() for part in parts], self.storage.price())

    def _power(self, feed: Feed, cooling: CoolingDemand) -> FacilityPower:
        return FacilityPower(
            equipment=feed.equipment,
            delivery_loss=feed.meter - feed.load,
            cooling=cooling.power,
            other=jnp.asarray(self.miscellaneous_fraction) * self.uninterruptible.rated_power,
            water=cooling.water,
        )


class Market(eqx.Module):
    """Prices and grid carbon intensity at the site."""

    price: AbstractPrice = component()
    carbon: Carbon = component()
