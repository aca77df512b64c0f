"""How much heat can boiling remove, and how much coolant does it need?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.constants import STANDARD_GRAVITY
from energymodel.numerics import Numeric

ZUBER_COEFFICIENT = 0.131
"""Coefficient of the hydrodynamic limit, pi / 24 [Zuber 1959]."""


def coolant_flow(heat: Numeric, latent_heat: Numeric, quality: Numeric) -> Float[Array, "..."]:
    """Coolant that evaporates, `m' = Q / (h_fg x)` [definition].

    **Arguments:**

    - `heat`: Q [W].
    - `latent_heat`: h_fg [J/kg].
    - `quality`: share of vapor at the outlet, x [1], above 0.

    **Returns:** mass flow [kg/s].
    """
    return jnp.asarray(heat) / (jnp.asarray(latent_heat) * quality)


def heat_flux(heat: Numeric, area: Numeric) -> Float[Array, "..."]:
    """Heat per area, `q'' = Q / A` [definition].

    **Arguments:**

    - `heat`: Q [W].
    - `area`: of the die, A [m^2].

    **Returns:** heat flux [W/m^2].
    """
    return jnp.asarray(heat) / area


def rohsenow_coefficient(
    viscosity: Numeric,
    latent_heat: Numeric,
    liquid_density: Numeric,
    vapor_density: Numeric,
    surface_tension: Numeric,
    specific_heat: Numeric,
    prandtl: Numeric,
    surface_factor: Numeric,
    prandtl_exponent: Numeric,
    gravity: Numeric = STANDARD_GRAVITY,
) -> Float[Array, "..."]:
    """Coefficient of nucleate boiling, `c = mu h_fg sqrt(g (rho_l - rho_v) / sigma) (c_p / (C_sf h_fg Pr^n))^3`.

    [Rohsenow 1952]. Clean surfaces; errors of 100 % in heat flux are common because of the surface factor.

    **Arguments:**

    - `viscosity`: of the liquid, mu [kg/(m s)].
    - `latent_heat`: h_fg [J/kg].
    - `liquid_density`, `vapor_density`: rho_l, rho_v [kg/m^3].
    - `surface_tension`: sigma [kg/s^2], the same as N/m.
    - `specific_heat`: of the liquid, c_p [J/(kg K)].
    - `prandtl`: of the liquid, Pr [1].
    - `surface_factor`: C_sf [1], 0.006 to 0.015.
    - `prandtl_exponent`: n [1], 1 for water and 1.7 for other liquids.
    - `gravity`: g [m/s^2].

    **Returns:** coefficient [W/(m^2 K^3)] for `boiling_heat_flux`.
    """
    buoyancy = jnp.sqrt(gravity * (jnp.asarray(liquid_density) - vapor_density) / surface_tension)
    scale = surface_factor * jnp.asarray(latent_heat) * jnp.exp(prandtl_exponent * jnp.log(jnp.asarray(prandtl)))
    return jnp.asarray(viscosity) * jnp.asarray(latent_heat) * buoyancy * (specific_heat / scale) ** 3


def boiling_heat_flux(coefficient: Numeric, superheat: Numeric) -> Float[Array, "..."]:
    """Nucleate boiling, `q'' = c dT_sat^3` [Rohsenow 1952].

    From the onset of boiling up to `critical_heat_flux`.

    **Arguments:**

    - `coefficient`: c [W/(m^2 K^3)].
    - `superheat`: wall above saturation, dT_sat [K].

    **Returns:** heat flux [W/m^2].
    """
    return jnp.asarray(coefficient) * jnp.asarray(superheat) ** 3


def boiling_superheat(coefficient: Numeric, flux: Numeric) -> Float[Array, "..."]:
    """Inverse of `boiling_heat_flux`, `dT_sat = (q'' / c)^(1/3)` [derivation: Rohsenow 1952 solved for dT].

    **Arguments:**

    - `coefficient`: c [W/(m^2 K^3)].
    - `flux`: q'' [W/m^2], above 0.

    **Returns:** wall above saturation [K].
    """
    return jnp.exp((jnp.log(jnp.asarray(flux)) - jnp.log(jnp.asarray(coefficient))) / 3.0)


def critical_heat_flux(
    latent_heat: Numeric,
    vapor_density: Numeric,
    liquid_density: Numeric,
    surface_tension: Numeric,
    gravity: Numeric = STANDARD_GRAVITY,
) -> Float[Array, "..."]:
    """Boiling crisis, `q'' = 0.131 h_fg sqrt(rho_v) (sigma g (rho_l - rho_v))^(1/4)` [Zuber 1959].

    Pool boiling of a saturated liquid on a large flat plate facing up.

    Arguments as in `rohsenow_coefficient`.

    **Returns:** heat flux [W/m^2].
    """
    vapor = jnp.asarray(vapor_density)
    buoyancy = jnp.asarray(surface_tension) * gravity * (jnp.asarray(liquid_density) - vapor)
    return ZUBER_COEFFICIENT * jnp.asarray(latent_heat) * jnp.sqrt(vapor) * jnp.sqrt(jnp.sqrt(buoyancy))


def area_enhancement_needed(flux: Numeric, critical_flux: Numeric, margin: Numeric) -> Float[Array, "..."]:
    """Boiling area per die area that keeps a margin, `A_b / A = q'' / (m q''_CHF)` [derivation: docs/physics.md B6].

    **Arguments:**

    - `flux`: heat flux of the die, q'' [W/m^2].
    - `critical_flux`: q''_CHF [W/m^2].
    - `margin`: share of the critical flux that is allowed, m [1], 0.7 by default.

    **Returns:** area ratio [1].
    """
    return jnp.asarray(flux) / (jnp.asarray(margin) * critical_flux)
