"""The curve over batches beside `evaluate`, `optimize` and the closed form of its optimum."""

import dataclasses

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.optimize import optimize
from energymodel.sweeps.batch_curve import OBJECTIVES, batch_curve
from energymodel.system.evaluate import evaluate_once

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def scenario():
    """A batch below the best one; a smaller one is worse, and so is a far larger one."""
    return load_scenario(SMALL, ["plan.batch=256 Ki tokens"])


@pytest.fixture(scope="module")
def curve(scenario):
    return batch_curve(scenario, 9)


def test_each_batch_reaches_the_loss_of_the_plan(scenario, curve):
    np.testing.assert_allclose(curve.outcome.loss, curve.own.loss, rtol=1e-12)
    unit = 8 * 4 * 2048  # replicas, sequences of a micro-batch, tokens
    np.testing.assert_allclose(curve.batch % unit, 0.0)
    assert curve.batch[0] == unit
    row = len(curve.batch) // 2
    again = load_scenario(
        SMALL, [f"plan.batch={curve.batch[row]} token", f"plan.goal.tokens={curve.outcome.tokens[row]} token"]
    )
    with jax.enable_x64(True):
        outcome = evaluate_once(again.system, again.plan)
    assert float(outcome.loss) == pytest.approx(float(curve.own.loss), rel=1e-12)
    assert float(outcome.time) == pytest.approx(float(curve.outcome.time[row]), rel=1e-9)


def test_a_batch_pays_where_its_throughput_exceeds_the_break_even(curve):
    faster = curve.outcome.time < curve.own.time
    np.testing.assert_array_equal(curve.outcome.token_rate > curve.break_even_rate, faster)
    cheaper = curve.outcome.energy.total < curve.own.energy.total
    np.testing.assert_array_equal(curve.outcome.power_average < curve.break_even_power, cheaper)
    assert faster.any()
    assert not faster.all()


@pytest.mark.slow
def test_the_best_batch_is_that_of_a_search(scenario, curve):
    kept = ("plan.chips", "plan.clock", "plan.coolant_temperature")
    layout = tuple(f"plan.layout.{name}" for name in scenario.plan.layout.__dataclass_fields__)
    limits = {"time": "1000 days", "memory": "1 TB"}
    found = optimize(scenario, limits=limits, fix=(*kept, *layout), tolerance=0.0)
    best = curve.best["energy"]
    assert best.saving == pytest.approx(1.0 - found.value / found.baseline_value, abs=5e-4)  # whole micro-batches
    assert best.flat[0] <= float(np.ravel(found.plan.batch)[0]) <= best.flat[1] * 1.1
    for name in OBJECTIVES:
        one = curve.best[name]
        assert one.at_edge == 0
        assert one.low < one.flat[0] < one.batch < one.flat[1] < one.high


@pytest.mark.slow
def test_the_interval_follows_the_uncertain_numbers(scenario, curve):
    path = "system.learning.critical_batch.at_pivot"
    alone = dataclasses.replace(scenario, uncertainty={path: "lognormal 0.4"})
    best = batch_curve(alone, 4).best["time"]
    # Between sqrt(phi B_h B_c), half of the logarithm, and the batch of the fewest tokens, 0.09 B_c, all of it.
    half = 0.5 * np.log(best.high / best.low)
    assert 0.5 * 1.645 * 0.4 < half < 1.645 * 0.4
    everything = curve.best["time"]
    assert everything.high / everything.low > best.high / best.low
    none = batch_curve(dataclasses.replace(scenario, uncertainty={}, tables={}), 4).best["time"]
    assert none.low == none.high == none.batch


def test_bad_questions_are_refused(scenario):
    for points in (1, 0, 1001):
        with pytest.raises(InputError, match=f"points: {points} make no curve"):
            batch_curve(scenario, points)
    with pytest.raises(InputError, match="it has 2 knots"):
        batch_curve(load_scenario(SMALL, ["plan.batch=[262144 token, 524288 token]"]))
