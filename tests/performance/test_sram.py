import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.sram import (
    Sram,
    cached_operand_energy,
    optimal_cache_size,
    sram_access_energy,
    sram_area,
    sram_latency,
    sram_leakage,
)

# 8 KB at 45 nm: 10 pJ per 8 B [Horowitz 2014]; the other numbers are round.
MACRO = Sram(
    reference_size=8192,
    reference_energy=1.25e-12,
    reference_latency=1e-9,
    cell_area=0.021e-12,
    array_efficiency=0.5,
    leakage_density=2e-8,
)


@settings(max_examples=25, deadline=None)
@given(dram=st.floats(10.0, 1e3), sram=st.floats(0.1, 10.0), accesses=st.floats(0.01, 1.0), off=st.floats(-2.0, 2.0))
def test_no_cache_is_better_than_the_optimal_one(dram, sram, accesses, off):
    best = optimal_cache_size(dram, sram, 4096.0, accesses)
    least = cached_operand_energy(best, dram, sram, 4096.0, accesses)
    assert cached_operand_energy(best * np.exp(off), dram, sram, 4096.0, accesses) >= least * (1 - 1e-12)


def test_the_slope_vanishes_at_the_optimal_size():
    best = optimal_cache_size(100.0, 1.0, 4096.0, 0.1)
    slope = jax.grad(lambda s: cached_operand_energy(jnp.exp(s), 100.0, 1.0, 4096.0, 0.1))(jnp.log(best))
    np.testing.assert_allclose(slope, 0.0, atol=1e-14)


def test_four_times_the_size_doubles_energy_and_latency_and_quadruples_area_and_leakage():
    small, large = 1e5, 4e5
    for function, factor in ((MACRO.access_energy, 2), (MACRO.latency, 2), (MACRO.area, 4), (MACRO.leakage, 4)):
        np.testing.assert_allclose(function(large), factor * function(small), rtol=1e-14)


def test_component_agrees_with_the_formulas():
    size = 1e6
    np.testing.assert_allclose(MACRO.access_energy(size), sram_access_energy(size, 1.25e-12, 8192.0), rtol=1e-14)
    np.testing.assert_allclose(MACRO.latency(size), sram_latency(size, 1e-9, 8192.0), rtol=1e-14)
    np.testing.assert_allclose(MACRO.area(size), sram_area(size, 0.021e-12, 0.5), rtol=1e-14)
    np.testing.assert_allclose(MACRO.leakage(size), sram_leakage(size, 2e-8), rtol=1e-14)
