"""Losses of power delivery: regulators, and resistance of supply lines.

Shared arguments: `load`, output over rated power, x [1]; the losses of a converter over its rated power: `fixed` (no
load) a_0, `proportional` (switching) a_1, `quadratic` (conduction) a_2 [1].
"""

import abc

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real, share
from energymodel.ranges import ABOVE_ZERO


def regulator_loss(load: Numeric, fixed: Numeric, proportional: Numeric, quadratic: Numeric) -> Values:
    """Loss of a converter over its rated power, `l = a_0 + a_1 x + a_2 x^2` [Rasmussen 2007].

    **Returns:** loss over rated power [1]; the no-load loss at zero load.
    """
    load = jnp.asarray(load)
    return load**2 * quadratic + load * proportional + fixed


def distribution_loss(power: Numeric, voltage: Numeric, resistance: Numeric) -> Values:
    """Resistive loss of a supply line [W], `P_loss = (P / V)^2 R` [Joule 1841].

    It falls with the square of the voltage, which is why distribution is at 48 V and more.

    **Arguments:**

    - `power`: carried P [W].
    - `voltage`: V [V], above 0.
    - `resistance`: of the way there and back, R [ohm].
    """
    current = jnp.asarray(power) / voltage
    return current**2 * resistance


class AbstractRegulator(eqx.Module):
    """Something that converts power on its way to the chip."""

    @abc.abstractmethod
    def input_power(self, output_power: Numeric) -> Values:
        """Power drawn [W] to deliver a power [W]."""

    @abc.abstractmethod
    def load(self, output_power: Numeric) -> Values:
        """Power delivered [W] over what it is rated for [1]."""

    @abc.abstractmethod
    def purchase_price(self) -> Values:
        """Price per chip [USD]."""


class NoRegulator(AbstractRegulator):
    """Power that needs no conversion, or whose loss is in the power of what it feeds."""

    def input_power(self, output_power: Numeric) -> Values:
        """The power delivered [W]."""
        return jnp.asarray(output_power)

    def load(self, output_power: Numeric) -> Values:
        """None [1]."""
        return 0.0 * jnp.asarray(output_power)

    def purchase_price(self) -> Values:
        """None [USD]."""
        return jnp.asarray(0.0)


class Regulator(AbstractRegulator):
    """Converter (VRM, power supply, UPS or transformer) with losses over its rated power, see `regulator_loss`."""

    rated_power: Real = real("W", within=ABOVE_ZERO)
    fixed_loss: Real = share(doc="no-load loss over rated power")
    proportional_loss: Real = share(doc="switching loss over rated power, at full load")
    quadratic_loss: Real = share(doc="conduction loss over rated power, at full load")
    rating_price: Real = real("USD/W", 0.0, doc="of its rated power, beyond what the price of the server includes")

    def input_power(self, output_power: Numeric) -> Values:
        """Power drawn [W] to deliver a power [W]."""
        load = jnp.asarray(output_power) / self.rated_power
        loss = regulator_loss(load, self.fixed_loss, self.proportional_loss, self.quadratic_loss)
        return loss * self.rated_power + output_power

    def load(self, output_power: Numeric) -> Values:
        """Power delivered [W] over what it is rated for [1]."""
        return jnp.asarray(output_power) / self.rated_power

    def purchase_price(self) -> Values:
        """Price per chip [USD]."""
        return jnp.asarray(self.rating_price) * self.rated_power


class Distribution(eqx.Module):
    """Supply line, see `distribution_loss`."""

    voltage: Real = real("V", within=ABOVE_ZERO)
    resistance: Real = real("ohm", doc="of the way there and back")

    def loss(self, power: Numeric) -> Values:
        """Loss [W] for a power carried [W]."""
        return distribution_loss(power, self.voltage, self.resistance)
