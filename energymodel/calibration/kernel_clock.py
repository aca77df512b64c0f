"""How do time and power of a kernel follow from the core clock, and what of its power is static, memory and core?

A kernel is measured once, at the highest clock and with the activity of the memory: its *profile*. Nine constants of
the device, the same for all kernels, carry profiles to lower clocks at a fixed memory clock.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Rows, Values
from energymodel.calibration.device_power import WIDTH
from energymodel.numerics import Numeric, p_norm
from energymodel.physics.voltage import voltage_fraction

SHARPNESS = 8.0  # of the corners where memory saturates
LOWEST_ACTIVITY, LOWEST_SHARE = 1e-4, 1e-2


class Kernels(NamedTuple):
    """Measured settings with the profile that belongs to each, one row each.

    - `clock`: over the highest [1].
    - `reference_time`, `reference_power`: of the profile [s], [W].
    - `memory_activity`: share of the time of the profile in which the memory transfers [1].
    - `second_clock`, `second_time`: of the same kernel at a lower clock, over the highest [1] and over the time of the
      profile [1]; a clock of 0 where there is none.
    - `device_power`: of the device, that constants are shares of, such as the highest measured [W].
    - `time`, `power`: measured [s], [W].
    """

    clock: Rows
    reference_time: Rows
    reference_power: Rows
    memory_activity: Rows
    second_clock: Rows
    second_time: Rows
    device_power: Rows
    time: Rows
    power: Rows

    @property
    def by_limit(self) -> bool:
        """No power limits are set, only clocks."""
        return False

    @property
    def limit(self) -> np.ndarray:
        """Power limit of each row, none [W]."""
        return np.full(len(self.clock), np.inf)

    @property
    def rated_power(self) -> Rows:
        """The power of the device that shares are of [W]."""
        return self.device_power

    @property
    def device(self) -> np.ndarray:
        """Number of the device of each row, of which there is one."""
        return np.zeros(len(self.clock), int)

    def at_speeds(self, rows: np.ndarray, speeds: np.ndarray) -> "Kernels":
        """Profiles of some rows at other clocks."""
        return Kernels(*(np.asarray(column)[rows] for column in self))._replace(clock=speeds)


class KernelPower(NamedTuple):
    """Parts of the power of a kernel at a clock, and its time.

    - `static`: what does not depend on the clock [W].
    - `clocking`: of cores that are clocked, whatever they do [W].
    - `memory`: of transfers [W].
    - `operations`: of the core, above clocking it [W].
    - `time`: [s].
    """

    static: Float[Array, " rows"]
    clocking: Float[Array, " rows"]
    memory: Float[Array, " rows"]
    operations: Float[Array, " rows"]
    time: Float[Array, " rows"]

    @property
    def power(self) -> Float[Array, " rows"]:
        """Sum of the parts [W]."""
        return self.static + self.memory + self.core

    @property
    def core(self) -> Float[Array, " rows"]:
        """Clocking and operations [W]."""
        return self.clocking + self.operations


CONSTANTS: ConstantPriors = {
    "static": ConstantPrior(0.12, 0.4, unit="device power"),
    "clocking": ConstantPrior(0.08, 0.5, unit="device power"),
    "memory": ConstantPrior(0.2, 0.5, unit="device power"),
    "voltage_floor": ConstantPrior(0.8, 0.08, 0.5, 1.0),
    "voltage_knee": ConstantPrior(0.65, 0.1, 0.2, 0.95),
    "saturation": ConstantPrior(0.8, 0.3),
    "overlap": ConstantPrior(3.0, 0.4, 1.0),
    "path_clock": ConstantPrior(0.65, 0.1, 0.2, 0.95),
    "path_exponent": ConstantPrior(1.3, 0.3),
}
"""Priors: the floor and knee of docs/physics.md B2, and wide ones for what was not measured before."""


def memory_path_time(clock: Numeric, knee: Numeric, exponent: Numeric) -> Float[Array, "..."]:
    """Time of a transfer, over that at clock 1: `g(phi) / g(1)`, `g = (1 + (phi_m / phi)^(8 n))^(1/8)`.

    The memory keeps its clock, but what stands between it and the cores does not: below the knee it cannot fill the
    memory any more [derivation: two rates in series, the slower one decides].

    **Arguments:**

    - `clock`: phi [1].
    - `knee`: clock below which the path is slower than the memory, phi_m [1].
    - `exponent`: of its rate in the clock, n [1].

    **Returns:** ratio of times [1], 1 at clock 1.
    """

    def slower(phi: Numeric) -> Array:
        return p_norm(SHARPNESS, 1.0, (jnp.asarray(knee) / phi) ** exponent)

    return slower(clock) / slower(1.0)


def memory_share(activity: Numeric, saturation: Numeric, overlap: Numeric) -> Float[Array, "..."]:
    """Share x of memory in `t^p` at clock 1, `x = m^p`, `m = d / (d^8 + d_s^8)^(1/8)` [derivation: below].

    Memory that is active for a share d of the time would need `d / d_s` of it, if it did nothing else at the rate that
    it can sustain; more than all of it, it cannot.

    **Arguments:**

    - `activity`: d [1].
    - `saturation`: activity of a kernel that does nothing but transfer, d_s [1].
    - `overlap`: exponent p that joins the times of core and memory [1].

    **Returns:** share [1], 0 to 1.
    """
    active = jnp.maximum(jnp.asarray(activity), LOWEST_ACTIVITY)
    return (active / p_norm(SHARPNESS, active, saturation)) ** overlap


def kernel_stretch(clock: Numeric, share: Numeric, path: Numeric, overlap: Numeric) -> Float[Array, "..."]:
    """Time at a clock over that at clock 1, `s = ((1 - x) phi^-p + x g(phi)^p)^(1/p)` [Williams et al. 2009].

    The roofline of core and memory, rounded: p = 1 is no overlap at all.

    **Arguments:**

    - `clock`: phi [1].
    - `share`: of memory in t^p at clock 1, x [1].
    - `path`: `memory_path_time` at the clock, g [1].
    - `overlap`: p [1].

    **Returns:** ratio of times [1].
    """
    share, overlap = jnp.asarray(share), jnp.asarray(overlap)
    core = (1.0 - share) * jnp.asarray(clock) ** -overlap
    return (core + share * jnp.asarray(path) ** overlap) ** (1.0 / overlap)


def share_from_stretch(stretch: Numeric, clock: Numeric, path: Numeric, overlap: Numeric) -> Float[Array, "..."]:
    """Share of memory of a kernel whose stretch s is known at one clock, the inverse of `kernel_stretch`.

    `x = (phi^-p - s^p) / (phi^-p - g^p)` [derivation: linear in x].

    **Arguments:**

    - `stretch`: s [1].
    - `clock`, `path`, `overlap`: as in `kernel_stretch`; the clock is below 1, and its path faster than the core.

    **Returns:** share [1], held within 0 to 1.
    """
    core = jnp.asarray(clock) ** -jnp.asarray(overlap)
    between = core - jnp.asarray(path) ** overlap
    known = between > LOWEST_SHARE
    share = (core - jnp.asarray(stretch) ** overlap) / jnp.where(known, between, 1.0)
    return jnp.where(known, jnp.clip(share, 0.0, 1.0), 0.0)


def split_power(values: Values, kernels: Any) -> KernelPower:
    """Time and parts of the power at a clock, from the profile of the kernel.

    `P = P_s + P_c phi v^2 + (S v^2 + M) / t`, with `M = e d t_ref` and S from the power of the profile: operations and
    bytes take the same energy however long they last, but for the voltage [derivation: docs/physics.md B2].

    **Arguments:**

    - `values`: of `CONSTANTS`.
    - `kernels`: settings and their profiles, `Kernels`; measured time and power are not used.

    **Returns:** `KernelPower`. `operations` is negative for a kernel whose cores are idle or stalled, and so draw less
    than the `clocking` of the mean kernel; only the sum of both is determined by its profile.
    """
    k = Kernels(*map(jnp.asarray, kernels))
    voltage = voltage_fraction(k.clock, values["voltage_floor"], values["voltage_knee"], WIDTH)
    static, clocking, memory = (jnp.asarray(values[name] * k.device_power) for name in ("static", "clocking", "memory"))
    operations = jnp.asarray(k.reference_power - static - clocking - memory * k.memory_activity)
    overlap, path = values["overlap"], (values["path_clock"], values["path_exponent"])
    second = jnp.where(k.second_clock > 0, k.second_clock, 0.5)
    measured = share_from_stretch(k.second_time, second, memory_path_time(second, *path), overlap)
    counted = memory_share(k.memory_activity, values["saturation"], overlap)
    share = jnp.where(k.second_clock > 0, measured, counted)
    stretch = kernel_stretch(k.clock, share, memory_path_time(k.clock, *path), overlap)
    return KernelPower(
        static=static,
        clocking=clocking * k.clock * voltage**2,
        memory=memory * k.memory_activity / stretch,
        operations=operations * voltage**2 / stretch,
        time=stretch * k.reference_time,
    )


def kernel_errors(values: Values, kernels: Any) -> Float[Array, "rows 2"]:
    """Logarithmic errors of time and power."""
    k = Kernels(*map(jnp.asarray, kernels))
    parts = split_power(values, k)
    power = jnp.maximum(parts.power, LOWEST_SHARE * k.power)
    return jnp.stack([jnp.log(parts.time / k.time), jnp.log(power / k.power)], axis=1)
