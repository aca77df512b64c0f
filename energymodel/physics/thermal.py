"""Temperature of a chip, its changes, and thermal runaway.

One lumped node: heat capacity C_th, linked to the coolant by R_th, for times of a second and more.

Shared arguments: `power` P, `base_power` P_0 (independent of temperature) and `leakage_power` P_l at theta_0 [W];
`temperature` theta, `coolant_temperature` theta_c, `reference_temperature` theta_0 and `maximum_temperature` theta_max
[K]; `thermal_resistance` R_th from junction to coolant [K/W]; `heat_capacity` C_th [J/K], 60 to 250 for die and lid,
about 500 with the cold plate; `temperature_sensitivity` b of leakage [1/K].
"""

import jax.numpy as jnp
from jaxtyping import Array

from energymodel.numerics import Numeric, Values, implicit_root

_SMALL_GAIN = 1e-30


def steady_temperature(power: Numeric, coolant_temperature: Numeric, thermal_resistance: Numeric) -> Values:
    """Temperature at constant power [K], `theta = theta_c + R_th P` [derivation: docs/physics.md A2.5]."""
    return jnp.asarray(coolant_temperature) + jnp.asarray(power) * thermal_resistance


def thermal_time_constant(thermal_resistance: Numeric, heat_capacity: Numeric) -> Values:
    """Time constant on the way to a steady temperature [s], `tau = R_th C_th` [derivation: docs/physics.md A2.5]."""
    return jnp.asarray(thermal_resistance) * heat_capacity


def temperature_slope(
    temperature: Numeric,
    power: Numeric,
    coolant_temperature: Numeric,
    thermal_resistance: Numeric,
    heat_capacity: Numeric,
) -> Values:
    """Right-hand side of the heat balance [K/s], `d theta / dt = (P - (theta - theta_c) / R_th) / C_th`.

    [derivation: docs/physics.md A2.5]. What is subtracted is the heat removed, not the electric power of the cooling.
    """
    removed = (jnp.asarray(temperature) - coolant_temperature) / thermal_resistance
    return (jnp.asarray(power) - removed) / heat_capacity


def transient_temperature(
    time: Numeric,
    initial_temperature: Numeric,
    power: Numeric,
    coolant_temperature: Numeric,
    thermal_resistance: Numeric,
    heat_capacity: Numeric,
) -> Values:
    """Temperature after a step of power [K], `theta = theta_ss + (theta_0 - theta_ss) exp(-t / (R_th C_th))`.

    [derivation: `temperature_slope` integrated at constant power; docs/physics.md A2.5].

    **Arguments:**

    - `time`: t after the step [s].
    - `initial_temperature`: theta_0 [K].
    """
    steady = steady_temperature(power, coolant_temperature, thermal_resistance)
    decay = jnp.exp(-jnp.asarray(time) / thermal_time_constant(thermal_resistance, heat_capacity))
    return steady + (initial_temperature - steady) * decay


def hot_spot_temperature(temperature: Numeric, excess_power: Numeric, hot_spot_resistance: Numeric) -> Values:
    """Hottest point of the die [K], `theta_j = theta + dP_hs R_hs` [derivation: docs/physics.md E].

    With the power of the chip for dP_hs, R_hs is the spreading resistance times the share that the spot has too much.

    **Arguments:**

    - `excess_power`: power of the hot spot above its share of the area, dP_hs [W].
    - `hot_spot_resistance`: spreading resistance R_hs [K/W].
    """
    return jnp.asarray(temperature) + jnp.asarray(excess_power) * hot_spot_resistance


def loop_gain(thermal_resistance: Numeric, leakage_power: Numeric, temperature_sensitivity: Numeric) -> Values:
    """Gain of temperature -> leakage -> temperature, `G = R_th b P_leak(theta)` [derivation: docs/physics.md B6].

    Here `leakage_power` is the leakage at the operating temperature theta.

    **Returns:** gain [1]; a fixed point is stable below 1.
    """
    return jnp.asarray(thermal_resistance) * leakage_power * temperature_sensitivity


def leakage_temperature(
    base_power: Numeric,
    leakage_power: Numeric,
    coolant_temperature: Numeric,
    thermal_resistance: Numeric,
    temperature_sensitivity: Numeric,
    reference_temperature: Numeric,
) -> Values:
    """Stable root of `theta = theta_c + R_th (P_0 + P_l exp(b (theta - theta_0)))` [derivation: docs/physics.md B6].

    The stable root lies between the coolant temperature and that of unit loop gain, `theta_0 - ln(R_th P_l b) / b`.
    Beyond the runaway limit there is no root, and that upper end is returned.

    **Returns:** temperature [K].
    """
    base, leak, resistance, sensitivity = map(
        jnp.asarray, (base_power, leakage_power, thermal_resistance, temperature_sensitivity)
    )
    gain = resistance * leak * sensitivity
    feedback = gain > _SMALL_GAIN
    log_gain = jnp.log(jnp.where(feedback, gain, 1.0))
    unit_gain = reference_temperature - log_gain / jnp.where(feedback, sensitivity, 1.0)
    # Without feedback the equation is explicit; one more kelvin keeps the root inside the bracket.
    upper = jnp.where(feedback, unit_gain, steady_temperature(base + leak, coolant_temperature, resistance) + 1.0)
    upper = jnp.maximum(upper, coolant_temperature)

    def excess(temperature: Array, arguments: tuple[Array, ...]) -> Array:
        base, leak, coolant, resistance, sensitivity, reference, ceiling = arguments
        # Clipped at the end of the bracket: a Newton step from near unit gain could overflow the exponential.
        exponent = sensitivity * (jnp.minimum(temperature, ceiling) - reference)
        return temperature - coolant - resistance * (base + leak * jnp.exp(exponent))

    coolant, reference = jnp.asarray(coolant_temperature), jnp.asarray(reference_temperature)
    return implicit_root(
        excess, coolant_temperature, upper, (base, leak, coolant, resistance, sensitivity, reference, upper)
    )
