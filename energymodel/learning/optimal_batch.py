"""Which batch is optimal by fitted laws, and which batch at each moment of a run?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, power_law


def optimal_batch_for_tokens(tokens: Numeric, coefficient: Numeric, exponent: Numeric) -> Float[Array, "..."]:
    """Batch with the lowest loss at given tokens, `B = c D^m` [Li et al. 2025; Bergsma et al. 2025].

    Optimal, not critical: it ignores the step time. Step law: c = 0.58, m = 0.571; Bergsma: c = 2048 x 0.0306,
    m = 0.383 (docs/physics.md B1).

    **Arguments:**

    - `tokens`: D [token].
    - `coefficient`: c [token].
    - `exponent`: m [1].

    **Returns:** batch [token].
    """
    return power_law(tokens, coefficient, exponent)


def optimal_batch_for_compute(compute: Numeric, coefficient: Numeric, exponent: Numeric) -> Float[Array, "..."]:
    """Batch with the lowest loss at given compute, `B = c C^m`, c = 0.2920, m = 0.3271 [DeepSeek-AI 2024, eq. 1].

    Fitted up to 2e19 FLOP; beyond that it extrapolates.

    **Arguments:**

    - `compute`: C [FLOP].
    - the others: as in `optimal_batch_for_tokens`.

    **Returns:** batch [token].
    """
    return power_law(compute, coefficient, exponent)


def adaptive_batch(critical_batch: Numeric, fixed_cost_batch: Numeric, cost_ratio: Numeric) -> Float[Array, "..."]:
    """Optimal batch at each moment, `B = sqrt(phi B_h B_n)` [McCandlish et al. 2018].

    It minimizes `(1 + B/B_n)(1 + phi B_h/B)` pointwise; the minimum is `(1 + sqrt(phi B_h/B_n))^2`.

    **Arguments:**

    - `critical_batch`: instantaneous critical batch B_n [token].
    - `fixed_cost_batch`: B_h, tokens that could be processed in the fixed time per step [token].
    - `cost_ratio`: cost of a second of waiting over a second of work, phi [1]: 1 for time, idle over full power
      for energy.

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


def adaptive_step_ratio(exponent: Numeric) -> Float[Array, "..."]:
    """Excess steps of the adaptive over the constant batch at equal token overhead, `(1 - xi) / (1 - xi/2)^2`.

    Excess steps are `S - S_min = int dx / B` [derivation: docs/physics.md A0.12, Cauchy-Schwarz on B_n = c x^xi].

    **Arguments:**

    - `exponent`: xi of the critical-batch law [1], 0 to 1.

    **Returns:** ratio [1], at most 1; 1 if the critical batch does not change.
    """
    xi = jnp.asarray(exponent)
    return (1.0 - xi) / (1.0 - 0.5 * xi) ** 2


def constant_batch_cost(run_level_critical_batch: Numeric, fixed_cost_batch: Numeric) -> Float[Array, "..."]:
    """Time over ideal at the optimal constant batch, `(1 + sqrt(B_h <1/B_n>))^2` [derivation: docs/physics.md A0.12].

    Arguments as in `constant_batch`.

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
