"""Time lost to stragglers, failures, checkpoints and restarts.

Shared arguments: `chips` n [1]; `checkpoint_time` delta, lost to writing a checkpoint, `interval` tau between
checkpoints, `write_time` T_w from the start of a checkpoint until a restart can use it, 0 where the run waits for it,
`restart_time` R from a failure to the next new step, `mtbf` M, the mean time between failures of the run, and
`chip_mtbf` M_1, that of a chip and its share of the rest of the system [s]; `waste` w, at least 0 [1].
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real, sigmoid, square_root
from energymodel.ranges import ABOVE_ZERO, Range

ASYMPTOTIC_CHIPS = 8.0
"""Chips from which the asymptotic form of the largest deviation is used (docs/physics.md B3)."""

SMALLEST_REPAIR = 1e-6
"""Mean number of nodes in repair below which there is none."""

LOGISTIC_SLOPE = 1.702
"""Of the logistic function that is nearest to the normal distribution."""

LARGEST_LINEAR_WASTE = 0.5
"""Waste up to which availability is exactly `1 - w`; the expansion behind `w` fails well before."""


def largest_deviation(chips: Numeric) -> Values:
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


def straggler_factor(chips: Numeric, variation: Numeric) -> Values:
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


def cluster_mtbf(chip_mtbf: Numeric, chips: Numeric) -> Values:
    """Mean time between failures of a run [s], `M = M_1 / n` [derivation: rates of independent failures add]."""
    return jnp.asarray(chip_mtbf) / chips


def young_interval(checkpoint_time: Numeric, mtbf: Numeric) -> Values:
    """Optimal time between checkpoints [s], `tau = sqrt(2 delta M)` [Young 1974].

    The exact minimum of the time lost (`lost_time`), which is itself first order in `tau / M`.
    """
    return square_root(2.0 * jnp.asarray(checkpoint_time) * mtbf)


def availability(waste: Numeric) -> Values:
    """Productive share of calendar time, `a = 1 - w` for `w <= 1/2` [definition].

    Beyond one half it continues as `a = s / (1 + z + z^2)`, `s = 1/2`, `z = (w - s) / s`, with equal value, slope and
    curvature: positive for any waste, so that a search may pass through infeasible designs.

    **Returns:** availability [1]; calendar time is productive time divided by it.
    """
    w = jnp.asarray(waste)
    s = 1.0 - LARGEST_LINEAR_WASTE
    z = jnp.maximum(w - LARGEST_LINEAR_WASTE, 0.0) / s
    return jnp.where(w <= LARGEST_LINEAR_WASTE, 1.0 - w, s / (1.0 + z + z**2))


def checkpoint_interval(checkpoint_time: Numeric, write_time: Numeric, mtbf: Numeric) -> Values:
    """Time between checkpoints [s], `tau = max(sqrt(2 delta M), T_w)` [Young 1974].

    The best one, unless the previous checkpoint is still on its way to the disks.
    """
    return jnp.maximum(young_interval(checkpoint_time, mtbf), write_time)


def spare_shortage(spares: Numeric, in_repair: Numeric) -> Values:
    """Share of failures without a spare node [1], `sigma(1.702 (r + 1/2 - s) / sqrt(r))`, sigma the logistic function.

    Nodes in repair are independent: their number is Poisson with mean r; a failure finds none where s or more others
    are in repair. That tail is taken from the normal law with correction for continuity [Feller 1968, sec. VII.5], and
    that from the logistic one, 0.01 apart [Bowling et al. 2009]. Good to 0.08 for r above 1.

    **Arguments:**

    - `spares`: spare nodes s [1].
    - `in_repair`: mean number r of nodes in repair, repair time over mean time between failures [1].
    """
    mean = jnp.maximum(jnp.asarray(in_repair), SMALLEST_REPAIR)
    return sigmoid(LOGISTIC_SLOPE * (mean + 0.5 - jnp.asarray(spares)) / jnp.sqrt(mean))


class LostTime(NamedTuple):
    """Time that failures cost, per productive and lost second [1]: writing checkpoints, repeating work, restarting."""

    checkpoint: Real
    rework: Real
    restart: Real

    @property
    def waste(self) -> Real:
        """Share of the time that is lost, w [1]; may exceed one in an infeasible design."""
        return self.checkpoint + self.rework + self.restart


def lost_time(
    interval: Numeric, checkpoint_time: Numeric, restart_time: Numeric, mtbf: Numeric, write_time: Numeric = 0.0
) -> LostTime:
    """Shares of the time that are lost [1], `w = delta / tau + (tau / 2 + T_w + R) / M` [Young 1974].

    Checkpoints, work repeated after a failure, and restarts. First order: valid for delta, R << tau << M. A checkpoint
    that is written while training goes on (T_w) saves no work yet. `interval` may be zero where checkpoints cost
    nothing.
    """
    tau = jnp.asarray(interval)
    some = tau > 0.0
    return LostTime(
        checkpoint=jnp.where(some, jnp.asarray(checkpoint_time) / jnp.where(some, tau, 1.0), 0.0),
        rework=(0.5 * tau + write_time) / mtbf,
        restart=jnp.asarray(restart_time) / mtbf,
    )


class Calendar(NamedTuple):
    """Calendar time of a run: its `productive` share, the shares `lost` [1], the waste that they follow from [1], and
    the `interval` between checkpoints [s].
    """

    productive: Real
    lost: LostTime
    waste: Real
    interval: Real


class Reliability(eqx.Module):
    """Failures of chips, checkpoints and restarts.

    A restart takes `restart_time`, and `replacement_time` more where no spare node (`plan.spares`) is left. Failed
    nodes come back after `repair_time`.
    """

    chip_mtbf: Real = real("s", doc="of a chip and its share of host and network", within=ABOVE_ZERO)
    checkpoint_time: Real = real("s", doc="time of the run lost to writing a checkpoint", within=ABOVE_ZERO)
    restart_time: Real = real("s", doc="from a failure to the first new step")
    straggler_variation: Real = real(
        "1", doc="standard deviation of step time over its mean, from chip to chip", within=Range(0.0, 1.0)
    )
    write_time: Real = real(
        "s", 0.0, doc="from the start of a checkpoint, written meanwhile, until a restart can use it"
    )
    replacement_time: Real = real("s", 0.0, doc="more of a restart that finds no spare node")
    repair_time: Real = real("s", 86400.0, doc="of a failed node", within=ABOVE_ZERO)

    def calendar(self, chips: Numeric, spares: Numeric = 0.0) -> Calendar:
        """Calendar time of a run on so many chips, with the best interval between checkpoints.

        **Arguments:**

        - `spares`: spare nodes [1].
        """
        mtbf = cluster_mtbf(self.chip_mtbf, chips)
        interval = checkpoint_interval(self.checkpoint_time, self.write_time, mtbf)
        missing = spare_shortage(spares, self.repair_time / mtbf)
        restart = self.restart_time + self.replacement_time * missing
        lost = lost_time(interval, self.checkpoint_time, restart, mtbf, self.write_time)
        productive, some = availability(lost.waste), lost.waste > 0.0
        scale = jnp.where(some, 1.0 - productive, 1.0) / jnp.where(some, lost.waste, 1.0)
        return Calendar(productive, LostTime(*(scale * share for share in lost)), lost.waste, interval)
