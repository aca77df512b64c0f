"""What do stragglers and failures cost, and how often should a run write a checkpoint?

Shared arguments: `chips` n [1]; `checkpoint_time` delta, lost to writing a checkpoint, `interval` tau between
checkpoints, `restart_time` R from a failure to the next new step, and `mtbf` M, the mean time between failures of
the run [s].
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real, square_root

ASYMPTOTIC_CHIPS = 8.0
"""Chips from which the asymptotic form of the largest deviation is used (docs/physics.md B3)."""

LARGEST_LINEAR_WASTE = 0.5
"""Waste up to which availability is exactly `1 - w`; the expansion behind `w` fails well before."""


def largest_deviation(chips: Numeric) -> Float[Array, "..."]:
    """Typical maximum of n normal deviates, `k = sqrt(2 ln n) - (ln ln n + ln 4 pi) / (2 sqrt(2 ln n))`.

    The location (mode) of the limiting Gumbel law [Cramér 1946, sec. 28.6]; the mean lies about
    `0.577 / sqrt(2 ln n)` higher. Below 8 chips, where the expansion fails, `k_8 ln n / ln 8` takes its place.

    **Returns:** deviation in standard deviations [1]; zero for one chip, increasing.
    """
    n = jnp.asarray(chips)
    log_n = jnp.log(jnp.maximum(n, ASYMPTOTIC_CHIPS))
    root = jnp.sqrt(2.0 * log_n)
    asymptotic = root - (jnp.log(log_n) + math.log(4.0 * math.pi)) / (2.0 * root)
    return asymptotic * (jnp.log(jnp.minimum(n, ASYMPTOTIC_CHIPS)) / math.log(ASYMPTOTIC_CHIPS))


def straggler_factor(chips: Numeric, variation: Numeric) -> Float[Array, "..."]:
    """Slowdown of a synchronous step by its slowest chip, `1 + cv k_n` [Cramér 1946; Dean & Barroso 2013].

    Collectives add a jitter of their own, of which the slowest also counts, so that a measured cv exceeds the variation
    of chips. Weak scaling up to 8,192 chips was measured; in half of the families it leaves less than 1.2 % a doubling
    (experiments/17_kernels/weak_scaling.py).

    **Arguments:**

    - `variation`: cv, standard deviation of a chip's step time over its mean [1]; 0.005 to 0.01 of chips alone, 0.02
      with the jitter of collectives.

    **Returns:** factor on the step time [1]; exactly 1 for one chip.
    """
    return 1.0 + jnp.asarray(variation) * largest_deviation(chips)


def cluster_mtbf(chip_mtbf: Numeric, chips: Numeric) -> Float[Array, "..."]:
    """Mean time between failures of a run, `M = M_1 / n` [derivation: rates of independent failures add].

    **Arguments:**

    - `chip_mtbf`: M_1 of a chip and its share of the rest of the system [s].

    **Returns:** time [s].
    """
    return jnp.asarray(chip_mtbf) / chips


def observed_chip_mtbf(chips: Numeric, duration: Numeric, failures: Numeric) -> Float[Array, "..."]:
    """Mean time between failures of one chip as observed in a run, `M_1 = n t / k` [definition].

    **Arguments:**

    - `duration`: t [s].
    - `failures`: k, interruptions in that time [1], positive.

    **Returns:** time [s].
    """
    return jnp.asarray(chips) * duration / failures


def young_interval(checkpoint_time: Numeric, mtbf: Numeric) -> Float[Array, "..."]:
    """Optimal time between checkpoints, `tau = sqrt(2 delta M)` [Young 1974].

    The exact minimum of `waste`, which is itself first order in `tau / M`.

    **Returns:** interval [s].
    """
    return square_root(2.0 * jnp.asarray(checkpoint_time) * mtbf)


def daly_interval(checkpoint_time: Numeric, mtbf: Numeric) -> Float[Array, "..."]:
    """Optimal time between checkpoints, `tau = sqrt(2 delta M) (1 + sqrt(x)/3 + x/9) - delta`.

    With `x = delta / 2M` [Daly 2006, eq. 37]. Higher-order solution for exponential failures; M for `delta >= 2 M`.

    **Returns:** interval [s].
    """
    delta, M = map(jnp.asarray, (checkpoint_time, mtbf))
    ratio = delta / (2.0 * M)
    root = square_root(ratio)
    # sqrt(2 delta M) = 2 M sqrt(x)
    return jnp.where(ratio < 1.0, 2.0 * M * root * (1.0 + root / 3.0 + ratio / 9.0) - delta, M)


def waste(interval: Numeric, checkpoint_time: Numeric, restart_time: Numeric, mtbf: Numeric) -> Float[Array, "..."]:
    """Share of the time that is lost, `w = delta / tau + (tau / 2 + R) / M` [Young 1974].

    Checkpoints, work repeated after a failure, and restarts. First order: valid for delta, R << tau << M. `interval`
    may be zero where checkpoints cost nothing.

    **Returns:** waste [1]; may exceed one in an infeasible design.
    """
    tau = jnp.asarray(interval)
    some = tau > 0
    saving = jnp.where(some, jnp.asarray(checkpoint_time) / jnp.where(some, tau, 1.0), 0.0)
    return saving + (0.5 * tau + restart_time) / mtbf


def minimum_waste(checkpoint_time: Numeric, restart_time: Numeric, mtbf: Numeric) -> Float[Array, "..."]:
    """Waste at the best interval, `w = sqrt(2 delta / M) + R / M` [Young 1974].

    **Returns:** waste [1].
    """
    return square_root(2.0 * jnp.asarray(checkpoint_time) / mtbf) + jnp.asarray(restart_time) / mtbf


def availability(waste: Numeric) -> Float[Array, "..."]:
    """Productive share of calendar time, `a = 1 - w` for `w <= 1/2` [definition].

    Beyond one half it continues as `a = s / (1 + z + z^2)`, `s = 1/2`, `z = (w - s) / s`, with equal value, slope and
    curvature: positive for any waste, so that a search may pass through infeasible designs.

    **Arguments:**

    - `waste`: w [1], at least 0.

    **Returns:** availability [1]; calendar time is productive time divided by it.
    """
    w = jnp.asarray(waste)
    s = 1.0 - LARGEST_LINEAR_WASTE
    z = jnp.maximum(w - LARGEST_LINEAR_WASTE, 0.0) / s
    return jnp.where(w <= LARGEST_LINEAR_WASTE, 1.0 - w, s / (1.0 + z + z**2))


def exponential_availability(
    interval: Numeric, checkpoint_time: Numeric, restart_time: Numeric, mtbf: Numeric
) -> Float[Array, "..."]:
    """Productive share under exponential failures, `a = tau e^(-R/M) / [M (e^((tau+delta)/M) - 1)]` [Daly 2006].

    Exact in `tau / M`, including failures during checkpoints and restarts. It differs from `1 - w` in second order.

    **Returns:** availability [1].
    """
    tau, M = map(jnp.asarray, (interval, mtbf))
    segment = (tau + checkpoint_time) / M
    # 1 - e^-x = 2 t / (1 + t) with t = tanh(x / 2), without cancellation at small x.
    t = jnp.tanh(0.5 * segment)
    return tau / M * jnp.exp(-segment - restart_time / M) * (1.0 + t) / (2.0 * t)


class Reliability(eqx.Module):
    """How often chips fail, and how long checkpoints and restarts take."""

    chip_mtbf: Real = real("s", doc="of a chip and its share of host and network")
    checkpoint_time: Real = real("s", doc="time of the run lost to writing a checkpoint")
    restart_time: Real = real("s", doc="from a failure to the first new step")
    straggler_variation: Real = real("1", doc="standard deviation of step time over its mean, from chip to chip")

    def waste(self, chips: Numeric) -> Float[Array, "..."]:
        """Share of the time lost at the optimal checkpoint interval [1]."""
        return minimum_waste(self.checkpoint_time, self.restart_time, cluster_mtbf(self.chip_mtbf, chips))

    def availability(self, chips: Numeric) -> Float[Array, "..."]:
        """Productive share of the calendar time [1]."""
        return availability(self.waste(chips))

    def straggler_factor(self, chips: Numeric) -> Float[Array, "..."]:
        """Slowdown of a step by its slowest chip [1]."""
        return straggler_factor(chips, self.straggler_variation)
