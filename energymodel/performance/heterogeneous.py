"""How should work be divided over unlike devices?

Devices are the last axis.
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from energymodel.numerics import Numeric

Devices = Float[ArrayLike, "*batch devices"]


def proportional_split(work: Numeric, throughputs: Devices, exponent: Numeric = 1.0) -> Float[Array, "*batch devices"]:
    """Work of each device, `W_i = W s_i^a / sum_j s_j^a` [derivation: docs/physics.md A2.17].

    a = 1 minimizes the makespan of a synchronous step, a = 0 divides evenly.

    **Arguments:**

    - `work`: W in all [token].
    - `throughputs`: s_i of each device, positive [token/s].
    - `exponent`: a [1].

    **Returns:** work of each device [token], summing to W.
    """
    s = jnp.asarray(throughputs)
    # Only ratios matter; the largest as unit keeps powers in range.
    weight = jnp.exp(jnp.asarray(exponent)[..., None] * jnp.log(s / jnp.max(s, axis=-1, keepdims=True)))
    return jnp.asarray(work)[..., None] * weight / jnp.sum(weight, axis=-1, keepdims=True)
