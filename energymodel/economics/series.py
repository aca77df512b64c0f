"""What do energy and carbon cost when price or grid carbon intensity varies over time?

Shared arguments: `time` t and knots `times` t_i, increasing [s]; `values` c_i at the knots, price [USD/J] or carbon
intensity [kg/J].
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import Numeric

Series = Float[Array | np.ndarray, " knots"]
"""One value per knot."""


def series_at(time: Numeric, times: Series, values: Series) -> Float[Array, "..."]:
    """Price or carbon intensity at a time, `c(t) = c_i + (c_(i+1) - c_i) (t - t_i) / (t_(i+1) - t_i)` [definition].

    Linear between knots, constant before the first and after the last knot.

    **Returns:** value at that time, unit of `values`; with [1] for a bare factor.
    """
    return jnp.interp(jnp.asarray(time), times, values)


def series_total(times: Series, values: Series, powers: Series) -> Float[Array, ""]:
    """Cost or emission of a varying power at a varying price, `C = int c(t) P(t) dt`.

    Exact where both are linear between knots: `C = sum_i (t_(i+1) - t_i) (2 c_i P_i + c_i P_(i+1) + c_(i+1) P_i +
    2 c_(i+1) P_(i+1)) / 6` [derivation: integral of a product of two linear functions].

    **Arguments:**

    - `powers`: power of the facility at the knots [W].

    **Returns:** cost [USD] or emission [kg].
    """
    c0, c1, p0, p1 = values[:-1], values[1:], powers[:-1], powers[1:]
    return jnp.sum((times[1:] - times[:-1]) * (2.0 * c0 * p0 + c0 * p1 + c1 * p0 + 2.0 * c1 * p1)) / 6.0


def series_mean(times: Series, values: Series) -> Float[Array, ""]:
    """Time average of a series, `<c> = int c dt / (t_n - t_0)` [definition].

    The price per joule of a run at constant power.

    **Returns:** mean value, unit of `values`; [1] for a bare factor.
    """
    return series_total(times, values, jnp.ones_like(values)) / (times[-1] - times[0])
