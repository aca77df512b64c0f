import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.learning.three_term import (
    ThreeTermLaw,
    at_optimal_batch,
    batch_term,
    three_term_loss,
    three_term_optimal_batch,
)
from energymodel.numerics import as_real

# Invented, of the size of a real fit: only the algebra is tested.
LAW = ThreeTermLaw(*map(as_real, (1.8, 482.0, 0.35, 10.0, 0.5, 3.0, 0.25)))
few = settings(max_examples=20, deadline=None)


@few
@given(log_tokens=st.floats(20.0, 30.0))
def test_optimal_batch_is_stationary_and_gives_the_chinchilla_form(log_tokens):
    tokens = jnp.exp(log_tokens)
    best = three_term_optimal_batch(tokens, LAW)

    def loss_at(log_batch):
        return three_term_loss(7e10, tokens / jnp.exp(log_batch), jnp.exp(log_batch), LAW)

    np.testing.assert_allclose(jax.grad(loss_at)(jnp.log(best)), 0.0, atol=1e-10)
    np.testing.assert_allclose(loss_at(jnp.log(best)), at_optimal_batch(LAW).loss(7e10, tokens), rtol=1e-12)


@few
@given(batch=st.floats(1e3, 1e8), factor=st.floats(1.1, 10.0))
def test_loss_falls_with_steps_down_to_the_batch_floor(batch, factor):
    assert three_term_loss(7e10, 1e5 * factor, batch, LAW) < three_term_loss(7e10, 1e5, batch, LAW)
    floor = 1.8 + 482.0 * 7e10**-0.35 + batch_term(batch, LAW)
    np.testing.assert_allclose(three_term_loss(7e10, 1e60, batch, LAW), floor, rtol=1e-12)
