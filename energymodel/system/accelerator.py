"""One accelerator: rates, memory, power, heat, price."""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Scalar, Values, component, real, share
from energymodel.performance.memory_access import AbstractMemoryAccess, MeasuredAccess
from energymodel.physics.leakage import Leakage, PowerGate
from energymodel.physics.switching import AbstractCharging, SwitchedCharging, busy_power
from energymodel.physics.voltage import AbstractVoltageCurve
from energymodel.ranges import ABOVE_ZERO, ABSOLUTE, AT_LEAST_ONE, FACTOR, SHARE_ABOVE_ZERO, Range


class Accelerator(eqx.Module):
    """One accelerator package as its power meter sees it: rates, memory, power, heat, price.

    Peak rates are dense and hold at clock 1, which is `reference_clock`; zero is a number format that the chip lacks.
    `busy_power` is measured at clock 1 on a
    reference workload that keeps the matrix units full and uses a share `reference_memory_utilization` of the memory
    bandwidth. Subtracting leakage, fixed power and memory power from it leaves `dynamic_power`, kappa.
    """

    peak_flops: Real = real("FLOP/s", within=ABOVE_ZERO)
    peak_flops_fp8: Real = real("FLOP/s")
    peak_flops_fp4: Real = real("FLOP/s")
    peak_flops_tf32: Real = real("FLOP/s")
    peak_flops_fp32: Real = real("FLOP/s")
    reference_clock: Real = real("Hz", within=ABOVE_ZERO)
    minimum_clock: Real = real("1", within=SHARE_ABOVE_ZERO)
    memory_capacity: Real = real("B", within=ABOVE_ZERO)
    memory_bandwidth: Real = real("B/s", within=ABOVE_ZERO)
    cache_size: Real = real("B", within=ABOVE_ZERO)
    rated_power: Real = real("W", within=ABOVE_ZERO)
    idle_power: Real = real("W")
    fixed_power: Real = real("W")
    busy_power: Real = real("W", within=ABOVE_ZERO)
    reference_memory_utilization: Real = share()
    fp8_energy_ratio: Real = real("1", within=SHARE_ABOVE_ZERO)
    spin_activity: Real = share(doc="activity of a chip that waits for others, relative to the reference workload")
    voltage: AbstractVoltageCurve = component()
    reference_voltage: Real = real("V", within=ABOVE_ZERO)
    leakage: Leakage = component()
    gate: PowerGate = component()
    memory_energy: Real = real("J/bit")
    gemm_efficiency: Real = real(
        "1", doc="share of the peak rate that large products reach by themselves", within=SHARE_ABOVE_ZERO
    )
    gemm_edge: Real = real("1", doc="steps along the inner edge that starting and writing a tile are worth")
    attention_efficiency: Real = real(
        "1", doc="share of the peak rate of fused attention with wide heads", within=SHARE_ABOVE_ZERO
    )
    attention_half_keys: Real = real("1", doc="keys per query at which fused attention has half that rate")
    attention_tail: Real = real("1", doc="rows of queries and heads that the last wave of a kernel is worth")
    attention_half_head: Real = real("1", doc="head size whose exponentials take as long as its products")
    attention_backward: Real = real(
        "1", doc="time of the backward pass of fused attention over that of the forward pass", within=FACTOR
    )
    memory_efficiency: Real = real("1", within=SHARE_ABOVE_ZERO)
    roofline_exponent: Real = real("1", within=AT_LEAST_ONE)
    launch_exponent: Real = real("1", within=AT_LEAST_ONE)
    launch_overhead: Real = real("s")
    overhead_time: Real = real("s")
    die_area: Real = real("m^2", within=ABOVE_ZERO)
    heat_capacity: Real = real("J/K", within=ABOVE_ZERO)
    thermal_resistance: Real = real("K/W")
    maximum_temperature: Real = real("K", within=ABSOLUTE)
    price: Real = real("USD")
    embodied_carbon: Real = real("kg")
    bits_per_flop: Real = real("bit/FLOP", 32.0, within=ABOVE_ZERO)
    fp8_gemm_efficiency: Real = real("1", 0.8, doc="the same of the fp8 peak", within=SHARE_ABOVE_ZERO)
    fp8_gemm_edge: Real = real("1", 0.0, doc="the same in fp8")
    fp4_gemm_efficiency: Real = real("1", 0.45, doc="the same of the fp4 peak", within=SHARE_ABOVE_ZERO)
    fp4_gemm_edge: Real = real("1", 0.0, doc="the same in fp4")
    product_latency: Real = real("s", 0.0, doc="of a matrix product without operations")
    alignment_exponent: Real = real(
        "1", 0.0, doc="of the slowdown by edges that are no multiples of 64", within=Range(0.0, 10.0)
    )
    unaligned_slowdown: Real = real(
        "1", 1.0, doc="more of it where edges are no multiples of 8", within=Range(1.0, 1e3)
    )
    clock_switch_time: Real = real("s", 0.02, doc="from the command to another clock until it holds")
    expert_tile: Real = real("1", 0.0, doc="rows with which each expert's product is padded to whole tiles")
    hot_spot_resistance: Real = real("K/W", 0.0, doc="hottest point above the mean of the die, per power of the chip")
    access: AbstractMemoryAccess = component(MeasuredAccess())
    charging: AbstractCharging = component(SwitchedCharging())

    @property
    def dynamic_power(self) -> Numeric:
        """Switching power kappa at clock 1 and reference voltage, matrix units full [W]."""
        memory = 8.0 * self.memory_energy * self.reference_memory_utilization * self.memory_bandwidth
        return jnp.asarray(self.busy_power) - self.leakage.power - self.fixed_power - memory

    @property
    def sustained_bandwidth(self) -> Scalar:
        """Bytes that kernels use per time [B/s]: those of streams, unless another pattern of access is stated."""
        return self.access.bandwidth(jnp.asarray(self.memory_bandwidth) * self.memory_efficiency)

    def link_rate(self, rate: Numeric) -> Scalar:
        """Rate of collectives over links with a `rate` [B/s], where the memory leaves them that much [B/s]."""
        return self.access.link_rate(rate, jnp.asarray(self.memory_bandwidth) * self.memory_efficiency)

    @property
    def traffic_energy(self) -> Scalar:
        """Energy of the memory per byte that kernels use [J/B]."""
        return 8.0 * jnp.asarray(self.memory_energy) * self.access.traffic()

    @property
    def energy_per_flop(self) -> Numeric:
        """Switching energy of a 16-bit matrix operation at the reference voltage, `kappa / (eta_max Fdot)` [J/FLOP]."""
        return self.dynamic_power / (self.gemm_efficiency * self.peak_flops)

    def static_power(self, voltage: Numeric, temperature: Numeric) -> Values:
        """Power of a chip whose clock runs but whose units rest: leakage and fixed power [W]."""
        return self.leakage(voltage, temperature) + self.fixed_power

    def spin_power(self, clock: Numeric, voltage: Numeric) -> Values:
        """Switching power of a chip whose kernels wait for other chips, `a kappa phi v^2` [W]."""
        return busy_power(0.0, self.dynamic_power * self.spin_activity * clock, self.charging.swing(clock, voltage))
