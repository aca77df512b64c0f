"""Power to move the coolant, and its warming along a row.

Shared arguments: `flow` u over rated flow [1], above 0, `rated_flow` u_0 below the temperature T_0,
`rated_temperature`, from which it grows by `growth` g [1/K] with the `supply_temperature` T [K]; `rated_power` P_r at
full flow and `cold_power` P_0 of the fans of a server whose chips draw nothing, at rated flow [W]; `fraction` f,
more power of fans over heat at rated flow, and `effort` e, power over that at rated flow [1]; `heat` Q of chips [W];
`base_resistance` R_0 of conduction and `flow_resistance` R_1 of convection at rated flow [K/W].
"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values, softplus

FAN_KNEE = 2.0
"""Range of inlet temperature over which fans leave their lowest speed [K]."""
CONVECTION_EXPONENT = 0.8
"""Turbulent convection: exponent of the Reynolds number in the Nusselt number [Dittus & Boelter 1930]."""


def mover_power(rated_power: Numeric, flow: Numeric) -> Values:
    """Fan or pump law [W], `P = P_r u^3` [ASHRAE 2020, affinity laws]."""
    return jnp.asarray(rated_power) * jnp.asarray(flow) ** 3


def server_fan_power(cold_power: Numeric, fraction: Numeric, heat: Numeric, effort: Numeric) -> Values:
    """Fans inside a server [W], `P = e (P_0 + f Q)` [definition].

    An idle 8 x H100 node draws 0.7 kW more in air than immersed, and when busy a tenth of what its chips then draw more
    (docs/cooling.md).
    """
    return (jnp.asarray(cold_power) + jnp.asarray(fraction) * heat) * effort


def controlled_flow(
    rated_flow: Numeric, growth: Numeric, supply_temperature: Numeric, rated_temperature: Numeric
) -> Values:
    """Flow that fans move when the air they get is warmer [1], `u = u_0 exp(g w softplus((T - T_0) / w))` [definition].

    Below T_0 they run at their lowest speed for the load; the knee is w = `FAN_KNEE` wide.
    Servers at two sites drew 0.35 to 0.5 % more power per kelvin of inlet air between 23 and 30 °C [Coroama 2025, arXiv
    2509.26163]: with a seventh of it in fans that is 3 %/K of fan power, a third of it in flow.
    """
    warmer = FAN_KNEE * softplus((jnp.asarray(supply_temperature) - rated_temperature) / FAN_KNEE)
    return jnp.asarray(rated_flow) * jnp.exp(jnp.asarray(growth) * warmer)


def convection_resistance(base_resistance: Numeric, flow_resistance: Numeric, flow: Numeric) -> Values:
    """Thermal resistance that falls with flow [K/W], `R_th = R_0 + R_1 u^-0.8` [Dittus & Boelter 1930].

    Turbulent flow; conduction through die, lid and cold plate does not depend on it.
    """
    return jnp.exp(-CONVECTION_EXPONENT * jnp.log(jnp.asarray(flow))) * flow_resistance + base_resistance


def row_coolant_temperature(supply_temperature: Numeric, position: Numeric, rise: Numeric) -> Values:
    """Coolant at a chip of a series row, `theta_i = theta_s + (i / n) dT` [derivation: docs/physics.md B6].

    **Arguments:**

    - `supply_temperature`: theta_s [K].
    - `position`: chips before this one over chips of the row, i / n [1], 0 to 1.
    - `rise`: of the coolant along the row, dT [K].

    **Returns:** temperature [K]; the hottest, at `position` 1, is the one to constrain.
    """
    return jnp.asarray(supply_temperature) + jnp.asarray(position) * rise
