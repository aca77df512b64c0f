import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from energymodel.learning.critical_batch import (
    PowerCriticalBatch,
    batch_penalty,
    best_batch,
    break_even_power,
    break_even_throughput,
    exponential_training_time,
    instantaneous_batch_penalty,
    per_token_progress,
    power_critical_batch,
    progress_rate,
    rest_critical_batch,
    sharp_batch_penalty,
    small_batch_excess,
)
from energymodel.numerics import as_real
from gradients import check_grads
from learning.laws import BERGSMA, KAPLAN

batches = st.floats(1e3, 1e9)


def test_measured_laws_agree_and_kaplan_depends_on_loss_alone():
    # docs/physics.md B1: 14 to 17 % after the conversion of Zhang's 20 % criterion
    for tokens in (3e11, 1.4e12, 1.56e13):
        zhang = 512 * 22.91 * (tokens / 1e6) ** 0.47 / 0.2
        assert 0.13 < zhang / BERGSMA.run_level(tokens, 2.0) - 1 < 0.18
    assert KAPLAN.run_level(1e9, 2.0) == KAPLAN.run_level(1e12, 2.0) == KAPLAN.instantaneous(1e12, 2.0)
    assert KAPLAN.run_level(1.0, 50.0) == KAPLAN.run_level(1.0, 10.82)
    assert KAPLAN.run_level(1e9, 1.9) > KAPLAN.run_level(1e9, 2.0)


@given(exponent=st.floats(0.0, 0.8), batch=batches)
def test_instantaneous_law_integrates_to_the_run_level(exponent, batch):
    # docs/physics.md B1: int_0^X (1 + B / (c_inst x^xi)) dx, at X = 1e12, by the power rule
    law = PowerCriticalBatch(*map(as_real, (96.5, exponent)))
    end = 1e12
    integral = end + batch / law.instantaneous(end, 2.0) * end / (1 - exponent)
    np.testing.assert_allclose(end * batch_penalty(batch, law.run_level(end, 2.0)), integral, rtol=1e-12)


def test_laws_have_their_elasticity_and_first_order():
    # docs/physics.md A0.2: -beta B / (B + B_c)
    slope = jax.grad(lambda b: jnp.log(per_token_progress(jnp.exp(b), 1.0, 1e6, 0.8)))(jnp.log(3e6))
    np.testing.assert_allclose(slope, -0.8 * 0.75, rtol=1e-12)
    # docs/physics.md A0.4: the sources' (L0 - L) / (L0 e R) to first order
    time = exponential_training_time(10.0, 10.0 * (1 - 1e-6), 0.0, 1e-11, 1e6)
    np.testing.assert_allclose(time, 1e-6 / (1e-11 * 1e6), rtol=1e-6)
    np.testing.assert_allclose(progress_rate(1e-11, 1e6), 1e-5, rtol=1e-14)
    for batch in (1e4, 3e6, 1e9):
        np.testing.assert_allclose(sharp_batch_penalty(batch, 2e6, 1.0), batch_penalty(batch, 2e6), rtol=1e-12)
    # 96.4608 (1e10)^0.462 = 96.4608 x e^(0.462 x 23.02585) = 96.4608 x 41686.9 = 4.02116e6
    same = PowerCriticalBatch(4.02116e6, 0.462, 1e10)
    np.testing.assert_allclose(same.run_level(1.4e12, 2.0), BERGSMA.run_level(1.4e12, 2.0), rtol=1e-5)


@given(batch=batches, critical=batches, sharpness=st.floats(0.3, 4.0))
def test_sharp_penalty_keeps_both_limits(batch, critical, sharpness):
    """Never below D_min nor below S_min; at B_c it is 2^(1/p), and steps and tokens trade places there."""
    penalty = float(sharp_batch_penalty(batch, critical, sharpness))
    assert penalty >= max(1.0, batch / critical) * (1 - 1e-12)
    np.testing.assert_allclose(sharp_batch_penalty(critical, critical, sharpness), 2.0 ** (1.0 / sharpness), rtol=1e-12)
    mirrored = float(sharp_batch_penalty(critical * critical / batch, critical, sharpness))
    np.testing.assert_allclose(mirrored, penalty * critical / batch, rtol=1e-9)


SHARP = PowerCriticalBatch(2.1e6, 0.57, 5e9, 1.25, 2.3e10, 8.4e6, 0.0, 0.0)


@pytest.mark.parametrize("share", [0.0, 1.0 / 63.0])
@pytest.mark.parametrize("trend", [0.0, -0.1, 0.1])
@pytest.mark.parametrize("batch", [1e5, 4e6, 1e8])
def test_instantaneous_penalty_is_the_slope_of_the_tokens_of_a_run(batch, trend, share):
    law = dataclasses.replace(SHARP, token_trend=trend, batch_trend=trend, small_batch_share=share)

    def tokens(x):
        return x * law.run_penalty(batch, x, 2.0)

    for x in (1e9, 2e10, 1e12, 1.5e13):
        np.testing.assert_allclose(jax.grad(tokens)(x), law.instantaneous_penalty(batch, x, 2.0), rtol=1e-9)


