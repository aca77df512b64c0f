"""How does the temperature of a chip move: at start and stop, at checkpoints, within a step, and along a row?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Scalar
from energymodel.physics.flow import row_coolant_temperature
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

SMALLEST_GAP = 0.1  # of the loop gain below 1: nearer to runaway, the temperature limit is broken


class TemperatureOverTime(NamedTuple):
    """Temperatures of the last chip of a row, that of the first one [K], and the largest slope [K/s].

    `hottest` would be reached if busy power lasted; `peak` and `trough` are those of each step, `writing` is the lowest
    at a checkpoint.
    """

    hottest: Scalar
    peak: Scalar
    trough: Scalar
    writing: Scalar
    first: Scalar
    ramp: Scalar


def temperature_over_time(system: TrainingSystem, plan: TrainingPlan, step: Step) -> TemperatureOverTime:
    """Temperature of a chip as one node behind its power, `C d theta / dt = P - (theta - theta_c) / R`.

    Power alternates between the levels of `power_over_time`. Within a step the temperature is periodic: the
    shorter the step against R C, the less it swings. It changes fastest right after a start from idle or a stop,
    by `(P_busy - P_idle) / C`. Leakage keeps the value of the operating point over time; along the row it grows with
    the temperature, so that chips differ by `dT / (1 - G)`, with the rise dT of the coolant and the loop gain G
    [derivation: docs/physics.md A2.5, B6].

    **Returns:** temperatures [K] and the largest slope [K/s].
    """
    chip, cooling, reliability = system.accelerator, system.facility.cooling, system.reliability
    point, levels, time = step.point, step.levels, step.time
    supply, rise = plan.coolant_temperature, cooling.coolant_rise(plan.coolant_temperature)
    coolant = row_coolant_temperature(supply, 1.0, rise)
    resistance = chip.thermal_resistance + cooling.thermal_resistance(supply)
    lag = thermal_time_constant(resistance, chip.heat_capacity)

    period, low_time = time.total, time.data + time.overhead + time.straggler + time.bubble
    high_time = period - low_time
    swing = lagged_swing(resistance * (levels.working - levels.waiting), low_time, period, lag)
    # In the periodic state the trough is as far below the steady temperature of work as the wave rises from it.
    trough = steady_temperature(levels.working, coolant, resistance) + swing / jnp.expm1(-high_time / lag)
    peak = transient_temperature(high_time, trough, levels.working, coolant, resistance, chip.heat_capacity)
    writing = transient_temperature(
        reliability.checkpoint_time, peak, levels.writing, coolant, resistance, chip.heat_capacity
    )
    idle = steady_temperature(levels.stopped, coolant, resistance)
    gain = loop_gain(resistance, chip.leakage(point.voltage, point.temperature), chip.leakage.temperature_sensitivity)
    return TemperatureOverTime(
        hottest=hot_spot_temperature(point.temperature, point.busy_power, chip.hot_spot_resistance),
        peak=peak,
        trough=trough,
        writing=writing,
        first=point.temperature - rise / jnp.maximum(1.0 - gain, SMALLEST_GAP),
        ramp=temperature_slope(idle, point.busy_power, coolant, resistance, chip.heat_capacity),
    )
