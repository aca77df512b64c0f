"""Supply voltage of a clock, and speed of transistors at a supply voltage.

Clocks phi [1] are fractions of a reference clock, voltages fractions of the voltage at that clock. Above the knee,
voltage rises linearly with the clock. Below the knee it is at its floor, and a lower clock no longer saves switching
energy.

Shared arguments of transistors: `threshold` V_t [V]; `slope_factor` n, subthreshold slope over its thermal limit, at
least 1 [1]; `saturation` a, 2 for the square law, 1 where carriers move at their highest velocity [1]; `temperature` T
of the junction [K].
"""

import abc
from typing import overload

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.constants import BOLTZMANN, ELEMENTARY_CHARGE
from energymodel.numerics import Numeric, Real, Values, real, share, softplus
from energymodel.ranges import ABOVE_ZERO, Range

HIGHEST_KNEE = 0.98  # clock fraction: below it the curve of a chip whose highest voltage is near its floor is flat


def voltage_fraction(clock: Numeric, floor: Numeric, knee: Numeric, width: Numeric) -> Values:
    """Floor, then linear: `v = g(phi) / g(1)`, `g = v_f + s w softplus((phi - phi_k) / w)`.

    The slope is `s = (1 - v_f) / (1 - phi_k)`: one parameter less, since v(1) = 1. A smooth form of the floor and
    ramp measured by [Guerreiro et al. 2018]; [Afzal et al. 2026] find the same knee on A40 to H200. Fitted for clock
    fractions 0.35 to 1; a straight line beyond 1.

    **Arguments:**

    - `floor`: voltage floor over reference voltage, v_f [1], 0.65 to 0.9.
    - `knee`: clock fraction at which voltage starts to rise, phi_k [1], below 1.
    - `width`: half the rounding of the knee, w [1], 0.03 by default, above 0.

    **Returns:** voltage over reference voltage [1], exactly 1 at `clock` = 1, increasing in `clock`.
    """
    rise = (1.0 - jnp.asarray(floor)) / (1.0 - jnp.asarray(knee)) * width

    def ramp(phi: Numeric) -> Array:
        return softplus((jnp.asarray(phi) - knee) / width)

    # As one plus a difference, so that the value at clock 1 is exact for every curve.
    return 1.0 + (ramp(clock) - ramp(1.0)) * rise / (ramp(1.0) * rise + floor)


def posynomial_voltage(clock: Numeric, cubic_share: Numeric) -> Values:
    """Voltage of a posynomial switching power, `v = sqrt(1 - m + m phi^2)`.

    [derivation: phi v^2 = (1 - m) phi + m phi^3]. One constant in place of floor and knee, for few measured clocks:
    constant voltage for m = 0, voltage proportional to the clock for m = 1. Log-convex, hence the form for
    geometric-program bounds; within 2 percentage points of floor and knee on interpolated Zeus runs
    (docs/physics.md B2.1).

    **Arguments:**

    - `cubic_share`: m [1], 0 to 1.

    **Returns:** voltage over reference voltage [1], exactly 1 at `clock` = 1, not decreasing in `clock`.
    """
    return jnp.sqrt(1.0 + jnp.asarray(cubic_share) * (jnp.asarray(clock) ** 2 - 1.0))


class AbstractVoltageCurve(eqx.Module):
    """Voltage as a function of clock, both relative to their reference values."""

    @abc.abstractmethod
    def __call__(self, clock: Numeric) -> Values:
        """Voltage fraction [1] at a clock fraction [1]; 1 at 1."""

    def at_supply(self, voltage: Numeric, clock: Numeric) -> "AbstractVoltageCurve":
        """The curve of the same circuits relative to another point, in fractions [1] of the reference values.

        Of curves that state no floor, the shape stays.
        """
        del voltage, clock
        return self


class VoltageCurve(AbstractVoltageCurve):
    """Floor-then-linear curve `v(phi)`, see `voltage_fraction`."""

    floor: Real = share(doc="voltage floor over reference voltage")
    knee: Real = real("1", doc="clock fraction at which voltage starts to rise", within=Range(0.0, 0.99))
    width: Real = real("1", doc="rounding of the knee", within=ABOVE_ZERO)

    def __call__(self, clock: Numeric) -> Values:
        """Voltage fraction [1] at a clock fraction [1]."""
        return voltage_fraction(clock, self.floor, self.knee, self.width)

    def at_supply(self, voltage: Numeric, clock: Numeric) -> "VoltageCurve":
        """The curve relative to another point: the floor is the same in volts, the knee in hertz."""
        knee = jnp.minimum(self.knee / jnp.asarray(clock), HIGHEST_KNEE)
        return VoltageCurve(jnp.minimum(self.floor / jnp.asarray(voltage), 1.0), knee, self.width / clock)


class PosynomialVoltage(AbstractVoltageCurve):
    """Curve with one constant, see `posynomial_voltage`."""

    cubic_share: Real = share(doc="share of switching power that scales with the cube of the clock")

    def __call__(self, clock: Numeric) -> Values:
        """Voltage fraction [1] at a clock fraction [1]."""
        return posynomial_voltage(clock, self.cubic_share)


@overload
def thermal_voltage(temperature: float) -> float: ...


@overload
def thermal_voltage(temperature: Numeric) -> Numeric: ...


def thermal_voltage(temperature: Numeric) -> Numeric:
    """Thermal voltage [V], `v_T = k_B T / e` [definition]; 25.85 mV at 300 K."""
    return BOLTZMANN * temperature / ELEMENTARY_CHARGE


def on_current(
    voltage: Numeric, threshold: Numeric, slope_factor: Numeric, saturation: Numeric, temperature: Numeric
) -> Values:
    """On-current up to a factor [1], `I = ln^a(1 + exp((V - V_t) / (a n v_T)))`.

    The alpha-power law `(V - V_t)^a` above the threshold [Sakurai & Newton 1990], and below it a factor e for each
    `n v_T` of gate voltage, joined as in the EKV model [Enz, Krummenacher & Vittoz 1995], which has a = 2.

    **Arguments:**

    - `voltage`: supply V [V].
    """
    width = jnp.asarray(saturation) * slope_factor * thermal_voltage(temperature)
    return jnp.exp(saturation * jnp.log(softplus((jnp.asarray(voltage) - threshold) / width)))


def clock_ratio(
    voltage: Numeric,
    reference: Numeric,
    threshold: Numeric,
    slope_factor: Numeric,
    saturation: Numeric,
    temperature: Numeric,
) -> Values:
    """Clock at a supply over that at the reference, `f / f_0 = (I(V) / V) / (I(V_0) / V_0)` [derivation: t = C V / I].

    With a threshold of 0.3 V and a = 1.4 it meets the knee of measured curves, 0.73 of the clock at 0.79 of the
    voltage, for a reference of 0.88 V (docs/hardware.md).

    **Arguments:**

    - `voltage`, `reference`: V and V_0, above 0 [V].

    **Returns:** ratio [1], 1 at the reference.
    """

    def rate(supply: Numeric) -> Array:
        return on_current(supply, threshold, slope_factor, saturation, temperature) / jnp.asarray(supply)

    return rate(voltage) / rate(reference)
