"""Loss laws: limits, inverses, information, the shape of a model."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from energymodel.learning.loss_law import (
    UNREACHABLE_TOKENS,
    chinchilla_loss,
    chinchilla_tokens,
    information_absorbed,
    shape_penalty,
    tokens_for_gap,
    unique_equivalent_tokens,
)
from learning.laws import LAW

sizes, data = st.floats(1e8, 1e12), st.floats(1e9, 1e14)


@given(parameters=sizes, tokens=data)
def test_tokens_invert_the_loss(parameters, tokens):
    np.testing.assert_allclose(
        chinchilla_tokens(parameters, chinchilla_loss(parameters, tokens, LAW), LAW), tokens, 1e-9
    )


@given(parameters=sizes, tokens=data, factor=st.floats(1.01, 10.0))
def test_loss_falls_with_size_and_data(parameters, tokens, factor):
    assert chinchilla_loss(parameters * factor, tokens, LAW) < chinchilla_loss(parameters, tokens, LAW)
    assert chinchilla_loss(parameters, tokens * factor, LAW) < chinchilla_loss(parameters, tokens, LAW)


def test_loss_out_of_reach_is_huge_finite_continuous_and_points_back():
    # The floor of this size is 1.8987: below it the answer grows on, continuously, with a finite slope.
    losses = jnp.asarray([1.91, 1.8988, 1.8987, 1.85, 1.0, 0.0])
    tokens = chinchilla_tokens(70e9, losses, LAW)
    slopes = jax.vmap(jax.grad(lambda loss: jnp.log(chinchilla_tokens(70e9, loss, LAW))))(losses)
    assert np.all(np.isfinite(tokens))
    assert np.all(np.diff(tokens) > 0)
    assert np.all(np.isfinite(slopes))
    assert np.all(slopes < 0)
    assert tokens[-1] < 1e3 * UNREACHABLE_TOKENS
    smallest = 2085.43 * UNREACHABLE_TOKENS**-0.3658
    gaps = jnp.asarray([smallest * (1 + 1e-9), smallest * (1 - 1e-9)])
    np.testing.assert_allclose(tokens_for_gap(gaps, 2085.43, 0.3658), UNREACHABLE_TOKENS, rtol=1e-7)


def test_fresh_data_count_in_full_and_repeated_data_saturate():
    np.testing.assert_allclose(unique_equivalent_tokens(0.4e12, 1e12, 15.4), 0.4e12, rtol=1e-14)
    np.testing.assert_allclose(unique_equivalent_tokens(1e12, 1e12, 15.4), 1e12, rtol=1e-14)
    np.testing.assert_allclose(unique_equivalent_tokens(1e18, 1e12, 15.4), 16.4e12, rtol=1e-12)
    slopes = [jax.grad(lambda e: unique_equivalent_tokens(e, 1.0, 15.4))(e) for e in (0.999999, 1.000001)]
    np.testing.assert_allclose(slopes, 1.0, atol=1e-6)


def test_single_precision():
    with jax.enable_x64(False):
        law = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), LAW)
        tokens, slope = jax.value_and_grad(lambda loss: law.effective_tokens(7e10, loss))(1.0)
        assert np.isfinite(tokens)
        assert np.isfinite(slope)
        assert np.isfinite(6 * 405e9 * tokens)
        np.testing.assert_allclose(law.loss(7e10, 1.4e12), 1.97388, atol=2e-6)


B, BETA = 2085.43, 0.3658  # Besiroglu et al. 2024, docs/physics.md B1


def test_absorbed_information_and_shape_of_a_model():
    # int_0^D (L(x) - L(D)) dx / ln 2 by quadrature in x = D u^4, which takes the singularity away.
    tokens = 1.4e12
    nodes, weights = np.polynomial.legendre.leggauss(64)
    u, w = 0.5 * (1 + nodes), 0.5 * weights
    excess = B * ((tokens * u**4) ** -BETA - tokens**-BETA)
    total = np.sum(w * excess * 4 * u**3) * tokens / np.log(2)
    np.testing.assert_allclose(information_absorbed(tokens, B, BETA), total, rtol=1e-6)
    assert shape_penalty(8000.0, 80.0, 100.0, 0.005) == 0.0
    assert jax.grad(shape_penalty)(8000.0, 80.0, 100.0, 0.005) == 0.0
    wide, deep = shape_penalty(16000.0, 80.0, 100.0, 0.005), shape_penalty(8000.0, 160.0, 100.0, 0.005)
    np.testing.assert_allclose(wide, deep, rtol=1e-12)
