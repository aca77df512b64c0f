"""Leakage power of a chip by voltage and temperature, power gating of idle circuits, and when it pays.

Shared arguments of gating: `leakage_power` P_l of the idle circuit and `gated_power` P_g of the circuit switched off
[W]; `wake_energy` E_wake to switch it off and on again [J]; `idle_time` t_idle in each period [s].
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Real, Values, part, real, share, sigmoid
from energymodel.ranges import ABOVE_ZERO, ABSOLUTE, Range

NEVER = 1e12
"""Stands for "it never pays" [s], so that gradients stay finite."""


def leakage_power(
    power: Numeric,
    voltage: Numeric,
    temperature: Numeric,
    voltage_sensitivity: Numeric,
    temperature_sensitivity: Numeric,
    reference_temperature: Numeric,
) -> Values:
    """Leakage [W], `P = P_l0 v exp(b_v (v - 1)) exp(b_theta (theta - theta_0))` [Su et al. 2003].

    An exponential fit to the subthreshold current, valid within about 60 K around the reference temperature.

    **Arguments:**

    - `power`: leakage at reference voltage and temperature, P_l0 [W].
    - `voltage`: voltage fraction v [1].
    - `temperature`: junction temperature theta [K].
    - `voltage_sensitivity`: b_v [1], 2 to 4.
    - `temperature_sensitivity`: b_theta [1/K], 0.010 to 0.025.
    - `reference_temperature`: theta_0 [K].
    """
    voltage = jnp.asarray(voltage)
    by_voltage = voltage * jnp.exp(voltage_sensitivity * (voltage - 1.0))
    by_temperature = jnp.exp(temperature_sensitivity * (jnp.asarray(temperature) - reference_temperature))
    return jnp.asarray(power) * by_voltage * by_temperature


def static_energy(voltage: Numeric, leakage_current: Numeric, time: Numeric) -> Values:
    """Energy of a constant leakage current [J], `E = V I_leak t` [definition].

    If the temperature changes meanwhile, integrate `leakage_power` instead.
    """
    return jnp.asarray(voltage) * leakage_current * time


class Leakage(eqx.Module):
    """Leakage of a chip, see `leakage_power`."""

    power: Real = real("W", doc="leakage at reference voltage and temperature")
    voltage_sensitivity: Real = real("1", within=Range(0.0, 20.0))
    temperature_sensitivity: Real = real("1/K", within=Range(0.0, 0.2))
    reference_temperature: Real = real("K", within=ABSOLUTE)

    def __call__(self, voltage_fraction: Numeric, temperature: Numeric) -> Values:
        """Power [W] at a voltage fraction [1] and a junction temperature [K]."""
        return leakage_power(
            self.power,
            voltage_fraction,
            temperature,
            self.voltage_sensitivity,
            self.temperature_sensitivity,
            self.reference_temperature,
        )


def gating_break_even(wake_energy: Numeric, leakage_power: Numeric, gated_power: Numeric) -> Values:
    """Idle time above which gating pays, `t_be = E_wake / (P_l - P_g)` [Hu et al. 2004].

    **Returns:** time [s]; `NEVER` if being off saves nothing.
    """
    saved = jnp.asarray(leakage_power) - gated_power
    saves = saved > 0
    return jnp.where(saves, wake_energy / jnp.where(saves, saved, 1.0), NEVER)


def gating_saving(
    leakage_power: Numeric, gated_power: Numeric, idle_time: Numeric, wake_energy: Numeric, period: Numeric
) -> Values:
    """Mean power that gating saves, `dP = ((P_l - P_g) t_idle - E_wake) / t_period` [Hu et al. 2004].

    **Arguments:**

    - `period`: t_period [s], above 0.

    **Returns:** power [W]; negative below the break-even time.
    """
    return ((jnp.asarray(leakage_power) - gated_power) * idle_time - wake_energy) / period


def gating_decision(idle_time: Numeric, break_even: Numeric, blend_time: Numeric) -> Values:
    """Share of idle periods that are gated, `s = sigma((t_idle - t_be) / w)` [derivation: docs/physics.md B5].

    A smooth controller: the spread of idle times about their mean replaces a step.

    **Arguments:**

    - `break_even`: t_be [s].
    - `blend_time`: spread of idle times w [s], above 0.

    **Returns:** share [1], 0 to 1.
    """
    return sigmoid((jnp.asarray(idle_time) - break_even) / blend_time)


class PowerGate(eqx.Module):
    """Power gating of a share of the chip; `fraction` 0 switches it off."""

    fraction: Real = share(doc="share of the leakage that can be gated; 0 is no gating")
    residual_fraction: Real = share(doc="leakage that remains when off, over leakage")
    wake_energy: Real = real("J", doc="to switch the whole chip off and on again")
    wake_time: Real = real("s")
    blend_time: Real = real("s", doc="spread of idle times", within=ABOVE_ZERO)

    def saved_power(self, leakage_power: Numeric, idle_time: Numeric, period: Numeric) -> Part:
        """Mean power saved [W] with a leakage [W] and an idle time [s] in every period [s]."""

        def saving() -> Values:
            gated = self.residual_fraction * jnp.asarray(leakage_power)
            saved = gating_saving(leakage_power, gated, idle_time, self.wake_energy, period)
            return saved * self._decision(leakage_power, idle_time)

        return part(self.fraction, saving)

    def wake_delay(self, leakage_power: Numeric, idle_time: Numeric) -> Part:
        """Time that waking adds to each period [s]."""
        return part(self.fraction, lambda: self._decision(leakage_power, idle_time) * self.wake_time)

    def _decision(self, leakage_power: Numeric, idle_time: Numeric) -> Values:
        gated = self.residual_fraction * jnp.asarray(leakage_power)
        break_even = gating_break_even(self.wake_energy, leakage_power, gated)
        return gating_decision(idle_time, break_even, self.blend_time)
