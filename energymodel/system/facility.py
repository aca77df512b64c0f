"""What does the building add: power conversion, cooling, the rest?"""

from functools import reduce
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.economics.carbon import Carbon
from energymodel.economics.cost import AbstractPrice
from energymodel.numerics import Numeric, Real, component, real
from energymodel.physics.cooling import Cooling, CoolingDemand
from energymodel.physics.delivery import AbstractRegulator, Distribution, NoRegulator, Regulator
from energymodel.physics.energy_storage import EnergyStorage
from energymodel.ranges import ABOVE_ZERO, SHARE, Range

NO_LIMIT = 1e15
"""Swing [W] or ramp [W/s] beyond any site: that of a grid which states no limit."""


class FacilityPower(NamedTuple):
    """Power per chip at the facility's meter, by where it goes [W], and water taken in [m^3/s]."""

    equipment: Float[Array, "..."]
    delivery_loss: Float[Array, "..."]
    cooling: Float[Array, "..."]
    other: Float[Array, "..."]
    water: Float[Array, "..."]

    def total(self, load: Numeric) -> Float[Array, "..."]:
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
    miscellaneous_fraction: Real = real("1", within=SHARE)
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

    def power(self, load: Numeric, supply_temperature: Numeric) -> FacilityPower:
        """Mean power at the meter over the year for a direct-current load per chip.

        The load passes the regulators, the bus bar and the power supply (all inside the equipment, whose input power is
        the denominator of PUE), then the uninterruptible supply and the transformer. All equipment heat is cooled.
        Lights, offices and pumps that never stop draw a share of the rating of the uninterruptible supply at any load.

        **Arguments:**

        - `load`: direct-current power per chip, with its share of host and network [W].
        - `supply_temperature`: coolant supply temperature [K].
        """
        equipment = self._equipment(load)
        return self._power(load, equipment, self.cooling.demand(equipment, supply_temperature))

    def hottest_power(self, load: Numeric, supply_temperature: Numeric) -> FacilityPower:
        """The same in the hottest hour of the year."""
        equipment = self._equipment(load)
        return self._power(load, equipment, self.cooling.hottest_demand(equipment, supply_temperature))

    def chilled_heat(self, load: Numeric, supply_temperature: Numeric) -> Float[Array, "..."]:
        """Heat per chip that the outside leaves to the chillers on a hot day [W], at a load per chip [W]."""
        return self.cooling.chilled_heat(self._equipment(load), supply_temperature)

    def plant_price(self, load: Numeric) -> Float[Array, "..."]:
        """Purchase price per chip of the plant, beyond what a building for such a load per chip [W] has [USD]."""
        return self.cooling.added_price(self._equipment(load))

    def meter_power(self, load: Numeric) -> Float[Array, "..."]:
        """Power at the meter per chip for a direct-current load per chip, without cooling and the rest [W]."""
        return self.uninterruptible.input_power(self._equipment(load)) / (1.0 - self.transformer_loss)

    def supply_load(self, load: Numeric) -> Float[Array, "..."]:
        """Largest share of what it is rated for that a converter delivers [1], at a load per chip [W]."""
        on_bus = self._on_bus(load)
        supplied = on_bus + self.distribution.loss(on_bus)
        stages = (
            self.point_of_load.load(load),
            self.bus_converter.load(self.point_of_load.input_power(load)),
            self.power_supply.load(supplied),
            self.uninterruptible.load(self._equipment(load)),
        )
        return reduce(jnp.maximum, stages)

    def equipment_price(self) -> Float[Array, "..."]:
        """Purchase price per chip of storage and of converters that servers do not include [USD]."""
        parts = (self.point_of_load, self.bus_converter, self.power_supply, self.uninterruptible)
        return reduce(jnp.add, [part.purchase_price() for part in parts], self.storage.price())

    def _on_bus(self, load: Numeric) -> Float[Array, "..."]:
        return self.bus_converter.input_power(self.point_of_load.input_power(load))

    def _equipment(self, load: Numeric) -> Float[Array, "..."]:
        on_bus = self._on_bus(load)
        return self.power_supply.input_power(on_bus + self.distribution.loss(on_bus))

    def _power(self, load: Numeric, equipment: Numeric, cooling: CoolingDemand) -> FacilityPower:
        return FacilityPower(
            equipment=jnp.asarray(equipment),
            delivery_loss=self.meter_power(load) - load,
            cooling=cooling.power,
            other=jnp.asarray(self.miscellaneous_fraction) * self.uninterruptible.rated_power,
            water=cooling.water,
        )


class Market(eqx.Module):
    """Prices and grid carbon intensity at the site."""

    price: AbstractPrice = component()
    carbon: Carbon = component()
