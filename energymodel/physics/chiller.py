"""How much electricity does cold water cost, and how much of the heat does free cooling remove?

Shared arguments: `supply_temperature` T [K].
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.constants import ZERO_CELSIUS
from energymodel.numerics import Numeric, Real, real, sigmoid

LEAST_LIFT = 1.0
"""Minimum temperature lift of a chiller [K], at which a Carnot fraction of 0.45 gives a COP of about 130."""


def quadratic_cop(
    supply_temperature: Numeric, curvature: Numeric, slope: Numeric, offset: Numeric
) -> Float[Array, "..."]:
    """Chiller fit, `COP = a T^2 + b T + c`, T in °C [Moore et al. 2005].

    Fitted on chilled water of a machine room (a = 0.0068, b = 0.0008, c = 0.458), valid for a supply of 10 to 30 °C.

    **Arguments:**

    - `curvature`, `slope`, `offset`: a [1/K^2], b [1/K], c [1].

    **Returns:** coefficient of performance, heat removed per electric work [1].
    """
    celsius = jnp.asarray(supply_temperature) - ZERO_CELSIUS
    return celsius**2 * curvature + celsius * slope + offset


def carnot_cop(
    supply_temperature: Numeric, heat_rejection_temperature: Numeric, fraction: Numeric
) -> Float[Array, "..."]:
    """Fraction of the ideal refrigerator, `COP = eta_c T / (T_h - T)` [Carnot 1824].

    The lift `T_h - T` is at least `LEAST_LIFT`.

    **Arguments:**

    - `heat_rejection_temperature`: temperature at which the condenser rejects heat, T_h [K].
    - `fraction`: share of the Carnot limit, eta_c [1], 0.4 to 0.5.

    **Returns:** coefficient of performance [1].
    """
    supply = jnp.asarray(supply_temperature)
    return supply * fraction / jnp.maximum(heat_rejection_temperature - supply, LEAST_LIFT)


def chiller_power(heat: Numeric, performance: Numeric) -> Float[Array, "..."]:
    """Electric power that removes heat, `P = Q / COP` [definition].

    **Arguments:**

    - `heat`: Q [W].
    - `performance`: COP [1], above 0.

    **Returns:** power [W].
    """
    return jnp.asarray(heat) / performance


def free_cooling_fraction(
    supply_temperature: Numeric, wet_bulb_temperature: Numeric, approach: Numeric, blend_width: Numeric
) -> Float[Array, "..."]:
    """Share of heat that a cooling tower removes without a chiller, `f = sigma((T - T_wb - dT_app) / w)`.

    [derivation: free where the supply is warmer than the tower water, averaged over the hours; docs/physics.md B6].

    **Arguments:**

    - `wet_bulb_temperature`: of the outside air, T_wb [K].
    - `approach`: tower water above wet bulb, dT_app [K].
    - `blend_width`: w [K], 1.5 by default, above 0.

    **Returns:** share [1], 0 to 1; one half where the supply is as warm as the tower water.
    """
    margin = jnp.asarray(supply_temperature) - wet_bulb_temperature - approach
    return sigmoid(margin / blend_width)


class AbstractChiller(eqx.Module):
    """Something that removes heat at a supply temperature for electric work."""

    @abc.abstractmethod
    def performance(self, supply_temperature: Numeric) -> Float[Array, "..."]:
        """COP [1] at a supply temperature [K]."""


class QuadraticChiller(AbstractChiller):
    """Quadratic fit, clamped to its valid range: outside, the COP is that of the nearer end, with zero slope."""

    curvature: Real = real("1/K^2")
    slope: Real = real("1/K")
    offset: Real = real("1")
    minimum_temperature: Real = real("K", doc="lowest supply temperature of the fit")
    maximum_temperature: Real = real("K", doc="highest supply temperature of the fit")

    def performance(self, supply_temperature: Numeric) -> Float[Array, "..."]:
        """COP [1] at a supply temperature [K]."""
        within = jnp.clip(jnp.asarray(supply_temperature), self.minimum_temperature, self.maximum_temperature)
        return quadratic_cop(within, self.curvature, self.slope, self.offset)


class CarnotChiller(AbstractChiller):
    """A fraction of the Carnot limit, for supply temperatures beyond the range of fits, see `carnot_cop`."""

    fraction: Real = real("1", doc="share of the Carnot limit")
    heat_rejection_temperature: Real = real("K")

    def performance(self, supply_temperature: Numeric) -> Float[Array, "..."]:
        """COP [1] at a supply temperature [K]."""
        return carnot_cop(supply_temperature, self.heat_rejection_temperature, self.fraction)
