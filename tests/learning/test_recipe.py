"""Worth of parameters and tokens under another recipe, with repeated data, and as the document states it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energymodel as em
from energymodel.errors import InputError
from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.learning.data_set import ContinuedLearning, LimitedData, UnlimitedData
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.learning_rate import StagedRate, mismatch_loss
from energymodel.learning.loss_law import ChinchillaLaw, unique_equivalent_tokens
from energymodel.learning.recipe import RecipeLearning, quantized_parameters
from energymodel.performance.saturation import StatedBatchPower, StatedSaturation
from energymodel.scenarios.scenario import load_scenario
from energymodel.sources import (
    stated_batch_efficiency,
    stated_batch_throughput,
    stated_memory_power,
    stated_per_sample_efficiency,
)
from energymodel.system.plan import TargetLoss
from energymodel.system.training_system import learning_of, parameters_in_loss
from gradients import check_grads
from outcomes import outcome_of

B200 = "llama-3.1-70b-b200"
LAW = CriticalBatchLearning(
    ChinchillaLaw(1.8172, 482.01, 0.3478, 2085.43, 0.3658), PowerCriticalBatch(2.1e6, 0.57, 5e9, 1.25), 0.0
)
NARROW = RecipeLearning(LAW, 0.64, 0.94)
SIZE, BATCH = 7e9, 4e6


def test_recipe_is_a_smaller_model_on_fewer_tokens_from_any_moment_on():
    loss, effective = NARROW.run(SIZE, 1e12, BATCH)
    np.testing.assert_allclose((loss, effective), LAW.run(0.64 * SIZE, 0.94e12, BATCH), rtol=1e-12)
    np.testing.assert_allclose(NARROW.tokens(SIZE, loss, BATCH), 1e12, rtol=1e-9)
    np.testing.assert_allclose(NARROW.effective_tokens(SIZE, loss), effective, rtol=1e-9)
    np.testing.assert_allclose(NARROW.loss(SIZE, effective), loss, rtol=1e-12)
    np.testing.assert_allclose(NARROW.penalty(SIZE, 1e11, BATCH), LAW.penalty(0.64 * SIZE, 1e11, BATCH) / 0.94)
    done = NARROW.run(SIZE, 4e11, BATCH)[1]
    rest = RecipeLearning(ContinuedLearning(LAW, done), 0.64, 0.94)
    np.testing.assert_allclose(rest.run(SIZE, 6e11, BATCH)[0], NARROW.run(SIZE, 1e12, BATCH)[0], rtol=1e-9)

    def log_tokens(worth):
        return jnp.log(RecipeLearning(LAW, worth[0], worth[1]).tokens(SIZE, 2.2, BATCH))

    check_grads(log_tokens, (jnp.asarray([0.64, 0.94]),), order=2, modes=("fwd", "rev"))


def test_penalties_of_narrow_formats_are_those_reported():
    precision = load_scenario(B200).system.recipe.precision
    relative = quantized_parameters(8.0, 8.0) / quantized_parameters(16.0, 16.0)
    np.testing.assert_allclose(precision.fp8_parameter_efficiency, relative, atol=5e-4)
    assert 0.0 < float(precision.fp4_parameter_efficiency) < float(precision.fp8_parameter_efficiency) < 1.0
    # DeepSeek-V3, sec. 3.3: models of 16 and 230 billion parameters on 1 trillion tokens, within 0.25 % of bf16.
    for size in (16e9, 230e9):
        fp8 = RecipeLearning(LAW, precision.parameters_worth(1.0, 0.0), precision.tokens_worth(1.0, 0.0))
        ratio = fp8.run(size, 1e12, BATCH)[0] / LAW.run(size, 1e12, BATCH)[0] - 1.0
        assert 0.0 < ratio < 0.0025
    # NVIDIA 2025 (arXiv 2509.25149): 12 billion parameters on 10 trillion tokens end 1 to 1.5 % above fp8.
    loss = [
        RecipeLearning(LAW, precision.parameters_worth(*shares), precision.tokens_worth(*shares)).run(
            12e9, 1e13, BATCH
        )[0]
        for shares in ((1.0, 0.0), (0.0, 1.0))
    ]
    assert 0.007 < loss[1] / loss[0] - 1.0 < 0.018


def test_narrow_products_cost_loss_and_tokens_in_evaluate():
    wide, fp8, half, fp4 = (
        outcome_of(B200, f"plan.layout.{entry}") for entry in ("fp8=0", "fp8=1", "fp4=0.5", "fp4=1")
    )
    assert wide.loss < fp8.loss < half.loss < fp4.loss
    assert fp4.energy.total < fp8.energy.total < wide.energy.total
    goal = f"plan.goal.loss={float(wide.loss)} nat/token"
    wide, fp8, fp4 = (outcome_of(B200, f"plan.layout.{entry}", goal) for entry in ("fp8=0", "fp8=1", "fp4=1"))
    assert wide.tokens < fp8.tokens < fp4.tokens
    np.testing.assert_allclose([wide.loss, fp8.loss, fp4.loss], wide.loss, rtol=1e-9)


@pytest.mark.slow
def test_schedule_has_the_penalty_too():
    change = "plan.batch=[8 Mi tokens, 8 Mi tokens]"
    constant, schedule = (
        outcome_of(B200, "plan.layout.fp4=1", "plan.batch=8 Mi tokens"),
        outcome_of(B200, "plan.layout.fp4=1", change),
    )
    np.testing.assert_allclose(schedule.loss, constant.loss, rtol=1e-8)
    np.testing.assert_allclose(schedule.tokens, constant.tokens, rtol=1e-8)
    np.testing.assert_allclose(schedule.energy.total, constant.energy.total, rtol=1e-8)


def test_targets_below_the_floor_and_systems_without_recipe_are_refused():
    target = "plan.goal.loss=1.912 nat/token"  # 1.8172 + 482.01 (7.06e10)^-0.3478 = 1.8984 wide, 1.9122 in fp4
    load_scenario(B200, [target])
    with pytest.raises(InputError, match=r"even unlimited data leave 1\.91"):
        load_scenario(B200, [target, "plan.layout.fp4=1"])
    tables = dict(load_scenario(B200).tables)
    system = {key: value for key, value in tables["system"].items() if key != "recipe"}
    with pytest.raises(InputError, match="recipe"):
        em.load_scenario({"name": "old", **tables, "system": system})


def test_optimizer_and_schedule_are_worth_tokens():
    base = outcome_of(B200)
    for change, worth in (
        ("system.recipe.optimizer=muon", 1.15),
        ("system.recipe.learning_rate=wsd", 1.17),
        ("system.recipe.learning_rate=constant", 0.51),
    ):
        more = outcome_of(B200, f"plan.goal.tokens={15e12 * worth!r} token")
        result = outcome_of(B200, change)
        np.testing.assert_allclose(result.loss, more.loss, rtol=1e-9)
        np.testing.assert_allclose(result.energy.total, base.energy.total, rtol=1e-12)
        by_loss = outcome_of(B200, change, f"plan.goal.loss={float(base.loss)!r} nat/token")
        np.testing.assert_allclose(by_loss.energy.total, base.energy.total / worth, rtol=1e-6)


def test_learning_rates_cost_nothing_if_right_and_loss_if_wrong():
    assert mismatch_loss(3e-4, 3e-4, 0.02) == 0.0
    assert jax.grad(mismatch_loss)(3e-4, 3e-4, 0.02) == 0.0
    np.testing.assert_allclose(mismatch_loss(6e-4, 3e-4, 0.02), mismatch_loss(1.5e-4, 3e-4, 0.02), rtol=1e-12)
    # By hand: (0.0345 / 2) ln^2 2 = 0.01725 x 0.480453 = 0.008288, at twice and at half the best rate.
    base = outcome_of(B200)
    for ratio in (2.0, 0.5):
        change = f"system.recipe.learning_rate.ratio={ratio}"
        np.testing.assert_allclose(outcome_of(B200, change).loss - base.loss, 0.008288, atol=1e-6)
        goal = f"plan.goal.loss={float(base.loss)!r} nat/token"
        assert outcome_of(B200, change, goal).tokens > 1.1 * base.tokens


def staged(shares, rates, ramps, curvature=0.0, ratio=1.0):
    return StagedRate(
        shares=jnp.asarray(shares),
        rates=jnp.asarray(rates),
        ramps=jnp.asarray(ramps),
        curvature=curvature,
        jitter=0.2,
        jitter_exponent=0.25,
        memory=0.01,
        stiffness=0.0345,
        ratio=ratio,
    )


def test_stages_of_a_learning_rate_are_worth_their_root_and_jitter():
    # By hand: .5 + .5 sqrt .1, over the mean root of cosine decay to a tenth, (2/pi) E(m = .9) = .70332 (elliptic).
    two = staged([0.0001, 1.0, 1.0], [3e-4, 3e-4, 3e-5], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(two.tokens_worth(), 0.6581 / 0.70332, rtol=1e-3)
    np.testing.assert_allclose(two.added_loss(), 0.0, atol=1e-3)
    constant = staged([1.0, 1e4], [0.7, 0.7], [1.0, 0.0])
    np.testing.assert_allclose(constant.tokens_worth(), 1.0 / 0.70332, rtol=1e-3)
    np.testing.assert_allclose(constant.added_loss(), 0.2 * 0.9, rtol=3e-3)
    # A peak of 1/16: jitter is worth (1/16)^.25 = 1/2 of that, and mismatch .01725 ln^2 16 = .13261.
    slower = staged([1.0, 1e4], [0.7, 0.7], [1.0, 0.0], ratio=1.0 / 16.0)
    np.testing.assert_allclose(slower.added_loss(), 0.1 * 0.9 + 0.13261, rtol=3e-3)
    cosine = staged([1.0, 1e5], [1.0, 0.1], [1.0, 1.0], curvature=1.0)
    np.testing.assert_allclose(cosine.tokens_worth(), 1.0, rtol=1e-3)
    np.testing.assert_allclose(cosine.added_loss(), 0.0, atol=1e-4)


def test_a_step_just_before_the_end_has_not_yet_calmed_the_loss():
    def late(share):
        return float(staged([1.0 - share, share], [1.0, 0.01], [0.0, 0.0]).added_loss())

    assert late(1e-4) > 0.99 * late(1e-12) > late(0.5) + 0.15

    def worth(share, last):
        shares, rates = jnp.stack([1.0 - share, share]), jnp.stack([jnp.ones_like(last), last])
        return jnp.stack(staged(shares, rates, [0.1, 0.5], curvature=0.5).beyond_cosine())

    check_grads(worth, (jnp.asarray(0.3), jnp.asarray(0.1)), order=1)


def test_stages_that_do_not_match_are_refused():
    with pytest.raises(InputError, match="3 shares, 2 rates, 3 ramps"):
        load_scenario(SMALL, ["system.recipe.learning_rate=two-stage", "system.recipe.learning_rate.rates=[1, 0.1]"])
    with pytest.raises(InputError, match="all rates are 0"):
        load_scenario(SMALL, ["system.recipe.learning_rate=wsd-linear", "system.recipe.learning_rate.rates=[0, 0, 0]"])


SMALL = "test-1b-h100"  # 24 G tokens
FOUR_EPOCHS = ["system.data.unique_tokens=6 G tokens"]


def test_only_repeated_data_are_worth_fewer_tokens():
    assert load_scenario(SMALL).system.data == UnlimitedData()
    own, enough = outcome_of(SMALL), outcome_of(SMALL, "system.data.unique_tokens=24 G tokens")
    for left, other in zip(jax.tree.leaves(own), jax.tree.leaves(enough), strict=True):
        np.testing.assert_allclose(other, left, rtol=1e-9)
    repeated = outcome_of(SMALL, *FOUR_EPOCHS)
    worth = float(unique_equivalent_tokens(24e9, 6e9, 15.39))
    assert 0.9 * 24e9 < worth < 24e9  # Muennighoff et al.: up to four epochs are nearly as good as new data
    same = outcome_of(SMALL, f"plan.goal.tokens={worth} token")
    assert float(repeated.loss) == pytest.approx(float(same.loss), rel=1e-9)
    assert float(repeated.time / same.time) == pytest.approx(24e9 / worth, rel=1e-9)


def test_a_target_loss_takes_the_tokens_that_reach_it():
    repeated = outcome_of(SMALL, *FOUR_EPOCHS)
    scenario = load_scenario(SMALL, FOUR_EPOCHS)
    learning, size = learning_of(scenario.system, scenario.plan), parameters_in_loss(scenario.system)
    batch = scenario.plan.batch[0]
    assert float(learning.tokens(size, repeated.loss, batch)) == pytest.approx(24e9, rel=1e-9)
    end = learning.effective_tokens(size, repeated.loss)
    assert float(learning.tokens_to(size, end, batch)) == pytest.approx(24e9, rel=1e-9)
    slope = jax.grad(lambda x: learning.tokens_to(size, x, batch))(end)
    assert float(learning.penalty(size, end, batch)) == pytest.approx(float(slope), rel=1e-6)


def test_a_loss_beyond_what_the_data_can_give_is_out_of_reach():
    scenario = load_scenario(SMALL, FOUR_EPOCHS)
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


@pytest.mark.slow
def test_a_schedule_of_one_batch_is_that_batch():
    constant = outcome_of(SMALL, *FOUR_EPOCHS)
    schedule = outcome_of(SMALL, *FOUR_EPOCHS, "plan.batch=[524288 token, 524288 token]")
    assert float(schedule.loss) == pytest.approx(float(constant.loss), rel=1e-6)  # the second epoch is a kink
    assert float(schedule.energy.total) == pytest.approx(float(constant.energy.total), rel=1e-5)


def test_the_loss_falls_with_unique_tokens():
    law = load_scenario(SMALL).system.learning

    def loss(unique):
        learning = RecipeLearning(law, 1.0, 1.0, data=LimitedData(unique))
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


STATED = "system.learning.critical_batch=stated-batch-efficiency"
LOSS = ["plan.goal.loss=2.5 nat/token"]


def test_stated_efficiency_gives_tokens_and_unit_batch():
    batches = (262144.0, 1048576.0)
    tokens = [outcome_of(SMALL, STATED, *LOSS, f"plan.batch={batch:g} token").tokens for batch in batches]
    published = [stated_per_sample_efficiency(batch, 1.0, 0.2) for batch in batches]
    np.testing.assert_allclose(tokens[1] / tokens[0], published[0] / published[1], rtol=1e-6)
    unit = outcome_of(
        SMALL, STATED, *LOSS, "plan.batch=1048576 token", "system.learning.critical_batch.unit_batch=1048576 token"
    )
    none = [f"system.learning.critical_batch.{change}" for change in ("at_pivot=1e15 token", "small_batch_share=0")]
    small = outcome_of(SMALL, *LOSS, *none, "plan.batch=1048576 token")
    np.testing.assert_allclose(unit.tokens, small.tokens, rtol=1e-3)


@pytest.mark.parametrize("batch", [1e5, 1e6, 1e7])
def test_throughput_has_the_stated_kink(batch):
    published = stated_batch_throughput(batch, 1.0, 2e6, 0.5)
    np.testing.assert_allclose(StatedSaturation(2e6, 0.5).utilization(batch), published, rtol=1e-3)


def test_the_stated_laws_of_the_batch_are_those_of_the_document():
    law, batch = StatedBatchPower(2e6, 5e5, 0.9), np.array([1e5, 2e6, 6e6])
    np.testing.assert_allclose(law.utilization(batch), stated_batch_efficiency(batch, 0.9, 2e6), rtol=1e-6)
    energy = law.byte_energy(jnp.asarray(3e-11), batch)
    np.testing.assert_allclose(energy, stated_memory_power(batch, 3e-11, 5e5), rtol=1e-6)


def test_products_of_a_small_batch_take_longer_and_of_a_large_one_as_long():
    own = outcome_of(SMALL)
    batch = float(load_scenario(SMALL).plan.batch[0])
    half = outcome_of(SMALL, f"system.software.saturation.saturation_batch={2 * batch} token")
    enough = outcome_of(SMALL, f"system.software.saturation.saturation_batch={batch / 4} token")
    assert 1.5 < half.step_time.compute / own.step_time.compute < 2.1
    np.testing.assert_allclose(enough.time, own.time, rtol=1e-6)
