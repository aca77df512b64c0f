"""Swings and ramps of power between two levels, behind a supply that follows with a lag.

Shared arguments: `height` between the levels, dP [W]; `lag`, time constant tau of what lies between the chips and the
meter [s], above 0.
"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values


def lagged_swing(height: Numeric, low_time: Numeric, period: Numeric, lag: Numeric) -> Values:
    """Swing of a square wave behind a lag, `dP (1 - e^(-w/tau)) (1 - e^(-(T-w)/tau)) / (1 - e^(-T/tau))`.

    Peak to peak, in the periodic state of a first-order lag [derivation: the level decays towards one end of the wave
    for w, towards the other for T - w, and both turning points repeat]. The whole height where both phases are long
    against tau, `dP w (T - w) / (tau T)` where both are short.

    **Arguments:**

    - `low_time`: w in each period [s], from 0 to the period.
    - `period`: T [s], above 0.

    **Returns:** power [W], at most the height.
    """
    w, T, tau = map(jnp.asarray, (low_time, period, lag))
    return jnp.asarray(height) * jnp.expm1(-w / tau) * jnp.expm1(-(T - w) / tau) / -jnp.expm1(-T / tau)


def steepest_ramp(height: Numeric, rise_time: Numeric, lag: Numeric) -> Values:
    """Steepest slope of a linear rise behind a lag [W/s], `dP (1 - e^(-r/tau)) / r` [derivation: first-order lag].

    A step (r = 0) rises by `dP / tau` at first; a slow rise keeps its own slope `dP / r`.

    **Arguments:**

    - `rise_time`: r of the rise before the lag [s], at least 0.
    """
    r, tau = map(jnp.asarray, (rise_time, lag))
    rises = r > 1e-3 * tau  # below, the series is exact to 2e-7; the quotient's slope would lose digits in float32
    long = jnp.where(rises, r, tau) / tau
    return jnp.asarray(height) / tau * jnp.where(rises, -jnp.expm1(-long) / long, 1.0 - 0.5 * r / tau)
