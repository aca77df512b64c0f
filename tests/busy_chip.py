"""A chip whose busy power follows its clock alone, for tests of what a power cap leaves."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real
from energymodel.physics.switching import busy_power
from energymodel.physics.voltage import AbstractVoltageCurve


class BusyPower(eqx.Module):
    """Busy power over clock with its voltage curve, `P_b(phi) = P_s + kappa phi v(phi)^2`."""

    curve: AbstractVoltageCurve
    static_power: Real = real("W", doc="power that does not scale with clock")
    dynamic_power: Real = real("W", doc="switching power at clock 1")

    def __call__(self, clock: Numeric) -> Float[Array, "..."]:
        """Power [W] at a clock fraction [1]."""
        return busy_power(self.static_power, self.dynamic_power * jnp.asarray(clock), self.curve(clock))


def busy_power_at(clock: Numeric, chip: BusyPower) -> Float[Array, "..."]:
    """`chip(clock)` [W], with the order of arguments that `clock_at_power_cap` expects."""
    return chip(clock)
