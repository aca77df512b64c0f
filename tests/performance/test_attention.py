import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.attention import exponential_slowdown, forward_attention_time, padded_head_size

few = settings(max_examples=25, deadline=None)


def test_forward_time_of_a_measured_kernel():
    # attention_forward_measured.csv, A100: batch 4, 64 heads of 128, context 16,384 take 117.9 ms.
    operations = 2.0 * 4 * 64 * 16384.0**2 * 128
    found = forward_attention_time(operations, 0.495 * 312e12, 8192.0, 4 * 64 * 16384.0, 262.0, 14587.0)
    assert float(found) == pytest.approx(0.1179, rel=0.02)


@few
@given(keys=st.floats(1.0, 1e6), rows=st.floats(1e3, 1e8), factor=st.floats(1.001, 10.0))
def test_rate_rises_with_keys_and_rows_towards_its_limit(keys, rows, factor):
    def rate(keys, rows):
        return 1.0 / float(forward_attention_time(1.0, 1.0, keys, rows, 600.0, 2e4))

    assert rate(keys, rows) < rate(keys * factor, rows) < 1.0
    assert rate(keys, rows) < rate(keys, rows * factor) < 1.0
    np.testing.assert_allclose(rate(1e12, 1e15), 1.0, rtol=1e-8)


def test_exponentials_by_hand():
    # A head of 3 d_0 / 4: sqrt(1 + 16 / 9) = 5 / 3. Wide heads hide the exponentials; narrow ones wait for them alone.
    assert float(exponential_slowdown(48.0, 64.0)) == pytest.approx(5.0 / 3.0)
    np.testing.assert_allclose(exponential_slowdown(1e6, 64.0), 1.0, rtol=1e-8)
    np.testing.assert_allclose(exponential_slowdown(1e-3, 64.0), 64e3, rtol=1e-8)


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
