"""What does the building add: power conversion, cooling, the rest?"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.economics.carbon import Carbon
from energymodel.economics.cost import AbstractPrice
from energymodel.numerics import Numeric, Real, component, real
from energymodel.physics.cooling import Cooling
from energymodel.physics.delivery import Distribution, Regulator


class FacilityPower(NamedTuple):
    """Power per chip at the facility's meter, by where it goes [W]."""

    equipment: Float[Array, "..."]
    delivery_loss: Float[Array, "..."]
    cooling: Float[Array, "..."]
    other: Float[Array, "..."]

    def total(self, load: Numeric) -> Float[Array, "..."]:
        """Sum of the parts and the load they serve [W]."""
        return jnp.asarray(load) + self.delivery_loss + self.cooling + self.other


class Facility(eqx.Module):
    """Power delivery and cooling. Supply ratings are per chip, with its share of the host."""

    power_supply: Regulator = component()
    uninterruptible: Regulator = component()
    transformer_loss: Real = real("1")
    distribution: Distribution = component()
    cooling: Cooling = component()
    miscellaneous_fraction: Real = real("1")
    power_limit: Real = real("W")
    ramp_limit: Real = real("K/s")

    def power(self, load: Numeric, supply_temperature: Numeric) -> FacilityPower:
        """Power at the meter for a direct-current load per chip.

        The load passes the bus bar and the power supply (both inside the equipment, whose input power is the
        denominator of PUE), then the uninterruptible supply and the transformer. All equipment heat is cooled.

        **Arguments:**

        - `load`: direct-current power per chip, with its share of host and network [W].
        - `supply_temperature`: coolant supply temperature [K].
        """
        bus = load + self.distribution.loss(load)
        equipment = self.power_supply.input_power(bus)
        meter = self.uninterruptible.input_power(equipment) / (1.0 - self.transformer_loss)
        return FacilityPower(
            equipment=equipment,
            delivery_loss=meter - load,
            cooling=self.cooling.power(equipment, supply_temperature),
            other=self.miscellaneous_fraction * equipment,
        )


class Market(eqx.Module):
    """Prices and grid carbon intensity at the site."""

    price: AbstractPrice = component()
    carbon: Carbon = component()
