"""Accelerators that follow from voltage, areas, memory, links, number format and process generation.

A design is relative to an accelerator that exists: with all choices as in that accelerator, its numbers come out, and
laws say how they change with the choices. Nothing is free: area, watts and memory have a price, a low voltage is slow,
a cache and links take area from the arithmetic, narrow numbers cost loss, and thermal noise corrupts runs.
"""

import abc
import dataclasses
import math
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.economics.cost import SiliconCost
from energymodel.learning.recipe import quantized_parameters
from energymodel.numerics import Numeric, Real, Values, component, is_fixed, real, share
from energymodel.performance.caches import CoreMemory, Sram
from energymodel.physics.leakage import leakage_power
from energymodel.physics.limits import noise_error_rate, reliable_operation_energy
from energymodel.physics.voltage import clock_ratio
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, SHARE_ABOVE_ZERO, Range
from energymodel.system.accelerator import Accelerator

WIDE = 16.0  # bits of the format whose peak rate an accelerator states
IMPROVED: Mapping[str, str] = {
    "host_power": "node.overhead_power node.fan_power",
    "link_rate": "node.scale_up.lane_bandwidth node.host_bandwidth node.host_update_bandwidth "
    "network.link.lane_bandwidth",
    "link_energy": "node.scale_up.energy network.link.energy network.hop_energy",
    "link_power": "node.scale_up.lane_power network.link.lane_power network.switch_lane_power network.static_power",
    "latency": "accelerator.product_latency accelerator.launch_overhead accelerator.overhead_time "
    "node.scale_up.latency node.collectives.start_latency node.collectives.protocol_latency "
    "network.link.latency network.topology.hop_latency software.collective_latency software.microbatch_time",
}
"""Numbers of a system, by path, that each factor of `Progress` multiplies."""
LEAST_COMPUTE = 1e-3  # of the compute area of the reference: what is left where the rest fills the die


class Technology(eqx.Module):
    """What a chip is made of: transistors, cache, interfaces, memory stacks, and what changes with a generation.

    Factors per generation multiply; `sram` is that of the reference accelerator's process.
    """

    threshold: Real = real("V", doc="of the transistors", within=ABOVE_ZERO)
    slope_factor: Real = real("1", doc="subthreshold slope over its thermal limit", within=AT_LEAST_ONE)
    saturation: Real = real("1", doc="exponent of the on-current above the threshold")
    sram: Sram = component()
    core: CoreMemory = component()
    cache_accesses: Real = real("B/FLOP", doc="bytes of the last cache per operation, for products that fit")
    interface_area: Real = real("m^2 s/B", doc="of the die, per memory bandwidth")
    link_area: Real = real("m^2 s/B", doc="of the die, per line rate of the links in one direction")
    other_area: Real = share(doc="share of the reference die that is neither arithmetic, cache nor interface")
    holding_power: Real = real("W/B", doc="of memory that keeps its data")
    largest_share: Real = real("1", within=SHARE_ABOVE_ZERO, doc="of energy, time, leakage, power, die that parts take")
    error_margin: Real = real("1", doc="ln(1/p) for errors by thermal noise in the reference accelerator")
    corruption: Real = share(doc="share of flipped bits that make a run go back to a checkpoint")
    logic_energy: Real = real("1", doc="energy of an operation above the bound, per generation", within=ABOVE_ZERO)
    logic_density: Real = real("1", doc="units per area, per generation", within=ABOVE_ZERO)
    sram_density: Real = real("1", doc="cache per area, per generation", within=ABOVE_ZERO)
    memory_rate: Real = real("1", doc="bandwidth of a stack, per generation", within=ABOVE_ZERO)
    memory_size: Real = real("1", doc="capacity of a stack, per generation", within=ABOVE_ZERO)
    interface_energy: Real = real("1", doc="energy of a bit in memory, per generation", within=ABOVE_ZERO)

    def of(self, chip: Accelerator, link_rate: Numeric) -> "Technology":
        """The technology of a reference: parts that would take more than `largest_share` of it shrink to that share.

        Cells, interfaces and memory are stated as those of today. An accelerator whose operations, latency, leakage or
        fixed power are smaller than such parts alone must be made of better ones.
        """
        bound = reliable_operation_energy(chip.bits_per_flop, self.error_margin, chip.leakage.reference_temperature)
        moved = self.cache_accesses * self.sram.access_energy(chip.cache_size) + self.core.operation_energy(self.sram)
        leaks = self.sram.leakage(chip.cache_size + self.core.cells())
        wait = self.sram.latency(chip.cache_size) + self.sram.latency(self.core.local_memory)
        edge = self.interface_area * chip.memory_bandwidth + self.link_area * jnp.asarray(link_rate)
        room = (1.0 - self.other_area) * chip.die_area - self.sram.area(chip.cache_size)
        parts = {
            "sram.reference_energy": (moved, chip.energy_per_flop - bound),
            "sram.reference_latency": (wait, chip.product_latency),
            "sram.leakage_density": (leaks, chip.leakage.power),
            "holding_power": (self.holding_power * chip.memory_capacity, chip.fixed_power),
            "interface_area": (edge, room),
            "link_area": (edge, room),
        }
        fields = [attrgetter(path) for path in parts]
        shrunk = [
            of(self) * jnp.minimum(1.0, self.largest_share * whole / part)
            for of, (part, whole) in zip(fields, parts.values(), strict=True)
        ]
        return eqx.tree_at(lambda tree: [of(tree) for of in fields], self, shrunk)