@given(share=st.floats(0.002, 0.1), sharpness=st.floats(1.0, 2.0))
def test_the_best_batch_is_where_larger_and_smaller_ones_take_more_tokens(share, sharpness):
    law = dataclasses.replace(SHARP, sharpness=sharpness, small_batch_share=share)
    best = float(best_batch(law.run_level(1e10, 2.0), sharpness, share))
    slope = jax.grad(lambda log_batch: jnp.log(law.run_penalty(jnp.exp(log_batch), 1e10, 2.0)))(np.log(best))
    assert abs(slope) < 1e-4
    for factor in (0.5, 2.0):
        assert law.run_penalty(factor * best, 1e10, 2.0) > law.run_penalty(best, 1e10, 2.0)


def test_without_small_batches_the_law_is_the_one_sided_one_exactly():
    def penalties(law, batch):
        return law.run_penalty(batch, 1e10, 2.0), law.instantaneous_penalty(batch, 1e10, 2.0)

    critical = SHARP.run_level(1e10, 2.0)
    for batch in (0.0, 1.0, 1e5, 1e8):
        one_sided = sharp_batch_penalty(batch, critical, 1.25), instantaneous_batch_penalty(batch, critical, 1.25, 0.57)
        np.testing.assert_allclose(penalties(SHARP, batch), one_sided, rtol=1e-15)
        np.testing.assert_allclose(jax.jit(penalties)(SHARP, batch), one_sided, rtol=1e-14)  # k is not known there
    # Large batches have the one-sided law in the limit: v = (0.01 x 2.1e6 / 1e8)^2 = 4.4e-8.
    two_sided = dataclasses.replace(SHARP, small_batch_share=0.01)
    ratio = two_sided.run_penalty(1e8, 5e9, 2.0) / SHARP.run_penalty(1e8, 5e9, 2.0)
    np.testing.assert_allclose(ratio - 1.0, 4.41e-8, rtol=1e-3)
    assert jax.grad(lambda share: small_batch_excess(1e5, 2e6, share))(0.0) == 0.0
    single = jax.tree.map(np.float32, two_sided)
    np.testing.assert_allclose(penalties(single, np.float32(1e5)), penalties(two_sided, 1e5), rtol=1e-5)


def test_trends_act_beyond_the_tested_range_only_and_have_slopes():
    law = dataclasses.replace(SHARP, token_trend=-0.1, batch_trend=-0.5)
    for batch, tokens in ((1e6, 1e9), (8.4e6, 2.3e10)):
        np.testing.assert_allclose(law.run_penalty(batch, tokens, 2.0), SHARP.run_penalty(batch, tokens, 2.0))
    # 1000 times the tested tokens: the critical batch falls by 1000^0.1 = 1.9953; four times the batch: by 2.
    np.testing.assert_allclose(law.run_level(2.3e13, 2.0), SHARP.run_level(2.3e13, 2.0) / 1.995262, rtol=1e-6)
    halved = dataclasses.replace(law, at_pivot=0.5 * law.at_pivot, batch_trend=0.0)
    np.testing.assert_allclose(law.run_penalty(3.36e7, 1e12, 2.0), halved.run_penalty(3.36e7, 1e12, 2.0), rtol=1e-12)
    law = dataclasses.replace(SHARP, token_trend=-0.1, batch_trend=0.2)

    def penalty(log_batch, log_tokens):
        return law.run_penalty(jnp.exp(log_batch), jnp.exp(log_tokens), 2.0)

    check_grads(penalty, (jnp.log(1e8), jnp.log(1e12)), order=2, modes=("fwd", "rev"))
    check_grads(penalty, (jnp.log(1e5), jnp.log(1e10)), order=2, modes=("fwd", "rev"))


def test_the_rest_of_a_run_wastes_what_the_whole_wastes_after_its_beginning():
    """`D(x_0 + x) - D(x_0)` of the whole law is `x (1 + B / B_r)`; its limits are the law and the local law."""
    at_pivot, exponent, batch, seen, rest = 2e6, 0.57, 3e6, 4e11, 1e11

    def whole(effective):
        return effective * batch_penalty(batch, power_critical_batch(effective / 5e9, at_pivot, exponent))

    end = power_critical_batch((seen + rest) / 5e9, at_pivot, exponent)
    result = rest * batch_penalty(batch, rest_critical_batch(end, seen, rest, exponent))
    np.testing.assert_allclose(result, whole(seen + rest) - whole(seen), rtol=1e-9)
    np.testing.assert_allclose(rest_critical_batch(end, 0.0, rest, exponent), end, rtol=1e-12)
    np.testing.assert_allclose(rest_critical_batch(end, seen, 1e3, exponent), end / (1.0 - exponent), rtol=1e-6)
    assert jax.grad(lambda seen: rest_critical_batch(2.0, seen, 1.0, exponent))(0.0) == 0.0


ratios = st.floats(0.05, 20.0)
EDGE = 1e-9  # how near to break-even rounding decides


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
