"""The thermal resistance at which leakage runs away, in closed form: the limit of `leakage_temperature`."""

import jax.numpy as jnp

from energymodel.numerics import implicit_root


def runaway_resistance(base_power, leakage_power, coolant_temperature, temperature_sensitivity, reference_temperature):
    """Largest resistance with a stable temperature, `R_crit = max_theta (theta - theta_c) / P(theta)`.

    `P = P_0 + P_l exp(b (theta - theta_0))`; the maximum is where the loop gain is 1, so that
    `R_crit = 1 / (b P_l) exp(b (theta_0 - theta))`, with `y = b (theta - theta_c) - 1` from
    `y e^y = (P_0 / P_l) exp(b (theta_0 - theta_c) - 1)` [derivation: docs/physics.md B6].
    """
    leak, sensitivity = jnp.asarray(leakage_power), jnp.asarray(temperature_sensitivity)
    feedback = leak * sensitivity > 1e-30
    leak, sensitivity = jnp.where(feedback, leak, 1.0), jnp.where(feedback, sensitivity, 1.0)
    warm = jnp.where(feedback, sensitivity * (jnp.asarray(reference_temperature) - coolant_temperature), 0.0)
    ratio = jnp.where(feedback, base_power / leak, 0.0) * jnp.exp(warm - 1.0)
    # The Lambert function is at most ln(1 + ratio).
    y = implicit_root(lambda y, ratio: y * jnp.exp(y) - ratio, 0.0, jnp.log(1.0 + ratio), ratio)
    return jnp.where(feedback, jnp.exp(warm - 1.0 - y) / (sensitivity * leak), 1e12)
