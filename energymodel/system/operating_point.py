"""At which clock and temperature does a chip run, and how long do its kernels take there?"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, p_norm
from energymodel.performance.roofline import compute_time, gemm_efficiency
from energymodel.physics.switching import clock_at_power_cap
from energymodel.physics.thermal import leakage_temperature
from energymodel.system.accelerator import Accelerator
from energymodel.system.plan import TrainingPlan
from energymodel.system.work import LayerWork

if TYPE_CHECKING:
    from energymodel.system.training_system import TrainingSystem

Scalar = Float[Array, ""]


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


def eight_bit_speedup(chip: Accelerator, share: Numeric) -> Scalar:
    """Rate relative to 16 bits with a share s of products on 8 bits, `1 / (1 - s + s F_16 / F_8)` [Amdahl 1967].

    **Arguments:**

    - `chip`: accelerator, with both peak rates [FLOP/s].
    - `share`: s of the operations [1].

    **Returns:** speedup [1].
    """
    share = jnp.asarray(share)
    return 1.0 / (1.0 - share + share * chip.peak_flops / chip.peak_flops_8bit)


def eight_bit_energy(chip: Accelerator, share: Numeric) -> Scalar:
    """Energy per operation relative to 16 bits when a share s runs on 8 bits, `1 - s + s e` [definition].

    **Arguments:**

    - `chip`: accelerator, with the ratio e of both energies [1].
    - `share`: s of the operations [1].

    **Returns:** energy ratio [1].
    """
    share = jnp.asarray(share)
    return 1.0 - share + share * chip.eight_bit_energy_ratio


def product_efficiency(system: "TrainingSystem", plan: TrainingPlan) -> Scalar:
    """Share of the peak rate that the products of a layer reach, `eta_max / (1 + h_0 t / h)` [definition].

    `gemm_efficiency` with the chip's constants and the width that tensor parallelism leaves.

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.

    **Returns:** efficiency [1].
    """
    chip = system.accelerator
    return gemm_efficiency(chip.gemm_efficiency, chip.gemm_half_size, plan.layout.tensor, system.workload.hidden)


def chip_load(system: "TrainingSystem", plan: TrainingPlan, work: LayerWork) -> ChipLoad:
    """Times and energies of a layer, `t = F_p / (eta Fdot)`, `t = Q / bw`, `E = e F`, `E = 8 e_m Q`.

    Paced operations F_p count what tiles and slower attention cost; 8 bits speed up products with weights only.
    Arithmetic and memory are joined later, by the roofline [Williams et al. 2009].

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.
    - `work`: operations F and bytes Q of the layer, from `layer_work`.

    **Returns:** times at clock 1 [s] of arithmetic, product traffic and element-wise traffic; energies at the
    reference voltage [J] of switching and memory.
    """
    chip, layout = system.accelerator, plan.layout
    efficiency = product_efficiency(system, plan)
    paced = work.product_operations / eight_bit_speedup(chip, layout.eight_bit) + work.attention_operations
    return ChipLoad(
        arithmetic=compute_time(paced, chip.peak_flops, efficiency),
        product_memory=work.gemm_bytes / chip.sustained_bandwidth,
        elementwise=work.elementwise_bytes / chip.sustained_bandwidth,
        switching_energy=work.flops * chip.energy_per_flop * eight_bit_energy(chip, layout.eight_bit),
        memory_energy=8.0 * chip.memory_energy * (work.gemm_bytes + work.elementwise_bytes),
    )


BEYOND_LIMIT = 100.0  # [K] above the limit of a chip, warmer than any cap that acts makes it


def operating_point(system: "TrainingSystem", plan: TrainingPlan, load: ChipLoad) -> OperatingPoint:
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
