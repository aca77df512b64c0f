"""A clock and a batch that follow the progress of the run: limits, derivatives, files, and the search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_once import derivative_once
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.optimize import optimize
from energymodel.search.pareto import pareto
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.plan import ClockCourse
from energymodel.system.trajectory import run_trajectory

SMALL = "test-1b-h100"


def outcome(*changes):
    scenario = load_scenario(SMALL, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))


def test_the_same_clock_at_all_knots_is_that_clock():
    own, same = outcome("plan.clock=0.8"), outcome("plan.clock=[0.8, 0.8, 0.8]")
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-8)


def test_the_course_lies_between_its_ends_and_limits_obey_the_worst():
    fast, slow, falling = (outcome(f"plan.clock={clock}") for clock in ("1", "0.7", "[1, 0.7]"))
    assert fast.time < falling.time < slow.time
    assert slow.energy.dynamic < falling.energy.dynamic < fast.energy.dynamic
    assert falling.power_peak == pytest.approx(fast.power_peak, rel=1e-9)
    assert falling.temperature == pytest.approx(fast.temperature, rel=1e-9)


def test_a_constant_batch_spends_as_much_of_its_run_at_each_clock_whichever_comes_first():
    # Tokens of a constant batch per effective token are not constant: more of them come early, in the steep part.
    falling, rising = outcome("plan.clock=[1, 0.7]"), outcome("plan.clock=[0.7, 1]")
    assert falling.loss == pytest.approx(float(rising.loss), rel=1e-12)
    assert falling.tokens == pytest.approx(float(rising.tokens), rel=1e-9)
    assert falling.time < rising.time


def test_derivatives_by_each_clock():
    scenario = load_scenario(SMALL, ["plan.clock=[1, 0.9, 0.8]", "plan.batch=[512 Ki token, 512 Ki token, 1 Mi token]"])

    def energy(shares):
        course = ClockCourse(shares)
        plan = type(scenario.plan)(**{**vars(scenario.plan), "clock_course": course})
        return jnp.log(evaluate(scenario.system, plan).energy.total)

    shares, step = jnp.asarray([0.99, 0.9, 0.8]), 1e-5
    slope = derivative_once(jax.grad, energy, shares)
    value = jax.jit(energy)
    for knot in range(3):
        move = step * jnp.eye(3)[knot]
        assert slope[knot] == pytest.approx(float(value(shares + move) - value(shares - move)) / (2 * step), rel=1e-5)


@pytest.mark.slow
def test_a_trajectory_follows_the_clock():
    scenario = load_scenario(SMALL, ["plan.clock=[1, 0.8]"])
    whole, rows = run_trajectory(scenario.system, scenario.plan, 20)
    assert np.all(np.diff(rows.token_rate) < 0.0)
    assert np.all(np.diff(rows.power) < 0.0)
    assert rows.energy[-1] == pytest.approx(float(np.asarray(whole.energy.total)), rel=1e-6)


def test_a_rise_over_a_share_of_the_progress_is_a_schedule():
    batch = load_scenario(SMALL, ["plan.batch=256 Ki token to 1 Mi token over 25 %"]).plan.batch
    np.testing.assert_allclose(batch, np.array([0.25, 1.0, 1.0, 1.0, 1.0]) * 2**20, rtol=1e-12)
    risen = outcome("plan.batch=256 Ki token to 1 Mi token over 25 %")
    assert risen.loss < outcome("plan.batch=1 Mi token").loss  # a young model learns more from small batches
    assert risen.steps > outcome("plan.batch=1 Mi token").steps


@pytest.mark.slow
def test_a_schedule_of_the_batch_may_have_clocks_that_it_likes_better():
    asked = {"fix": ["plan.coolant_temperature"], "tolerance": 0.0}
    found = optimize(load_scenario(SMALL), vary=["plan.batch@0..1:4", "plan.clock@0..1:4"], **asked)
    batch, clock, both = found.refinements
    assert (batch.added.knots, clock.added.clock_knots) == (4, 4)
    assert (both.added.knots, both.added.clock_knots) == (4, 4)
    assert clock.saving == pytest.approx(0.0, abs=1e-4 * found.value)  # every token costs the same at a constant batch
    assert both.saving >= batch.saving * (1.0 - 1e-9)
    assert float(found.outcome.time) <= found.limits["time"] * (1.0 + 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("plan.clock=[1, 0.1]", r"plan\.clock: 0\.1 is outside"),
        ("plan.clock=[1, 1.4]", r"plan\.clock.* 1\.4"),
        ("plan.clock=[1, 0]", r"plan\.clock"),
        ("plan.batch=1 Mi token to 2 Mi token over 0.1 %", "shorter than knots can say"),
        ("plan.batch=1 Mi token to 2 Mi token over 5 s", r"plan\.batch"),
        ("plan.batch=0 token to 2 Mi token over 10 %", "not positive"),
    ],
)
def test_what_is_no_course_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        load_scenario(SMALL, [change])


def test_knots_that_do_not_match_and_questions_that_need_one_clock_are_refused():
    with pytest.raises(InputError, match=r"it has 3 knots, and plan\.batch 2"):
        load_scenario(SMALL, ["plan.clock=[1, 0.9, 0.8]", "plan.batch=[1 Mi token, 2 Mi token]"])
    with pytest.raises(InputError, match=r"plan\.clock: it has 2 knots"):
        pareto(load_scenario(SMALL, ["plan.clock=[1, 0.9]"]), ["time", "energy"])
    with pytest.raises(InputError, match="Give both the same number"):
        load_scenario(SMALL).with_question(vary=["plan.batch@0..1:4", "plan.clock@0..1:8"])
    with pytest.raises(InputError, match=r"only plan\.batch and plan\.clock follow"):
        load_scenario(SMALL).with_question(vary=["plan.chips@0..1"])
