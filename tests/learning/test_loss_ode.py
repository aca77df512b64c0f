import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_ode import integrate, integrate_training, loss_rate
from energymodel.numerics import as_real
from gradients import check_grads
from learning.laws import BERGSMA, LAW

LEARNING = CriticalBatchLearning(LAW, BERGSMA, as_real(0.0))
SIZE, RATE, END = 70e9, 1e9, 1.4e12


def test_loss_and_effective_tokens_agree_with_the_closed_form():
    # T12, docs/physics.md A0.10: from 1e9 to 1.4e12 tokens at vanishing batch, L = 1.97388.
    start = LAW.loss(SIZE, 1e9)

    def derivative(time, fall):
        return loss_rate(start + fall, SIZE, RATE, 0.0, 1e7, LAW)

    fall = integrate(derivative, jnp.asarray(1.0), jnp.asarray([(END - 1e9) / RATE]))
    np.testing.assert_allclose(start + fall[0], 1.97388, atol=5e-6)
    np.testing.assert_allclose(start + fall[0], LAW.loss(SIZE, END), rtol=1e-6)
    # The same by the implemented state; the loss is a readout.
    run = integrate_training(jnp.asarray([700.0, 1399.0]), lambda x: 1e-9, lambda b, x: RATE, LEARNING, SIZE, 1e9)
    np.testing.assert_allclose(run.loss[-1], 1.97388, atol=5e-6)
    np.testing.assert_allclose(run.effective_tokens, [0.701e12, END], rtol=1e-9)
    np.testing.assert_allclose(run.tokens, [0.7e12, 1.399e12], rtol=1e-9)


@pytest.mark.parametrize("batch", [4e6, 6e7])
def test_constant_batch_agrees_with_the_closed_form(batch):
    # D(x) - D(x_0) = tokens processed, at three times, and energy at constant power.
    times = jnp.asarray([300.0, 800.0, 1500.0])
    run = integrate_training(
        times, lambda x: batch, lambda b, x: RATE, LEARNING, SIZE, 1e9, lambda time, b, x: {"energy": 5e6, "none": 0.0}
    )
    passed = LEARNING.tokens(SIZE, run.loss, batch) - LEARNING.tokens(SIZE, LAW.loss(SIZE, 1e9), batch)
    np.testing.assert_allclose(passed, RATE * times, rtol=1e-8)
    np.testing.assert_allclose(run.tokens, RATE * times, rtol=1e-9)
    np.testing.assert_allclose(run.totals["energy"], 5e6 * times, rtol=1e-9)
    np.testing.assert_allclose(run.totals["none"], 0.0)


def test_prices_of_the_hour_agree_with_their_closed_form():
    # A price that rises linearly, at constant power: the mean price counts.
    def money(time, batch, x):
        return 2e6 * (1.0 + time / 1000.0)

    run = integrate_training(jnp.asarray([1000.0]), lambda x: 4e6, lambda b, x: RATE, LEARNING, SIZE, 1e9, money)
    np.testing.assert_allclose(run.totals[0], 3e9, rtol=1e-9)


def test_adaptive_batch_saves_the_predicted_steps():
    # T12, docs/physics.md A0.12: at equal token overhead the excess steps fall by .909766 (xi = .462).
    fixed, start = 1e6, 1.4
    xi, c = 0.462, 2048 * 0.0471 / (1 - 0.462)
    mean_inverse_root = END ** (1 - xi / 2) / (1 - xi / 2) / c**0.5
    mean_inverse = END ** (1 - xi) / (1 - xi) / c
    tokens = END + fixed**0.5 * mean_inverse_root  # int (1 + sqrt(B_h/B_n)) dx

    def batch(x):
        return jnp.sqrt(fixed * BERGSMA.instantaneous(x, 2.0))

    def steps_rate(time, batch, x):
        return RATE / batch

    run = integrate_training(jnp.asarray([tokens / RATE]), batch, lambda b, x: RATE, LEARNING, SIZE, start, steps_rate)
    np.testing.assert_allclose(run.effective_tokens[-1], END, rtol=1e-8)
    overhead = tokens - END
    constant = overhead / mean_inverse  # batch of the same overhead
    ratio = (run.totals[-1] - mean_inverse) / (END / constant)
    np.testing.assert_allclose(ratio, 0.909766, atol=1e-5)
    np.testing.assert_allclose(ratio, (1 - xi) / (1 - xi / 2) ** 2, rtol=1e-5)


def test_loss_does_not_fall_below_its_floor_and_unfinished_integration_is_infinite():
    floor = LAW.loss(SIZE, 1e60)
    for loss in (floor, floor - 0.1):
        assert loss_rate(loss, SIZE, RATE, 1e6, 1e7, LAW) == 0.0
        assert np.isfinite(jax.grad(loss_rate)(loss, SIZE, RATE, 1e6, 1e7, LAW))
    assert loss_rate(floor + 0.1, SIZE, RATE, 1e6, 1e7, LAW) < 0
    # Blows up at t = 1: y' = (1 + y)^2.
    assert np.all(np.isinf(integrate(lambda t, y: (1.0 + y) ** 2, jnp.asarray(1.0), jnp.asarray([2.0]))))


@pytest.mark.slow
def test_gradients_of_a_run():
    def final(log_batch, log_rate, law):
        learning = CriticalBatchLearning(law, BERGSMA, as_real(0.0))
        run = integrate_training(
            jnp.asarray([1500.0]),
            lambda x: jnp.exp(log_batch),
            lambda b, x: jnp.exp(log_rate) * b / (b + 1e6),
            learning,
            SIZE,
            1e9,
        )
        return run.loss[0]

    law = jax.tree.map(jnp.asarray, LAW)
    check_grads(jax.jit(final), (15.2, 20.7, law), order=1, loops=True, modes=("fwd", "rev"), eps=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_single_precision():
    with jax.enable_x64(False):
        learning = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), LEARNING)
        run = integrate_training(jnp.asarray([1500.0]), lambda x: 4e6, lambda b, x: RATE, learning, SIZE, 1e9)
    assert run.loss.dtype == jnp.float32
    exact = LEARNING.run(SIZE, 1.5e12 + float(LEARNING.tokens(SIZE, LAW.loss(SIZE, 1e9), 4e6)), 4e6)[0]
    np.testing.assert_allclose(run.loss[0], exact, rtol=1e-5)
