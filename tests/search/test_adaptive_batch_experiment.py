"""Schedules of the batch beside the closed form of docs/physics.md A0.12."""

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.system.evaluate import evaluate_once, learning_of, parameters_in_loss
from experiment import Experiment

SEARCH, CLOSED = Experiment("08_batch_tradeoff").modules("adaptive_batch", "closed_forms")
adaptive_batch, least_batch = SEARCH.adaptive_batch, SEARCH.least_batch
adaptive_batch_cost, constant_batch_cost = CLOSED.adaptive_batch_cost, CLOSED.constant_batch_cost

KNOTS = 8


@pytest.fixture(scope="module")
def scenario():
    # The closed form holds for a hyperbola, the sharpness of this law.
    return em.load_scenario("llama-3.1-70b-b200", {"system.learning.critical_batch": "bergsma-2025"})


@pytest.fixture(scope="module")
def fastest(scenario):
    return adaptive_batch(scenario, KNOTS, minimize="time")


@pytest.fixture(scope="module")
def thriftiest(scenario):
    return adaptive_batch(scenario, KNOTS)


@pytest.mark.slow
def test_schedule_follows_the_closed_form(fastest):
    """Linear pieces cannot follow the infinite slope at the start; from the third knot on they are within 2 %."""
    assert fastest.schedule.success, fastest.schedule.message
    ratio = fastest.schedule.plan.batch[1:] / fastest.schedule.rule.batch[1:]
    np.testing.assert_allclose(ratio[0], 1.0, atol=0.11)
    np.testing.assert_allclose(ratio[1:], 1.0, atol=0.02)
    np.testing.assert_allclose(ratio[3:], 1.0, atol=2e-3)


@pytest.mark.slow
def test_constant_batch_is_the_closed_form(fastest, thriftiest):
    for search in (fastest, thriftiest):
        assert search.constant.success
        np.testing.assert_allclose(search.constant.plan.batch.item(), search.constant.rule.constant, rtol=1e-5)


@pytest.mark.slow
def test_the_rule_of_a_continued_run_counts_all_tokens_seen():
    """The rule's critical batches are those of the whole law from the checkpoint on, of 1e12 tokens."""
    seen = 1e12
    changes = {
        "system.learning.critical_batch": "bergsma-2025",
        "system.tokens_seen": f"{seen:g} tokens",
        "plan.goal.tokens": "1 T tokens",
    }
    found = adaptive_batch(em.load_scenario("llama-3.1-70b-b200", changes), 4, minimize="time")
    rule, law = found.schedule.rule, found.scenario.system.learning.critical_batch  # pyright: ignore[reportAttributeAccessIssue]
    assert rule is not None
    system, plan = found.scenario.system, found.schedule.plan
    with jax.enable_x64(True):
        end = learning_of(system, plan).effective_tokens(parameters_in_loss(system), found.schedule.outcome.loss)
    critical = np.square(rule.batch) / rule.fixed_cost_batch
    np.testing.assert_allclose(critical[0], law.instantaneous(seen, np.asarray(2.0)), rtol=1e-6)
    # The mean of 1/B_n over the effective tokens of the rest.
    rest = np.linspace(0.0, float(end), 2001)
    mean = 1.0 / np.mean(1.0 / np.asarray(law.instantaneous(seen + rest, np.asarray(2.0))))
    np.testing.assert_allclose(rule.constant**2 / rule.fixed_cost_batch, mean, rtol=1e-3)
    assert critical[-1] < 2.0**0.5 * critical[0]


@pytest.mark.slow
def test_time_saved_is_that_of_the_closed_form(scenario, fastest):
    """Most of `adaptive_batch_cost / constant_batch_cost`, the gain of a schedule without knots."""
    law = scenario.system.learning.critical_batch
    end = scenario.system.learning.effective_tokens(scenario.system.workload.parameters, fastest.schedule.outcome.loss)
    level = law.run_level(end, fastest.schedule.outcome.loss)
    fixed = fastest.schedule.rule.fixed_cost_batch
    possible = 1.0 - adaptive_batch_cost(level, fixed, law.exponent) / constant_batch_cost(level, fixed)
    # The first knot stands at the smallest batch of the layout.
    assert 0.85 * possible <= fastest.gain <= possible


@pytest.mark.slow
def test_schedule_beats_every_constant_batch_at_the_same_loss(scenario, fastest):
    with jax.enable_x64(True):
        baseline = evaluate_once(scenario.system, scenario.plan)
    np.testing.assert_allclose(fastest.schedule.outcome.loss, baseline.loss, rtol=1e-9)
    assert fastest.schedule.value < fastest.constant.value < float(baseline.time)
    np.testing.assert_allclose(float(fastest.schedule.outcome.time), fastest.schedule.value)


@pytest.mark.slow
def test_energy_wants_smaller_batches_than_time(fastest, thriftiest):
    """`B_E <= B_T` always: docs/physics.md A0.9."""
    assert thriftiest.schedule.success, thriftiest.schedule.message
    assert np.all(thriftiest.schedule.plan.batch < fastest.schedule.plan.batch)
    assert thriftiest.schedule.rule.fixed_cost_batch < fastest.schedule.rule.fixed_cost_batch
    assert thriftiest.schedule.value < float(fastest.schedule.outcome.energy.total)
    assert 0.0 < thriftiest.gain < 0.05


@pytest.mark.slow
def test_schedule_keeps_a_time_that_no_constant_batch_keeps(scenario, fastest, thriftiest):
    limit = 0.5 * (fastest.schedule.value + fastest.constant.value)
    hurried = adaptive_batch(scenario, KNOTS, limits={"time": limit})
    assert hurried.schedule.success, hurried.schedule.message
    rule = hurried.schedule.rule
    assert rule is not None
    assert not hurried.constant.success
    assert np.isnan(hurried.gain)
    np.testing.assert_allclose(float(hurried.schedule.outcome.time), limit, rtol=1e-6)
    assert hurried.schedule.prices["time"] > 0
    assert hurried.schedule.value > thriftiest.schedule.value
    # The price of time turns the rule for energy into one between the two.
    assert thriftiest.schedule.rule.fixed_cost_batch < rule.fixed_cost_batch < fastest.schedule.rule.fixed_cost_batch
    np.testing.assert_allclose(hurried.schedule.plan.batch[4:], rule.batch[4:], rtol=3e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"knots": 1}, "1 knots"), ({"minimize": "loss"}, "loss is held"), ({"minimize": "joy"}, "joy")],
)
def test_bad_input_is_named(scenario, arguments, message):
    with pytest.raises(InputError, match=message):
        adaptive_batch(scenario, **arguments)
