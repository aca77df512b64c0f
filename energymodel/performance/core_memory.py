"""Registers and local memory in the cores of a chip: rates, energy and area.

A core is a multiprocessor or compute unit: matrix units, registers that hold the tile of the result, and a local memory
(shared memory, L1) that holds the operands of a block of tiles. Products and attention move through both; how much
follows from their sizes as the traffic of memory follows from the last cache (docs/physics.md B4).
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.performance.hierarchy import attention_limited_intensity, cache_limited_intensity
from energymodel.performance.roofline import roofline_time
from energymodel.performance.sram import Sram, cached_operand_energy, optimal_cache_size
from energymodel.ranges import ABOVE_ZERO, FACTOR

OPERAND = 2.0  # bytes of a number in 16 bits
RESULT = 4.0  # bytes of a result, which accumulates in 32 bits
FLOP_PER_PRODUCT = 2.0  # a multiply-add
WIDE_HEAD = 128.0  # for which the rate of attention is stated


class CoreMemory(eqx.Module):
    """Memories in the cores of a chip."""

    cores: Real = real("1")
    registers: Real = real("B", doc="of a core", within=ABOVE_ZERO)
    local_memory: Real = real("B", doc="of a core", within=ABOVE_ZERO)
    local_width: Real = real("B", doc="from local memory to registers of a core in a cycle", within=ABOVE_ZERO)
    shared_width: Real = real(
        "B", doc="from the cache behind all cores to their local memories in a cycle", within=ABOVE_ZERO
    )
    register_accesses: Real = real("B/FLOP", doc="read from and written to registers per operation")
    register_banks: Real = real(
        "1", doc="equal parts of a core's registers, of which an access opens one", within=ABOVE_ZERO
    )
    register_area: Real = real("1", doc="area of a byte in registers over one in a cache", within=FACTOR)

    def sized(self, registers: Numeric, local_memory: Numeric) -> "CoreMemory":
        """The same with so many times the registers and the local memory."""
        sizes = (self.registers * jnp.asarray(registers), self.local_memory * jnp.asarray(local_memory))
        return eqx.tree_at(lambda tree: (tree.registers, tree.local_memory), self, sizes)

    def product_slowdown(self, rate: Numeric, exponent: Numeric) -> Values:
        """Time of large products over that of their arithmetic, `(1 + u_r^p + u_l^p)^(1/p)` [1], at least 1.

        A level with room for S elements is used a share `u = R w / (b sqrt(S))` of the time, R the operations [FLOP] of
        the chip in a cycle, b the bytes behind it in a cycle [Hong & Kung 1981; Williams et al. 2009].
        """
        held = self.registers / RESULT
        in_core = jnp.asarray(rate) / cache_limited_intensity(held, OPERAND) / (self.cores * self.local_width)
        shared = rate / cache_limited_intensity(self.local_memory / OPERAND, OPERAND) / self.shared_width
        return roofline_time(jnp.asarray(1.0), in_core, shared, exponent)

    def attention_slowdown(self, rate: Numeric, exponent: Numeric) -> Values:
        """The same of fused attention with wide heads of size d, `u = 2 R w d / (b S)` [1] [Dao et al. 2022]."""
        held = self.registers / RESULT
        in_core = jnp.asarray(rate) / attention_limited_intensity(held, WIDE_HEAD, OPERAND)
        shared = rate / attention_limited_intensity(self.local_memory / OPERAND, WIDE_HEAD, OPERAND)
        in_core = in_core / (self.cores * self.local_width)
        return roofline_time(jnp.asarray(1.0), in_core, shared / self.shared_width, exponent)

    def operation_energy(self, sram: Sram) -> Values:
        """Energy of an operation in registers and local memory [J/FLOP], see `cached_operand_energy`."""
        held = self.registers / RESULT
        moved = cached_operand_energy(held, *self._energies(sram), held, FLOP_PER_PRODUCT * self.register_accesses)
        return moved / FLOP_PER_PRODUCT

    def best_registers(self, sram: Sram) -> Values:
        """Registers of a core with the lowest `operation_energy` [B], see `optimal_cache_size`."""
        accesses = FLOP_PER_PRODUCT * self.register_accesses
        return RESULT * optimal_cache_size(*self._energies(sram), self.registers / RESULT, accesses)

    def _energies(self, sram: Sram) -> tuple[Values, Values]:
        """Of an operand from local memory [J], and of a byte in registers [J/B]."""
        return OPERAND * sram.access_energy(self.local_memory), sram.access_energy(self.registers / self.register_banks)

    def cells(self) -> Values:
        """Cache with the area and the leakage of the memories of all cores [B]."""
        return jnp.asarray(self.cores) * (self.register_area * self.registers + self.local_memory)
