"""The best batch, constant or at each moment of a run, and the cost of another, in closed form.

Shared arguments: `fixed_cost_batch` B_h, tokens that could be processed in the fixed time per step [token];
`cost_ratio` phi, cost of a second of waiting over a second of work [1]: 1 for time, idle over full power for energy;
the ratios of another batch to this one, `token_ratio` D_2/D_1 of the tokens to the same loss, `throughput_ratio`
R_2/R_1, and `power_ratio` P_2/P_1 [1].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric
from energymodel.performance.saturation import energy_optimal_batch


def adaptive_batch(critical_batch: Numeric, fixed_cost_batch: Numeric, cost_ratio: Numeric) -> Float[Array, "..."]:
    """Optimal batch at each moment, `B = sqrt(phi B_h B_n)` [McCandlish et al. 2018].

    It minimizes `(1 + B/B_n)(1 + phi B_h/B)` pointwise; the minimum is `(1 + sqrt(phi B_h/B_n))^2`.

    **Arguments:**

    - `critical_batch`: instantaneous critical batch B_n [token].

    **Returns:** batch [token].
    """
    return jnp.sqrt(jnp.asarray(cost_ratio) * fixed_cost_batch * critical_batch)


def constant_batch(
    run_level_critical_batch: Numeric, fixed_cost_batch: Numeric, cost_ratio: Numeric
) -> Float[Array, "..."]:
    """Optimal constant batch, `B = sqrt(phi B_h / <1/B_n>)` [derivation: docs/physics.md A0.12].

    The mean of 1/B_n over a run is the inverse of its run-level critical batch.

    **Arguments:**

    - `run_level_critical_batch`: `1 / <1/B_n>` [token].
    - the others: as in `adaptive_batch`.

    **Returns:** batch [token].
    """
    return adaptive_batch(run_level_critical_batch, fixed_cost_batch, cost_ratio)


def constant_batch_cost(run_level_critical_batch: Numeric, fixed_cost_batch: Numeric) -> Float[Array, "..."]:
    """Time over ideal at the optimal constant batch, `(1 + sqrt(B_h <1/B_n>))^2` [derivation: docs/physics.md A0.12].

    **Returns:** cost factor [1], at least 1.
    """
    return (1.0 + jnp.sqrt(jnp.asarray(fixed_cost_batch) / run_level_critical_batch)) ** 2


def adaptive_batch_cost(
    run_level_critical_batch: Numeric, fixed_cost_batch: Numeric, exponent: Numeric
) -> Float[Array, "..."]:
    """Time over ideal at the adaptive batch, `<(1 + sqrt(B_h/B_n))^2>` for `B_n = c x^xi`.

    With r = B_h <1/B_n> it is `1 + 2 sqrt(r (1 - xi)) / (1 - xi/2) + r` [derivation: docs/physics.md A0.12].

    **Arguments:**

    - `exponent`: xi [1], 0 to 1.
    - the others: as in `constant_batch`.

    **Returns:** cost factor [1], at least 1 and at most `constant_batch_cost`.
    """
    ratio, xi = jnp.asarray(fixed_cost_batch) / run_level_critical_batch, jnp.asarray(exponent)
    return 1.0 + 2.0 * jnp.sqrt(ratio * (1.0 - xi)) / (1.0 - 0.5 * xi) + ratio


def time_ratio(throughput_ratio: Numeric, token_ratio: Numeric) -> Float[Array, "..."]:
    """Time to the loss at another batch over that at this one, `t_2/t_1 = (D_2/D_1) / (R_2/R_1)`.

    [derivation: t = D / R].

    **Returns:** ratio [1], below 1 if and only if the other batch is faster.
    """
    return jnp.asarray(token_ratio) / throughput_ratio


def energy_ratio(throughput_ratio: Numeric, power_ratio: Numeric, token_ratio: Numeric) -> Float[Array, "..."]:
    """Energy to the loss at another batch over that at this one, `E_2/E_1 = (P_2/P_1) (D_2/D_1) / (R_2/R_1)`.

    [derivation: E = P t].

    **Returns:** ratio [1], below 1 if and only if the other batch needs less energy.
    """
    return jnp.asarray(power_ratio) * time_ratio(throughput_ratio, token_ratio)


def break_even_batch(
    batch: Numeric, critical_batch: Numeric, fixed_cost_batch: Numeric, cost_ratio: Numeric
) -> Float[Array, "..."]:
    """The other batch with the same cost, `B_2 = phi B_h B_c / B_1`, the mirror image about the optimum.

    [derivation: `(1 + B/B_c)(1 + phi B_h/B)` is 1 + phi B_h/B_c + B/B_c + phi B_h/B; its last two terms swap].
    Batches between the two cost less, all others more; B_1 = sqrt(phi B_h B_c) is its own mirror image.

    **Returns:** batch [token].
    """
    return jnp.asarray(cost_ratio) * fixed_cost_batch * critical_batch / batch


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
