"""A batch that rises over a share of the progress, and schedules that are refused."""

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once

SMALL = "test-1b-h100"


def outcome(*changes):
    scenario = load_scenario(SMALL, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))


def test_a_rise_over_a_share_of_the_progress_is_a_schedule():
    batch = load_scenario(SMALL, ["plan.batch=256 Ki token to 1 Mi token over 25 %"]).plan.batch
    np.testing.assert_allclose(batch, np.array([0.25, 1.0, 1.0, 1.0, 1.0]) * 2**20, rtol=1e-12)
    risen = outcome("plan.batch=256 Ki token to 1 Mi token over 25 %")
    assert risen.loss < outcome("plan.batch=1 Mi token").loss  # a young model learns more from small batches
    assert risen.steps > outcome("plan.batch=1 Mi token").steps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("plan.clock=[1, 0.9]", r"plan\.clock: .* is not a quantity"),
        ("plan.clock=0.1", r"plan\.clock: 0\.1 is outside"),
        ("plan.clock=1.4", r"plan\.clock.* 1\.4"),
        ("plan.clock=0", r"plan\.clock"),
        ("plan.batch=1 Mi token to 2 Mi token over 0.1 %", "shorter than knots can say"),
        ("plan.batch=1 Mi token to 2 Mi token over 5 s", r"plan\.batch"),
        ("plan.batch=0 token to 2 Mi token over 10 %", "not positive"),
    ],
)
def test_what_is_no_schedule_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        load_scenario(SMALL, [change])


@pytest.mark.parametrize("path", ["plan.chips", "plan.clock"])
def test_only_the_batch_follows_progress(path):
    with pytest.raises(InputError, match=rf"vary {path}@0\.\.1: only plan\.batch follows"):
        load_scenario(SMALL).with_question(vary=[f"{path}@0..1"])
