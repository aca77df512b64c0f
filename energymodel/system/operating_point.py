"""At which clock and temperature does a chip run, and how long do its kernels take?"""

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
    """One layer's work on one chip: seconds at clock 1 and joules at the reference voltage."""

    arithmetic: Scalar
    product_memory: Scalar
    elementwise: Scalar
    switching_energy: Scalar
    memory_energy: Scalar

    def busy_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the kernels at a clock [s]: matrix products under the roofline, then element-wise kernels."""
        return self.product_time(chip, clock) + self.elementwise

    def product_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the matrix products at a clock [s]."""
        return p_norm(chip.roofline_exponent, self.arithmetic / clock, self.product_memory)


class OperatingPoint(NamedTuple):
    """Clock and voltage relative to their reference values, temperature, and powers at which a chip settles."""

    clock: Scalar
    voltage: Scalar
    temperature: Scalar
    static_power: Scalar
    busy_power: Scalar
    lowest_power: Scalar


def rate_or_wider(rate: Numeric, wider: Numeric) -> Scalar:
    """Rate of the products in a format, or that of a wider one that stands in on a chip without it [definition].

    A chip without FP8 or FP4 products casts to bf16, one without TF32 to FP32: nothing is gained.

    **Arguments:**

    - `rate`, `wider`: peak rates in the format, zero if the chip lacks it, and in the wider one [FLOP/s].

    **Returns:** rate [FLOP/s].
    """
    rate = jnp.asarray(rate)
    return jnp.where(rate > 0.0, rate, wider)


def precision_speedup(
    chip: Accelerator, layout: ParallelLayout, fp8_efficiency: Numeric = 1.0, fp4_efficiency: Numeric = 1.0
) -> Scalar:
    """Rate of products with weights relative to bf16, `1 / (1 - sum_i s_i + sum_i s_i F_16 / (x_i F_i))`.

    Amdahl's law over the shares s_i of operations in i = fp8, fp4, tf32 and fp32 [Amdahl 1967], with peak rates F_i.
    Casting and scaling lower the share of the fp8 and fp4 peaks that products reach by x_i (`fp8_efficiency`,
    `fp4_efficiency`), relative to bf16.

    **Returns:** speedup [1], below 1 where tf32 and fp32 outweigh fp8 and fp4.
    """
    fp8, fp4 = jnp.asarray(layout.fp8), jnp.asarray(layout.fp4)
    narrow = fp8 / rate_or_wider(chip.peak_flops_fp8 * jnp.asarray(fp8_efficiency), chip.peak_flops)
    narrow += fp4 / rate_or_wider(chip.peak_flops_fp4 * jnp.asarray(fp4_efficiency), chip.peak_flops)
    return 1.0 / (wide_slowdown(chip, layout) - fp8 - fp4 + chip.peak_flops * narrow)