class Progress(eqx.Module):
    """What improves around a chip while its process does: factors per generation of the process, 1 where nothing does.

    A lane that is faster and takes less for a bit draws `link_rate` times `link_energy` of its power.
    """

    host_power: Real = real("1", 1.0, doc="power of hosts and their fans", within=ABOVE_ZERO)
    link_rate: Real = real("1", 1.0, doc="rate of lanes and of the host's buses", within=ABOVE_ZERO)
    link_energy: Real = real("1", 1.0, doc="energy of a bit in links and switches", within=ABOVE_ZERO)
    latency: Real = real("1", 1.0, doc="of launches, control, collectives and links", within=ABOVE_ZERO)

    def after(self, generations: Numeric) -> dict[str, Values]:
        """Factor of each number of a system that improves, by dotted path."""
        factors = {field.name: getattr(self, field.name) ** generations for field in dataclasses.fields(self)}
        factors["link_power"] = factors["link_rate"] * factors["link_energy"]
        return {path: factors[name] for name, paths in IMPROVED.items() for path in paths.split()}


class DesignedChip(NamedTuple):
    """An accelerator, and what its design changes beside it.

    `lanes` are those within a node over the lanes of the reference, `error_rate` is that of errors by thermal noise at
    the peak rate that make a run go back [1/s], `around` the factors of `Progress` by path.
    """

    accelerator: Accelerator
    lanes: Numeric
    error_rate: Numeric
    around: Mapping[str, Numeric]


class AbstractChipDesign(eqx.Module):
    """How the accelerator of a system comes about."""

    @property
    def parameters_worth(self) -> Numeric:
        """Worth of a parameter in the widest number format of the matrix units, over one in 16 bits [1]."""
        return 1.0

    @abc.abstractmethod
    def build(self, reference: Accelerator, link_rate: Numeric, width: Numeric = 1.0) -> DesignedChip:
        """The accelerator that the design makes of a reference, whose links have a line rate [B/s].

        A node whose links have `width` times the lanes of the reference has them on the dies, too.
        """


class CatalogChip(AbstractChipDesign):
    """The accelerator of the system, as it is."""

    def build(self, reference: Accelerator, link_rate: Numeric, width: Numeric = 1.0) -> DesignedChip:
        """The reference."""
        del link_rate
        return DesignedChip(reference, width, 0.0, {})


