import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.performance.products import alignment, alignment_slowdown, product_time, training_edges

few = settings(max_examples=25, deadline=None)
sizes = st.floats(16.0, 65536.0)


def test_product_by_hand():
    # 2 x 4096^3 = 1.374e11 operations and 2 x 4096^2 x 135 = 4.530e9 more, at 0.8 x 1e15 1/s: 177.5 us, and 3 us.
    time = product_time(2 * 4096.0**3, 2 * 4096.0**2, 0.8e15, 135.0, 3e-6)
    assert float(time) == pytest.approx(180.5e-6, rel=1e-3)


@few
@given(m=sizes, n=sizes, k=sizes)
def test_the_rate_rises_with_the_inner_edge_up_to_that_of_large_products(m, n, k):
    def rate(k):
        return float(2 * m * n * k / product_time(2 * m * n * k, 2 * m * n, 1e15, 100.0))

    assert rate(k) < rate(1.1 * k) < 1e15
    np.testing.assert_allclose(rate(1e9), 1e15, rtol=1e-6)
    np.testing.assert_allclose(rate(100.0), 0.5e15, rtol=1e-9)


@few
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


def test_the_worse_edge_slows_a_product():
    # (64 / 8)^0.15 = 2^0.45 = 1.366.
    assert float(alignment_slowdown(1800.0, 14400.0, 0.15)) == pytest.approx(1.366, abs=1e-3)
    assert float(alignment_slowdown(1792.0, 14336.0, 0.15)) == 1.0
    assert float(alignment_slowdown(1800.0, 14400.0, 0.0)) == 1.0


def test_rows_that_are_no_multiples_of_16_bytes_take_another_factor():
    # 108 = 4 x 27: (64 / 4)^0.25 = 2, times 8; 104 = 8 x 13: (64 / 8)^0.25 = 1.68179.
    assert float(alignment_slowdown(108.0, 2048.0, 0.25, 8.0)) == pytest.approx(16.0)
    assert float(alignment_slowdown(104.0, 2048.0, 0.25, 8.0)) == pytest.approx(1.68179, abs=1e-5)


def test_a_slope_holds_the_alignment():
    slope = jax.grad(lambda n: n * alignment_slowdown(n, 64.0, 0.15))(jnp.asarray(1800.0))
    assert float(slope) == pytest.approx(float(alignment_slowdown(1800.0, 64.0, 0.15)))
