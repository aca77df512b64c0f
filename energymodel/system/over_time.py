"""Power of a job at the facility's meter, and temperature of its chips, over steps, checkpoints, start and stop."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Scalar
from energymodel.performance.reliability import Calendar
from energymodel.physics.power_swing import lagged_swing
from energymodel.physics.thermal import (
    hot_spot_temperature,
    loop_gain,
    steady_temperature,
    temperature_slope,
    thermal_time_constant,
    transient_temperature,
)
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import Step
from energymodel.system.training_system import TrainingSystem

SMALLEST_SWING = 1e-3  # swing of a chip [W] that counts
SMALLEST_GAP = 0.1  # of the loop gain below 1: nearer to runaway, the temperature limit is broken


class PowerOverTime(NamedTuple):
    """Swings [W], ramps [W/s] and frequencies [Hz] of the whole job at the meter, as the outcome has them.

    `storage_loss` is the mean over productive time of what smoothing loses, per chip [W].
    """

    power_swing: Scalar
    power_ramp: Scalar
    swing_frequency: Scalar
    checkpoint_swing: Scalar
    checkpoint_frequency: Scalar
    stop_swing: Scalar
    stop_ramp: Scalar
    storage_loss: Scalar


def power_over_time(system: TrainingSystem, plan: TrainingPlan, step: Step, calendar: Calendar) -> PowerOverTime:
    """Power of a synchronous job as a wave between two levels of its chips [W] [derivation: docs/physics.md B5].

    All chips work together, and all wait together: for gradients that are not hidden, the fixed overhead of a step and
    stragglers. Ranks of a pipeline fill and drain one after the other, each way in the time of the bubble, so that
    power rises and falls along a line; half of the bubble counts as low on either side. Communication within a layer
    alternates within milliseconds and is in the mean of the high level. Links, host, fans and cooling do not follow
    within seconds. At checkpoints chips are awake without kernels, at a stop they are idle.
    """
    facility, time, levels = system.facility, step.time, step.levels
    storage, lag, period = facility.storage, facility.response_time, step.duration
    waiting = time.apart

    def height(low: Scalar) -> Scalar:
        return jnp.abs(levels.working - low)

    # Per watt of the chips, between work and stop.
    within_step, stop = height(levels.waiting), height(levels.stopped)
    high, deepest = step.power.total + levels.working - step.power.chip, jnp.maximum(stop, SMALLEST_SWING)
    gain = (facility.feed(high).meter - facility.feed(high - deepest).meter) / deepest * plan.chips

    of_step = storage.smoothed(lagged_swing(within_step, waiting, period, lag), waiting, period)
    writing = jnp.asarray(system.reliability.checkpoint_time)
    writes = writing > 0.0  # what takes no time is no checkpoint
    cycle = jnp.where(writes, calendar.interval + writing, 1.0)
    checkpoint = jnp.where(writes, height(levels.writing), 0.0)
    of_checkpoint = storage.smoothed(checkpoint, writing, cycle)
    return PowerOverTime(
        power_swing=gain * of_step.swing,
        power_ramp=gain * storage.ramp(jnp.maximum(within_step, checkpoint), time.bubble, lag),
        swing_frequency=1.0 / jnp.asarray(period),
        checkpoint_swing=gain * of_checkpoint.swing,
        checkpoint_frequency=jnp.where(writes, 1.0 / cycle, 0.0),
        stop_swing=gain * stop,
        stop_ramp=gain * storage.ramp(stop, 0.0, lag),
        storage_loss=of_step.loss + of_checkpoint.loss,
    )


class TemperatureOverTime(NamedTuple):
    """Temperatures of the last chip of a row, that of the first one [K], and the largest slope [K/s].

    `temperature` would be reached if busy power lasted; the peak and the trough are those of each step, that of the
    checkpoint is the lowest.
    """

    temperature: Scalar
    temperature_peak: Scalar
    temperature_trough: Scalar
    temperature_checkpoint: Scalar
    temperature_first: Scalar
    temperature_ramp: Scalar


def temperature_over_time(system: TrainingSystem, step: Step) -> TemperatureOverTime:
    """Temperature of a chip as one node behind its power [K], `C d theta / dt = P - (theta - theta_c) / R`.

    Power alternates between the levels of `power_over_time`. Within a step the temperature is periodic: the
    shorter the step against R C, the less it swings. It changes fastest right after a start from idle or a stop,
    by `|P_busy - P_idle| / C`. Leakage keeps the value of the operating point over time; along the row it grows with
    the temperature, so that chips differ by `dT / (1 - G)`, with the rise dT of the coolant and the loop gain G
    [derivation: docs/physics.md A2.5, B6].
    """
    chip, point, levels, time = system.accelerator, step.point, step.levels, step.time
    coolant, resistance = step.coolant.last, chip.thermal_resistance + step.coolant.resistance
    lag = thermal_time_constant(resistance, chip.heat_capacity)

    period, low_time = step.duration, jnp.asarray(time.apart)
    high_time = period - low_time
    swing = lagged_swing(resistance * (levels.working - levels.waiting), low_time, period, lag)
    # In the periodic state the trough is as far below the steady temperature of work as the wave rises from it.
    trough = steady_temperature(levels.working, coolant, resistance) + swing / jnp.expm1(-high_time / lag)
    peak = transient_temperature(high_time, trough, levels.working, coolant, resistance, chip.heat_capacity)
    writing = transient_temperature(
        system.reliability.checkpoint_time, peak, levels.writing, coolant, resistance, chip.heat_capacity
    )
    idle = steady_temperature(levels.stopped, coolant, resistance)
    gain = loop_gain(resistance, point.leakage, chip.leakage.temperature_sensitivity)
    return TemperatureOverTime(
        temperature=hot_spot_temperature(point.temperature, point.busy_power, chip.hot_spot_resistance),
        temperature_peak=peak,
        temperature_trough=trough,
        temperature_checkpoint=writing,
        temperature_first=point.temperature - step.coolant.rise / jnp.maximum(1.0 - gain, SMALLEST_GAP),
        temperature_ramp=jnp.abs(temperature_slope(idle, point.busy_power, coolant, resistance, chip.heat_capacity)),
    )
