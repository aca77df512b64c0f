"""Times and energies of kernels on a chip by number format, and the clock and temperature at which it settles."""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Numeric, Part, Scalar, is_fixed, p_norm, part
from energymodel.performance.kernels import product_time
from energymodel.physics.cooling import Coolant
from energymodel.physics.switching import busy_power, clock_at_power_cap
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.accelerator import Accelerator
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.system.work import LayerWork, Products

BEYOND_LIMIT = 100.0  # [K] above the chip's limit: warmer than any power cap that binds makes it


class ChipLoad(NamedTuple):
    """Work on one chip, of a layer or of the output head: seconds at clock 1 and joules at the reference voltage."""

    arithmetic: Scalar
    attention: Part
    product_memory: Part
    elementwise: Scalar
    switching_energy: Scalar
    memory_energy: Scalar

    def busy_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the kernels at a clock [s]: matrix products under the roofline, then element-wise kernels."""
        return self.product_time(chip, clock) + self.elementwise

    def product_time(self, chip: Accelerator, clock: Numeric) -> Scalar:
        """Time of the matrix products at a clock [s]: those with weights under the roofline, then attention."""
        return p_norm(chip.roofline_exponent, self.arithmetic / clock, self.product_memory) + self.attention / clock


def rate_or_wider(rate: Numeric, wider: Numeric) -> Scalar:
    """Rate of products in a format, or in a wider one where a chip lacks it [FLOP/s] [definition].

    A chip without FP8 or FP4 products casts to bf16, one without TF32 to FP32: nothing is gained.

    **Arguments:**

    - `rate`, `wider`: peak rates in the format, zero if the chip lacks it, and in the wider one [FLOP/s].
    """
    rate = jnp.asarray(rate)
    return jnp.where(rate > 0.0, rate, wider)


class FormatFactors(NamedTuple):
    """Peak rate, energy per operation and time of products in the formats of a layout, relative to bf16 [1].

    `speedup` and `energy` of products with weights; `wide_slowdown` and `wide_energy` of those without, attention and
    output head, which stay in bf16 where others are in fp8 or fp4, but follow them to tf32 and fp32.
    """

    speedup: Scalar
    energy: Scalar
    wide_slowdown: Scalar
    wide_energy: Scalar


def format_factors(chip: Accelerator, layout: ParallelLayout) -> FormatFactors:
    """Rates and energies by number format [1], `x = 1 / (1 - sum_i s_i + sum_i s_i F_16 / F_i)` [Amdahl 1967].

    With shares s_i of operations in i = fp8, fp4, tf32 and fp32 and peak rates F_i, the speedup x is below 1 where tf32
    and fp32 outweigh fp8 and fp4. Each halving of the width multiplies the energy by e = `chip.fp8_energy_ratio`,
    `1 - s_8 (1 - e) - s_4 (1 - e^2) + s_32 (1 / e - 1)` in all, an assumption but for fp8; s_32 is the share of tf32
    and fp32 together. Formats that the chip lacks save nothing. Products without weights take
    `1 + sum_i s_i (F_16 / F_i - 1)` of the time and `1 + s_32 (1 / e - 1)` of the energy, i = tf32 and fp32.
    """
    peak, ratio = jnp.asarray(chip.peak_flops), jnp.asarray(chip.fp8_energy_ratio)
    fp32_rate = rate_or_wider(chip.peak_flops_fp32, peak)
    tf32_rate = rate_or_wider(chip.peak_flops_tf32, fp32_rate)
    slowdown = 1.0 + part(layout.tf32, lambda: peak / tf32_rate - 1.0)
    slowdown = slowdown + part(layout.fp32, lambda: peak / fp32_rate - 1.0)
    wide_energy = 1.0 + part(layout.tf32 + layout.fp32, lambda: 1.0 / ratio - 1.0)
    time, energy = slowdown, wide_energy
    for share, rate, saved in (
        (layout.fp8, chip.peak_flops_fp8, lambda: 1.0 - ratio),
        (layout.fp4, chip.peak_flops_fp4, lambda: 1.0 - ratio**2),
    ):
        if not is_fixed(share, 0.0):
            time = time - share * (1.0 - peak / rate_or_wider(rate, peak))
            energy = energy - jnp.where(jnp.asarray(rate) > 0.0, share, 0.0) * saved()
    return FormatFactors(1.0 / jnp.asarray(time), energy, slowdown, wide_energy)


def products_time(
    system: TrainingSystem, plan: TrainingPlan, products: Products, slowdown: Numeric, weights: bool = True
) -> Scalar:
    """Time of products at clock 1 by format [s], `t = n t_0 + sum_i s_i (F + d_i E) / (x_i eta_i F_i)` [definition].

    Of the products with weights, a share s_i runs in fp8 and fp4; tf32 and fp32 slow all products. eta_i and d_i are
    measured on the chip (`performance.kernels.product_time`), x_i is what software loses of the rate.

    **Arguments:**

    - `slowdown`: of all products by tf32 and fp32 (`FormatFactors.wide_slowdown`) [1].
    """
    chip, layout, software = system.accelerator, plan.layout, system.software

    def time(peak: Numeric, efficiency: Numeric, edge: Numeric) -> Scalar:
        return product_time(products.operations, products.edges, jnp.asarray(peak) * efficiency, edge)

    bf16 = time(chip.peak_flops, chip.gemm_efficiency, chip.gemm_edge)
    total = slowdown * bf16
    if weights:
        for share, peak, efficiency, edge, reached in (
            (layout.fp8, chip.peak_flops_fp8, chip.fp8_gemm_efficiency, chip.fp8_gemm_edge, software.fp8_efficiency),
            (layout.fp4, chip.peak_flops_fp4, chip.fp4_gemm_efficiency, chip.fp4_gemm_edge, software.fp4_efficiency),
        ):
            if is_fixed(share, 0.0):
                continue
            has = jnp.asarray(peak) > 0.0
            narrow = jnp.where(has, time(jnp.where(has, peak, 1.0), jnp.asarray(efficiency) * reached, edge), bf16)
            total = total + share * (narrow - bf16)
    return products.number * chip.product_latency + total / software.product_efficiency


class ChipLoads(NamedTuple):
    """Loads of a chip by a layer and by the output head for one micro-batch, and what number formats do to them."""

    layer: ChipLoad
    head: ChipLoad
    factors: FormatFactors


def chip_load(system: TrainingSystem, plan: TrainingPlan, work: LayerWork, batch: Numeric) -> ChipLoads:
    """Times and energies of a layer [s, J], `t = F_p / (eta Fdot u)`, `t = Q / bw`, `E = e F / x`, `E = e_m Q`.

    The roofline joins arithmetic and memory later [Williams et al. 2009]. Products that take longer than by themselves
    (x, `software.product_efficiency`) keep the chip as busy, as do small batches, which fill it by u
    (`software.saturation`). The output head is in bf16 where others are in fp8 or fp4.

    **Arguments:**

    - `batch`: of the step [token].
    """
    chip, software, factors = system.accelerator, system.software, format_factors(system.accelerator, plan.layout)
    switched = (work.flops - work.attention_flops) * factors.energy + work.attention_flops * factors.wide_energy
    longer, bandwidth = 1.0 / software.saturation.utilization(batch), chip.sustained_bandwidth
    byte_energy = software.saturation.byte_energy(chip.traffic_energy, batch)
    layer = ChipLoad(
        arithmetic=products_time(system, plan, work.products, factors.wide_slowdown) * longer,
        attention=work.attention.total * factors.wide_slowdown * longer,
        product_memory=work.gemm_bytes / bandwidth * longer,
        elementwise=work.elementwise_bytes / bandwidth,
        switching_energy=switched * chip.energy_per_flop / software.product_efficiency,
        memory_energy=byte_energy * (work.gemm_bytes + work.elementwise_bytes),
    )
    head = ChipLoad(
        arithmetic=products_time(system, plan, work.head_products, factors.wide_slowdown, weights=False),
        attention=0.0,
        product_memory=0.0,
        elementwise=work.head_bytes / bandwidth,
        switching_energy=work.head_flops * factors.wide_energy * chip.energy_per_flop / software.product_efficiency,
        memory_energy=byte_energy * work.head_bytes,
    )
    return ChipLoads(layer, head, factors)


class OperatingPoint(NamedTuple):
    """Clock and voltage over their reference values [1], temperature [K], and powers [W] at which a chip settles.

    `swing` is the voltage that the heat of switching goes by as the square (`physics.switching.AbstractCharging`) [1].
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
    swing: Scalar


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

    def work_power(swing: Scalar, spin: Scalar, products: Scalar, load: ChipLoad, waiting: Scalar) -> Scalar:
        energy = busy_power(spin * waiting, load.switching_energy, swing, load.memory_energy)
        return energy / (products + load.elementwise + waiting)

    def power_of_clock(clock: Numeric, arguments: tuple[Accelerator, ChipLoad, Scalar, Scalar]) -> Scalar:
        chip, load, waiting, temperature = arguments
        voltage, products = chip.voltage(clock), load.product_time(chip, clock)
        working = work_power(
            chip.charging.swing(clock, voltage), chip.spin_power(clock, voltage), products, load, waiting
        )
        return chip.static_power(voltage, temperature) + working

    # A cap that no working chip reaches must not act through the leakage at an absurd temperature.
    hottest = chip.maximum_temperature + BEYOND_LIMIT
    waiting = jnp.asarray(waiting)
    capped = (chip, load, waiting, jnp.minimum(last + resistance * plan.power_cap, hottest))
    clock = clock_at_power_cap(power_of_clock, plan.power_cap, chip.minimum_clock, plan.clock, capped)
    voltage, products = chip.voltage(clock), load.product_time(chip, clock)
    spin, swing = chip.spin_power(clock, voltage), chip.charging.swing(clock, voltage)
    work = work_power(swing, spin, products, load, waiting)
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
    return OperatingPoint(clock, voltage, temperature, products, leakage, static, static + work, lowest, spin, swing)
