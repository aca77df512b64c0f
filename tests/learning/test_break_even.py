import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from energymodel.learning.break_even import break_even_power, break_even_throughput, token_ratio
from energymodel.learning.critical_batch import batch_penalty
from gradients import check_grads

few = settings(max_examples=25, deadline=None)
batches = st.floats(1e4, 1e9)
ratios = st.floats(0.05, 20.0)
EDGE = 1e-9  # how near to break-even rounding decides


@few
@given(first=batches, second=batches, critical=batches, tokens=st.floats(1e9, 1e15))
def test_token_ratio_is_that_of_the_tokens_needed(first, second, critical, tokens):
    needed = [tokens * batch_penalty(batch, critical) for batch in (first, second)]
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

    watts = 5e6
    thriftier = watts * power * times[1] < watts * times[0]
    limit = break_even_power(watts, rate, rate * throughput, tokens)
    assert thriftier == bool(watts * power < limit) == (power / throughput < 1.0 / tokens)


@pytest.mark.parametrize(
    ("function", "point"),
    [(token_ratio, (1.0, 2.0, 3.0)), (break_even_throughput, (2.0, 1.3)), (break_even_power, (2.0, 1.5, 1.8, 1.3))],
)
def test_gradients(function, point):
    check_grads(function, tuple(map(jnp.asarray, point)), order=2, modes=("fwd", "rev"))
