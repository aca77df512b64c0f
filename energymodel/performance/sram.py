"""Energy, latency, area and leakage of on-chip memory, and the best size of a cache."""

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, real
from energymodel.ranges import ABOVE_ZERO, SHARE_ABOVE_ZERO, Range

BITS_PER_BYTE = 8.0


def sram_access_energy(size: Numeric, reference_energy: Numeric, reference_size: Numeric) -> Values:
    """Energy per access, `e = e_0 sqrt(S / S_0)` [Horowitz 2014, fig. 1.1.9; Muralimanohar et al. 2009 (CACTI 6.0)].

    Wires dominate, and their length grows with the square root of the area. Within 13 % of Horowitz' 45 nm table (8 KB,
    32 KB, 1 MB: 10, 20, 100 pJ per 64 bit).

    **Arguments:**

    - `size`: capacity S [B], positive.
    - `reference_energy`: e_0 [J], per access of any fixed width.
    - `reference_size`: S_0 [B].

    **Returns:** energy per access [J].
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

    - `size`: capacity S [B].
    - `cell_area`: a, area of a bit cell [m^2]; 0.021 µm² in a 5 nm process (docs/physics.md B4).
    - `array_efficiency`: eta, share of the area that is cells [1]; about one half.
    """
    return BITS_PER_BYTE * jnp.asarray(size) * cell_area / array_efficiency


def sram_leakage(size: Numeric, leakage_density: Numeric) -> Values:
    """Leakage power [W], `P = p S` [definition].

    **Arguments:**

    - `size`: capacity S [B].
    - `leakage_density`: p [W/B], at the temperature and voltage of interest.
    """
    return jnp.asarray(size) * leakage_density


def cached_operand_energy(
    cache: Numeric, dram_energy: Numeric, sram_energy: Numeric, reference_cache: Numeric, accesses: Numeric
) -> Values:
    """Operand energy per multiply-add, `e = 2 e_D / sqrt(S) + c e_0 sqrt(S / S_0)` [derivation: Hong-Kung plus wires].

    The first term is the DRAM traffic of a large matrix product [Hong & Kung 1981], the second the cache's own energy;
    a larger cache lowers the first and raises the second.

    **Arguments:**

    - `cache`: capacity S [element], positive.
    - `dram_energy`: e_D [J/element].
    - `sram_energy`: e_0 of a cache of the reference capacity [J/element].
    - `reference_cache`: S_0 [element].
    - `accesses`: c, cache accesses per multiply-add [1].

    **Returns:** energy per multiply-add [J].
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
