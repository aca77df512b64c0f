"""Worth of parameters and tokens under another recipe: published efficiencies, and what evaluate makes of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.learning.continued import ContinuedLearning
from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.learning.recipe import RecipeLearning, mismatch_loss, quantized_parameters
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once
from gradients import check_grads

B200 = "llama-3.1-70b-b200"
LAW = CriticalBatchLearning(
    ChinchillaLaw(1.8172, 482.01, 0.3478, 2085.43, 0.3658), PowerCriticalBatch(2.1e6, 0.57, 5e9, 1.25), 0.0
)
NARROW = RecipeLearning(LAW, 0.64, 0.94)
SIZE, BATCH = 7e9, 4e6


def outcome(name, *changes):
    scenario = load_scenario(name, changes)
    with jax.enable_x64(True):
        return evaluate_once(scenario.system, scenario.plan)


def test_recipe_is_a_smaller_model_on_fewer_tokens():
    loss, effective = NARROW.run(SIZE, 1e12, BATCH)
    np.testing.assert_allclose((loss, effective), LAW.run(0.64 * SIZE, 0.94e12, BATCH), rtol=1e-12)
    np.testing.assert_allclose(NARROW.tokens(SIZE, loss, BATCH), 1e12, rtol=1e-9)
    np.testing.assert_allclose(NARROW.effective_tokens(SIZE, loss), effective, rtol=1e-9)
    np.testing.assert_allclose(NARROW.loss(SIZE, effective), loss, rtol=1e-12)
    np.testing.assert_allclose(NARROW.penalty(SIZE, 1e11, BATCH), LAW.penalty(0.64 * SIZE, 1e11, BATCH) / 0.94)


def test_continued_run_has_the_recipe_too():
    done = NARROW.run(SIZE, 4e11, BATCH)[1]
    rest = RecipeLearning(ContinuedLearning(LAW, done), 0.64, 0.94)
    np.testing.assert_allclose(rest.run(SIZE, 6e11, BATCH)[0], NARROW.run(SIZE, 1e12, BATCH)[0], rtol=1e-9)


def test_gradients():
    def log_tokens(worth):
        return jnp.log(RecipeLearning(LAW, worth[0], worth[1]).tokens(SIZE, 2.2, BATCH))

    check_grads(log_tokens, (jnp.asarray([0.64, 0.94]),), order=2, modes=("fwd", "rev"))


def test_presets_are_the_published_efficiencies():
    precision = load_scenario(B200).system.recipe.precision
    relative = quantized_parameters(8.0, 8.0) / quantized_parameters(16.0, 16.0)
    np.testing.assert_allclose(precision.fp8_parameter_efficiency, relative, atol=5e-4)
    assert 0.0 < float(precision.fp4_parameter_efficiency) < float(precision.fp8_parameter_efficiency) < 1.0


def test_penalty_of_fp8_is_within_what_deepseek_reports():
    """DeepSeek-V3, sec. 3.3: models of 16 and 230 billion parameters on 1 trillion tokens, within 0.25 % of bf16."""
    precision = load_scenario(B200).system.recipe.precision
    for size in (16e9, 230e9):
        fp8 = RecipeLearning(LAW, precision.parameters_worth(1.0, 0.0), precision.tokens_worth(1.0, 0.0))
        ratio = fp8.run(size, 1e12, BATCH)[0] / LAW.run(size, 1e12, BATCH)[0] - 1.0
        assert 0.0 < ratio < 0.0025


def test_penalty_of_fp4_is_that_of_nvfp4_pretraining():
    """NVIDIA 2025 (arXiv 2509.25149): 12 billion parameters on 10 trillion tokens end 1 to 1.5 % above fp8."""
    precision = load_scenario(B200).system.recipe.precision
    loss = [
        RecipeLearning(LAW, precision.parameters_worth(*shares), precision.tokens_worth(*shares)).run(
            12e9, 1e13, BATCH
        )[0]
        for shares in ((1.0, 0.0), (0.0, 1.0))
    ]
    assert 0.007 < loss[1] / loss[0] - 1.0 < 0.018


def test_narrow_products_cost_loss_and_tokens_in_evaluate():
    wide, fp8, half, fp4 = (outcome(B200, f"plan.layout.{one}") for one in ("fp8=0", "fp8=1", "fp4=0.5", "fp4=1"))
    assert wide.loss < fp8.loss < half.loss < fp4.loss
    assert fp4.energy.total < fp8.energy.total < wide.energy.total
    goal = f"plan.goal.loss={float(wide.loss)} nat/token"
    wide, fp8, fp4 = (outcome(B200, f"plan.layout.{one}", goal) for one in ("fp8=0", "fp8=1", "fp4=1"))
    assert wide.tokens < fp8.tokens < fp4.tokens
    np.testing.assert_allclose([wide.loss, fp8.loss, fp4.loss], wide.loss, rtol=1e-9)


def test_schedule_has_the_penalty_too():
    change = "plan.batch=[8 Mi tokens, 8 Mi tokens]"
    constant, schedule = (
        outcome(B200, "plan.layout.fp4=1", "plan.batch=8 Mi tokens"),
        outcome(B200, "plan.layout.fp4=1", change),
    )
    np.testing.assert_allclose(schedule.loss, constant.loss, rtol=1e-8)
    np.testing.assert_allclose(schedule.tokens, constant.tokens, rtol=1e-8)
    np.testing.assert_allclose(schedule.energy.total, constant.energy.total, rtol=1e-8)


def test_target_below_the_floor_of_a_narrow_model_is_refused():
    target = "plan.goal.loss=1.912 nat/token"  # 1.8172 + 482.01 (7.06e10)^-0.3478 = 1.8984 wide, 1.9122 in fp4
    load_scenario(B200, [target])
    with pytest.raises(InputError, match=r"even unlimited data leave 1\.91"):
        load_scenario(B200, [target, "plan.layout.fp4=1"])


def test_a_system_without_recipe_is_refused():
    tables = dict(load_scenario(B200).tables)
    system = {key: value for key, value in tables["system"].items() if key != "recipe"}
    with pytest.raises(InputError, match="recipe"):
        em.load_scenario({"name": "old", **tables, "system": system})


def test_optimizer_and_schedule_are_worth_tokens():
    base = outcome(B200)
    for change, worth in (
        ("system.recipe.optimizer=muon", 1.15),
        ("system.recipe.learning_rate=wsd", 1.17),
        ("system.recipe.learning_rate=constant", 0.51),
    ):
        more = outcome(B200, f"plan.goal.tokens={15e12 * worth!r} token")
        found = outcome(B200, change)
        np.testing.assert_allclose(found.loss, more.loss, rtol=1e-9)
        np.testing.assert_allclose(found.energy.total, base.energy.total, rtol=1e-12)
        by_loss = outcome(B200, change, f"plan.goal.loss={float(base.loss)!r} nat/token")
        np.testing.assert_allclose(by_loss.energy.total, base.energy.total / worth, rtol=1e-6)


def test_wrong_learning_rate_adds_loss():
    # By hand: (0.0357 / 2) ln^2 2 = 0.01785 x 0.480453 = 0.008576, at twice and at half the best rate.
    base = outcome(B200)
    for ratio in (2.0, 0.5):
        change = f"system.recipe.learning_rate.ratio={ratio}"
        np.testing.assert_allclose(outcome(B200, change).loss - base.loss, 0.008576, atol=1e-6)
        goal = f"plan.goal.loss={float(base.loss)!r} nat/token"
        assert outcome(B200, change, goal).tokens > 1.1 * base.tokens


def test_right_learning_rate_costs_nothing():
    assert mismatch_loss(3e-4, 3e-4, 0.02) == 0.0
    assert jax.grad(mismatch_loss)(3e-4, 3e-4, 0.02) == 0.0
    np.testing.assert_allclose(mismatch_loss(6e-4, 3e-4, 0.02), mismatch_loss(1.5e-4, 3e-4, 0.02), rtol=1e-12)
