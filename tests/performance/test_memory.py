"""Memories from registers to the last level: traffic, accesses, energy, sizes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from energymodel.performance import caches
from energymodel.performance.caches import (
    CoreMemory,
    Sram,
    cached_operand_energy,
    optimal_cache_size,
    sram_access_energy,
    sram_area,
    sram_latency,
    sram_leakage,
)
from energymodel.performance.memory_access import (
    DividedAccess,
    MeasuredAccess,
    StatedAccess,
    coalescing_efficiency,
    concurrent_bandwidth,
    line_efficiency,
)

sizes = st.floats(64.0, 1e5)


@given(m=sizes, n=sizes, k=sizes, cache=st.floats(1e3, 1e9))
def test_traffic_lies_between_the_bound_and_the_stated_excess(m, n, k, cache):
    bound = max(float(caches.compulsory_traffic(m, n, k)), float(caches.capacity_traffic(m, n, k, cache)))
    traffic = float(caches.gemm_traffic(m, n, k, cache))
    assert bound <= traffic * (1 + 1e-12)
    assert traffic <= 2**0.25 * bound * (1 + 1e-12)


def test_hierarchy_balances_and_accesses_coalesce():
    rate, bandwidth = 989e12, 3.35e12
    cache = caches.balance_cache_size(rate, bandwidth, 2.0)
    np.testing.assert_allclose(caches.cache_limited_intensity(cache, 2.0), rate / bandwidth, rtol=1e-12)
    np.testing.assert_allclose(coalescing_efficiency(1.0, 2.0, 32.0), 1.0)
    np.testing.assert_allclose(coalescing_efficiency(1e6, 2.0, 32.0), 2 / 32)


@given(run=st.floats(8.0, 1e4), overhead=st.floats(1.0, 1e3), off=st.floats(-2.0, 2.0))
def test_no_line_is_better_than_the_root_of_twice_run_and_overhead(run, overhead, off):
    best = np.sqrt(2.0 * run * overhead)  # docs/physics.md B4
    assert line_efficiency(best * np.exp(off), run, overhead) <= line_efficiency(best, run, overhead) * (1 + 1e-12)


@given(bandwidth=st.floats(1e9, 1e13), flight=st.floats(1e3, 1e8), exponent=st.floats(1.0, 64.0))
def test_bandwidth_is_below_both_limits_by_at_most_the_stated_share(bandwidth, flight, exponent):
    limit = min(bandwidth, flight / 6e-7)
    reached = float(concurrent_bandwidth(bandwidth, flight, 6e-7, exponent))
    assert limit * 2 ** (-1 / exponent) * (1 - 1e-12) <= reached <= limit * (1 + 1e-12)


STREAMS = StatedAccess(
    line_size=64.0,
    run_length=4096.0,
    stride=1.0,
    in_flight=4e6,
    prefetch_coverage=0.0,
    measured_line_size=64.0,
    measured_run_length=4096.0,
    measured_in_flight=4e6,
    overhead=8.0,
    element_size=2.0,
    sector_size=32.0,
    latency=6e-7,
    prefetch_accuracy=0.9,
    prefetch_timeliness=0.9,
)
SUSTAINED = 2.8e12


def access(**changes):
    names = tuple(changes)
    return eqx.tree_at(lambda tree: tuple(getattr(tree, name) for name in names), STREAMS, tuple(changes.values()))


def test_stated_access_by_hand():
    np.testing.assert_allclose([STREAMS.traffic(), STREAMS.bandwidth(SUSTAINED)], [1.0, SUSTAINED], rtol=1e-15)
    assert (MeasuredAccess().traffic(), MeasuredAccess().bandwidth(SUSTAINED)) == (1.0, SUSTAINED)
    strided = access(stride=jnp.asarray(16.0))
    np.testing.assert_allclose([strided.traffic(), strided.bandwidth(SUSTAINED)], [16.0, SUSTAINED / 16.0], rtol=1e-12)
    few_bytes = access(in_flight=jnp.asarray(1e3))
    # (1 + (bw l / N)^4)^(1/4) of the measured streams: bw l = 1.68 MB of 4 MB
    np.testing.assert_allclose(few_bytes.bandwidth(SUSTAINED), 1e3 / 6e-7 * (1.0 + 0.42**4) ** 0.25, rtol=1e-9)
    assert few_bytes.traffic() == 1.0


def test_streams_have_a_best_line_and_prefetches_pay_where_latency_limits():
    line = access(line_size=jnp.asarray(512.0))
    published = line_efficiency(512.0, 4096.0, 8.0) / line_efficiency(64.0, 4096.0, 8.0)
    np.testing.assert_allclose(line.bandwidth(SUSTAINED) / SUSTAINED, published, rtol=1e-12)
    # 1 + 512 / 8192 bytes move per byte used, instead of 1 + 64 / 8192.
    np.testing.assert_allclose(line.traffic(), 1.0625 / 1.0078125, rtol=1e-12)
    slope = jax.grad(lambda size: access(line_size=size).bandwidth(SUSTAINED))(jnp.asarray(256.0))
    np.testing.assert_allclose(slope / SUSTAINED, 0.0, atol=1e-15)  # sqrt(2 x 4096 x 8) = 256

    def gain(in_flight):
        with_some = access(in_flight=jnp.asarray(in_flight), prefetch_coverage=jnp.asarray(0.8))
        return float(with_some.bandwidth(SUSTAINED) / access(in_flight=jnp.asarray(in_flight)).bandwidth(SUSTAINED))

    np.testing.assert_allclose(gain(1e9), 1.0 / (1.0 + 0.8 / 9.0), rtol=1e-9)
    np.testing.assert_allclose(gain(1e3), 1.0 / (0.28 * (1.0 + 0.8 / 9.0)), rtol=1e-9)


def test_shares_of_streams_in_turn_go_as_the_roots_of_their_volumes_and_slow_links_keep_their_rate():
    kernels, sent = 9e9, 4e9 / 3.0  # 4 GB of memory for what is sent: roots 3 and 2

    def time(share):
        divided = DividedAccess(collective_share=share, moved_per_sent=jnp.asarray(3.0))
        return kernels / divided.bandwidth(SUSTAINED) + sent / divided.link_rate(1e20, SUSTAINED)

    slope, curvature = jax.grad(time)(jnp.asarray(0.4)), jax.grad(jax.grad(time))(jnp.asarray(0.4))
    np.testing.assert_allclose(slope / time(0.4), 0.0, atol=1e-12)
    assert curvature > 0.0
    np.testing.assert_allclose(time(0.4), 25e9 / SUSTAINED, rtol=1e-12)
    divided = DividedAccess(collective_share=0.5, moved_per_sent=3.0)
    np.testing.assert_allclose(divided.link_rate(1e9, SUSTAINED), 1e9, rtol=1e-9)
    np.testing.assert_allclose(STREAMS.link_rate(1e9, SUSTAINED), 1e9)


# 8 KB at 45 nm: 10 pJ per 8 B [Horowitz 2014]; the other numbers are round.
MACRO = Sram(
    reference_size=8192,
    reference_energy=1.25e-12,
    reference_latency=1e-9,
    cell_area=0.021e-12,
    array_efficiency=0.5,
    leakage_density=2e-8,
)


@given(dram=st.floats(10.0, 1e3), sram=st.floats(0.1, 10.0), accesses=st.floats(0.01, 1.0), off=st.floats(-2.0, 2.0))
def test_no_cache_is_better_than_the_optimal_one(dram, sram, accesses, off):
    best = optimal_cache_size(dram, sram, 4096.0, accesses)
    least = cached_operand_energy(best, dram, sram, 4096.0, accesses)
    assert cached_operand_energy(best * np.exp(off), dram, sram, 4096.0, accesses) >= least * (1 - 1e-12)


def test_component_agrees_with_the_formulas():
    size = 1e6
    np.testing.assert_allclose(MACRO.access_energy(size), sram_access_energy(size, 1.25e-12, 8192.0), rtol=1e-14)
    np.testing.assert_allclose(MACRO.latency(size), sram_latency(size, 1e-9, 8192.0), rtol=1e-14)
    np.testing.assert_allclose(MACRO.area(size), sram_area(size, 0.021e-12, 0.5), rtol=1e-14)
    np.testing.assert_allclose(MACRO.leakage(size), sram_leakage(size, 2e-8), rtol=1e-14)


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


def test_products_and_attention_take_what_their_levels_are_used():
    # Tiles of 256 x 256 results: 128 FLOP/B, of 132 x 128 B a quarter. 341.67 x 341.67 operands: 170.8 of 5,120 B.
    in_core, shared = 4096.0 / 128.0 / 128.0, RATE / (np.sqrt(116736.0) / 2.0) / 5120.0
    np.testing.assert_allclose(CORE.product_slowdown(RATE, 1.0), 1.0 + in_core + shared, rtol=1e-12)
    np.testing.assert_allclose(CORE.product_slowdown(RATE, 400.0), 1.0, rtol=1e-6)
    # docs/physics.md B4: (1 + 0.25^4 + 0.618^4)^(1/4)
    np.testing.assert_allclose(CORE.product_slowdown(RATE, 4.0), 1.0355, rtol=1e-4)
    # 65,536 / (2 x 128 x 2) = 128 FLOP/B within a core, 116,736 / 512 = 228 between cores.
    used = 4096.0 / 128.0 / 128.0 + RATE / 228.0 / 5120.0
    np.testing.assert_allclose(CORE.attention_slowdown(RATE, 1.0), 1.0 + used, rtol=1e-12)
    large = CORE.sized(1e9, 1e9)
    np.testing.assert_allclose(large.product_slowdown(RATE, 1.0), 1.0, atol=1e-4)
    np.testing.assert_allclose(large.attention_slowdown(RATE, 1.0), 1.0, atol=1e-8)


def test_energy_is_that_of_registers_and_local_memory_and_lowest_in_the_closed_form():
    # 0.25 B of registers in banks of 16 KiB, sqrt(2) x 0.125 pJ/B; 2 B / 256 of local memory, sqrt(28.5) x 0.125 pJ/B
    by_hand = 0.25 * np.sqrt(2.0) * 1.25e-13 + 2.0 / 256.0 * np.sqrt(28.5) * 1.25e-13
    np.testing.assert_allclose(CORE.operation_energy(SRAM), by_hand, rtol=1e-12)
    np.testing.assert_allclose(by_hand, 0.049e-12, rtol=0.01)
    best = CORE.best_registers(SRAM) / CORE.registers
    slope = jax.grad(lambda factor: CORE.sized(factor, 1.0).operation_energy(SRAM))(best)
    np.testing.assert_allclose(slope * best / CORE.operation_energy(SRAM), 0.0, atol=1e-12)
