"""Repeated data: full worth in the first epoch, the published worth after it, the inverse, and a run on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.learning.data_set import LimitedData, RepeatedLearning, UnlimitedData
from energymodel.learning.loss_law import unique_equivalent_tokens
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once, learning_of, parameters_in_loss
from energymodel.system.plan import TargetLoss

SMALL = "test-1b-h100"  # 24 G tokens
FOUR_EPOCHS = ["system.data.unique_tokens=6 G tokens"]


def outcome(*changes):
    scenario = load_scenario(SMALL, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))


def test_data_that_are_not_repeated_change_nothing():
    assert load_scenario(SMALL).system.data == UnlimitedData()
    own, enough = outcome(), outcome("system.data.unique_tokens=24 G tokens")
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(enough), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)


def test_four_epochs_are_worth_fewer_tokens():
    repeated = outcome(*FOUR_EPOCHS)
    worth = float(unique_equivalent_tokens(24e9, 6e9, 15.39))
    assert 0.9 * 24e9 < worth < 24e9  # Muennighoff et al.: up to four epochs are nearly as good as new data
    same = outcome(f"plan.goal.tokens={worth} token")
    assert float(repeated.loss) == pytest.approx(float(same.loss), rel=1e-9)
    assert float(repeated.time / same.time) == pytest.approx(24e9 / worth, rel=1e-9)


def test_a_target_loss_takes_the_tokens_that_reach_it():
    repeated = outcome(*FOUR_EPOCHS)
    scenario = load_scenario(SMALL, FOUR_EPOCHS)
    with jax.enable_x64(True):
        learning, size = learning_of(scenario.system, scenario.plan), parameters_in_loss(scenario.system)
        batch = scenario.plan.batch[0]
        assert float(learning.tokens(size, repeated.loss, batch)) == pytest.approx(24e9, rel=1e-9)
        end = learning.effective_tokens(size, repeated.loss)
        assert float(learning.tokens_to(size, end, batch)) == pytest.approx(24e9, rel=1e-9)
        slope = jax.grad(lambda x: learning.tokens_to(size, x, batch))(end)
        assert float(learning.penalty(size, end, batch)) == pytest.approx(float(slope), rel=1e-6)


def test_a_loss_beyond_what_the_data_can_give_is_out_of_reach():
    scenario = load_scenario(SMALL, FOUR_EPOCHS)
    with jax.enable_x64(True):
        learning, size = learning_of(scenario.system, scenario.plan), parameters_in_loss(scenario.system)
        batch = scenario.plan.batch[0]
        best = learning.run(size, 1e20, batch)[0]  # 16.39 times the data
        for below in (1e-3, 1e-2, 0.1):
            tokens, slope = jax.value_and_grad(lambda loss: learning.tokens(size, loss, batch))(best - below)
            assert np.isfinite(tokens)
            assert float(tokens) > 1e5 * 6e9
            assert np.isfinite(slope)
            assert float(slope) < 0.0
    tables = load_scenario(SMALL, FOUR_EPOCHS).tables
    for loss, message in ((float(best) - 1e-3, "even system.data repeated without end leave"), (2.49, None)):
        goal = {**tables["plan"], "goal": {"loss": f"{loss} nat/token"}}
        if message is None:
            assert load_scenario({**tables, "name": SMALL, "plan": goal}).plan.goal == TargetLoss(loss)
        else:
            with pytest.raises(InputError, match=message):
                load_scenario({**tables, "name": SMALL, "plan": goal})


def test_a_schedule_of_one_batch_is_that_batch():
    constant = outcome(*FOUR_EPOCHS)
    schedule = outcome(*FOUR_EPOCHS, "plan.batch=[524288 token, 524288 token]")
    assert float(schedule.loss) == pytest.approx(float(constant.loss), rel=1e-6)  # the second epoch is a kink
    assert float(schedule.energy.total) == pytest.approx(float(constant.energy.total), rel=1e-5)


def test_the_loss_falls_with_unique_tokens():
    with jax.enable_x64(True):
        law = load_scenario(SMALL).system.learning

        def loss(unique):
            learning = RepeatedLearning(law, LimitedData(unique))
            return learning.run(jnp.asarray(1.2e9), jnp.asarray(24e9), jnp.asarray(5e5))[0]

        for unique in (3e9, 10e9):
            slope = (loss(unique * 1.0001) - loss(unique * 0.9999)) / (2e-4 * unique)
            assert float(jax.grad(loss)(jnp.asarray(unique))) == pytest.approx(float(slope), rel=1e-4)
            assert float(slope) < 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("system.data.unique_tokens=0 tokens", "is impossible"),
        ("system.data.unique_token=1 T tokens", 'system.data: missing component|unknown quantity "unique_token"'),
    ],
)
def test_bad_data_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        load_scenario(SMALL, [change])
