import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from energymodel.learning.break_even import (
    break_even_batch,
    break_even_power,
    break_even_throughput,
    energy_ratio,
    time_ratio,
    token_ratio,
)
from energymodel.learning.critical_batch import tokens_needed
from energymodel.learning.optimal_batch import constant_batch
from energymodel.performance.batching import relative_energy, relative_time
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
batches = st.floats(1e4, 1e9)
ratios = st.floats(0.05, 20.0)
shares = st.floats(0.05, 1.0)
EDGE = 1e-9  # how near to break-even rounding decides


@few
@given(first=batches, second=batches, critical=batches, tokens=st.floats(1e9, 1e15))
def test_token_ratio_is_that_of_the_tokens_needed(first, second, critical, tokens):
    needed = [tokens_needed(tokens, batch, critical) for batch in (first, second)]
    np.testing.assert_allclose(token_ratio(first, second, critical), needed[1] / needed[0], rtol=1e-12)
    np.testing.assert_allclose(token_ratio(first, first, critical), 1.0, rtol=1e-12)


def test_small_batches_are_free_and_large_ones_need_tokens_in_proportion():
    np.testing.assert_allclose(token_ratio(1.0, 2.0, 1e15), 1.0, rtol=1e-12)
    np.testing.assert_allclose(token_ratio(1e15, 3e15, 1.0), 3.0, rtol=1e-12)


@few
@given(rate=st.floats(1e3, 1e8), throughput=ratios, power=ratios, tokens=ratios)
def test_less_time_only_above_the_break_even_throughput(rate, throughput, power, tokens):
    """The statements of the question: R2/R1 > D2/D1 for time, (P2/R2)/(P1/R1) < D1/D2 for energy."""
    assume(abs(throughput / tokens - 1.0) > EDGE)
    assume(abs(power / throughput * tokens - 1.0) > EDGE)
    amount = 1e12
    times = amount / rate, amount * tokens / (rate * throughput)
    faster = times[1] < times[0]
    assert faster == bool(rate * throughput > break_even_throughput(rate, tokens)) == (throughput > tokens)
    np.testing.assert_allclose(time_ratio(throughput, tokens), times[1] / times[0], rtol=1e-12)

    watts = 5e6
    thriftier = watts * power * times[1] < watts * times[0]
    limit = break_even_power(watts, rate, rate * throughput, tokens)
    assert thriftier == bool(watts * power < limit) == (power / throughput < 1.0 / tokens)
    np.testing.assert_allclose(energy_ratio(throughput, power, tokens), power * times[1] / times[0], rtol=1e-12)


@few
@given(first=batches, critical=batches, fixed=batches, share=shares)
def test_break_even_batch_costs_the_same(first, critical, fixed, share):
    second = break_even_batch(first, critical, fixed, share)
    costs = [relative_energy(batch, critical, fixed, share) for batch in (first, second)]
    np.testing.assert_allclose(costs[1], costs[0], rtol=1e-12)
    np.testing.assert_allclose(break_even_batch(second, critical, fixed, share), first, rtol=1e-12)
    best = constant_batch(critical, fixed, share)
    np.testing.assert_allclose(break_even_batch(best, critical, fixed, share), best, rtol=1e-12)


@few
@given(first=batches, shift=st.floats(1.05, 20.0), critical=batches, fixed=batches)
def test_conditions_hold_just_between_the_two_batches(first, shift, critical, fixed):
    """With R = R_0 B / (B + B_h), time is saved exactly between a batch and its mirror image."""
    mirror = float(break_even_batch(first, critical, fixed, 1.0))
    assume(abs(np.log(mirror / first)) > 1e-3)
    for second in (first * shift, first / shift):
        between = min(first, mirror) < second < max(first, mirror)
        assume(abs(np.log(mirror / second)) > 1e-6)
        rates = [batch / (batch + fixed) for batch in (first, second)]
        tokens = token_ratio(first, second, critical)
        assert bool(rates[1] > break_even_throughput(rates[0], tokens)) == between
        expected = relative_time(second, critical, fixed) / relative_time(first, critical, fixed)
        np.testing.assert_allclose(time_ratio(rates[1] / rates[0], tokens), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "point"),
    [
        (token_ratio, (1.0, 2.0, 3.0)),
        (break_even_throughput, (2.0, 1.3)),
        (break_even_power, (2.0, 1.5, 1.8, 1.3)),
        (time_ratio, (1.2, 1.3)),
        (energy_ratio, (1.2, 1.1, 1.3)),
        (break_even_batch, (1.0, 2.0, 3.0, 0.4)),
    ],
)
def test_gradients(function, point):
    check_grads(function, tuple(map(jnp.asarray, point)), order=2, modes=("fwd", "rev"))
