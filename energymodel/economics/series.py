"""Costs of energy and carbon that vary by the hour, and the price at which a pause pays.

Shared arguments: `values` c_i, price [USD/J] or carbon intensity [kg/J], and `powers` P_i of the facility [W], one for
each step of a series, within which both are constant, as markets bill them.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Scalar, Values

HOUR = 3600.0
"""Step of hourly series [s]."""

Series = Float[Array | np.ndarray, " steps"]
"""One value per step."""


def series_total(values: Series, powers: Series, step: Numeric = HOUR) -> Scalar:
    """Cost or emission of a varying power at a varying price, `C = dt sum_i c_i P_i` [definition].

    **Arguments:**

    - `step`: duration of a step, dt [s].

    **Returns:** cost [USD] or emission [kg]; negative where prices are.
    """
    return jnp.asarray(step) * jnp.sum(jnp.asarray(values) * jnp.asarray(powers))


def pause_price(held: Numeric, price: Numeric, running_power: Numeric, paused_power: Numeric) -> Values:
    """Price of energy above which an hour's pause pays, `p* = (c + p P_r) / (P_r - P_0)` [derivation: one hour later].

    A pause saves `p* (P_r - P_0)` now and adds an hour at the end, which costs c to hold the equipment and `p P_r` to
    run it. The restart after a pause comes on top.

    **Arguments:**

    - `held`: cost of holding the equipment, c [USD/s].
    - `price`: of energy in the hour that a pause adds, p [USD/J].
    - `running_power`, `paused_power`: of the facility, P_r above P_0 [W].

    **Returns:** price [USD/J], above p wherever c is not negative.
    """
    power = jnp.asarray(running_power)
    return (jnp.asarray(held) + price * power) / (power - paused_power)
