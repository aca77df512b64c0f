"""Rates of products, attention and whole steps, and what saturates them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energymodel.performance import saturation
from energymodel.performance.kernels import (
    alignment,
    alignment_slowdown,
    elementwise_traffic,
    exponential_slowdown,
    forward_attention_time,
    padded_head_size,
    product_time,
    roofline_time,
    token_rate,
    training_edges,
)
from energymodel.performance.saturation import energy_optimal_batch, proportional_split, time_optimal_batch

sizes = st.floats(16.0, 65536.0)


def test_kernels_by_hand():
    # 2 x 4096^3 = 1.374e11 operations and 2 x 4096^2 x 135 = 4.530e9 more, at 0.8 x 1e15 1/s: 177.5 us, and 3 us.
    time = product_time(2 * 4096.0**3, 2 * 4096.0**2, 0.8e15, 135.0, 3e-6)
    assert float(time) == pytest.approx(180.5e-6, rel=1e-3)
    # attention_forward_measured.csv, A100: batch 4, 64 heads of 128, context 16,384 take 117.9 ms.
    operations = 2.0 * 4 * 64 * 16384.0**2 * 128
    result = forward_attention_time(operations, 0.495 * 312e12, 8192.0, 4 * 64 * 16384.0, 262.0, 14587.0)
    assert float(result) == pytest.approx(0.1179, rel=0.02)
    # A head of 3 d_0 / 4: sqrt(1 + 16 / 9) = 5 / 3. Wide heads hide the exponentials; narrow ones wait for them alone.
    assert float(exponential_slowdown(48.0, 64.0)) == pytest.approx(5.0 / 3.0)
    np.testing.assert_allclose(exponential_slowdown(1e6, 64.0), 1.0, rtol=1e-8)
    np.testing.assert_allclose(exponential_slowdown(1e-3, 64.0), 64e3, rtol=1e-8)


@given(m=sizes, n=sizes, k=sizes)
def test_the_rate_rises_with_the_inner_edge_up_to_that_of_large_products(m, n, k):
    def rate(k):
        return float(2 * m * n * k / product_time(2 * m * n * k, 2 * m * n, 1e15, 100.0))

    assert rate(k) < rate(1.1 * k) < 1e15
    np.testing.assert_allclose(rate(1e9), 1e15, rtol=1e-6)
    np.testing.assert_allclose(rate(100.0), 0.5e15, rtol=1e-9)


@given(m=sizes, n=sizes, k=sizes, count=st.floats(1.0, 64.0))
def test_the_edges_of_the_three_passes_are_those_of_three_products(m, n, k, count):
    passes = 2 * (m * n + m * k + count * n * k)
    np.testing.assert_allclose(3.0 * training_edges(m, n, k, count), passes, rtol=1e-12)


@pytest.mark.parametrize(
    ("size", "divisor"), [(4096.0, 64), (1800.0, 8), (108.0, 4), (144.0, 16), (97.0, 1), (7200.0, 32), (1800.5, 64)]
)
def test_alignment_is_the_power_of_two_that_divides(size, divisor):
    assert float(alignment(size)) == divisor
    assert float(jax.jit(alignment)(jnp.asarray(size, jnp.float32))) == divisor


def test_alignment_by_hand():
    # (64 / 8)^0.15 = 2^0.45 = 1.366.
    assert float(alignment_slowdown(1800.0, 14400.0, 0.15)) == pytest.approx(1.366, abs=1e-3)
    assert float(alignment_slowdown(1792.0, 14336.0, 0.15)) == 1.0
    assert float(alignment_slowdown(1800.0, 14400.0, 0.0)) == 1.0
    # 108 = 4 x 27: (64 / 4)^0.25 = 2, times 8; 104 = 8 x 13: (64 / 8)^0.25 = 1.68179.
    assert float(alignment_slowdown(108.0, 2048.0, 0.25, 8.0)) == pytest.approx(16.0)
    assert float(alignment_slowdown(104.0, 2048.0, 0.25, 8.0)) == pytest.approx(1.68179, abs=1e-5)
    slope = jax.grad(lambda n: n * alignment_slowdown(n, 64.0, 0.15))(jnp.asarray(1800.0))
    assert float(slope) == pytest.approx(float(alignment_slowdown(1800.0, 64.0, 0.15)))


@given(keys=st.floats(1.0, 1e6), rows=st.floats(1e3, 1e8), factor=st.floats(1.001, 10.0))
def test_rate_rises_with_keys_and_rows_towards_its_limit(keys, rows, factor):
    def rate(keys, rows):
        return 1.0 / float(forward_attention_time(1.0, 1.0, keys, rows, 600.0, 2e4))

    assert rate(keys, rows) < rate(keys * factor, rows) < 1.0
    assert rate(keys, rows) < rate(keys, rows * factor) < 1.0
    np.testing.assert_allclose(rate(1e12, 1e15), 1.0, rtol=1e-8)


@pytest.mark.parametrize(("half_head", "measured"), [(63.4, 473 / 616), (63.4, 497 / 648), (128.0, 1243 / 1882)])
def test_heads_of_64_against_128(half_head, measured):
    # FlashAttention-3, fig. 5, H100, 16k, causal and not; FlashAttention-4 on GB200, 16k (pull request 2605)
    ratio = float(exponential_slowdown(128.0, half_head) / exponential_slowdown(64.0, half_head))
    assert ratio == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(("size", "padded"), [(128.0, 128.0), (108.0, 112.0), (80.0, 80.0), (100.5, 100.5), (1.0, 8.0)])
def test_whole_head_sizes_are_padded_to_multiples_of_eight(size, padded):
    for dtype in (jnp.float32, jnp.float64):
        assert float(padded_head_size(jnp.asarray(size, dtype))) == padded
    assert float(jax.grad(padded_head_size)(size)) == 1.0


times = st.floats(1e-6, 1e3)
exponents = st.floats(1.0, 64.0)


@given(compute=times, memory=times, communication=times, exponent=exponents)
def test_time_lies_between_perfect_and_no_overlap(compute, memory, communication, exponent):
    time = float(roofline_time(compute, memory, communication, exponent))
    longest, total = max(compute, memory, communication), compute + memory + communication
    assert longest * (1.0 - 1e-12) <= time <= total * (1.0 + 1e-12)
    assert time <= longest * 3.0 ** (1.0 / exponent) * (1.0 + 1e-12)
    np.testing.assert_allclose(roofline_time(compute, memory, communication, 1.0), total, rtol=1e-12)


def test_many_exponents_reach_the_classical_roofline():
    # The largest excess, three equal terms at p = 8, is 14.7 % (docs/physics.md A2.19).
    np.testing.assert_allclose(roofline_time(1.0, 0.6, 0.5, 200.0), 1.0, rtol=1e-6)
    assert roofline_time(1.0, 1.0, 1.0, 8.0) == pytest.approx(1.147, abs=5e-4)
    # docs/physics.md E: at p = 200, with the two largest terms at least 10 % apart, the minimum holds to 1e-6.
    limits = [400e12 / 2.43e12, 3e12 / 1.6e10, 45e9 / 1e8]
    rate = token_rate(400e12, 3e12, 45e9, 2.43e12, 1.6e10, 1e8, 200.0)
    np.testing.assert_allclose(rate, min(limits), rtol=1e-6)


@given(compute=times, memory=times, network=times, exponent=exponents)
def test_rate_is_one_over_the_time_of_a_token(compute, memory, network, exponent):
    rate = token_rate(1e15, 3e12, 5e10, compute * 1e15, memory * 3e12, network * 5e10, exponent)
    np.testing.assert_allclose(rate * roofline_time(compute, memory, network, exponent), 1.0, rtol=1e-9)


@given(tokens=st.floats(1.0, 1e6), hidden=st.floats(1.0, 1e5), tensor=st.floats(1.0, 64.0))
def test_sequence_parallelism_divides_all_of_the_traffic(tokens, hidden, tensor):
    total = elementwise_traffic(tokens, hidden, 1.0, 0.0)
    divided = elementwise_traffic(tokens, hidden, tensor, 1.0)
    np.testing.assert_allclose(divided, total / tensor, rtol=1e-12)
    assert elementwise_traffic(tokens, hidden, tensor, 0.0) >= divided * (1.0 - 1e-12)
    np.testing.assert_allclose(total, 4.0 * 34.0 * tokens * hidden, rtol=1e-12)


@pytest.mark.parametrize("exponent", [1.0, 4.0])
def test_gradients_are_finite_where_a_resource_is_idle(exponent):
    time = jax.jit(jax.grad(partial(roofline_time, exponent=exponent), argnums=(0, 1, 2)))
    assert np.all(np.isfinite(time(jnp.asarray(1.0), jnp.asarray(0.0), jnp.asarray(0.0))))


@given(batch=st.floats(1e3, 1e8), fixed=st.floats(1e-3, 1.0))
def test_the_default_is_a_step_of_fixed_and_proportional_time(batch, fixed):
    token = 1e-6
    throughput = saturation.saturating_throughput(batch, 1 / token, saturation.half_throughput_batch(fixed, token))
    np.testing.assert_allclose(throughput, batch / (fixed + token * batch), rtol=1e-12)


@given(ratio=st.one_of(st.floats(1e-3, 0.9), st.floats(1.1, 1e3)), exponent=st.floats(0.3, 1.0))
def test_a_sharp_bend_is_the_minimum_of_the_source(ratio, exponent):
    sharp = saturation.saturating_throughput(ratio, 1.0, 1.0, exponent, 200.0)
    np.testing.assert_allclose(sharp, min(1.0, ratio) ** exponent, rtol=1e-6)


@given(batch=st.floats(1e-3, 1e3), sharpness=st.floats(1.0, 16.0))
def test_throughput_grows_with_the_batch_below_its_maximum(batch, sharpness):
    here, further = (float(saturation.saturating_throughput(b, 5.0, 1.0, 0.8, sharpness)) for b in (batch, 2 * batch))
    assert here <= further * (1 + 1e-12)
    assert further <= 5.0 * (1 + 1e-12)


def test_saturation_and_traffic_in_their_limits():
    np.testing.assert_allclose(saturation.exponential_saturation(1e3, 0.9, 1.0), 0.9, rtol=1e-12)
    np.testing.assert_allclose(saturation.exponential_saturation(1e-12, 0.9, 1.0), 0.9e-12, rtol=1e-9)
    arguments = (3.5e11, 2e5, 0.02, 1e-6)
    np.testing.assert_allclose(saturation.memory_traffic_rate(0.0, *arguments), 3.5e11 / 0.02, rtol=1e-12)
    np.testing.assert_allclose(saturation.memory_traffic_rate(1e15, *arguments), 2e5 / 1e-6, rtol=1e-5)
    # It falls, because w / t_0 > a / tau.
    assert np.all(np.diff(saturation.memory_traffic_rate(jnp.asarray([1e4, 1e5, 1e6]), *arguments)) < 0)


critical = st.floats(1e5, 1e8)
half = st.floats(1e3, 1e7)


def cost(batch, critical, half, share):
    """Energy to a loss over the ideal; time at a share of 1."""
    return (1 + batch / critical) * (1 + share * half / batch)


@given(critical=critical, half=half, share=st.floats(0.05, 0.95))
def test_slopes_of_energy_and_time_vanish_at_their_optimal_batches(critical, half, share):
    energy, time = energy_optimal_batch(critical, half, share, 1 - share), time_optimal_batch(critical, half)
    assert energy <= time
    slope = jax.grad(lambda batch, share: jnp.log(cost(batch, critical, half, share)))
    np.testing.assert_allclose([slope(energy, share) * energy, slope(time, 1.0) * time], 0.0, atol=1e-12)


def test_least_energy_and_time_in_closed_form():
    # (1 + sqrt(s B_h / B_c))^2 with s B_h / B_c = 0.3 / 16, and (1 + 1/4)^2
    best = energy_optimal_batch(4e6, 2.5e5, 0.3, 0.7)
    np.testing.assert_allclose(cost(best, 4e6, 2.5e5, 0.3), (1 + np.sqrt(0.3 / 16)) ** 2, rtol=1e-12)
    np.testing.assert_allclose(cost(time_optimal_batch(4e6, 2.5e5), 4e6, 2.5e5, 1.0), 1.5625, rtol=1e-12)


throughputs = st.lists(st.floats(0.1, 100.0), min_size=4, max_size=4)


@given(throughputs=throughputs, exponent=st.floats(-2.0, 3.0))
def test_the_parts_are_the_whole(throughputs, exponent):
    parts = proportional_split(7.0, jnp.asarray(throughputs), exponent)
    np.testing.assert_allclose(jnp.sum(parts), 7.0, rtol=1e-12)
    assert np.all(parts > 0)


@given(throughputs=throughputs, exponent=st.floats(-1.0, 3.0))
def test_no_exponent_beats_the_proportional_split(throughputs, exponent):
    s = jnp.asarray(throughputs)
    best = 7.0 / jnp.sum(s)
    np.testing.assert_allclose(proportional_split(7.0, s) / s, best, rtol=1e-12)
    assert jnp.max(proportional_split(7.0, s, exponent) / s) >= best * (1 - 1e-12)


def test_batches_keep_their_shape_and_large_throughputs_stay_finite_in_float32():
    with jax.enable_x64(False):
        s = jnp.asarray([[1e15, 2e15], [3e15, 1e15]], dtype=jnp.float32)
        parts = proportional_split(jnp.asarray([3.0, 4.0]), s, 3.0)
    assert parts.shape == (2, 2)
    # 1 : 8 and 27 : 1
    np.testing.assert_allclose(parts, [[3 / 9, 24 / 9], [108 / 28, 4 / 28]], rtol=1e-5)
