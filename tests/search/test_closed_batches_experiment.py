"""Are the closed forms of experiment 08 optima, and do they agree with each other?"""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment import Experiment
from gradients import check_grads

FORMS = Experiment("08_batch_tradeoff").module("closed_forms")
adaptive_batch, constant_batch = FORMS.adaptive_batch, FORMS.constant_batch
adaptive_batch_cost, constant_batch_cost = FORMS.adaptive_batch_cost, FORMS.constant_batch_cost

few = settings(max_examples=20, deadline=None)
batches = st.floats(1e4, 1e9)


@few
@given(critical=batches, fixed=batches, ratio=st.floats(0.1, 1.0))
def test_adaptive_batch_is_the_pointwise_minimum(critical, fixed, ratio):
    def cost(log_batch):
        batch = jnp.exp(log_batch)
        return (1.0 + batch / critical) * (1.0 + ratio * fixed / batch)

    best = jnp.log(adaptive_batch(critical, fixed, ratio))
    np.testing.assert_allclose(jax.grad(cost)(best) / cost(best), 0.0, atol=1e-12)
    np.testing.assert_allclose(cost(best), constant_batch_cost(critical, ratio * fixed), rtol=1e-12)


@few
@given(critical=batches, fixed=batches, exponent=st.floats(0.01, 0.8))
def test_adapting_never_costs_more(critical, fixed, exponent):
    adaptive = adaptive_batch_cost(critical, fixed, exponent)
    assert 1.0 < adaptive <= constant_batch_cost(critical, fixed)


def test_nothing_to_gain_when_the_critical_batch_stands_still():
    np.testing.assert_allclose(adaptive_batch_cost(4e7, 1e6, 0.0), constant_batch_cost(4e7, 1e6), rtol=1e-14)
    assert constant_batch(4e7, 1e6, 0.3) == adaptive_batch(4e7, 1e6, 0.3)


def test_adaptive_cost_is_the_mean_over_the_run():
    # <(1 + sqrt(B_h/B_n))^2> over x in (0, 1), B_n = c x^xi with run level c (1 - xi), in x = u^4.
    critical, fixed, xi = 3.94e7, 1e6, 0.462
    nodes, weights = np.polynomial.legendre.leggauss(64)
    u, w = 0.5 * (1 + nodes), 0.5 * weights
    local = critical / (1 - xi) * (u**4) ** xi
    mean = np.sum(w * 4 * u**3 * (1 + np.sqrt(fixed / local)) ** 2)
    np.testing.assert_allclose(adaptive_batch_cost(critical, fixed, xi), mean, rtol=1e-6)


@few
@given(first=batches, critical=batches, fixed=batches, share=st.floats(0.05, 1.0))
def test_break_even_batch_costs_the_same(first, critical, fixed, share):
    def cost(batch):
        return (1 + batch / critical) * (1 + share * fixed / batch)

    second = FORMS.break_even_batch(first, critical, fixed, share)
    np.testing.assert_allclose(cost(second), cost(first), rtol=1e-12)
    best = constant_batch(critical, fixed, share)
    np.testing.assert_allclose(FORMS.break_even_batch(best, critical, fixed, share), best, rtol=1e-12)


@few
@given(critical=batches, fixed=batches, share=st.floats(0.05, 0.95), hardware=st.floats(1e-6, 1e-2))
def test_cost_optimal_batch_lies_between_those_of_energy_and_time(critical, fixed, share, hardware):
    cost = FORMS.cost_optimal_batch(critical, fixed, 1e3 * share, 1e3 * (1 - share), hardware, 2.2e-8)
    assert constant_batch(critical, fixed, share) <= cost * (1 + 1e-12)
    assert cost <= constant_batch(critical, fixed, 1.0) * (1 + 1e-12)


def test_gradients():
    check_grads(adaptive_batch_cost, (4.0, 2.0, 0.46), order=1)
    check_grads(constant_batch_cost, (4.0, 2.0), order=1)
