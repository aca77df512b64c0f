"""Is the schedule of the batch the closed form of docs/physics.md A0.12, and better than every constant batch?"""

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.allocation.adaptive_batch import adaptive_batch, least_batch
from energymodel.errors import InputError
from energymodel.learning.optimal_batch import adaptive_batch_cost, constant_batch_cost
from energymodel.system.evaluate import evaluate_once

KNOTS = 8


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario("llama-3.1-405b-h100")


@pytest.fixture(scope="module")
def fastest(scenario):
    return adaptive_batch(scenario, KNOTS, minimize="time")


@pytest.fixture(scope="module")
def thriftiest(scenario):
    return adaptive_batch(scenario, KNOTS)


@pytest.mark.slow
def test_schedule_follows_the_closed_form(fastest):
    """Linear pieces cannot follow the infinite slope at the start; from the third knot on they are within 2 %."""
    assert fastest.success, fastest.message
    ratio = fastest.plan.batch[1:] / fastest.rule.batch[1:]
    np.testing.assert_allclose(ratio[0], 1.0, atol=0.11)
    np.testing.assert_allclose(ratio[1:], 1.0, atol=0.02)
    np.testing.assert_allclose(ratio[3:], 1.0, atol=2e-3)


@pytest.mark.slow
def test_constant_batch_is_the_closed_form(fastest, thriftiest):
    for one in (fastest, thriftiest):
        assert one.constant_success
        np.testing.assert_allclose(one.constant_plan.batch.item(), one.constant_rule.constant, rtol=1e-5)


@pytest.mark.slow
def test_time_saved_is_that_of_the_closed_form(scenario, fastest):
    """Most of `adaptive_batch_cost / constant_batch_cost`, the gain of a schedule without knots."""
    law = scenario.system.learning.critical_batch
    end = scenario.system.learning.effective_tokens(scenario.system.workload.parameters, fastest.outcome.loss)
    level = law.run_level(end, fastest.outcome.loss)
    fixed = fastest.rule.fixed_cost_batch
    possible = 1.0 - adaptive_batch_cost(level, fixed, law.exponent) / constant_batch_cost(level, fixed)
    assert 0.9 * possible <= fastest.gain <= possible


@pytest.mark.slow
def test_schedule_beats_every_constant_batch_at_the_same_loss(scenario, fastest):
    with jax.enable_x64(True):
        baseline = evaluate_once(scenario.system, scenario.plan)
    np.testing.assert_allclose(fastest.outcome.loss, baseline.loss, rtol=1e-9)
    assert fastest.value < fastest.constant_value < float(baseline.time)
    np.testing.assert_allclose(float(fastest.outcome.time), fastest.value)


@pytest.mark.slow
def test_energy_wants_smaller_batches_than_time(fastest, thriftiest):
    """`B_E <= B_T` always: docs/physics.md A0.9."""
    assert thriftiest.success, thriftiest.message
    assert np.all(thriftiest.plan.batch < fastest.plan.batch)
    assert thriftiest.rule.fixed_cost_batch < fastest.rule.fixed_cost_batch
    assert thriftiest.value < float(fastest.outcome.energy.total)
    assert 0.0 < thriftiest.gain < 0.05


@pytest.mark.slow
def test_schedule_keeps_a_time_that_no_constant_batch_keeps(scenario, fastest, thriftiest):
    limit = 0.5 * (fastest.value + fastest.constant_value)
    hurried = adaptive_batch(scenario, KNOTS, limits={"time": limit})
    assert hurried.success, hurried.message
    rule = hurried.rule
    assert rule is not None
    assert not hurried.constant_success
    assert np.isnan(hurried.gain)
    np.testing.assert_allclose(float(hurried.outcome.time), limit, rtol=1e-6)
    assert hurried.prices["time"] > 0
    assert hurried.value > thriftiest.value
    # The price of time turns the rule for energy into one between the two.
    assert thriftiest.rule.fixed_cost_batch < rule.fixed_cost_batch < fastest.rule.fixed_cost_batch
    np.testing.assert_allclose(hurried.plan.batch[4:], rule.batch[4:], rtol=2e-3)


@pytest.mark.slow
def test_rounded_schedule_has_whole_micro_batches(fastest):
    whole = fastest.rounded_plan.batch / float(least_batch(fastest.scenario.system, fastest.rounded_plan))
    np.testing.assert_array_equal(whole, np.round(whole))
    assert np.all(whole >= 1)
    np.testing.assert_allclose(float(fastest.rounded_outcome.time), fastest.value, rtol=1e-3)
    assert float(fastest.rounded_outcome.time) >= fastest.value


@pytest.mark.slow
def test_dense_solver_agrees(scenario, fastest):
    dense = adaptive_batch(scenario, KNOTS, minimize="time", method="dense")
    np.testing.assert_allclose(fastest.value, dense.value, rtol=1e-9)
    np.testing.assert_allclose(fastest.plan.batch, dense.plan.batch, rtol=1e-4)
    np.testing.assert_allclose(fastest.constant_value, dense.constant_value, rtol=1e-9)


@pytest.mark.slow
def test_more_knots_come_closer_to_the_closed_form(scenario, fastest):
    fine = adaptive_batch(scenario, 256, minimize="time")
    assert fine.success, fine.message
    assert fine.rule is not None
    assert fine.value < fastest.value
    np.testing.assert_allclose(fine.plan.batch[8:], fine.rule.batch[8:], rtol=5e-4)


@pytest.mark.slow
def test_more_variables_save_more(scenario, thriftiest):
    freer = adaptive_batch(scenario, KNOTS, vary={"plan.clock": (0.4, 1.0)})
    assert freer.success, freer.message
    assert freer.value < thriftiest.value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"knots": 1}, "1 knots"), ({"minimize": "loss"}, "loss is held"), ({"minimize": "joy"}, "joy")],
)
def test_bad_input_is_named(scenario, arguments, message):
    with pytest.raises(InputError, match=message):
        adaptive_batch(scenario, **arguments)
