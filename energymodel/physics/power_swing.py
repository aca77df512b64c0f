"""Swings and ramps of power between two levels, behind a supply that follows with a lag, and storage that smooths them.

Shared arguments: `height` between the levels, dP [W]; `lag`, time constant tau of what lies between the chips and the
meter [s], above 0; what a storage can take or give, `power` p [W], and its usable `energy` e [J]; `efficiency`, energy
given over energy taken, eta [1].
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, is_fixed, real
from energymodel.ranges import SHARE_ABOVE_ZERO, Range


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


class Smoothed(NamedTuple):
    """A swing that storage has smoothed."""

    swing: Values
    loss: Values


def smoothed_swing(
    height: Numeric, low_time: Numeric, period: Numeric, power: Numeric, energy: Numeric, efficiency: Numeric
) -> Smoothed:
    """Swing left between two levels, `dP - x (1 + eta w / (T - w))`, `x = min(p, p b/(eta w), e/(eta w), x_flat)`.

    The storage takes the power x while power is low, for w of each period T, and gives `eta w x / b` for the
    rest, `b = T - w`. `x_flat = dP b / (b + eta w)` leaves no swing. [definition]

    **Arguments:**

    - `low_time`: w [s], below the period.
    - `period`: T [s].

    **Returns:** swing left [W], and the mean power lost, `x w (1 - eta) / T` [W].
    """
    dP, w, T = map(jnp.asarray, (height, low_time, period))
    b, returned = T - w, w * efficiency
    some = returned > 0.0
    back = jnp.where(some, returned, 1.0)
    flat = dP * b / (b + returned)
    most = jnp.minimum(jnp.asarray(power), jnp.minimum(power * b / back, energy / back))
    taken = jnp.where(some, jnp.minimum(most, flat), 0.0)
    left = jnp.maximum(dP - taken * (1.0 + returned / b), 0.0)  # rounding leaves less than nothing
    return Smoothed(left, taken * w * (1.0 - jnp.asarray(efficiency)) / T)


def stored_ramp(height: Numeric, rise_time: Numeric, lag: Numeric, power: Numeric, energy: Numeric) -> Values:
    """Steepest slope of a step of power of which storage spreads a part, `s(dP - q, r) + s(q, r + 2 e / q)`.

    The storage bridges `q = min(p, dP)` and lets it reach the grid along a line, which takes q r' / 2 = e. What it does
    not bridge comes at once. s is `steepest_ramp`. [definition]

    **Arguments:**

    - `rise_time`: r of the step itself [s].
    - `lag`: time constant of the supply [s].

    **Returns:** slope [W/s]; that of the whole step without storage.
    """
    dP = jnp.asarray(height)
    bridged = jnp.minimum(jnp.asarray(power), dP)
    some = bridged > 0.0
    spread = rise_time + 2.0 * jnp.asarray(energy) / jnp.where(some, bridged, 1.0)
    return steepest_ramp(dP - bridged, rise_time, lag) + steepest_ramp(bridged, spread, lag)


class EnergyStorage(eqx.Module):
    """Capacitors or batteries behind the power supplies, per chip; without capacity there are none."""

    energy: Real = real("J", 0.0, doc="usable, per chip")
    power: Real = real("W", 0.0, doc="that it can take or give, per chip")
    efficiency: Real = real("1", 0.95, doc="energy given over energy taken", within=SHARE_ABOVE_ZERO)
    energy_price: Real = real("USD/J", 0.0, doc="purchase price of capacity", within=Range(0.0, 0.1))
    power_price: Real = real("USD/W", 0.0, doc="purchase price of converters")

    def price(self) -> Values:
        """Purchase price per chip [USD]."""
        return jnp.asarray(self.energy_price) * self.energy + jnp.asarray(self.power_price) * self.power

    def smoothed(self, height: Numeric, low_time: Numeric, period: Numeric) -> Smoothed:
        """See `smoothed_swing`."""
        if is_fixed(self.power, 0.0):
            return Smoothed(jnp.asarray(height), jnp.zeros_like(height))
        return smoothed_swing(height, low_time, period, self.power, self.energy, self.efficiency)

    def ramp(self, height: Numeric, rise_time: Numeric, lag: Numeric) -> Values:
        """See `stored_ramp` [W/s]."""
        if is_fixed(self.power, 0.0):
            return steepest_ramp(height, rise_time, lag)
        return stored_ramp(height, rise_time, lag, self.power, self.energy)
