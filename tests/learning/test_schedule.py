from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.test_util import check_grads
from scipy.integrate import quad_vec

from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_ode import integrate_training
from energymodel.learning.schedule import batch_at, quadrature_over_progress, schedule_effective_tokens, schedule_tokens
from energymodel.numerics import as_real
from learning.laws import BERGSMA, KAPLAN, LAW

LEARNING = CriticalBatchLearning(LAW, BERGSMA, as_real(0.0))
# Invented constants: only the algebra is tested.
SIZE, END = 70e9, 1.4e12
KNOTS = np.log([1e6, 3e6, 4e6, 8e6])
tokens_jit = jax.jit(schedule_tokens)
effective_jit = jax.jit(schedule_effective_tokens)


def rates(batch):
    """Time, energy and nothing per token, of a machine with a fixed time per step."""
    return {"time": 1e-9 + 1e-3 / batch, "energy": 6e-3 + 3.0 / batch, "nothing": 0.0 * batch}


def adaptive_quadrature(learning):
    """Totals and tokens over all progress, by scipy, with `x = x_end u^8` [docs/physics.md B1]."""

    @jax.jit
    def density(u):
        batch = batch_at(u**8, KNOTS)
        weight = END * 8 * u**7 * learning.penalty(SIZE, END * u**8, batch)
        return weight * jnp.stack([*rates(batch).values(), jnp.ones_like(batch)])

    kinks = np.linspace(0.0, 1.0, len(KNOTS))[1:-1] ** (1 / 8)
    *totals, tokens = quad_vec(lambda u: np.asarray(density(max(u, 1e-3))), 0.0, 1.0, epsrel=1e-12, points=kinks)[0]
    return dict(zip(rates(1.0), totals, strict=True)), tokens


@given(progress=st.floats(0.0, 1.0))
def test_one_knot_is_a_constant_batch(progress):
    np.testing.assert_allclose(batch_at(progress, np.log([4e6])), 4e6, rtol=1e-12)


@given(progress=st.floats(0.0, 1.0), knots=st.lists(st.floats(10.0, 18.0), min_size=2, max_size=6))
def test_batch_is_log_linear_between_its_knots(progress, knots):
    expected = np.interp(progress, np.linspace(0, 1, len(knots)), knots)
    np.testing.assert_allclose(jnp.log(batch_at(progress, np.asarray(knots))), expected, rtol=1e-12)


@pytest.mark.parametrize("batch", [4e6, 6e7])
def test_one_knot_equals_the_closed_form(batch):
    totals, tokens = quadrature_over_progress(rates, END, np.log([batch]), LEARNING, SIZE)
    closed = LEARNING.tokens(SIZE, LAW.loss(SIZE, END), batch)
    np.testing.assert_allclose(tokens, closed, rtol=1e-9)
    for name, rate in rates(batch).items():
        np.testing.assert_allclose(totals[name], rate * closed, rtol=1e-9)


def test_two_knots_equal_the_same_line_of_three():
    knots = np.linspace(np.log(1e6), np.log(9e6), 3)
    two, three = (quadrature_over_progress(rates, END, line, LEARNING, SIZE) for line in (knots[::2], knots))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-8), two, three)


@pytest.mark.parametrize(
    ("learning", "tolerance"),
    [(LEARNING, 1e-9), (CriticalBatchLearning(LAW, KAPLAN, as_real(0.08)), 1e-6)],
    ids=["power", "kaplan"],
)
def test_quadrature_agrees_with_an_adaptive_one(learning, tolerance):
    summed = quadrature_over_progress(rates, END, KNOTS, learning, SIZE)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=tolerance), summed, adaptive_quadrature(learning))


@pytest.mark.slow
def test_progress_and_time_agree():
    # The same schedule as an initial-value problem in time, from 1e-9 of the run on.
    totals, tokens = quadrature_over_progress(rates, END, KNOTS, LEARNING, SIZE)
    run = integrate_training(
        jnp.asarray([totals["time"]]),
        lambda x: batch_at(x / END, KNOTS),
        lambda batch, x: 1.0 / rates(batch)["time"],
        LEARNING,
        SIZE,
        1e-9 * END,
        lambda time, batch, x: rates(batch)["energy"] / rates(batch)["time"],
    )
    np.testing.assert_allclose(run.effective_tokens[0], END, rtol=1e-6)
    np.testing.assert_allclose(run.tokens[0], tokens, rtol=1e-6)
    np.testing.assert_allclose(run.totals[0], totals["energy"], rtol=1e-6)


@given(knots=st.lists(st.floats(11.0, 18.0), min_size=3, max_size=3), log_tokens=st.floats(25.0, 31.0))
def test_effective_tokens_invert_tokens(knots, log_tokens):
    tokens, knots = jnp.exp(log_tokens), jnp.asarray(knots)
    effective = effective_jit(tokens, knots, LEARNING, SIZE)
    np.testing.assert_allclose(tokens_jit(effective, knots, LEARNING, SIZE), tokens, rtol=1e-9)


def test_warming_up_takes_fewer_tokens():
    # The critical batch grows: large batches belong at the end.
    knots = np.log([1e6, 1e7, 1e8])
    assert tokens_jit(END, knots, LEARNING, SIZE) < tokens_jit(END, knots[::-1].copy(), LEARNING, SIZE)


@given(
    knots=st.lists(st.floats(11.0, 18.0), min_size=3, max_size=3), number=st.integers(0, 2), more=st.floats(0.1, 2.0)
)
def test_larger_batches_take_more_tokens(knots, number, more):
    larger = np.asarray(knots) + more * (np.arange(3) == number)
    assert tokens_jit(END, larger, LEARNING, SIZE) > tokens_jit(END, np.asarray(knots), LEARNING, SIZE)


def test_gradients():
    def totals(log_end, knots, law):
        learning = CriticalBatchLearning(law, BERGSMA, as_real(0.0))
        totals, tokens = quadrature_over_progress(rates, jnp.exp(log_end), knots, learning, SIZE)
        return jnp.log(totals["time"]), jnp.log(totals["energy"]), jnp.log(tokens)

    def inverse(log_tokens, knots):
        return jnp.log(effective_jit(jnp.exp(log_tokens), knots, LEARNING, SIZE))

    knots, law = jnp.asarray(KNOTS), jax.tree.map(jnp.asarray, LAW)
    check_grads(jax.jit(totals), (28.0, knots, law), order=1, eps=1e-4)
    check_grads(inverse, (28.0, knots), order=1, rtol=1e-4)


@pytest.mark.slow
def test_single_precision():
    exact = quadrature_over_progress(rates, END, KNOTS, LEARNING, SIZE)
    with jax.enable_x64(False):
        learning = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), LEARNING)
        knots = jnp.asarray(KNOTS, jnp.float32)
        value = jax.jit(partial(quadrature_over_progress, rates))(END, knots, learning, SIZE)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-5), value, exact)
        slope = jax.grad(lambda k: effective_jit(1.5e12, k, learning, SIZE))(knots)
    assert slope.dtype == jnp.float32
    assert np.all(np.isfinite(slope))
