"""Which batch size is best, given that throughput rises with it and progress per token falls?

Throughput saturates at `B_h`, progress per token falls beyond the critical batch `B_c` [McCandlish et al. 2018], and a
chip draws `P = P_i + P_d R / R_0` at throughput R. Time to a loss, relative to the ideal, is then
`(1 + B/B_c)(1 + B_h/B)`, and energy `(1 + B/B_c)(1 + s B_h/B)` with the idle share s = P_i / (P_i + P_d).

Shared arguments, all positive: `critical_batch` B_c, and `half_batch` B_h, the fixed time per step over the time of a
token [token]; `idle_power` P_i, drawn all the time, and `work_power` P_d, on top of it at full throughput [W].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric


def time_optimal_batch(critical_batch: Numeric, half_batch: Numeric) -> Float[Array, "..."]:
    """Time-optimal batch of a given fleet, `B*_T = sqrt(B_h B_c)` [derivation: zero slope of the time].

    **Returns:** batch [token].
    """
    return jnp.sqrt(jnp.asarray(critical_batch) * half_batch)


def energy_optimal_batch(
    critical_batch: Numeric, half_batch: Numeric, idle_power: Numeric, work_power: Numeric
) -> Float[Array, "..."]:
    """Energy-optimal batch, `B*_E = sqrt(B_h B_c P_i / (P_i + P_d))` [derivation: zero slope of the energy].

    **Returns:** batch [token], at most the time-optimal one.
    """
    share = jnp.asarray(idle_power) / (jnp.asarray(idle_power) + work_power)
    return time_optimal_batch(critical_batch, half_batch * share)
