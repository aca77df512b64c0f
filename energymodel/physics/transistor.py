"""Speed of transistors at a supply voltage, below and above their threshold.

Shared arguments: `threshold` V_t [V]; `slope_factor` n, subthreshold slope over its thermal limit, at least 1 [1];
`saturation` a, 2 for the square law, 1 where carriers move at their highest velocity [1];
`temperature` T of the junction [K].
"""

from typing import overload

import jax.numpy as jnp
from jaxtyping import Array

from energymodel.constants import BOLTZMANN, ELEMENTARY_CHARGE
from energymodel.numerics import Numeric, Values, softplus


@overload
def thermal_voltage(temperature: float) -> float: ...


@overload
def thermal_voltage(temperature: Numeric) -> Numeric: ...


def thermal_voltage(temperature: Numeric) -> Numeric:
    """Thermal voltage [V], `v_T = k_B T / e` [definition]; 25.85 mV at 300 K."""
    return BOLTZMANN * temperature / ELEMENTARY_CHARGE


def on_current(
    voltage: Numeric, threshold: Numeric, slope_factor: Numeric, saturation: Numeric, temperature: Numeric
) -> Values:
    """On-current up to a factor [1], `I = ln^a(1 + exp((V - V_t) / (a n v_T)))`.

    The alpha-power law `(V - V_t)^a` above the threshold [Sakurai & Newton 1990], and below it a factor e for each
    `n v_T` of gate voltage, joined as in the EKV model [Enz, Krummenacher & Vittoz 1995], which has a = 2.

    **Arguments:**

    - `voltage`: supply V [V].
    """
    width = jnp.asarray(saturation) * slope_factor * thermal_voltage(temperature)
    return jnp.exp(saturation * jnp.log(softplus((jnp.asarray(voltage) - threshold) / width)))


def clock_ratio(
    voltage: Numeric,
    reference: Numeric,
    threshold: Numeric,
    slope_factor: Numeric,
    saturation: Numeric,
    temperature: Numeric,
) -> Values:
    """Clock at a supply over that at the reference, `f / f_0 = (I(V) / V) / (I(V_0) / V_0)` [derivation: t = C V / I].

    With a threshold of 0.3 V and a = 1.4 it meets the knee of measured curves, 0.73 of the clock at 0.79 of the
    voltage, for a reference of 0.88 V (docs/hardware.md).

    **Arguments:**

    - `voltage`, `reference`: V and V_0, above 0 [V].

    **Returns:** ratio [1], 1 at the reference.
    """

    def rate(supply: Numeric) -> Array:
        return on_current(supply, threshold, slope_factor, saturation, temperature) / jnp.asarray(supply)

    return rate(voltage) / rate(reference)
