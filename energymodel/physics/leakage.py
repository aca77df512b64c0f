"""Leakage power of a chip by voltage and temperature."""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.ranges import ABSOLUTE, Range


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

    **Arguments:**

    - `voltage`: V [V].
    - `leakage_current`: I_leak [A].
    - `time`: t [s].
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
