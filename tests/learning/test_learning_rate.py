import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.learning.learning_rate import (
    adam_learning_rate,
    averaging_timescale,
    mismatch_loss,
    optimal_timescale,
    sgd_learning_rate,
    undecayed_tokens,
    weight_decay_for_timescale,
)
from gradients import check_grads


def test_sgd_is_linear_in_small_and_saturates_in_large_batches():
    np.testing.assert_allclose(sgd_learning_rate(1e-8, 3.0, 1.0), 3e-8, rtol=1e-7)
    np.testing.assert_allclose(sgd_learning_rate(1e12, 3.0, 1.0), 3.0, rtol=1e-11)


@settings(max_examples=20, deadline=None)
@given(log_ratio=st.floats(0.05, 8.0))
def test_adam_surges_at_the_noise_scale(log_ratio):
    above, below = adam_learning_rate(jnp.exp(jnp.asarray([log_ratio, -log_ratio])), 3.0, 1.0)
    np.testing.assert_allclose(above, below, rtol=1e-12)
    assert above < 3.0 == adam_learning_rate(1.0, 3.0, 1.0)


def test_right_learning_rate_costs_nothing():
    assert mismatch_loss(3e-4, 3e-4, 0.02) == 0.0
    assert jax.grad(mismatch_loss)(3e-4, 3e-4, 0.02) == 0.0
    np.testing.assert_allclose(mismatch_loss(6e-4, 3e-4, 0.02), mismatch_loss(1.5e-4, 3e-4, 0.02), rtol=1e-12)


def test_weight_decay_keeps_its_timescale():
    decay = weight_decay_for_timescale(4e6, 3e-4, 0.05, 1e12)
    np.testing.assert_allclose(averaging_timescale(4e6, 3e-4, decay, 1e12), 0.05, rtol=1e-14)
    assert optimal_timescale(40.0, 1.0, -0.5) < optimal_timescale(20.0, 1.0, -0.5)


def test_decay_bonus_arrives_in_the_decay_phase():
    progress = jnp.asarray([0.0, 0.8, 0.9, 1.0])
    np.testing.assert_allclose(
        undecayed_tokens(1e12, progress, 0.2, 0.85), [0.85e12, 0.85e12, 0.925e12, 1e12], rtol=1e-12
    )


def test_gradients():
    check_grads(sgd_learning_rate, (2.0, 3.0, 1.5), order=1)
    check_grads(adam_learning_rate, (2.0, 3.0, 1.5), order=1)
    check_grads(mismatch_loss, (2.0, 3.0, 0.02), order=1)
    check_grads(averaging_timescale, (2.0, 3.0, 1.5, 1.2), order=1)
    check_grads(weight_decay_for_timescale, (2.0, 3.0, 1.5, 1.2), order=1)
    check_grads(optimal_timescale, (20.0, 1.1, -0.5), order=1)
    for progress in (0.5, 0.9):
        check_grads(lambda x, p, d, r: undecayed_tokens(x, p, d, r), (1.0, progress, 0.2, 0.85), order=1)
