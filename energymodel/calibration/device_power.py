"""Time and power of workloads on a device over its power limit or clock, from one profile of each.

The device is measured once at its highest limit for each workload and batch: the *profile*. Nine constants of the
device, the same for all workloads, carry a profile to lower limits [derivation: docs/physics.md B2]; eight where the
posynomial form stands for floor and knee of the voltage [docs/physics.md B2.1].
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.calibration.constant_priors import DECLARED, ConstantPriors, Rows, Values, numbered
from energymodel.calibration.least_squares import FitOptions
from energymodel.numerics import Numeric, p_norm
from energymodel.physics.switching import busy_power, clock_at_power_cap
from energymodel.physics.voltage import posynomial_voltage, voltage_fraction

WIDTH = 0.04  # half the rounding of the voltage knee [1]; caps are too far apart to tell it [docs/physics.md B2.1]
LEAKAGE = 0.1
"""Share of a static power that depends on the temperature, written as leakage [prior]. Fits see none that follows the
voltage: errors of the A40's energy are 6.1, 6.5 and 7.5 % with shares of 0, 0.25 and 0.5."""
LOWEST_ABOVE = 1e-3
USUAL_IDLE, MOST_IDLE = 0.15, 0.35
"""Of the rated power, that an idle device with its clocks up usually draws and at most [prior: V100, P100, A40]."""
NO_LIMIT = 100.0  # [rated power], which no device draws

OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100)
NOISE = 0.04  # of times and powers of a device: how they are fitted, and the first guess of their noise

VoltageForm = Literal["voltage-floor", "posynomial"]
FORMS: tuple[VoltageForm, ...] = get_args(VoltageForm)  # of the voltage over the clock, see `voltage_at`
SHAPES = ("voltage_floor", "voltage_knee", "cubic_share")


class Profiles(NamedTuple):
    """Measured settings, one row each, with their profile: same workload and batch at the highest limit and clock."""

    workload: Int[Array | np.ndarray, " rows"]  # its number, from 0
    limit: Rows  # power limit [W]; infinite if none
    clock: Rows  # set clock over the profile's [1]; 1 if none is set
    reference_time: Rows  # of the profile [s]
    reference_power: Rows  # of the profile [W]
    overhead: Rows  # share of the profile's time that does not grow with the batch [1], see `overhead_share`
    idle_power: Rows  # of the device [W]
    rated_power: Rows  # of the device [W]
    time: Rows  # measured [s]
    power: Rows  # measured mean [W]
    device: Int[Array | np.ndarray, " rows"]  # its number, from 0
    memory_activity: Rows  # share of the profile's time in which the memory transfers [1], for `kernel_clock`

    @property
    def by_limit(self) -> bool:
        """Whether power limits were set, not only clocks."""
        return bool(np.any(np.isfinite(self.limit)))

    @property
    def speeds(self) -> Float[np.ndarray, " rows"]:
        """What was set: limits [W], or clocks where only these were set [1]."""
        return np.asarray(self.limit if self.by_limit else self.clock, np.float64)

    def at_speeds(self, rows: np.ndarray, speeds: np.ndarray) -> "Profiles":
        """Profiles of some rows at other limits, or at other clocks where only these were set."""
        table = Profiles(*(np.asarray(column)[rows] for column in self))
        return table._replace(limit=speeds) if self.by_limit else table._replace(clock=speeds)


MEDIAN_RANGES = {
    "static_above_idle": (0.005, np.inf),
    "voltage_floor": (0.52, 0.98),
    "voltage_knee": (0.25, 0.9),
    "cubic_share": (0.05, 0.95),
    "lowest_clock": (0.06, 0.45),
}
"""Of constants whose medians may be known before, away from the ends of their ranges."""


