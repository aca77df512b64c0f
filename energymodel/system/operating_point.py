"""Clock, voltage and temperature at which a chip settles under its power cap."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar
from energymodel.physics.cooling import Coolant
from energymodel.physics.switching import clock_at_power_cap
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem


class OperatingPoint(NamedTuple):
    """Clock and voltage over their reference values [1], temperature [K], and powers [W] at which a chip settles.

    Busy power is the mean over a layer, lowest power the same at the lowest clock. `products` is the time of the matrix
    products of a layer at the clock [s], `spin_power` the switching power of kernels that wait for other chips.
    """

    clock: Scalar
    voltage: Scalar
    temperature: Scalar
    products: Scalar
    leakage: Scalar
    static_power: Scalar
    busy_power: Scalar
    lowest_power: Scalar
    spin_power: Scalar


BEYOND_LIMIT = 100.0  # [K] above the chip's limit: warmer than any power cap that binds makes it


def operating_point(
    system: TrainingSystem, plan: TrainingPlan, coolant: Coolant, load: ChipLoad, waiting: Numeric = 0.0
) -> OperatingPoint:
    """Clock within the power cap [1], `P(phi) <= P_cap`, then the temperature [K], `theta = theta_c + R P(theta)`.

    P is the mean over a layer, `(E(phi) + P_spin(phi) t_w) / (t_b(phi) + t_w) + P_s`: a power limit acts on the mean
    over tens of milliseconds, so that what short waits for other chips leave goes into a higher clock
    [experiments/04_metered_runs]. Where the cap binds, the chip draws exactly the cap and its temperature follows from
    it. Two scalar roots therefore replace one in (temperature, clock) [derivation: docs/physics.md E, step 4].

    **Arguments:**

    - `coolant`: at the supply temperature of the plan.
    - `load`: kernels of a layer.
    - `waiting`: t_w, time in which the layer's kernels wait for other chips [s].
    """
    chip, last = system.accelerator, coolant.last
    resistance = chip.thermal_resistance + coolant.resistance

    def work_power(voltage: Scalar, spin: Scalar, products: Scalar, load: ChipLoad, waiting: Scalar) -> Scalar:
        energy = load.switching_energy * voltage**2 + load.memory_energy + spin * waiting
        return energy / (products + load.elementwise + waiting)

    def power_of_clock(clock: Numeric, arguments: tuple[Accelerator, ChipLoad, Scalar, Scalar]) -> Scalar:
        chip, load, waiting, temperature = arguments
        voltage, products = chip.voltage(clock), load.product_time(chip, clock)
        working = work_power(voltage, chip.spin_power(clock, voltage), products, load, waiting)
        return chip.static_power(voltage, temperature) + working

    # A cap that no working chip reaches must not act through the leakage at an absurd temperature.
    hottest = chip.maximum_temperature + BEYOND_LIMIT
    waiting = jnp.asarray(waiting)
    capped = (chip, load, waiting, jnp.minimum(last + resistance * plan.power_cap, hottest))
    clock = clock_at_power_cap(power_of_clock, plan.power_cap, chip.minimum_clock, plan.clock, capped)
    voltage, products = chip.voltage(clock), load.product_time(chip, clock)
    spin = chip.spin_power(clock, voltage)
    work = work_power(voltage, spin, products, load, waiting)
    temperature = leakage_temperature(
        work + chip.fixed_power,
        chip.leakage(voltage, chip.leakage.reference_temperature),
        last,
        resistance,
        chip.leakage.temperature_sensitivity,
        chip.leakage.reference_temperature,
    )
    leakage = chip.leakage(voltage, temperature)
    static, lowest = leakage + chip.fixed_power, power_of_clock(jnp.asarray(chip.minimum_clock), capped)
    return OperatingPoint(clock, voltage, temperature, products, leakage, static, static + work, lowest, spin)
