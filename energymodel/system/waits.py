"""How often and how long does a chip wait in a step, and for how much of it does a lower clock hold?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Scalar
from energymodel.system.work import Division


def low_clock_share(waiting: Numeric, switch_time: Numeric) -> Float[Array, "..."]:
    """Share of a wait at a lower clock, `max(1 - 2 t_s / t, 0)` [definition].

    The end of a wait is known ahead, so that the clock is up again in time; the two switches take of the wait alone.

    **Arguments:**

    - `waiting`: t, between two steps [s].
    - `switch_time`: t_s from the command to another clock until it holds [s].

    **Returns:** share [1].
    """
    some = jnp.asarray(waiting) > 0.0
    return jnp.where(some, jnp.maximum(1.0 - 2.0 * switch_time / jnp.where(some, waiting, 1.0), 0.0), 0.0)


def idle_periods(division: Division) -> Scalar:
    """Waits of the mean chip in a step, `n_idle = m l + m + 1`: in each layer, in each micro-batch, and between steps.

    Gated units wake after each of them [definition].

    **Arguments:**

    - `division`: layers that the chip passes in a step, m l, and micro-batches, m [1].

    **Returns:** number of waits [1], at least 1.
    """
    return division.layer_passes + division.microbatches + 1.0
