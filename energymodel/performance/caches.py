"""Memory on a chip: traffic of matrix products by cache, energy, latency, area, and the memories of cores.

Sizes are counted in elements [element] where a product of given shape moves the same number of elements in every
precision; the element size turns them into bytes. Each level (registers, local memory, last cache) bounds the traffic
to the next one by its own capacity. A core is a multiprocessor or compute unit: matrix units, registers that hold the
tile of the result, and a local memory (shared memory, L1) that holds the operands of a block of tiles.

Shared arguments: `rows`, `columns`, `inner` are m, n, k of the product (m x k)(k x n) [1]; `cache` is the capacity S
[element]; `element_size` is w [B/element]; `size` is the capacity S of a memory [B], positive.
"""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, p_norm, real
from energymodel.performance.kernels import roofline_time
from energymodel.ranges import ABOVE_ZERO, FACTOR, SHARE_ABOVE_ZERO, Range

BITS_PER_BYTE = 8.0
OPERAND = 2.0  # bytes of a number in 16 bits
RESULT = 4.0  # bytes of a result, which accumulates in 32 bits
FLOP_PER_PRODUCT = 2.0  # a multiply-add
WIDE_HEAD = 128.0  # for which the rate of attention is stated


def compulsory_traffic(rows: Numeric, columns: Numeric, inner: Numeric) -> Values:
    """Every element moves at least once, `Q_0 = m k + k n + m n` [derivation: two factors read, one product written].


    **Returns:** traffic [element]. A lower bound for any cache.
    """
    m, n, k = map(jnp.asarray, (rows, columns, inner))
    return m * k + k * n + m * n


def capacity_traffic(rows: Numeric, columns: Numeric, inner: Numeric, cache: Numeric) -> Values:
    """Traffic forced by a finite cache [element], `Q_S = 2 m n k / sqrt(S)` [Hong & Kung 1981].

    The constant 2 is tight for large products, reached by square tiles of side `sqrt(S)` [Kwasniewski et al. 2019].
    """
    m, n, k, S = map(jnp.asarray, (rows, columns, inner, cache))
    return 2.0 * m * n * (k / jnp.sqrt(S))


def gemm_traffic(rows: Numeric, columns: Numeric, inner: Numeric, cache: Numeric, exponent: Numeric = 4.0) -> Values:
    """Traffic of a matrix product, `Q = (Q_0^p + Q_S^p)^(1/p)` [Hong & Kung 1981; p-norm: docs/physics.md B4].

    The bound itself is `max(Q_0, Q_S)`. The p-norm joins the two regimes and exceeds it by at most `2^(1/p) - 1` (19 %
    at p = 4), where they meet.

    **Arguments:**

    - `exponent`: p [1], at least 1; p -> infinity is the maximum.

    **Returns:** traffic to the next level [element]. Decreasing in `cache`, at least the compulsory traffic.
    """
    return p_norm(exponent, compulsory_traffic(rows, columns, inner), capacity_traffic(rows, columns, inner, cache))


def cache_limited_intensity(cache: Numeric, element_size: Numeric) -> Values:
    """Highest arithmetic intensity that a cache permits [FLOP/B], `I = sqrt(S) / w` [Hong & Kung 1981].

    `2 m n k` FLOP over `w 2 m n k / sqrt(S)` B, for products much larger than the cache.
    """
    return jnp.sqrt(jnp.asarray(cache)) / element_size


def attention_limited_intensity(cache: Numeric, head_size: Numeric, element_size: Numeric) -> Values:
    """Arithmetic intensity of fused attention with a cache, `I = S / (2 d w)` [Dao et al. 2022, alg. 1, thm. 2].

    A block of `S / (4 d)` queries stays while all n keys and values pass by: `8 n^2 d^2 / S` elements for `4 n^2 d`
    FLOP forward.

    **Arguments:**

    - `head_size`: d [1].

    **Returns:** arithmetic intensity [FLOP/B], in proportion to the cache.
    """
    return jnp.asarray(cache) / (2.0 * jnp.asarray(head_size) * element_size)


def balance_cache_size(compute_rate: Numeric, bandwidth: Numeric, element_size: Numeric) -> Values:
    """Cache at which arithmetic and memory take equally long [element], `S = (F w / bw)^2` [Kung 1986].

    A smaller cache leaves large products memory-bound. Twice the arithmetic at the same bandwidth needs four times the
    cache.

    **Arguments:**

    - `compute_rate`: F [FLOP/s].
    - `bandwidth`: bw to the next level [B/s].
    """
    return (jnp.asarray(compute_rate) / bandwidth * element_size) ** 2


