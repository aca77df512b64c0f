"""How does the power of a job swing at the facility's meter, from step to step, at checkpoints, at start and stop?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Scalar
from energymodel.physics.power_swing import lagged_swing
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import Step
from energymodel.system.training_system import TrainingSystem

SMALLEST = 1e-3  # swing of a chip [W] that counts


class PowerOverTime(NamedTuple):
    """Swings [W], ramps [W/s] and frequencies [Hz] of the whole job at the meter, and what smoothing loses [W].

    `storage_loss` is a mean over productive time, per chip.
    """

    swing: Scalar
    ramp: Scalar
    frequency: Scalar
    checkpoint_swing: Scalar
    checkpoint_frequency: Scalar
    stop_swing: Scalar
    stop_ramp: Scalar
    storage_loss: Scalar


def power_over_time(system: TrainingSystem, plan: TrainingPlan, step: Step) -> PowerOverTime:
    """Power of a synchronous job as a wave between two levels of its chips [derivation: docs/physics.md B5].

    All chips work together, and all wait together: for gradients that are not hidden, the fixed overhead of a step and
    stragglers. Ranks of a pipeline fill and drain one after the other, each way in the time of the bubble, so that
    power rises and falls along a line; half of the bubble counts as low on either side. Communication within a layer
    alternates within milliseconds and is in the mean of the high level. Links, host, fans and cooling do not follow
    within seconds. At checkpoints chips are awake without kernels, at a stop they are idle.

    **Returns:** swings [W], steepest ramps [W/s] and frequencies [Hz] at the meter, after storage and supplies.
    """
    facility, reliability, time, levels = system.facility, system.reliability, step.time, step.levels
    storage, lag, period = facility.storage, facility.response_time, time.total
    waiting = time.data + time.overhead + time.straggler + time.bubble

    def height(low: Scalar) -> Scalar:
        return jnp.abs(levels.working - low)

    # Per watt of the chips, between work and stop.
    high, deepest = step.power.total + levels.working - step.power.chip, jnp.maximum(height(levels.stopped), SMALLEST)
    gain = (facility.meter_power(high) - facility.meter_power(high - deepest)) / deepest * plan.chips

    of_step = storage.smoothed(lagged_swing(height(levels.waiting), waiting, period, lag), waiting, period)
    writing = jnp.asarray(reliability.checkpoint_time)
    writes = writing > 0.0  # what takes no time is no checkpoint
    cycle = jnp.where(writes, reliability.interval(plan.chips) + writing, 1.0)
    of_checkpoint = storage.smoothed(jnp.where(writes, height(levels.writing), 0.0), writing, cycle)
    recurring = jnp.maximum(height(levels.waiting), jnp.where(writes, height(levels.writing), 0.0))
    return PowerOverTime(
        swing=gain * of_step.swing,
        ramp=gain * storage.ramp(recurring, time.bubble, lag),
        frequency=1.0 / jnp.asarray(period),
        checkpoint_swing=gain * of_checkpoint.swing,
        checkpoint_frequency=jnp.where(writes, 1.0 / cycle, 0.0),
        stop_swing=gain * height(levels.stopped),
        stop_ramp=gain * storage.ramp(height(levels.stopped), 0.0, lag),
        storage_loss=of_step.loss + of_checkpoint.loss,
    )