class ScaledChip(AbstractChipDesign):
    """An accelerator designed anew: choices relative to the reference accelerator, 1 where they are the same.

    `number_bits` are those of the numbers that the matrix units multiply in place of 16; what is stored stays.
    `error_margin` is ln(1/p) for a bit that thermal noise flips.
    """

    technology: Technology = component()
    cost: SiliconCost = component()
    progress: Progress = component(Progress())
    generations: Real = real("1", 0.0, doc="of the process after that of the reference", within=Range(0.0, 60.0))
    voltage: Real = real("1", 1.0, doc="supply at clock 1", within=Range(0.15, 1.3))
    area: Real = real("1", 1.0, doc="die area", within=Range(0.001, 1000.0))
    registers: Real = real("1", 1.0, doc="size of the registers of a core", within=Range(0.001, 1000.0))
    local_memory: Real = real("1", 1.0, doc="size of the local memory of a core", within=Range(0.001, 1000.0))
    cache: Real = real("1", 1.0, doc="size of the last cache", within=Range(0.001, 1000.0))
    memory_stacks: Real = real("1", 1.0, within=Range(0.001, 1000.0))
    link_lanes: Real = real("1", 1.0, doc="lanes within a node", within=Range(0.001, 1000.0))
    number_bits: Real = real("bit", WIDE, within=Range(2.0, 32.0))
    error_margin: Real = real("1", 100.0, within=Range(math.log(2.0), 10000.0))

    @property
    def parameters_worth(self) -> Numeric:
        """Worth of a parameter in numbers of so many bits, over one in 16 bits [1]."""
        return quantized_parameters(self.number_bits, self.number_bits) / quantized_parameters(WIDE, WIDE)

    def build(self, reference: Accelerator, link_rate: Numeric, width: Numeric = 1.0) -> DesignedChip:
        """The accelerator by the laws of docs/hardware.md, "A chip as a design"."""
        chip, cost, g = reference, self.cost, jnp.asarray(self.generations)
        own = self.technology.of(chip, link_rate)
        temperature = chip.leakage.reference_temperature
        supply = self.voltage * chip.reference_voltage
        transistors = (own.threshold, own.slope_factor, own.saturation, temperature)
        faster = clock_ratio(supply, chip.reference_voltage, *transistors)

        cache, die = self.cache * chip.cache_size, self.area * chip.die_area
        of_cache = own.sram.area(cache) / own.sram_density**g
        bandwidth = chip.memory_bandwidth * self.memory_stacks * own.memory_rate**g
        capacity = chip.memory_capacity * self.memory_stacks * own.memory_size**g
        # Interfaces keep their area while their rate grows with the generations.
        interfaces = own.interface_area * chip.memory_bandwidth * self.memory_stacks
        lanes = self.link_lanes * jnp.asarray(width)
        links = own.link_area * jnp.asarray(link_rate) * lanes
        core = own.core.sized(self.registers, self.local_memory)
        more_cells = core.cells() - own.core.cells()
        more_area = own.sram.area(more_cells)
        compute = self._compute(chip, die, of_cache + interfaces + links)
        today = own.interface_area * chip.memory_bandwidth + own.link_area * jnp.asarray(link_rate)
        all_compute = self._compute(chip, chip.die_area, own.sram.area(chip.cache_size) + today)
        narrow = self.number_bits / WIDE
        cores = jnp.maximum(compute / (all_compute + more_area), LEAST_COMPUTE)
        units = cores * own.logic_density**g
        peak = units * faster
        rate = jnp.asarray(chip.peak_flops) / chip.reference_clock  # grows with the cores, as their memories do
        crowding = (rate, chip.roofline_exponent)
        product_rate = own.core.product_slowdown(*crowding) / core.product_slowdown(*crowding)
        attention_rate = own.core.attention_slowdown(*crowding) / core.attention_slowdown(*crowding)
        efficiency = chip.gemm_efficiency * product_rate

        energy = self._operation_energy(own, chip, cache, supply, core)
        own_leakage = own.sram.leakage(chip.cache_size)
        logic = (die - of_cache - cores * more_area) / (chip.die_area - own.sram.area(chip.cache_size))
        logic = jnp.maximum(logic, LEAST_COMPUTE)
        cells = jnp.maximum(cache + units * more_cells, 0.0)
        leakage = leakage_power(
            (chip.leakage.power - own_leakage) * logic + own.sram.leakage(cells),
            self.voltage,
            temperature,
            chip.leakage.voltage_sensitivity,
            0.0,
            temperature,
        )
        held = own.holding_power * chip.memory_capacity
        per_bit = own.interface_energy**g  # a refresh is an access, too
        fixed = (chip.fixed_power - held) * self.area + own.holding_power * per_bit * capacity
        memory_energy = chip.memory_energy * per_bit
        wide_peak = chip.peak_flops * peak / narrow
        memory = 8.0 * memory_energy * chip.reference_memory_utilization * bandwidth
        busy = energy * efficiency * wide_peak + leakage + fixed + memory
        rated = chip.rated_power * busy / chip.busy_power
        parts = cost.cost(die, capacity, rated, g)
        of_reference = (chip.die_area, chip.memory_capacity)
        price = chip.price * parts / cost.cost(*of_reference, chip.rated_power, 0.0)
        carbon = chip.embodied_carbon + cost.carbon(die, capacity, g) - cost.carbon(*of_reference, 0.0)
        leaking = eqx.tree_at(
            lambda tree: (tree.power, tree.voltage_sensitivity),
            chip.leakage,
            (leakage, chip.leakage.voltage_sensitivity * self.voltage),
        )
        values = {
            "peak_flops": wide_peak,
            "peak_flops_fp8": chip.peak_flops_fp8 * peak,
            "peak_flops_fp4": chip.peak_flops_fp4 * peak,
            "peak_flops_tf32": chip.peak_flops_tf32 * peak,
            "peak_flops_fp32": chip.peak_flops_fp32 * peak,
            "reference_clock": chip.reference_clock * faster,
            "reference_voltage": supply,
            "voltage": chip.voltage.at_supply(self.voltage, faster),
            "leakage": leaking,
            "gemm_efficiency": efficiency,
            "fp8_gemm_efficiency": chip.fp8_gemm_efficiency * product_rate,
            "fp4_gemm_efficiency": chip.fp4_gemm_efficiency * product_rate,
            "attention_efficiency": chip.attention_efficiency * attention_rate,
            "memory_capacity": capacity,
            "memory_bandwidth": bandwidth,
            "memory_energy": memory_energy,
            "cache_size": cache,
            "rated_power": rated,
            "busy_power": busy,
            "fixed_power": fixed,
            "idle_power": chip.idle_power * (leakage + fixed) / (chip.leakage.power + chip.fixed_power),
            "product_latency": chip.product_latency / faster
            + own.sram.latency(cache)
            - own.sram.latency(chip.cache_size)
            + own.sram.latency(core.local_memory)
            - own.sram.latency(own.core.local_memory),
            "die_area": die,
            "heat_capacity": chip.heat_capacity * self.area,
            "thermal_resistance": chip.thermal_resistance / self.area,
            "price": price,
            "embodied_carbon": carbon,
        }
        names = tuple(values)
        built = eqx.tree_at(lambda tree: tuple(getattr(tree, name) for name in names), chip, tuple(values.values()))
        bit_rate = chip.bits_per_flop * narrow * efficiency * wide_peak
        return DesignedChip(
            accelerator=built,
            lanes=lanes,
            error_rate=own.corruption * noise_error_rate(bit_rate, self.error_margin),
            around={} if is_fixed(self.generations, 0.0) else self.progress.after(g),
        )

    def _compute(self, chip: Accelerator, die: Numeric, taken: Numeric) -> Values:
        """Area for arithmetic: what cache, interfaces and the rest leave of the die [m^2]."""
        return jnp.asarray(die) - taken - self.technology.other_area * chip.die_area

    def _operation_energy(
        self, own: Technology, chip: Accelerator, cache: Numeric, supply: Numeric, core: CoreMemory
    ) -> Values:
        """Energy of an operation [J/FLOP], `E = n k T m + l^g (V / V_0)^2 [(E_0 - n k T m_0 - e_0 + d) b^x + e(S)]`.

        Above what n bits with the error margin m need, energy falls with generations g and voltage. Narrow numbers of b
        times the bits save x of it, as fp8 does; d is what registers and local memory take more than those of the
        reference, e(S) the energy of the last cache, which is read less often where local memory is larger.
        """
        temperature = chip.leakage.reference_temperature
        narrow = self.number_bits / WIDE
        exponent = -jnp.log2(jnp.asarray(chip.fp8_energy_ratio))
        bound = reliable_operation_energy(chip.bits_per_flop * narrow, self.error_margin, temperature)
        own_bound = reliable_operation_energy(chip.bits_per_flop, own.error_margin, temperature)
        reads = own.cache_accesses / jnp.sqrt(jnp.asarray(self.local_memory))
        access = reads * own.sram.access_energy(cache)
        own_access = own.cache_accesses * own.sram.access_energy(chip.cache_size)
        arithmetic = chip.energy_per_flop - own_bound - own_access
        arithmetic += core.operation_energy(own.sram) - own.core.operation_energy(own.sram)
        scaled = own.logic_energy ** jnp.asarray(self.generations) * (supply / chip.reference_voltage) ** 2
        return bound + scaled * (arithmetic * narrow**exponent + access * narrow)
