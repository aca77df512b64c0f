"""How much heat can boiling remove, and how much coolant does it need?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.constants import STANDARD_GRAVITY
from energymodel.numerics import Numeric

ZUBER_COEFFICIENT = 0.131
"""Coefficient of the hydrodynamic limit, pi / 24 [Zuber 1959]."""


def critical_heat_flux(
    latent_heat: Numeric,
    vapor_density: Numeric,
    liquid_density: Numeric,
    surface_tension: Numeric,
    gravity: Numeric = STANDARD_GRAVITY,
) -> Float[Array, "..."]:
    """Boiling crisis, `q'' = 0.131 h_fg sqrt(rho_v) (sigma g (rho_l - rho_v))^(1/4)` [Zuber 1959].

    Pool boiling of a saturated liquid on a large flat plate facing up.

    **Arguments:**

    - `latent_heat`: h_fg [J/kg].
    - `vapor_density`, `liquid_density`: rho_v, rho_l [kg/m^3].
    - `surface_tension`: sigma [kg/s^2], the same as N/m.
    - `gravity`: g [m/s^2].

    **Returns:** heat flux [W/m^2].
    """
    vapor = jnp.asarray(vapor_density)
    buoyancy = jnp.asarray(surface_tension) * gravity * (jnp.asarray(liquid_density) - vapor)
    return ZUBER_COEFFICIENT * jnp.asarray(latent_heat) * jnp.sqrt(vapor) * jnp.sqrt(jnp.sqrt(buoyancy))
