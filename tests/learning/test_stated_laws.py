"""A run as the document states it: its batch efficiency and its throughput curve."""

import jax
import numpy as np
import pytest

from energymodel.performance.saturation import StatedSaturation
from energymodel.scenarios.scenario import load_scenario
from energymodel.sources import stated_batch_throughput, stated_per_sample_efficiency
from energymodel.system.evaluate import evaluate_once

SMALL = "test-1b-h100"
STATED = "system.learning.critical_batch=stated-batch-efficiency"
LOSS = ["plan.goal.loss=2.5 nat/token"]


def outcome(*changes):
    scenario = load_scenario(SMALL, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))


def test_tokens_to_a_loss_are_those_of_the_stated_efficiency():
    batches = (262144.0, 1048576.0)
    tokens = [outcome(STATED, *LOSS, f"plan.batch={batch:g} token").tokens for batch in batches]
    stated = [stated_per_sample_efficiency(batch, 1.0, 0.2) for batch in batches]
    np.testing.assert_allclose(tokens[1] / tokens[0], stated[0] / stated[1], rtol=1e-6)


def test_the_run_at_the_unit_batch_is_that_of_a_small_batch():
    unit = outcome(STATED, *LOSS, "plan.batch=1048576 token", "system.learning.critical_batch.unit_batch=1048576 token")
    small = outcome(*LOSS, "system.learning.critical_batch.at_pivot=1e15 token", "plan.batch=1048576 token")
    np.testing.assert_allclose(unit.tokens, small.tokens, rtol=1e-3)


@pytest.mark.parametrize("batch", [1e5, 1e6, 1e7])
def test_throughput_has_the_stated_kink(batch):
    stated = stated_batch_throughput(batch, 1.0, 2e6, 0.5)
    np.testing.assert_allclose(StatedSaturation(2e6, 0.5).utilization(batch), stated, rtol=1e-3)


def test_products_of_a_small_batch_take_longer_and_of_a_large_one_as_long():
    own = outcome()
    batch = float(load_scenario(SMALL).plan.batch[0])
    half = outcome(f"system.software.saturation.saturation_batch={2 * batch} token")
    enough = outcome(f"system.software.saturation.saturation_batch={batch / 4} token")
    assert 1.5 < half.step_time.compute / own.step_time.compute < 2.1
    np.testing.assert_allclose(enough.time, own.time, rtol=1e-6)
