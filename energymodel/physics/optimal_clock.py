"""At which clock does a piece of work take the least energy, or have the lowest energy-delay product?

Static power favors a high clock and an early end, switching power a low clock; the optimum balances them.

Shared arguments: `clock` phi [1], above 0; `clock_independent_share` mu of the time [1]; for `P = P_i + a f^3`,
`static_power` P_i, above 0 [W] and `cubic_coefficient` a [W/Hz^3], or [W] for clock fractions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, implicit_root
from energymodel.physics.switching import clock_stretch, frequency_cubic


def work_energy(power: Numeric, clock: Numeric, clock_independent_share: Numeric) -> Float[Array, "..."]:
    """Energy per unit of time at clock 1, `E / t_1 = P ((1 - mu) / phi + mu)` [derivation: docs/physics.md B2].

    **Arguments:**

    - `power`: busy power P at this clock [W].

    **Returns:** energy of the work that takes one second at clock 1 [J/s].
    """
    return jnp.asarray(power) * clock_stretch(clock, clock_independent_share)


def energy_optimal_frequency(static_power: Numeric, cubic_coefficient: Numeric) -> Float[Array, "..."]:
    """Energy-optimal clock for `P = P_i + a f^3`: `f_E = (P_i / (2 a))^(1/3)`.

    [derivation: d(P_i / f + a f^2) / df = 0; docs/physics.md C, T1].

    **Returns:** clock [Hz], or fraction [1]; not limited to the chip's range.
    """
    return frequency_cubic(static_power, 2.0 * jnp.asarray(cubic_coefficient))


def energy_delay_optimal_frequency(
    static_power: Numeric, cubic_coefficient: Numeric, delay_exponent: Numeric, maximum_frequency: Numeric
) -> Float[Array, "..."]:
    """Clock that minimizes `E t^n` for `P = P_i + a f^3`: `a f^3 = P_i (n + 1) / (2 - n)` [Gonzalez & Horowitz 1996].

    n = 0 is energy, n = 1 the energy-delay product. For n of 2 and more the maximum clock is optimal.

    **Arguments:**

    - `delay_exponent`: n [1], at least 0.
    - `maximum_frequency`: upper limit [Hz], or fraction [1].

    **Returns:** clock [Hz], or fraction [1], at most `maximum_frequency`.
    """
    n = jnp.asarray(delay_exponent)
    interior = n < 2.0
    ratio = (n + 1.0) / jnp.where(interior, 2.0 - n, 1.0)
    log_cube = jnp.log(jnp.asarray(static_power)) - jnp.log(jnp.asarray(cubic_coefficient)) + jnp.log(ratio)
    maximum = jnp.asarray(maximum_frequency)
    return jnp.where(interior, jnp.minimum(jnp.exp(log_cube / 3.0), maximum), maximum)


def energy_optimal_clock(
    power_of_clock: Callable[[Any, Any], Any],
    minimum_clock: Numeric,
    maximum_clock: Numeric,
    clock_independent_share: Numeric,
    parameters: Any,
) -> Float[Array, "..."]:
    """Energy-optimal clock for any power curve, root of `d ln(P t) / d ln phi = 0` [derivation: docs/physics.md B2].

    Energy per operation must be log-convex, which holds for `VoltageCurve` if `v_f >= s phi_k` (docs/physics.md C),
    and the power curve twice differentiable.

    **Arguments:**

    - `power_of_clock`: `P(phi, parameters)` [W].
    - `minimum_clock`, `maximum_clock`: range of phi [1], above 0.
    - `parameters`: pytree for `power_of_clock`.

    **Returns:** clock fraction [1], within the range.
    """

    def slope(clock: Any, arguments: Any) -> Any:
        share, lowest, highest, inner = arguments
        # A straight line beyond the range, so that no Newton step from outside leads back into it.
        within = jnp.clip(clock, lowest, highest)

        def log_energy(phi: Any) -> Any:
            return jnp.log(work_energy(power_of_clock(phi, inner), phi, share))

        # A tangent that depends on the clock: Pallas Triton cannot negate a literal one.
        return within * jax.jvp(log_energy, (within,), (within / within,))[1] + (clock - within)

    limits = (clock_independent_share, minimum_clock, maximum_clock)
    share, lower, upper = jnp.broadcast_arrays(*map(jnp.asarray, limits))
    return implicit_root(slope, lower, upper, (share, lower, upper, parameters))
