import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.memory_access import (
    DividedAccess,
    MeasuredAccess,
    StatedAccess,
    coalescing_efficiency,
    concurrent_bandwidth,
    line_efficiency,
    prefetch_latency,
    prefetch_traffic,
)

few = settings(max_examples=25, deadline=None)


@few
@given(run=st.floats(8.0, 1e4), overhead=st.floats(1.0, 1e3), off=st.floats(-2.0, 2.0))
def test_no_line_is_better_than_the_root_of_twice_run_and_overhead(run, overhead, off):
    best = np.sqrt(2.0 * run * overhead)  # docs/physics.md B4
    assert line_efficiency(best * np.exp(off), run, overhead) <= line_efficiency(best, run, overhead) * (1 + 1e-12)


def test_long_runs_in_long_lines_are_fully_efficient():
    np.testing.assert_allclose(line_efficiency(1e6, 1e12, 1.0), 1.0, rtol=2e-6)


def test_adjacent_elements_coalesce_fully_and_far_ones_use_one_sector_each():
    np.testing.assert_allclose(coalescing_efficiency(1.0, 2.0, 32.0), 1.0)
    np.testing.assert_allclose(coalescing_efficiency(1e6, 2.0, 32.0), 2 / 32)


def test_no_prefetching_changes_nothing():
    np.testing.assert_allclose(prefetch_latency(6e-7, 0.0, 0.9), 6e-7)
    np.testing.assert_allclose(prefetch_traffic(0.0, 0.5), 1.0)


def test_perfect_prefetching_hides_the_latency_without_traffic():
    np.testing.assert_allclose(prefetch_latency(6e-7, 1.0, 1.0), 0.0, atol=1e-20)
    np.testing.assert_allclose(prefetch_traffic(1.0, 1.0), 1.0)


@few
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
    return eqx.tree_at(lambda one: tuple(getattr(one, name) for name in names), STREAMS, tuple(changes.values()))


def test_the_measured_pattern_changes_nothing():
    np.testing.assert_allclose([STREAMS.traffic(), STREAMS.bandwidth(SUSTAINED)], [1.0, SUSTAINED], rtol=1e-15)
    assert (MeasuredAccess().traffic(), MeasuredAccess().bandwidth(SUSTAINED)) == (1.0, SUSTAINED)


def test_lines_act_as_their_efficiency_says_and_the_best_one_has_256_bytes():
    line = access(line_size=jnp.asarray(512.0))
    stated = line_efficiency(512.0, 4096.0, 8.0) / line_efficiency(64.0, 4096.0, 8.0)
    np.testing.assert_allclose(line.bandwidth(SUSTAINED) / SUSTAINED, stated, rtol=1e-12)
    # 1 + 512 / 8192 bytes move per byte used, instead of 1 + 64 / 8192.
    np.testing.assert_allclose(line.traffic(), 1.0625 / 1.0078125, rtol=1e-12)
    slope = jax.grad(lambda size: access(line_size=size).bandwidth(SUSTAINED))(jnp.asarray(256.0))
    np.testing.assert_allclose(slope / SUSTAINED, 0.0, atol=1e-15)  # sqrt(2 x 4096 x 8) = 256


def test_far_elements_fetch_a_sector_each():
    strided = access(stride=jnp.asarray(16.0))
    np.testing.assert_allclose([strided.traffic(), strided.bandwidth(SUSTAINED)], [16.0, SUSTAINED / 16.0], rtol=1e-12)


def test_few_bytes_in_flight_leave_the_law_of_little():
    few_bytes = access(in_flight=jnp.asarray(1e3))
    # (1 + (bw l / N)^4)^(1/4) of the measured streams: bw l = 1.68 MB of 4 MB
    np.testing.assert_allclose(few_bytes.bandwidth(SUSTAINED), 1e3 / 6e-7 * (1.0 + 0.42**4) ** 0.25, rtol=1e-9)
    assert few_bytes.traffic() == 1.0


def test_prefetches_pay_where_latency_limits_and_cost_where_the_bus_does():
    def gain(in_flight):
        with_some = access(in_flight=jnp.asarray(in_flight), prefetch_coverage=jnp.asarray(0.8))
        return float(with_some.bandwidth(SUSTAINED) / access(in_flight=jnp.asarray(in_flight)).bandwidth(SUSTAINED))

    np.testing.assert_allclose(gain(1e9), 1.0 / (1.0 + 0.8 / 9.0), rtol=1e-9)
    np.testing.assert_allclose(gain(1e3), 1.0 / (0.28 * (1.0 + 0.8 / 9.0)), rtol=1e-9)


def test_shares_of_streams_in_turn_go_as_the_roots_of_their_volumes():
    kernels, sent = 9e9, 4e9 / 3.0  # 4 GB of memory for what is sent: roots 3 and 2

    def time(share):
        divided = DividedAccess(collective_share=share, moved_per_sent=jnp.asarray(3.0))
        return kernels / divided.bandwidth(SUSTAINED) + sent / divided.link_rate(1e20, SUSTAINED)

    slope, curvature = jax.grad(time)(jnp.asarray(0.4)), jax.grad(jax.grad(time))(jnp.asarray(0.4))
    np.testing.assert_allclose(slope / time(0.4), 0.0, atol=1e-12)
    assert curvature > 0.0
    np.testing.assert_allclose(time(0.4), 25e9 / SUSTAINED, rtol=1e-12)


def test_links_that_are_slow_keep_their_rate():
    divided = DividedAccess(collective_share=0.5, moved_per_sent=3.0)
    np.testing.assert_allclose(divided.link_rate(1e9, SUSTAINED), 1e9, rtol=1e-9)
    np.testing.assert_allclose(STREAMS.link_rate(1e9, SUSTAINED), 1e9)
