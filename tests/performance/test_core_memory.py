"""Do registers and local memory of cores slow products and attention, and take energy, as by hand?"""

import jax
import numpy as np

from energymodel.performance.core_memory import CoreMemory
from energymodel.performance.sram import Sram

KB = 1024.0
CORE = CoreMemory(
    cores=132.0,
    registers=256.0 * KB,
    local_memory=228.0 * KB,
    local_width=128.0,
    shared_width=5120.0,
    register_accesses=0.25,
    register_banks=16.0,
    register_area=3.0,
)
SRAM = Sram(
    reference_size=8192.0,
    reference_energy=1.25e-13,
    reference_latency=1e-9,
    cell_area=2.1e-14,
    array_efficiency=0.42,
    leakage_density=2e-8,
)
RATE = 4096.0 * 132.0  # FLOP of an H100 in a cycle


def test_products_take_what_their_levels_are_used():
    # Tiles of 256 x 256 results: 128 FLOP/B, of 132 x 128 B a quarter. 341.67 x 341.67 operands: 170.8 of 5,120 B.
    in_core, shared = 4096.0 / 128.0 / 128.0, RATE / (np.sqrt(116736.0) / 2.0) / 5120.0
    np.testing.assert_allclose(CORE.product_slowdown(RATE, 1.0), 1.0 + in_core + shared, rtol=1e-12)
    np.testing.assert_allclose(CORE.product_slowdown(RATE, 400.0), 1.0, rtol=1e-6)
    # docs/physics.md B4: (1 + 0.25^4 + 0.618^4)^(1/4)
    np.testing.assert_allclose(CORE.product_slowdown(RATE, 4.0), 1.0355, rtol=1e-4)


def test_attention_takes_what_its_levels_are_used():
    # 65,536 / (2 x 128 x 2) = 128 FLOP/B within a core, 116,736 / 512 = 228 between cores.
    used = 4096.0 / 128.0 / 128.0 + RATE / 228.0 / 5120.0
    np.testing.assert_allclose(CORE.attention_slowdown(RATE, 1.0), 1.0 + used, rtol=1e-12)


def test_large_memories_leave_the_arithmetic_alone():
    large = CORE.sized(1e9, 1e9)
    np.testing.assert_allclose(large.product_slowdown(RATE, 1.0), 1.0, atol=1e-4)
    np.testing.assert_allclose(large.attention_slowdown(RATE, 1.0), 1.0, atol=1e-8)


def test_energy_is_that_of_registers_and_local_memory():
    # 0.25 B of registers in banks of 16 KiB, sqrt(2) x 0.125 pJ/B; 2 B / 256 of local memory, sqrt(28.5) x 0.125 pJ/B
    by_hand = 0.25 * np.sqrt(2.0) * 1.25e-13 + 2.0 / 256.0 * np.sqrt(28.5) * 1.25e-13
    np.testing.assert_allclose(CORE.operation_energy(SRAM), by_hand, rtol=1e-12)
    np.testing.assert_allclose(by_hand, 0.049e-12, rtol=0.01)


def test_the_closed_form_has_the_lowest_energy():
    best = CORE.best_registers(SRAM) / CORE.registers
    slope = jax.grad(lambda factor: CORE.sized(factor, 1.0).operation_energy(SRAM))(best)
    np.testing.assert_allclose(slope * best / CORE.operation_energy(SRAM), 0.0, atol=1e-12)


def test_cells_are_those_of_all_cores():
    np.testing.assert_allclose(CORE.cells(), 132.0 * (3.0 * 256.0 + 228.0) * KB, rtol=1e-15)