def wide_slowdown(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Time of products without weights relative to bf16, `1 + sum_i s_i (F_16 / F_i - 1)`, i = tf32 and fp32.

    Attention and the output head stay in bf16 where products with weights are in fp8 or fp4, but follow them to tf32
    and fp32 [definition].

    **Returns:** slowdown [1].
    """
    tf32_rate = rate_or_wider(chip.peak_flops_tf32, chip.peak_flops_fp32)
    tf32 = layout.tf32 * (jnp.asarray(chip.peak_flops) / tf32_rate - 1.0)
    return 1.0 + tf32 + layout.fp32 * (jnp.asarray(chip.peak_flops) / chip.peak_flops_fp32 - 1.0)


def precision_energy(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Energy per operation relative to bf16, `1 - s_8 (1 - e) - s_4 (1 - e^2) + s_32 (1 / e - 1)` [definition].

    Each halving of the width multiplies the energy by e = `chip.fp8_energy_ratio`; for fp4, tf32 and fp32 that is an
    assumption. s_32 is the share of tf32 and fp32 together. Formats that the chip lacks save nothing.

    **Returns:** energy ratio [1].
    """
    ratio = jnp.asarray(chip.fp8_energy_ratio)
    wide = wide_energy(chip, layout)
    fp8 = jnp.where(jnp.asarray(chip.peak_flops_fp8) > 0.0, layout.fp8, 0.0)
    fp4 = jnp.where(jnp.asarray(chip.peak_flops_fp4) > 0.0, layout.fp4, 0.0)
    narrow = fp8 * (1.0 - ratio) + fp4 * (1.0 - ratio**2)
    return wide - narrow


def wide_energy(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Energy per operation of products without weights relative to bf16, `1 + s_32 (1 / e - 1)` [definition].

    Attention and the output head stay in bf16 where products with weights are in fp8 or fp4, see `wide_slowdown`.

    **Returns:** energy ratio [1].
    """
    return 1.0 + (jnp.asarray(layout.tf32) + layout.fp32) * (1.0 / jnp.asarray(chip.fp8_energy_ratio) - 1.0)


def product_efficiency(system: TrainingSystem, plan: TrainingPlan) -> Scalar:
    """Share of the peak rate that a layer's products reach, `eta_max / (1 + h_0 t / h)` [definition].

    **Returns:** efficiency [1].
    """
    chip = system.accelerator
    return gemm_efficiency(chip.gemm_efficiency, chip.gemm_half_size, plan.layout.tensor, system.workload.hidden)


def chip_load(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> ChipLoad:
    """Times and energies of a layer, `t = F_p / (eta Fdot)`, `t = Q / bw`, `E = e F`, `E = 8 e_m Q`.

    F_p includes tile and wave quantization and the lower rate of attention. fp8 and fp4 speed up products with weights
    only; tf32 and fp32 slow all products. The roofline joins arithmetic and memory later [Williams et al. 2009].

    **Returns:** times at clock 1 of arithmetic, product traffic and element-wise traffic [s]; energies at the
    reference voltage of switching and memory [J].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software
    efficiency = product_efficiency(system, plan)
    with_weights = (work.flops - work.attention_flops) * precision_energy(chip, layout)
    switched = with_weights + work.attention_flops * wide_energy(chip, layout)
    speedup = precision_speedup(chip, layout, software.fp8_efficiency, software.fp4_efficiency)
    paced = work.product_operations / speedup + work.attention_operations * wide_slowdown(chip, layout)
    return ChipLoad(
        arithmetic=compute_time(paced, chip.peak_flops, efficiency),
        product_memory=work.gemm_bytes / chip.sustained_bandwidth,
        elementwise=work.elementwise_bytes / chip.sustained_bandwidth,
        switching_energy=switched * chip.energy_per_flop,
        memory_energy=8.0 * chip.memory_energy * (work.gemm_bytes + work.elementwise_bytes),
    )


def head_time(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> Scalar:
    """Arithmetic time of the output head for one micro-batch at clock 1, `t = F_p / (eta Fdot)` [definition].

    In bf16 even where other products are in fp8 or fp4, as frameworks do it.

    **Returns:** time [s].
    """
    chip = system.accelerator
    time = compute_time(work.head_operations, chip.peak_flops, product_efficiency(system, plan))
    return time * wide_slowdown(chip, plan.layout)


def head_energy(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> Scalar:
    """Switching energy of the output head for one micro-batch at the reference voltage, `E = e F` [definition].

    **Returns:** energy [J].
    """
    chip = system.accelerator
    return work.head_flops * chip.energy_per_flop * wide_energy(chip, plan.layout)


BEYOND_LIMIT = 100.0  # [K] above the chip's limit: warmer than any power cap that binds makes it


def operating_point(
    system: TrainingSystem, plan: TrainingPlan, load: ChipLoad, waiting: Numeric = 0.0
) -> OperatingPoint:
    """Clock within the power cap, `P(phi) <= P_cap`, then `theta = theta_c + R P(theta)`.

    P is the mean over a layer, `(E(phi) + P_spin(phi) t_w) / (t_b(phi) + t_w) + P_s`: a power limit acts on the mean
    over tens of milliseconds, so that what short waits for other chips leave goes into a higher clock
    [experiments/04_metered_runs]. Where the cap binds, the chip draws exactly the cap and its temperature follows from
    it. Two scalar roots therefore replace one in (temperature, clock) [derivation: docs/physics.md E, step 4].

    **Arguments:**

    - `load`: kernels of a layer.
    - `waiting`: t_w, time in which the layer's kernels wait for other chips [s].

    **Returns:** clock and voltage relative to their reference values [1], temperature [K], static power, mean power
    over a layer and the same at the lowest clock [W].
    """
    chip, cooling = system.accelerator, system.facility.cooling
    resistance = chip.thermal_resistance + cooling.thermal_resistance(plan.coolant_temperature)
    coolant = plan.coolant_temperature + cooling.coolant_rise(plan.coolant_temperature)

    def work_power(clock: Numeric, chip: Accelerator, load: ChipLoad, waiting: Scalar) -> Scalar:
        voltage = chip.voltage(clock)
        energy = load.switching_energy * voltage**2 + load.memory_energy + chip.spin_power(clock) * waiting
        return energy / (load.busy_time(chip, clock) + waiting)

    def power_of_clock(clock: Numeric, arguments: tuple[Accelerator, ChipLoad, Scalar, Scalar]) -> Scalar:
        chip, load, waiting, temperature = arguments
        return chip.static_power(chip.voltage(clock), temperature) + work_power(clock, chip, load, waiting)

    # A cap that no working chip reaches must not act through the leakage at an absurd temperature.
    hottest = chip.maximum_temperature + BEYOND_LIMIT
    waiting = jnp.asarray(waiting)
    capped = (chip, load, waiting, jnp.minimum(coolant + resistance * plan.power_cap, hottest))
    clock = clock_at_power_cap(power_of_clock, plan.power_cap, chip.minimum_clock, plan.clock, capped)
    voltage = chip.voltage(clock)
    work = work_power(clock, chip, load, waiting)
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
