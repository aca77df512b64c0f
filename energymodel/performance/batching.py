"""Best batch sizes, and the division of work over unlike devices.

Throughput saturates at `B_h`, progress per token falls beyond the critical batch `B_c` [McCandlish et al. 2018], and a
chip draws `P = P_i + P_d R / R_0` at throughput R. Time to a loss, relative to the ideal, is then
`(1 + B/B_c)(1 + B_h/B)`, and energy `(1 + B/B_c)(1 + s B_h/B)` with the idle share s = P_i / (P_i + P_d).

Shared arguments, all positive: `critical_batch` B_c, and `half_batch` B_h, the fixed time per step over the time of a
token [token]; `idle_power` P_i, drawn all the time, and `work_power` P_d, on top of it at full throughput [W].
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from energymodel.numerics import Numeric, Values


def time_optimal_batch(critical_batch: Numeric, half_batch: Numeric) -> Values:
    """Time-optimal batch of a given fleet [token], `B*_T = sqrt(B_h B_c)` [derivation: zero slope of the time]."""
    return jnp.sqrt(jnp.asarray(critical_batch) * half_batch)


def energy_optimal_batch(
    critical_batch: Numeric, half_batch: Numeric, idle_power: Numeric, work_power: Numeric
) -> Values:
    """Energy-optimal batch, `B*_E = sqrt(B_h B_c P_i / (P_i + P_d))` [derivation: zero slope of the energy].

    **Returns:** batch [token], at most the time-optimal one.
    """
    share = jnp.asarray(idle_power) / (jnp.asarray(idle_power) + work_power)
    return time_optimal_batch(critical_batch, half_batch * share)


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