def power_constants(
    medians: Mapping[str, float] | None = None, form: VoltageForm = "voltage-floor", devices: Sequence[str] = ()
) -> ConstantPriors:
    """Priors of the constants [docs/physics.md B2 and B10].

    **Arguments:**

    - `medians`: known before, of `MEDIAN_RANGES`, in place of those of `constants.toml`.
    - `devices`: several, which have all constants each; by default there is one.
    - `form`: of switching power; the posynomial passes through the knee of floor and knee [derivation: `v^2` there].
    """
    constants = dict(DECLARED["power"])
    medians = {name: constants[name].median for name in ("voltage_floor", "voltage_knee")} | dict(medians or {})
    for name, (lowest, highest) in MEDIAN_RANGES.items():
        if name in medians:
            constants[name] = constants[name]._replace(median=min(max(medians[name], lowest), highest))
    if "cubic_share" not in medians:
        floor, knee = constants["voltage_floor"].median, constants["voltage_knee"].median
        mixed = min(max((1.0 - floor**2) / (1.0 - knee**2), 0.05), 0.95)
        constants["cubic_share"] = constants["cubic_share"]._replace(median=mixed)
    others = ("cubic_share",) if form == "voltage-floor" else ("voltage_floor", "voltage_knee")
    return {name: prior._replace(labels=tuple(devices)) for name, prior in constants.items() if name not in others}


def voltage_at(clock: Numeric, values: Mapping[str, Numeric]) -> Float[Array, "..."]:
    """Voltage over that of the profile [1], with floor and knee or as `posynomial_voltage` [docs/physics.md B2.1].

    The second has one constant instead of two, for few data.

    **Arguments:**

    - `clock`: phi, over the profile's [1].
    - `values`: with `cubic_share`, or `voltage_floor` and `voltage_knee` [1].
    """
    if "cubic_share" in values:
        return posynomial_voltage(clock, values["cubic_share"])
    return voltage_fraction(clock, values["voltage_floor"], values["voltage_knee"], WIDTH)


def device_busy_power(clock: Numeric, arguments: tuple[Numeric, Numeric, Mapping[str, Numeric]]) -> Float[Array, "..."]:
    """Power of a busy device at a clock [W], `busy_power`, from static and switching power of the profile [W]."""
    static, switching, values = arguments
    return busy_power(static, switching * jnp.asarray(clock), voltage_at(clock, values))


def clock_at_limit(
    limit: Numeric, static: Numeric, switching: Numeric, values: Mapping[str, Numeric]
) -> Float[Array, "..."]:
    """Highest clock at which a busy device draws no more than a limit, from `lowest_clock` to 1 [1]."""
    shape = {name: jnp.asarray(values[name]) for name in SHAPES if name in values}
    return clock_at_power_cap(device_busy_power, limit, values["lowest_clock"], 1.0, (static, switching, shape))


def predict_power(values: Values, runs: Any) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Time and mean power at a limit or clock, from the profile of the same workload and batch.

    With u the share of time that the device is busy, P_b its busy power and w = waiting exponent (1 - o)^nu:

    `P_b(1) = P_idle + (P_ref - P_idle)^(1 - w) (rho P_rated - P_idle)^w`, `u = (P_ref - P_idle) / (P_b(1) - P_idle)`,
    `P_b(phi) = P_s + (P_b(1) - P_s) phi v^2`, `phi = max{phi : P_b(phi) <= limit}`,
    `t_b = u t_ref [(1 - m) / phi + m]`, `m = 1 - (1 - mu) (1 - o)^nu`,
    `t = (t_b^p + t_host^p)^(1/p)`, `P = P_idle + (t_b / t) (P_b - P_idle)` [derivation: docs/physics.md B2].

    Where a profile stays below its limit, the device waited or was lightly loaded: w says how much of it was waiting.

    **Arguments:**

    - `values`: of `power_constants`.
    - `runs`: settings and their `Profiles`; measured time and power are not used.

    **Returns:** time [s] and mean power [W].
    """
    runs = Profiles(*map(jnp.asarray, runs))
    owner = runs.device if jnp.ndim(values["busy_power"]) else runs.workload
    values = {name: jnp.asarray(value)[owner] if jnp.ndim(value) else value for name, value in values.items()}
    idle, reference = runs.idle_power, runs.reference_power
    static = idle + values["static_above_idle"] * runs.rated_power
    above = jnp.maximum(reference - idle, LOWEST_ABOVE * runs.rated_power)
    full = values["busy_power"] * runs.rated_power - idle
    scalable = jnp.power(1.0 - runs.overhead, values["overhead_exponent"])
    waiting = values["waiting_exponent"] * scalable
    top = jnp.maximum(above ** (1.0 - waiting) * full**waiting, above * (1.0 + LOWEST_ABOVE))
    share = above / top
    overlap, busy_time = values["overlap"], share * runs.reference_time
    host_time = runs.reference_time * jnp.exp(jnp.log1p(-(share**overlap)) / overlap)
    switching = jnp.maximum(idle + top - static, LOWEST_ABOVE * runs.rated_power)
    limit = jnp.minimum(runs.limit, NO_LIMIT * runs.rated_power)  # an infinite one would have no slope
    clock = jnp.minimum(clock_at_limit(limit, static, switching, values), runs.clock)
    busy = device_busy_power(clock, (static, switching, values))
    fixed_share = 1.0 - (1.0 - values["memory_share"]) * scalable
    busy_time = busy_time * ((1.0 - fixed_share) / clock + fixed_share)
    time = p_norm(overlap, busy_time, host_time)
    return time, idle + busy_time / time * (busy - idle)


def power_errors(values: Values, runs: Any) -> Float[Array, "rows 2"]:
    """Logarithmic errors of time and power."""
    time, power = predict_power(values, runs)
    return jnp.stack([jnp.log(time / runs.time), jnp.log(power / runs.power)], axis=1)


def overhead_share(time: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Share of the time of a profile above that of the fastest batch, `o = 1 - min(t) / t` [definition].

    It is the time per sample that larger batches spread over more samples: launches and small, latency-bound kernels.
    Batches above the fastest have none; they are slower because they are padded. Times t are for the same work, of the
    profiles of one workload [s].
    """
    fastest = int(np.argmin(time))
    return np.where(batch < batch[fastest], 1.0 - time[fastest] / time, 0.0)


