"""At which clock and temperature does a chip run, and how long do its kernels take?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Scalar, p_norm
from energymodel.performance.products import product_time
from energymodel.physics.flow import row_coolant_temperature
from energymodel.physics.switching import clock_at_power_cap
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.accelerator import Accelerator
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.system.work import LayerWork, Products


class ChipLoad(NamedTuple):
    """One layer's work on one chip: seconds at clock 1 and joules at the reference voltage."""

    arithmetic: Scalar
    attention: Scalar
    product_memory: Scalar
    elementwise: Scalar
    switching_energy: Scalar
    memory_energy: Scalar

    def slowed(self, factor: Numeric) -> "ChipLoad":
        """The same work with products that take longer by a factor."""
        return self._replace(
            arithmetic=self.arithmetic * factor,
            attention=self.attention * factor,
            product_memory=self.product_memory * factor,
        )

    def busy_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the kernels at a clock [s]: matrix products under the roofline, then element-wise kernels."""
        return self.product_time(chip, clock) + self.elementwise

    def product_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the matrix products at a clock [s]: those with weights under the roofline, then attention."""
        return p_norm(chip.roofline_exponent, self.arithmetic / clock, self.product_memory) + self.attention / clock


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


def precision_speedup(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Peak rate of products with weights relative to bf16, `1 / (1 - sum_i s_i + sum_i s_i F_16 / F_i)`.

    Amdahl's law over the shares s_i of operations in i = fp8, fp4, tf32 and fp32 [Amdahl 1967], with peak rates F_i.

    **Returns:** speedup [1], below 1 where tf32 and fp32 outweigh fp8 and fp4.
    """
    fp8, fp4 = jnp.asarray(layout.fp8), jnp.asarray(layout.fp4)
    narrow = fp8 / rate_or_wider(chip.peak_flops_fp8, chip.peak_flops)
    narrow += fp4 / rate_or_wider(chip.peak_flops_fp4, chip.peak_flops)
    return 1.0 / (wide_slowdown(chip, layout) - fp8 - fp4 + chip.peak_flops * narrow)


def wide_slowdown(chip: Accelerator, layout: ParallelLayout) -> Scalar:
    """Time of products without weights relative to bf16, `1 + sum_i s_i (F_16 / F_i - 1)`, i = tf32 and fp32.

    Attention and the output head stay in bf16 where products with weights are in fp8 or fp4, but follow them to tf32
    and fp32 [definition].

    **Returns:** slowdown [1].
    """
    fp32_rate = rate_or_wider(chip.peak_flops_fp32, chip.peak_flops)
    tf32_rate = rate_or_wider(chip.peak_flops_tf32, fp32_rate)
    tf32 = layout.tf32 * (jnp.asarray(chip.peak_flops) / tf32_rate - 1.0)
    return 1.0 + tf32 + layout.fp32 * (jnp.asarray(chip.peak_flops) / fp32_rate - 1.0)


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


def products_time(system: TrainingSystem, plan: TrainingPlan, products: Products, weights: bool = True) -> Scalar:
    """Time of products at clock 1 by their formats, `t = n t_0 + sum_i s_i (F + d_i E) / (x_i eta_i F_i)` [definition].

    Of the products with weights, a share s_i runs in fp8 and fp4; tf32 and fp32 slow all products. eta_i and d_i are
    measured on the chip (`performance.products.product_time`), x_i is what software loses of the rate.

    **Returns:** time [s].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software

    def time(peak: Numeric, efficiency: Numeric, edge: Numeric) -> Scalar:
        return product_time(products.operations, products.edges, jnp.asarray(peak) * efficiency, edge)

    whole = time(chip.peak_flops, chip.gemm_efficiency, chip.gemm_edge)
    found = wide_slowdown(chip, layout) * whole
    if weights:
        for share, peak, efficiency, edge, lost in (
            (layout.fp8, chip.peak_flops_fp8, chip.fp8_gemm_efficiency, chip.fp8_gemm_edge, software.fp8_efficiency),
            (layout.fp4, chip.peak_flops_fp4, chip.fp4_gemm_efficiency, chip.fp4_gemm_edge, software.fp4_efficiency),
        ):
            has = jnp.asarray(peak) > 0.0
            narrow = jnp.where(has, time(jnp.where(has, peak, 1.0), jnp.asarray(efficiency) * lost, edge), whole)
            found = found + share * (narrow - whole)
    return products.number * chip.product_latency + found / software.product_efficiency


def chip_load(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> ChipLoad:
    """Times and energies of a layer, `t = F_p / (eta Fdot)`, `t = Q / bw`, `E = e F / x`, `E = e_m Q`.

    The roofline joins arithmetic and memory later [Williams et al. 2009]. Products that take longer than by themselves
    (x, `software.product_efficiency`) keep the chip as busy.

    **Returns:** times at clock 1 of arithmetic, attention, product traffic and element-wise traffic [s]; energies at
    the reference voltage of switching and memory [J].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software
    with_weights = (work.flops - work.attention_flops) * precision_energy(chip, layout)
    switched = with_weights + work.attention_flops * wide_energy(chip, layout)
    return ChipLoad(
        arithmetic=products_time(system, plan, work.products),
        attention=work.attention.total * wide_slowdown(chip, layout),
        product_memory=work.gemm_bytes / chip.sustained_bandwidth,
        elementwise=work.elementwise_bytes / chip.sustained_bandwidth,
        switching_energy=switched * chip.energy_per_flop / software.product_efficiency,
        memory_energy=chip.traffic_energy * (work.gemm_bytes + work.elementwise_bytes),
    )


def head_time(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> Scalar:
    """Arithmetic time of the output head for one micro-batch at clock 1 [definition].

    In bf16 even where other products are in fp8 or fp4, as frameworks do it.

    **Returns:** time [s].
    """
    return products_time(system, plan, work.head_products, weights=False)


def head_energy(system: TrainingSystem, plan: TrainingPlan, work: LayerWork) -> Scalar:
    """Switching energy of the output head for one micro-batch at the reference voltage, `E = e F` [definition].

    **Returns:** energy [J].
    """
    chip = system.accelerator
    switched = work.head_flops * chip.energy_per_flop * wide_energy(chip, plan.layout)
    return switched / system.software.product_efficiency


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
    supply = plan.coolant_temperature
    coolant = row_coolant_temperature(supply, 1.0, cooling.coolant_rise(supply))  # the last chip is the hottest

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
