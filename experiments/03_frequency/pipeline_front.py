"""Energy of a pipelined step over its deadline, from the fastest plan.

One plan is measured, the fastest: its time and its energy. Four constants of the device carry it to other deadlines,
with one clock for all passes that the deadline hurries. `pipeline_clocks.stage_clocks` finds the exact plans.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Rows, Values
from energymodel.calibration.device_power import WIDTH
from energymodel.numerics import Numeric
from energymodel.physics.voltage import voltage_fraction


class Deadlines(NamedTuple):
    """Measured plans with the fastest of their front, one row each.

    - `stretch`: time over that of the fastest plan [1].
    - `power`: of the fastest plan, mean over the ranks and the step [W].
    - `waiting_power`: of a chip that waits for its neighbor [W].
    - `rated_power`: of a chip [W].
    - `busy`: share of the fastest step in which a rank works [1].
    - `hurried`: share of the passes that the deadline hurries [1]; the others have slack.
    - `lowest_clock`: over the highest [1].
    - `energy`: over that of the fastest plan [1].
    """

    stretch: Rows
    power: Rows
    waiting_power: Rows
    rated_power: Rows
    busy: Rows
    hurried: Rows
    lowest_clock: Rows
    energy: Rows


CONSTANTS: ConstantPriors = {
    "memory_power": ConstantPrior(0.05, 0.05, 0.0, 0.4, "rated power"),
    "memory_time": ConstantPrior(0.2, 0.1, 0.0, 1.0),
    "voltage_floor": ConstantPrior(0.75, 0.08, 0.5, 1.0),
    "voltage_knee": ConstantPrior(0.65, 0.1, 0.2, 0.95),
}
"""Priors: energy of memory and links that no clock changes, over rated power times the time at full clock, and the
share of that time which they take (docs/physics.md B2: .1 to .3 for large products); floor and knee of docs/physics.md
B10."""


def clock_for_stretch(stretch: Numeric, memory_time: Numeric, lowest: Numeric) -> Float[Array, "..."]:
    """Clock at which work takes so much longer, `phi = (1 - mu) / (s - mu)`, from `s = (1 - mu) / phi + mu`.

    **Arguments:**

    - `stretch`: time over that at clock 1, s [1], at least 1.
    - `memory_time`: share of time that does not follow the clock, mu [1].
    - `lowest`: lowest clock [1].

    **Returns:** clock [1], from the lowest to 1.
    """
    share = jnp.asarray(memory_time)
    return jnp.clip((1.0 - share) / (jnp.asarray(stretch) - share), lowest, 1.0)


def front_energy(values: Values, plans: Any) -> Float[Array, " rows"]:
    """Energy of the best plan at a deadline over that of the fastest plan.

    A chip that works draws its waiting power and above it `S v(phi)^2 phi t_1 / t + M`: operations take the same energy
    however long they last, but for the voltage, and so does memory. With u the busy share, h the hurried one and
    `c(phi) = S v(phi)^2 + M`: `E / E_1 = (P_w s + u (h c(phi) + (1 - h) c(phi_min))) / P_1`, and S such that it is 1 at
    s = 1 [derivation: docs/physics.md B2; static power is the waiting power].

    **Arguments:**

    - `values`: of `CONSTANTS`.
    - `plans`: `Deadlines`; the measured energy is not used.

    **Returns:** ratio of energies [1].
    """
    p = Deadlines(*map(jnp.asarray, plans))

    def square(clock: Numeric) -> Array:
        return voltage_fraction(clock, values["voltage_floor"], values["voltage_knee"], WIDTH) ** 2

    clock = clock_for_stretch(p.stretch, values["memory_time"], p.lowest_clock)
    slack = (1.0 - p.hurried) * square(p.lowest_clock)
    memory = values["memory_power"] * p.rated_power
    switching = switching_power_of(p, memory, p.hurried + slack)
    above = p.busy * (switching * (p.hurried * square(clock) + slack) + memory)
    return jnp.asarray((p.waiting_power * p.stretch + above) / p.power)


def switching_power_of(plans: Deadlines, memory: Numeric, squares: Numeric) -> Float[Array, " rows"]:
    """Switching power at clock 1 that gives the fastest plan its power, `S = ((P_1 - P_w) / u - M) / <v^2>`.

    **Arguments:**

    - `plans`: `Deadlines`.
    - `memory`: M [W].
    - `squares`: mean of v^2 over the passes of the fastest plan [1].

    **Returns:** S [W].
    """
    p = Deadlines(*map(jnp.asarray, plans))
    return jnp.asarray(((p.power - p.waiting_power) / p.busy - memory) / squares)


def front_errors(values: Values, plans: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the energy."""
    p = Deadlines(*map(jnp.asarray, plans))
    return (jnp.log(front_energy(values, p)) - jnp.log(p.energy))[:, None]
