"""Which batch size is best, given that throughput rises with it and progress per token falls?

Throughput saturates at `B_h`, progress per token falls beyond the critical batch `B_c` [McCandlish et al. 2018], and a
chip draws `P = P_i + P_d R / R_0` at throughput R.

Shared arguments, all positive: `batch` B, `critical_batch` B_c, and `half_batch` B_h, the fixed time per step over the
time of a token [token]; `progress_exponent` b and `throughput_exponent` g [1]; `idle_power` P_i, drawn all the time,
and `work_power` P_d, on top of it at full throughput [W]; `idle_share` s = P_i / (P_i + P_d) [1].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, implicit_root


def relative_time(
    batch: Numeric,
    critical_batch: Numeric,
    half_batch: Numeric,
    progress_exponent: Numeric = 1.0,
    throughput_exponent: Numeric = 1.0,
) -> Float[Array, "..."]:
    """Time to a loss relative to the ideal, `t / t_0 = (1 + B / B_c)^b (1 + B_h / B)^g`.

    Large batches need more tokens [McCandlish et al. 2018], small ones have less throughput.

    **Returns:** time over that with every token useful and full throughput [1].
    """
    B = jnp.asarray(batch)
    tokens = progress_exponent * jnp.log(1.0 + B / critical_batch)
    return jnp.exp(tokens + throughput_exponent * jnp.log(1.0 + half_batch / B))


def relative_energy(
    batch: Numeric, critical_batch: Numeric, half_batch: Numeric, idle_share: Numeric
) -> Float[Array, "..."]:
    """Energy to a loss relative to the ideal, `E / E_0 = (1 + B / B_c) (1 + s B_h / B)`.

    Time is `relative_time` with both exponents 1 [derivation: power P_i + P_d R / R_0].

    **Returns:** energy over that with every token useful and full throughput [1].
    """
    B = jnp.asarray(batch)
    return (1.0 + B / critical_batch) * (1.0 + idle_share * half_batch / B)


def optimal_batch(
    critical_batch: Numeric, half_batch: Numeric, progress_exponent: Numeric = 1.0, throughput_exponent: Numeric = 1.0
) -> Float[Array, "..."]:
    """Time-optimal batch, `B* = {(g-b) B_h + sqrt[(g-b)^2 B_h^2 + 4 b g B_h B_c]} / (2 b)`.

    Zero slope of `relative_time` [derivation: b B^2 + (b - g) B_h B - g B_h B_c = 0]. For b = g it is `sqrt(B_h B_c)`.

    **Returns:** batch [token].
    """
    b, g, critical, half = map(jnp.asarray, (progress_exponent, throughput_exponent, critical_batch, half_batch))
    linear = (g - b) * half
    root = jnp.sqrt(linear**2 + 4.0 * b * g * half * critical)
    # A quadratic's root has two forms; each is free of cancellation on one side.
    rising = linear >= 0
    conjugate = 2.0 * g * half * critical / jnp.where(rising, 1.0, root - linear)
    return jnp.where(rising, (linear + root) / (2.0 * b), conjugate)


def time_optimal_batch(critical_batch: Numeric, half_batch: Numeric) -> Float[Array, "..."]:
    """Time-optimal batch of a given fleet, `B*_T = sqrt(B_h B_c)` [derivation: zero slope of relative_time].

    **Returns:** batch [token].
    """
    return jnp.sqrt(jnp.asarray(critical_batch) * half_batch)


def energy_optimal_batch(
    critical_batch: Numeric, half_batch: Numeric, idle_power: Numeric, work_power: Numeric
) -> Float[Array, "..."]:
    """Energy-optimal batch, `B*_E = sqrt(B_h B_c P_i / (P_i + P_d))` [derivation: zero slope of relative_energy].

    **Returns:** batch [token], at most the time-optimal one.
    """
    share = jnp.asarray(idle_power) / (jnp.asarray(idle_power) + work_power)
    return time_optimal_batch(critical_batch, half_batch * share)


def cost_optimal_batch(
    critical_batch: Numeric,
    half_batch: Numeric,
    idle_power: Numeric,
    work_power: Numeric,
    hardware_price: Numeric,
    energy_price: Numeric,
) -> Float[Array, "..."]:
    """Cost-optimal batch, `B*_$ = sqrt(B_h B_c (c + p P_i) / (c + p (P_i + P_d)))`.

    As for energy, with money in place of power [derivation: cost rate c + p P at power P].

    **Arguments:**

    - `hardware_price`: c [USD/s].
    - `energy_price`: p [USD/J].

    **Returns:** batch [token], between the energy-optimal and the time-optimal one.
    """
    p = jnp.asarray(energy_price)
    return energy_optimal_batch(critical_batch, half_batch, hardware_price + p * idle_power, p * work_power)


def energy_delay_optimal_batch(
    critical_batch: Numeric, half_batch: Numeric, idle_share: Numeric, delay_exponent: Numeric = 1.0
) -> Float[Array, "..."]:
    """Batch that minimizes `E t^n`: `(1+n) B/(B_c+B) = n B_h/(B+B_h) + s B_h/(B+s B_h)`.

    Zero slope of `ln E + n ln t` [derivation: relative_energy, relative_time]. n = 1 is the energy-time product
    (ETP); n = 0 minimizes energy, n -> infinity time [Gonzalez & Horowitz 1996].

    **Arguments:**

    - `delay_exponent`: n [1], at least 0.

    **Returns:** batch [token], between the energy-optimal and the time-optimal one.
    """

    def slope(batch: Array, parameters: tuple[Array, ...]) -> Array:
        critical, half, share, n = parameters
        loss = (1.0 + n) * batch / (critical + batch)
        return loss - n * half / (batch + half) - share * half / (batch + share * half)

    parameters = tuple(map(jnp.asarray, (critical_batch, half_batch, idle_share, delay_exponent)))
    upper = 2.0 * time_optimal_batch(critical_batch, half_batch)
    return implicit_root(slope, 0.0 * upper, upper, parameters)