def sram_access_energy(size: Numeric, reference_energy: Numeric, reference_size: Numeric) -> Values:
    """Energy per access [J], `e = e_0 sqrt(S / S_0)` [Horowitz 2014, fig. 1.1.9; Muralimanohar et al. 2009, CACTI 6.0].

    Wires dominate, and their length grows with the square root of the area. Within 13 % of Horowitz' 45 nm table (8 KB,
    32 KB, 1 MB: 10, 20, 100 pJ per 64 bit).

    **Arguments:**

    - `reference_energy`: e_0 [J], per access of any fixed width.
    - `reference_size`: S_0 [B].
    """
    return jnp.asarray(reference_energy) * jnp.sqrt(jnp.asarray(size) / reference_size)


def sram_latency(size: Numeric, reference_latency: Numeric, reference_size: Numeric) -> Values:
    """Access latency [s], `l = l_0 sqrt(S / S_0)` [Muralimanohar et al. 2009 (CACTI 6.0)].

    Repeated wires: delay proportional to length, length to the square root of the area.

    **Arguments:**

    - `reference_latency`: l_0 [s].
    - the others: as in `sram_access_energy`.
    """
    return sram_access_energy(size, reference_latency, reference_size)  # the same scaling with wire length


def sram_area(size: Numeric, cell_area: Numeric, array_efficiency: Numeric) -> Values:
    """Silicon area [m^2], `A = 8 S a / eta` [definition].

    **Arguments:**

    - `cell_area`: a, area of a bit cell [m^2]; 0.021 µm² in a 5 nm process (docs/physics.md B4).
    - `array_efficiency`: eta, share of the area that is cells [1]; about one half.
    """
    return BITS_PER_BYTE * jnp.asarray(size) * cell_area / array_efficiency


def sram_leakage(size: Numeric, leakage_density: Numeric) -> Values:
    """Leakage power [W], `P = p S` [definition].

    **Arguments:**

    - `leakage_density`: p [W/B], at the temperature and voltage of interest.
    """
    return jnp.asarray(size) * leakage_density


def cached_operand_energy(
    cache: Numeric, dram_energy: Numeric, sram_energy: Numeric, reference_cache: Numeric, accesses: Numeric
) -> Values:
    """Operand energy of a multiply-add [J], `e = 2 e_D / sqrt(S) + c e_0 sqrt(S / S_0)` [derivation: Hong-Kung, wires].

    The first term is the DRAM traffic of a large matrix product [Hong & Kung 1981], the second the cache's own energy;
    a larger cache lowers the first and raises the second.

    **Arguments:**

    - `dram_energy`: e_D [J/element].
    - `sram_energy`: e_0 of a cache of the reference capacity [J/element].
    - `reference_cache`: S_0 [element].
    - `accesses`: c, cache accesses per multiply-add [1].
    """
    own = sram_access_energy(cache, accesses * jnp.asarray(sram_energy), reference_cache)
    return 2.0 * jnp.asarray(dram_energy) / jnp.sqrt(jnp.asarray(cache)) + own


def optimal_cache_size(
    dram_energy: Numeric, sram_energy: Numeric, reference_cache: Numeric, accesses: Numeric
) -> Values:
    """Energy-optimal cache size [element], `S* = 2 e_D sqrt(S_0) / (c e_0)`.

    There both terms of `cached_operand_energy` are equal [derivation: zero slope].

    Arguments as in `cached_operand_energy`.
    """
    saved = 2.0 * jnp.asarray(dram_energy) * jnp.sqrt(jnp.asarray(reference_cache))
    return saved / (jnp.asarray(accesses) * sram_energy)


class Sram(eqx.Module):
    """On-chip memory of a process node, scaled from a reference macro (see the functions of this file)."""

    reference_size: Real = real("B", within=ABOVE_ZERO)
    reference_energy: Real = real("J/B")
    reference_latency: Real = real("s")
    cell_area: Real = real("m^2", within=Range(1e-18, 1e-9))
    array_efficiency: Real = real("1", within=SHARE_ABOVE_ZERO)
    leakage_density: Real = real("W/B")

    def access_energy(self, size: Numeric) -> Values:
        """Energy per byte accessed [J/B]."""
        return sram_access_energy(size, self.reference_energy, self.reference_size)

    def latency(self, size: Numeric) -> Values:
        """Access latency [s]."""
        return sram_latency(size, self.reference_latency, self.reference_size)

    def area(self, size: Numeric) -> Values:
        """Silicon area [m^2]."""
        return sram_area(size, self.cell_area, self.array_efficiency)

    def leakage(self, size: Numeric) -> Values:
        """Leakage power [W]."""
        return sram_leakage(size, self.leakage_density)


class CoreMemory(eqx.Module):
    """Memories in the cores of a chip."""

    cores: Real = real("1", integer=True)
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
