"""At which clock and temperature does a chip run, and how long do its kernels take there?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar, p_norm
from energymodel.performance.roofline import compute_time, gemm_efficiency
from energymodel.physics.switching import clock_at_power_cap
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.accelerator import Accelerator
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.system.work import LayerWork


class ChipLoad(NamedTuple):
    """One layer's work on one chip, in seconds at clock 1 and in joules at the reference voltage."""

    arithmetic: Scalar
    product_memory: Scalar
    elementwise: Scalar
    switching_energy: Scalar
    memory_energy: Scalar

    def busy_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the kernels at a clock [s]: products under the roofline, then element-wise kernels."""
        return self.product_time(chip, clock) + self.elementwise

    def product_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the matrix products at a clock [s]."""
        return p_norm(chip.roofline_exponent, self.arithmetic / clock, self.product_memory)


class OperatingPoint(NamedTuple):
    """Where a chip settles: clock and voltage (shares of the reference), temperature and powers."""

    clock: Scalar
    voltage: Scalar
    temperature: Scalar
    static_power: Scalar
    busy_power: Scalar
    lowest_power: Scalar


def precision_speedup(
    chip: Accelerator, layout: ParallelLayout, fp8_efficiency: Numeric = 1.0, fp4_efficiency: Numeric = 1.0
) -> Scalar:
    """Rate of products with weights relative to 16 bits, `1 / (1 - sum_i s_i + sum_i s_i F_16 / (x_i F_i))`.

    Amdahl's law over shares s_i of the operations at i = 8 and 4 bits, TF32 and FP32 [Amdahl 1967]. Casting and scaling
    keep narrow products further below their peak: by x_i, against those at 16 bits.

    **Arguments:**

    - `chip`: accelerator, with the peak rates F_i [FLOP/s].
    - `layout`: shares s_i [1], together at most 1.
    - `fp8_efficiency`, `fp4_efficiency`: x_8, x_4 [1].

    **Returns:** speedup [1], below 1 where the wide shares outweigh the narrow ones.
    """
    eight, four = jnp.asarray(layout.fp8), jnp.asarray(layout.fp4)
    narrow = eight / (chip.peak_flops_fp8 * fp8_efficiency) + four / (chip.peak_flops_fp4 * fp4_efficiency)
    return 1.0 / (wide_slowdown(chip, layout) - eight - four + chip.peak_flops * narrow)


