"""Time of a kernel over the core clock, and its power in static, memory and core parts.

A kernel is measured once, at the highest clock and with the activity of the memory: its *profile*. Nine constants of
the device, the same for all kernels, carry profiles to lower clocks at a fixed memory clock.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import DECLARED, Rows, Values
from energymodel.calibration.device_power import Profiles, voltage_at
from energymodel.numerics import Numeric, p_norm
from energymodel.physics.switching import busy_power

SHARPNESS = 8.0  # of the corners where memory saturates
LOWEST_ACTIVITY, LOWEST_SHARE = 1e-4, 1e-2


class KernelPower(NamedTuple):
    """Parts of the power of a kernel at a clock, and its time."""

    static: Float[Array, " rows"]  # what does not depend on the clock [W]
    memory: Float[Array, " rows"]  # of transfers [W]
    core: Float[Array, " rows"]  # of clocking the cores and of their operations [W]
    time: Float[Array, " rows"]  # [s]

    @property
    def power(self) -> Float[Array, " rows"]:
        """Sum of the parts [W]."""
        return self.static + self.memory + self.core


CONSTANTS = DECLARED["kernel"]


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


def split_power(values: Values, runs: Any, share: Rows | None = None) -> KernelPower:
    """Time and parts of the power at a clock, from the profile of the kernel.

    `P = P_s + (P_c phi + S / t) v^2 + M / t` (`switching.busy_power`), with `M = e d t_ref` and S from the power of the
    profile: operations and bytes take the same energy however long they last, but for the voltage
    [derivation: docs/physics.md B2].

    **Arguments:**

    - `values`: of `CONSTANTS`, in shares of the rated power.
    - `runs`: settings with `memory_activity`, `device_power.Profiles`; measured time and power are not used.
    - `share`: of memory in t^p at clock 1 [1]; by default `memory_share` of the activity.

    **Returns:** `KernelPower`. S is negative for a kernel whose cores are idle or stalled, and so draw less than P_c,
    that of the mean kernel; only the sum of both is determined by its profile.
    """
    k = Profiles(*map(jnp.asarray, runs))
    voltage = voltage_at(k.clock, values)
    static, clocking, memory = (jnp.asarray(values[name] * k.rated_power) for name in ("static", "clocking", "memory"))
    transfers = memory * k.memory_activity
    operations = jnp.asarray(k.reference_power - static - clocking - transfers)
    if share is None:
        share = memory_share(k.memory_activity, values["saturation"], values["overlap"])
    path = memory_path_time(k.clock, values["path_clock"], values["path_exponent"])
    stretch = kernel_stretch(k.clock, share, path, values["overlap"])
    core = busy_power(0.0, clocking * k.clock + operations / stretch, voltage)
    return KernelPower(static, transfers / stretch, core, stretch * k.reference_time)


def kernel_errors(values: Values, runs: Any, share: Rows | None = None) -> Float[Array, "rows 2"]:
    """Logarithmic errors of time and power; arguments as those of `split_power`."""
    k = Profiles(*map(jnp.asarray, runs))
    parts = split_power(values, k, share)
    power = jnp.maximum(parts.power, LOWEST_SHARE * k.power)
    return jnp.stack([jnp.log(parts.time / k.time), jnp.log(power / k.power)], axis=1)
