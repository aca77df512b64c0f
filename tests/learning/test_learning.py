import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from energymodel.learning.learning import AbstractLearning, CriticalBatchLearning
from energymodel.numerics import as_real
from learning.laws import BERGSMA, KAPLAN, LAW

LEARNINGS: list[AbstractLearning] = [
    CriticalBatchLearning(LAW, BERGSMA, as_real(0.0)),
    CriticalBatchLearning(LAW, BERGSMA, as_real(0.08)),
    CriticalBatchLearning(LAW, KAPLAN, as_real(0.0)),
]
PLAIN = LEARNINGS[0]
run_jit = jax.jit(lambda learning, n, d, b: learning.run(n, d, b))
each = pytest.mark.parametrize("learning", LEARNINGS, ids=["bergsma", "absorbed", "kaplan"])


def test_runs_of_docs_and_no_waste_at_a_vanishing_batch():
    # docs/physics.md B1: D_eff = 1.4e12 at B = 4e6 takes 1.542e12 tokens; L(70e9, 1.4e12) = 1.97388 (A0.10)
    loss, effective = PLAIN.run(70e9, 1.542e12, 4e6)
    np.testing.assert_allclose(effective, 1.4e12, rtol=3e-4)
    np.testing.assert_allclose(loss, 1.97388, atol=1e-5)
    for learning in (LEARNINGS[0], LEARNINGS[2]):
        np.testing.assert_allclose(run_jit(learning, 7e10, 1e12, 0.0)[1], 1e12, rtol=1e-12)
        np.testing.assert_allclose(learning.penalty(7e10, 1e12, 0.0), 1.0, rtol=1e-14)
    np.testing.assert_allclose(run_jit(LEARNINGS[1], 7e10, 1e12, 0.0)[1], 1.08e12, rtol=1e-12)


@each
@settings(max_examples=10, deadline=None)
@given(log_tokens=st.floats(24.0, 31.0), log_steps=st.floats(9.0, 16.0))
def test_tokens_invert_run(learning, log_tokens, log_steps):
    tokens, batch = jnp.exp(log_tokens), jnp.exp(log_tokens - log_steps)
    loss, effective = run_jit(learning, 7e10, tokens, batch)
    np.testing.assert_allclose(learning.tokens(7e10, loss, batch), tokens, rtol=1e-8)
    np.testing.assert_allclose(learning.loss(7e10, effective), loss, rtol=1e-12)


@pytest.mark.parametrize("learning", LEARNINGS[:2])
def test_penalty_is_the_slope_of_tokens_at_constant_batch(learning):
    effective, batch = 1.4e12, 4e7
    law_tokens = jax.grad(lambda x: learning.tokens(7e10, learning.loss(7e10, x), batch))(effective)
    np.testing.assert_allclose(learning.penalty(7e10, effective, batch), law_tokens, rtol=1e-9)


def test_kaplan_penalty_is_close_to_the_slope():
    # The class says how close: 7 % of the excess here.
    learning = LEARNINGS[2]
    slope = jax.grad(lambda x: learning.tokens(7e10, learning.loss(7e10, x), 4e6))(1.4e12)
    excess = learning.penalty(7e10, 1.4e12, 4e6) - 1.0
    np.testing.assert_allclose(slope - 1.0, excess * (1 - 0.0275 / 1.974 / 0.21), rtol=1e-3)


@each
def test_effective_tokens_invert_the_loss(learning):
    np.testing.assert_allclose(learning.effective_tokens(7e10, learning.loss(7e10, 1.4e12)), 1.4e12, rtol=1e-9)


@each
def test_run_broadcasts(learning):
    tokens, batch = jnp.asarray([[1e11], [1e12]]), jnp.asarray([1e5, 1e6, 1e7])
    loss, effective = learning.run(7e10, tokens, batch)
    assert loss.shape == effective.shape == (2, 3)
    np.testing.assert_allclose(effective[1, 2], learning.run(7e10, 1e12, 1e7)[1], rtol=1e-12)


@each
def test_gradients(learning):
    live = jax.tree.map(jnp.asarray, learning)

    def run(learning, n, d, b):
        loss, effective = run_jit(learning, jnp.exp(n), jnp.exp(d), jnp.exp(b))
        return loss, jnp.log(effective)

    def inverse(learning, n, loss, b):
        return jnp.log(learning.tokens(jnp.exp(n), loss, jnp.exp(b)))

    def penalty(n, x, b):
        return jnp.log(learning.penalty(jnp.exp(n), jnp.exp(x), jnp.exp(b)))

    check_grads(jax.jit(run), (live, 25.0, 28.0, 15.0), order=1, eps=1e-6, rtol=1e-4)
    check_grads(jax.jit(inverse), (live, 25.0, 2.2, 15.0), order=1, eps=1e-6, rtol=1e-4)
    check_grads(jax.jit(penalty), (25.0, 27.0, 15.0), order=1, rtol=1e-4)


def test_second_derivative_of_the_implicit_root():
    # docs/physics.md B1: D = x + (B/c) x^(1 - xi), so dx/dB = -x^(1-xi) / (c D'(x)); differentiate once more by hand.
    batch, tokens, c, xi = 4e7, 1.5e12, 2048 * 0.0471, 0.462

    def effective(batch):
        return run_jit(PLAIN, 7e10, tokens, batch)[1]

    def slope_by_hand(batch, x):
        return -(x ** (1 - xi)) / c / (1 + batch / c * (1 - xi) * x**-xi)

    x, slope = effective(batch), jax.grad(effective)(batch)
    np.testing.assert_allclose(slope, slope_by_hand(batch, x), rtol=1e-9)
    by_batch, by_x = jax.grad(slope_by_hand, argnums=(0, 1))(batch, x)
    np.testing.assert_allclose(jax.grad(jax.grad(effective))(batch), by_batch + by_x * slope, rtol=1e-6)


@each
def test_single_precision(learning):
    loss, effective = learning.run(7e10, 1.5e12, 4e6)
    with jax.enable_x64(False):
        low = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), learning)
        low_loss, low_effective = run_jit(low, 7e10, 1.5e12, 4e6)
        gradient = jax.grad(lambda b: run_jit(low, 7e10, 1.5e12, b)[0])(4e6)
    assert low_loss.dtype == jnp.float32
    assert np.isfinite(gradient)
    np.testing.assert_allclose(low_loss, loss, rtol=2e-6)
    np.testing.assert_allclose(low_effective, effective, rtol=2e-5)
