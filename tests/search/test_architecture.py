"""The best shape of a transformer: realizable, at the same loss, and better than other shapes."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, sampled_from

import energymodel as em
from energymodel.errors import InputError
from energymodel.runtime.compilation import compiler_options
from energymodel.search.architecture import optimize_architecture
from energymodel.search.model_shape import (
    SHAPE,
    Depth,
    ShapedFormulation,
    ShapePrior,
    depths_that_divide,
    proportions,
    realizable_shapes,
    shaped,
)
from energymodel.search.problem import formulate
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import objective_value
from energymodel.system.plan import ParallelLayout


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario("test-1b-h100")


@pytest.fixture(scope="module")
def answer(scenario):
    return optimize_architecture(scenario)


def test_penalty_by_hand():
    # h/l = 200 and f/h = 16/3, twice the best of gated blocks, a d / h = 1: 0.005 x 2 x ln^2 2 = 4.8045e-3.
    workload = em.load_scenario("test-1b-h100").system.workload
    shape = shaped(workload, 10.0, {"hidden": 2000.0, "feed_forward_ratio": 16.0 / 3.0, "attention_ratio": 1.0})
    np.testing.assert_allclose(ShapePrior().penalty(shape), 4.8045e-3, rtol=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    name=sampled_from(["test-1b-h100", "llama-3.1-405b-h100", "deepseek-v3-h800"]),
    factor=floats(0.5, 2.0),
    layers=floats(4.0, 200.0),
)
def test_shape_variables_describe_a_transformer(name, factor, layers):
    workload = em.load_scenario(name).system.workload
    own = proportions(workload)
    same = shaped(workload, workload.layers, own)
    jax.tree.map(lambda leaf, own: np.testing.assert_allclose(leaf, own, rtol=1e-12), same, workload)
    wanted = {**own, "hidden": own["hidden"] * factor, "attention_ratio": own["attention_ratio"] / factor}
    other = shaped(workload, layers, wanted)
    for key, value in proportions(other).items():
        np.testing.assert_allclose(value, wanted[key], rtol=1e-12)
    # Wider by c, with attention as wide as before: embeddings times c, feed-forward blocks times c^2, attention c.
    dense = float(workload.experts) == 1.0
    if dense:
        blocks = factor**2 * workload.expert_block + factor * workload.attention_block
        expected = layers * blocks + factor * workload.embeddings
        np.testing.assert_allclose(other.parameters, expected, rtol=1e-12)


def test_depths_fill_the_pipeline():
    # 126 layers on 16 ranks of 8 virtual stages leave two slots empty: 16 k, or 16 k - 2.
    layout = ParallelLayout(pipeline=16.0, virtual_stages=8.0)
    depths = depths_that_divide(126.0, layout)
    assert set(depths % 16) == {0.0, 14.0}
    assert {112.0, 126.0, 128.0} <= set(depths.tolist())
    # Without virtual_stages a rank may hold any number of layers.
    np.testing.assert_array_equal(depths_that_divide(8.0, ParallelLayout(pipeline=4.0)), [4.0, 8.0, 12.0, 16.0, 20.0])


def test_realizable_shapes_surround_the_point(scenario):
    workload = scenario.system.workload
    point = np.log([2457.6, 4.0, 0.74, 1.0, 1.0, 1.0])
    counts = realizable_shapes(workload, ParallelLayout(tensor=4.0), 12.0, point)
    assert {float(shape.hidden) for shape in counts} == {2432, 2560}
    assert {float(shape.heads) for shape in counts} == {12, 16}  # 14.2 heads of 128
    assert {float(shape.feed_forward) for shape in counts} == {9728, 9984}
    assert len(counts) == 8
    assert all(shape.kv_heads == shape.heads for shape in counts)
    grouped = realizable_shapes(workload, ParallelLayout(tensor=4.0), 12.0, np.log([2457.6, 4.0, 0.74, 0.25, 1.0, 1.0]))
    assert {float(shape.kv_heads) for shape in grouped} == {4}  # a quarter of 12 or 16, in powers of two


@pytest.mark.slow
def test_shape_is_realizable(scenario, answer):
    assert answer.optimum.success, answer.optimum.message
    workload, plan = answer.optimum.system.workload, answer.optimum.plan
    layout = plan.layout
    head = float(workload.head_size)
    for value, step in [
        (workload.layers, 1),
        (workload.hidden, head),
        (workload.heads, float(layout.tensor)),
        (workload.feed_forward, 256),
        (workload.heads, float(workload.kv_heads)),
        (plan.batch.item(), float(plan.chips * layout.microbatch * workload.sequence)),
    ]:
        assert float(value) % step == 0


@pytest.mark.slow
def test_shape_has_the_loss_and_the_limits_of_the_scenario(scenario, answer):
    with jax.enable_x64(True):
        baseline = evaluate_once(scenario.system, scenario.plan)
    own = float(baseline.loss + ShapePrior().penalty(scenario.system.workload))
    np.testing.assert_allclose(answer.loss, own, rtol=1e-9)
    assert float(answer.optimum.outcome.time) <= float(baseline.time) * (1 + 1e-6)
    assert float(answer.optimum.outcome.out_of_memory) <= 0.05 * (1 + 1e-6)
    assert answer.relaxed_value * (1 - 1e-6) <= answer.value < 1.01 * answer.relaxed_value
    assert answer.value < answer.own_value <= float(objective_value(baseline, "energy")) * (1 + 1e-9)
    assert 0.0 < answer.saving < 0.2


@pytest.mark.slow
def test_optimum_is_flat_and_a_minimum(answer):
    """20 % of the depth costs a few percent at most: Kaplan et al. 2020, fig. 5, at fixed parameters."""
    best = int(np.argmin(answer.depth_values))
    assert 0 < best < np.isfinite(answer.depth_values).sum() - 1
    near = np.abs(answer.depths / answer.depths[best] - 1.0) < 0.21
    assert np.sum(near) >= 3
    costs = np.delete(answer.depth_values[near] / answer.depth_values[best] - 1.0, np.argmin(answer.depth_values[near]))
    assert np.all((costs > 0.0) & (costs < 0.05))


@pytest.mark.slow
def test_not_beaten_by_random_shapes(scenario, answer):
    """20,000 shapes with other plans around the optimum, at the same loss and limits."""
    limits = {"loss": answer.loss}
    with jax.enable_x64(True):
        baseline = evaluate_once(scenario.system, scenario.plan)
    problem = formulate(scenario.with_question(limits=limits, fix=("plan.chips", "plan.coolant_temperature")), baseline)
    random = np.random.default_rng(3)
    count = 20_000
    free = np.array([name in answer.names for name in SHAPE])
    center = np.log([float(value) for value in proportions(answer.optimum.system.workload).values()])
    spread = 10.0 ** random.uniform(-3.0, -0.3, (count, 1))
    shapes = center + free * spread * random.normal(size=(count, len(SHAPE)))
    plan = np.log([float(answer.optimum.plan.batch.item()), float(answer.optimum.plan.clock)])
    assert problem.formulation.paths == ("plan.batch", "plan.clock")
    plans = np.minimum(plan + spread * random.normal(size=(count, 2)), [np.inf, 0.0])
    depth = Depth(np.asarray(answer.optimum.system.workload.layers), scenario.plan.layout)
    form = ShapedFormulation.of(problem.formulation, ShapePrior())
    evaluate = jax.jit(jax.vmap(form.values, in_axes=(0, None, None, None)), compiler_options=compiler_options())
    values = evaluate(np.concatenate([shapes, plans], axis=1), depth, problem.criteria, problem.run)
    feasible = np.all(np.asarray(values.inequalities) <= 1e-6, axis=1)
    assert feasible.sum() > 1000
    assert np.exp(np.asarray(values.objective)[feasible].min()) >= answer.relaxed_value * (1 - 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ("depth",)}, "depth"),
        ({"names": ("experts",)}, "experts"),
        ({"vary": {"system.workload.hidden": (1e3, 1e4)}}, "names"),
        ({"minimize": "loss"}, "Limit time, money, energy or carbon"),
        ({"minimize": "loss", "limits": {"chips": 8.0}}, "Limit time, money, energy or carbon"),
        ({"vary": {"plan.batch@0..1": ""}}, "only optimize lets it vary, for the model as it is"),
    ],
)
def test_bad_input_is_named(scenario, arguments, message):
    with pytest.raises(InputError, match=message):
        optimize_architecture(scenario, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "limits", "parameters"),
    [
        ("test-1b-h100", {"time": "2 d"}, (1.5e9, 3e9)),
        ("llama-3.1-405b-h100", {"time": "30 d", "chips": 64.0}, (1e10, 4e10)),
    ],
)
def test_lowest_loss_is_that_of_a_size_between(name, limits, parameters):
    """The loss falls with time; C = 6 N D with 20 tokens a parameter gives the size within a factor of two."""
    scenario = em.load_scenario(name)
    best = optimize_architecture(scenario, "loss", limits)
    assert best.optimum.success, best.optimum.message
    assert parameters[0] < float(best.optimum.system.workload.parameters) < parameters[1]
    outcome = best.optimum.outcome
    np.testing.assert_allclose(best.value, float(outcome.loss) + best.penalty, rtol=1e-9)
    assert np.isnan(best.own_value) or best.value < best.own_value
    assert float(best.optimum.plan.chips) <= limits.get("chips", float(scenario.plan.chips))
    assert "time" in best.optimum.active