def wide_slowdown(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Time relative to 16 bits of products without weights, `1 + sum_i s_i (F_16 / F_i - 1)`, i = TF32 and FP32.

    Attention and the output head keep 16 bits where products with weights are narrower, but not where they are wider
    [definition].

    **Arguments:**

    - `chip`: accelerator, with the peak rates F_i [FLOP/s].
    - `layout`: shares s_i [1].

    **Returns:** slowdown [1].
    """
    tf32 = layout.tf32 * (jnp.asarray(chip.peak_flops) / chip.peak_flops_tf32 - 1.0)
    return 1.0 + tf32 + layout.fp32 * (jnp.asarray(chip.peak_flops) / chip.peak_flops_fp32 - 1.0)


def precision_energy(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Energy per operation relative to 16 bits, `1 - s_8 (1 - e) - s_4 (1 - e^2) + s_32 (1 / e - 1)` [definition].

    Each halving of the width multiplies the energy by e; for 4 bits, TF32 and FP32 that is assumed.

    **Arguments:**

    - `chip`: accelerator, with the ratio e of the energies at 8 and 16 bits [1].
    - `layout`: shares s_8, s_4, and s_32 of TF32 and FP32 together [1].

    **Returns:** energy ratio [1].
    """
    ratio = jnp.asarray(chip.fp8_energy_ratio)
    narrow = layout.fp8 * (1.0 - ratio) + layout.fp4 * (1.0 - ratio**2)
    return 1.0 - narrow + (jnp.asarray(layout.tf32) + layout.fp32) * (1.0 / ratio - 1.0)


def product_efficiency(system: TrainingSystem, plan: TrainingPlan) -> Scalar:
    """Share of the peak rate that the products of a layer reach, `eta_max / (1 + h_0 t / h)` [definition].

    `gemm_efficiency` with the chip's constants and the width that tensor parallelism leaves.

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.

    **Returns:** efficiency [1].
    """
    chip = system.accelerator
    return gemm_efficiency(chip.gemm_efficiency, chip.gemm_half_size, plan.layout.tensor, system.workload.hidden)


def chip_load(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> ChipLoad:
    """Times and energies of a layer, `t = F_p / (eta Fdot)`, `t = Q / bw`, `E = e F`, `E = 8 e_m Q`.

    Paced operations F_p count what tiles and slower attention cost; narrow numbers speed up products with weights only,
    wide ones slow all. Arithmetic and memory are joined later, by the roofline [Williams et al. 2009].

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.
    - `work`: operations F and bytes Q of the layer, from `layer_work`.

    **Returns:** times at clock 1 [s] of arithmetic, product traffic and element-wise traffic; energies at the
    reference voltage [J] of switching and memory.
    """
    chip, layout, software = system.accelerator, plan.layout, system.software
    efficiency = product_efficiency(system, plan)
    speedup = precision_speedup(chip, layout, software.fp8_efficiency, software.fp4_efficiency)
    paced = work.product_operations / speedup + work.attention_operations * wide_slowdown(chip, layout)
    return ChipLoad(
        arithmetic=compute_time(paced, chip.peak_flops, efficiency),
        product_memory=work.gemm_bytes / chip.sustained_bandwidth,
        elementwise=work.elementwise_bytes / chip.sustained_bandwidth,
        switching_energy=work.flops * chip.energy_per_flop * precision_energy(chip, layout),
        memory_energy=8.0 * chip.memory_energy * (work.gemm_bytes + work.elementwise_bytes),
    )


BEYOND_LIMIT = 100.0  # [K] above the limit of a chip, warmer than any cap that acts makes it


def operating_point(system: TrainingSystem, plan: TrainingPlan, load: ChipLoad) -> OperatingPoint:
    """Clock within the power cap, `P(phi) <= P_cap`, then `theta = theta_c + R P(theta)`.

    Where the cap acts, the chip draws exactly the cap and its temperature follows from it; so two scalar roots
    take the place of one on (temperature, clock) [derivation: docs/physics.md E, step 4]. The temperature is that
    of a continuously busy chip.

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.
    - `load`: work of a layer, from `chip_load`.

    **Returns:** clock and voltage over their reference values [1], temperature [K], static and busy power, and the
    power at the lowest clock [W].
    """
    chip, cooling = system.accelerator, system.facility.cooling
    resistance = chip.thermal_resistance + cooling.thermal_resistance()
    coolant = plan.coolant_temperature + cooling.coolant_rise

    def work_power(clock: Numeric, chip: Accelerator, load: ChipLoad) -> Scalar:
        voltage = chip.voltage(clock)
        return (load.switching_energy * voltage**2 + load.memory_energy) / load.busy_time(chip, clock)

    def power_of_clock(clock: Numeric, arguments: tuple[Accelerator, ChipLoad, Scalar]) -> Scalar:
        chip, load, temperature = arguments
        return chip.static_power(chip.voltage(clock), temperature) + work_power(clock, chip, load)

    # A cap that no working chip reaches must not act through the leakage of a chip that glows.
    hottest = chip.maximum_temperature + BEYOND_LIMIT
    capped = (chip, load, jnp.minimum(coolant + resistance * plan.power_cap, hottest))
    clock = clock_at_power_cap(power_of_clock, plan.power_cap, chip.minimum_clock, plan.clock, capped)
    voltage = chip.voltage(clock)
    work = work_power(clock, chip, load)
    temperature = leakage_temperature(
        work + chip.fixed_power,
        chip.leakage(voltage, chip.leakage.reference_temperature),
        coolant,
        resistance,
        chip.leakage.temperature_sensitivity,
        chip.leakage.reference_temperature,
    )
    static = chip.static_power(voltage, temperature)
    lowest = power_of_clock(jnp.asarray(chip.minimum_clock), capped)
    return OperatingPoint(clock, voltage, temperature, static, static + work, lowest)
