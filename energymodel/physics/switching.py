"""Power of a chip at a clock, and the clock at a power cap.

Shared arguments: `voltage` v, a fraction of that at the reference clock, and `activity` a of the units relative to the
reference workload [1]; `power` P, `idle_power` P_idle, `busy_power` P_b and `static_power` P_s (leakage and all other
power that does not scale with the clock) [W]; `busy_time` t_busy in which the chip switches [s]; `duty` u, busy share
of the time, 0 to 1 [1]; `energy_per_operation` E_op [J]; `overhead` beta, energy drawn per energy of the operations
[1].
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, implicit_root, real
from energymodel.ranges import Range


def switching_power(capacitance: Numeric, voltage: Numeric, frequency: Numeric, activity: Numeric) -> Values:
    """CMOS switching power, `P = a C_eff V^2 f` [Chandrakasan et al. 1992].

    **Arguments:**

    - `capacitance`: switched capacitance C_eff [F].
    - `voltage`: supply voltage V [V].
    - `frequency`: clock f [Hz].
    - `activity`: share of the capacitance that switches in a cycle, a [1].

    **Returns:** power [W]; `switching_energy` gives the energy.
    """
    return jnp.asarray(activity) * jnp.asarray(capacitance) * jnp.asarray(voltage) ** 2 * frequency


def switching_energy(power: Numeric, busy_time: Numeric) -> Values:
    """Switching energy [J], `E = P t_busy` [definition]."""
    return jnp.asarray(power) * busy_time


def busy_power(
    static_power: Numeric, switching_power: Numeric, voltage: Numeric, memory_power: Numeric | None = None
) -> Values:
    """Power of a working chip [W], `P_b = P_s + P_sw v^2 + P_m` [Guerreiro et al. 2018], or its energy [J].

    The one law of `evaluate`, fronts of pipelines and calibrations. They count what switches: `kappa a phi` of clocked
    units, and `E / t` of operations that take an energy E at reference voltage and a time t; memory draws `E_m / t`.
    Mean errors of 3 to 4 % of power on V100, A40 and P100 (docs/physics.md B2.1).

    **Arguments:**

    - `switching_power`: P_sw, at this clock and reference voltage [W].
    - `memory_power`: P_m, which no clock or voltage changes; `None` for none [W].
    """
    working = jnp.asarray(switching_power) * jnp.asarray(voltage) ** 2
    return jnp.asarray(static_power) + (working if memory_power is None else working + memory_power)


def adiabatic_share(ramp: Numeric) -> Values:
    """Heat of charging by a ramp over that by a switch [1], `s = 2 x (1 - x (1 - e^(-1/x)))`, x = RC / T.

    `E = (RC / T) C V^2` of a slow ramp [Athas et al. 1994, derivation: R times the integral of i^2, with
    `i = (C V / T) (1 - e^(-t/RC))` up to T and its decay after it, over C V^2 / 2].

    **Arguments:**

    - `ramp`: x, time constant RC of a charged node over the time T of the ramp [1], above 0.
    """
    x = jnp.asarray(ramp)
    return 2.0 * x * (1.0 + x * jnp.expm1(-1.0 / x))


class AbstractCharging(eqx.Module):
    """How circuits charge what they switch."""

    def swing(self, clock: Numeric, voltage: Numeric) -> Values:
        """Root of the heat of an operation over that at reference voltage by switches [1]; unless overridden, v."""
        return jnp.asarray(voltage)


class SwitchedCharging(AbstractCharging):
    """By switches to the supply, which turn `C V^2 / 2` to heat each time."""


class AdiabaticCharging(AbstractCharging):
    """Reversible circuits, by ramps that give the charge back; hypothetical for whole chips. See `adiabatic_share`."""

    ramp: Real = real("1", doc="RC over the time of a ramp at clock 1", within=Range(0.0, 100.0, above=True))

    def swing(self, clock: Numeric, voltage: Numeric) -> Values:
        """See `AbstractCharging.swing`: ramps last as long as a cycle, x in proportion to the clock."""
        return jnp.asarray(voltage) * jnp.sqrt(adiabatic_share(self.ramp * jnp.asarray(clock)))


def average_power(idle_power: Numeric, busy_power: Numeric, duty: Numeric) -> Values:
    """Mean power of a chip that is busy for a share of the time [W], `P = P_idle + u (P_b - P_idle)` [definition]."""
    return jnp.asarray(idle_power) + jnp.asarray(duty) * (jnp.asarray(busy_power) - idle_power)


def throughput_at_power(
    power: Numeric, energy_per_operation: Numeric, idle_power: Numeric, overhead: Numeric
) -> Values:
    """Throughput that a power buys [1/s], `R = (P - P_idle) / (beta E_op)` [derivation: docs/physics.md A2.3].

    Constant voltage only (below the knee); otherwise use `clock_at_power_cap`.
    """
    return (jnp.asarray(power) - idle_power) / (jnp.asarray(overhead) * energy_per_operation)


def useful_power_share(power: Numeric, idle_power: Numeric, overhead: Numeric) -> Values:
    """Share of power that operations get [1], `alpha = (P - P_idle) / (beta P)` [derivation: docs/physics.md A2.4].

    P, P_idle and beta determine it; choosing alpha freely would fix the power.
    """
    return (jnp.asarray(power) - idle_power) / (jnp.asarray(overhead) * power)


def frequency_at_constant_voltage(power: Numeric, coefficient: Numeric, voltage: Numeric) -> Values:
    """Clock that a power buys at a fixed voltage [Hz], `f = P / (k V^2)` [derivation: docs/physics.md A2.12].

    **Arguments:**

    - `power`: switching power P [W].
    - `coefficient`: activity times capacitance, k [W/(Hz V^2)].
    - `voltage`: supply voltage V [V], above 0.
    """
    return jnp.asarray(power) / (jnp.asarray(coefficient) * jnp.asarray(voltage) ** 2)


def clock_at_power_cap(
    power_of_clock: Callable[[Any, Any], Any],
    power_cap: Numeric,
    minimum_clock: Numeric,
    maximum_clock: Numeric,
    parameters: Any,
) -> Values:
    """Highest clock within a power cap, `phi = max {phi : P_b(phi) <= P_cap}` [derivation: docs/physics.md B2].

    The cap acts on busy power. The slope is that of the implicit function, `d phi / d P_cap = 1 / (d P_b / d phi)`.

    **Arguments:**

    - `power_of_clock`: `P_b(phi, parameters)` [W], increasing in phi; everything it depends on is in `parameters`.
    - `power_cap`: P_cap [W], finite.
    - `minimum_clock`, `maximum_clock`: range of phi [1].
    - `parameters`: pytree for `power_of_clock`.

    **Returns:** clock fraction [1]: the maximum where the cap does not bind, the minimum where even that exceeds it.
    """

    def excess(clock: Any, arguments: Any) -> Any:
        cap, inner = arguments
        return power_of_clock(clock, inner) - cap

    cap, lower, upper = jnp.broadcast_arrays(*map(jnp.asarray, (power_cap, minimum_clock, maximum_clock)))
    return implicit_root(excess, lower, upper, (cap, parameters))


def low_clock_share(waiting: Numeric, switch_time: Numeric) -> Values:
    """Share of a wait at a lower clock [1], `max(1 - 2 t_s / t, 0)` [definition].

    The end of a wait is known ahead, so that the clock is up again in time; the two switches take of the wait alone.

    **Arguments:**

    - `waiting`: t, between two steps [s].
    - `switch_time`: t_s from the command to another clock until it holds [s].
    """
    some = jnp.asarray(waiting) > 0.0
    return jnp.where(some, jnp.maximum(1.0 - 2.0 * switch_time / jnp.where(some, waiting, 1.0), 0.0), 0.0)