def profiles(
    workload: Sequence[Any] | np.ndarray,
    batch: np.ndarray,
    limit: np.ndarray,
    time: np.ndarray,
    power: np.ndarray,
    *,
    clock: np.ndarray | None = None,
    rated_power: float | None = None,
    idle_power: np.ndarray | float | None = None,
    device: Sequence[Any] | np.ndarray | None = None,
    memory_activity: np.ndarray | None = None,
) -> tuple[Profiles, np.ndarray]:
    """Join each setting with its profile: same device, workload and batch at the highest limit and clock.

    **Arguments:** by row, as in `Profiles`; the time is that of the same work in all rows of a workload.

    - `clock`: where clocks were set [Hz].
    - `rated_power`: of the devices; the highest limit or, without limits, power of each by default [W].
    - `idle_power`: NaN where unknown; by default the lowest power of all rows of a device, which is an upper bound, or
      a usual share of rated power where all rows are far above it [W].
    - `device`: one for all by default.

    **Returns:** `Profiles`, and which rows are profiles themselves.
    """
    count, batch, time, power = len(batch), *(np.asarray(column, np.float64) for column in (batch, time, power))
    limit = np.where(np.isfinite(limit), limit, np.inf).astype(np.float64)
    clock = np.ones(count) if clock is None else np.asarray(clock, np.float64)
    cards, work = numbered(np.zeros(count) if device is None else device), numbered(workload)
    # The last of equal settings in order of limit and clock is their profile.
    keys = list(zip(cards.tolist(), work.tolist(), batch.tolist(), strict=True))
    last = {keys[row]: row for row in np.lexsort((clock, limit)).tolist()}
    anchor, overhead = np.array([last[key] for key in keys]), np.zeros(count)
    is_profile = anchor == np.arange(count)
    for card, number in {key[:2] for key in keys}:
        tops = np.flatnonzero(is_profile & (cards == card) & (work == number))
        overhead[tops] = overhead_share(time[tops], batch[tops])
    metered = np.full(count, np.nan if idle_power is None else idle_power, np.float64)
    rated, idle = np.zeros(count), np.zeros(count)
    for card in np.unique(cards):
        rows = cards == card
        finite, own = (column[rows & np.isfinite(column)] for column in (limit, metered))
        top, lowest = rated_power or np.max(finite if len(finite) else power[rows]), np.min(power[rows])
        usual = lowest if lowest <= MOST_IDLE * top else USUAL_IDLE * top
        rated[rows], idle[rows] = top, min(np.mean(own) if len(own) else usual, 0.999 * lowest)
    activity = np.zeros(count) if memory_activity is None else np.asarray(memory_activity)
    profile = (time[anchor], power[anchor], overhead[anchor])
    table = Profiles(work, limit, clock / clock[anchor], *profile, idle, rated, time, power, cards, activity[anchor])
    return table, is_profile
