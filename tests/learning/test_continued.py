"""The rest of a run from any moment on, at any batch and law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import energymodel as em
from energymodel.learning.data_set import ContinuedLearning
from energymodel.learning.learning import AbstractLearning, CriticalBatchLearning
from energymodel.learning.schedule import schedule_tokens
from energymodel.numerics import as_real
from energymodel.system.training_system import parameters_in_loss
from learning.laws import BERGSMA, KAPLAN, LAW
from outcomes import outcome_of

WHOLES: list[AbstractLearning] = [
    CriticalBatchLearning(LAW, BERGSMA, as_real(0.08)),
    CriticalBatchLearning(LAW, KAPLAN, as_real(0.0)),
]
each = pytest.mark.parametrize("total", WHOLES, ids=["bergsma", "kaplan"])
SIZE, LLAMA = 7e10, "llama-3.1-405b-h100"


def after(total, tokens, batch):
    return ContinuedLearning(total, total.run(SIZE, tokens, batch)[1])


@pytest.mark.slow
@each
@settings(max_examples=8, deadline=None)
@given(share=st.floats(0.02, 0.98), log_batch=st.floats(13.0, 16.5))
def test_both_parts_make_the_whole(total, share, log_batch):
    """At the same batch the rest takes the tokens that are left, and ends at the same loss."""
    tokens, batch = 1.4e12, float(np.exp(log_batch))
    rest = after(total, share * tokens, batch)
    loss, effective = total.run(SIZE, tokens, batch)
    loss_of_rest, effective_of_rest = rest.run(SIZE, (1.0 - share) * tokens, batch)
    np.testing.assert_allclose(loss_of_rest, loss, rtol=1e-9)
    np.testing.assert_allclose(rest.done + effective_of_rest, effective, rtol=1e-7)
    np.testing.assert_allclose(rest.tokens(SIZE, loss, batch), (1.0 - share) * tokens, rtol=1e-6)
    np.testing.assert_allclose(rest.loss(SIZE, effective_of_rest), loss, rtol=1e-9)
    np.testing.assert_allclose(rest.effective_tokens(SIZE, loss), effective_of_rest, rtol=1e-6)


def test_rest_at_another_batch_is_the_schedule_that_changes_there():
    """Half of the progress at one batch, half at another: closed form of both parts against the quadrature."""
    total, small, large = WHOLES[0], 2e6, 8e6
    rest = after(total, 7e11, small)
    done = float(rest.done)
    tokens = rest.tokens(SIZE, total.loss(SIZE, 2.0 * done), large)
    # The quadrature of the second half: all of it at the large batch, less its first half.
    knots = jnp.log(jnp.asarray([large]))
    first, both = (schedule_tokens(end, knots, total, SIZE) for end in (done, 2.0 * done))
    np.testing.assert_allclose(tokens, both - first, rtol=1e-6)


@each
def test_penalty_and_information_go_on(total):
    rest = after(total, 5e11, 4e6)
    np.testing.assert_allclose(rest.penalty(SIZE, 1e11, 4e6), total.penalty(SIZE, rest.done + 1e11, 4e6))
    np.testing.assert_allclose(rest.information(1e11), total.information(rest.done + 1e11))


@each
def test_loss_reached_already_costs_next_to_nothing(total):
    rest = after(total, 5e11, 4e6)
    reached = float(total.loss(SIZE, 0.5 * rest.done))
    assert 0.0 < float(rest.tokens(SIZE, reached, 4e6)) < 1e4
    assert 0.0 < float(rest.effective_tokens(SIZE, reached)) < 1e4


@pytest.mark.slow
@each
def test_gradients(total):
    rest = after(total, 5e11, 4e6)
    # In steps of a thousandth of a nat: tokens are a steep power of what is left of the loss.
    check_grads(lambda shift: jnp.log(rest.tokens(SIZE, 2.0 + 1e-3 * shift, 4e6)), (0.0,), order=1)
    check_grads(lambda scale: rest.run(SIZE, 5e11 * scale, 4e6)[0], (1.0,), order=1)


@each
def test_a_run_that_begins_has_nothing_before_it(total):
    begun = ContinuedLearning(total, 0.0)
    loss, effective = begun.run(SIZE, 1e12, 4e6)
    np.testing.assert_allclose((loss, effective), total.run(SIZE, 1e12, 4e6), rtol=1e-12)
    np.testing.assert_allclose(begun.tokens(SIZE, loss, 4e6), 1e12, rtol=1e-9)
    gradient = jax.grad(lambda done: ContinuedLearning(total, done).tokens(SIZE, loss, 4e6))(0.0)
    assert np.isfinite(gradient)


def test_tokens_seen_continue_a_scenario():
    """The rest of a run has the loss of the whole; its batch wastes what a late one wastes."""
    law = "system.learning.critical_batch=bergsma-2025"
    scenario, total = em.load_scenario(LLAMA, [law]), outcome_of(LLAMA, law)
    done = 7e12
    before = float(
        scenario.system.learning.tokens_to(parameters_in_loss(scenario.system), done, float(scenario.plan.batch[0]))
    )
    changes = [law, f"system.tokens_seen={done!r} token", f"plan.goal.tokens={15.6e12 - before!r} token"]
    result = outcome_of(LLAMA, *changes)
    by_loss = outcome_of(LLAMA, *changes[:2], f"plan.goal.loss={float(total.loss)!r} nat/token")
    np.testing.assert_allclose(result.loss, total.loss, rtol=1e-9)
    np.testing.assert_allclose(by_loss.tokens, result.tokens, rtol=1e-6)
    np.testing.assert_allclose(result.energy.total / total.energy.total, result.tokens / total.tokens, rtol=1e-9)
    np.testing.assert_allclose(result.information, total.information, rtol=1e-9)
    along = outcome_of(LLAMA, *changes, "plan.batch=[16 Mi tokens, 16 Mi tokens]")
    np.testing.assert_allclose(along.loss, result.loss, rtol=1e-8)


def test_tokens_seen_that_leave_nothing_to_learn_are_refused():
    changes = ["system.tokens_seen=15.6 T tokens", "plan.goal.loss=2.0 nat/token"]
    with pytest.raises(em.InputError, match=r"plan\.goal\.loss: 2 nat/token is reached already: after 15.6 T tokens"):
        em.load_scenario(LLAMA, changes)
    with pytest.raises(em.InputError, match=r'system\.tokens_seen: "-1 token" is negative'):
        em.load_scenario(LLAMA, ["system.tokens_seen=-1 token"])
