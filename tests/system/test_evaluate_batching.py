"""Is a run the same by itself, compiled or not, and among ten thousand?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime.compilation import compiler_options
from energymodel.system.evaluate import evaluate

PLANS = 10_000
DEGREES = {
    "tensor": [1.0, 2.0, 4.0, 8.0, 16.0],
    "pipeline": [1.0, 2.0, 4.0, 16.0],
    "virtual_stages": [1.0, 2.0, 8.0],
    "context": [1.0, 2.0],
    "microbatch": [1.0, 2.0],
    "shard_parameters": [0.0, 1.0],
    "recompute_full": [0.0, 1.0],
    "fp8": [0.0, 1.0],
}


@pytest.fixture(scope="module")
def lattice(scenario):
    """A system and ten thousand plans of it, drawn from a fixed seed."""
    given = scenario("llama-3.1-405b-h100")
    draw = np.random.default_rng(0)
    plan = jax.tree.map(lambda leaf: np.broadcast_to(np.reshape(leaf, ()), (PLANS,)), given.plan)
    plan = eqx.tree_at(
        lambda p: (p.batch, p.clock, p.power_cap, p.chips, p.coolant_temperature),
        plan,
        (
            np.exp(draw.uniform(np.log(1e6), np.log(1e8), PLANS)),
            draw.uniform(0.2, 1.0, PLANS),
            draw.uniform(200.0, 900.0, PLANS),
            512.0 * draw.integers(1, 64, PLANS),
            draw.uniform(283.0, 318.0, PLANS),
        ),
    )
    degrees = [draw.choice(values, PLANS) for values in DEGREES.values()]
    return given.system, eqx.tree_at(lambda p: [getattr(p.layout, name) for name in DEGREES], plan, degrees)


def assert_same(one, other, rtol):
    entries = jax.tree_util.tree_leaves_with_path(one)
    for (path, value), again in zip(entries, jax.tree.leaves(other), strict=True):
        group = path[0].name
        # Parts are compared with their total, logarithms with one.
        total = getattr(one, group).total if group in ("energy", "step_time") else 1.0 if group == "slack" else 0.0
        error = np.abs(np.asarray(again) - value) / np.maximum(np.maximum(np.abs(value), total), 1e-300)
        assert np.max(error) < rtol, (jax.tree_util.keystr(path), np.max(error))


@pytest.mark.slow
def test_ten_thousand_plans_at_once_equal_one_after_another(lattice, run):
    system, plans = lattice
    together = jax.jit(jax.vmap(evaluate, in_axes=(None, 0)), compiler_options=compiler_options())
    at_once = jax.device_get(together(system, plans))
    assert all(np.shape(leaf) == (PLANS,) for leaf in jax.tree.leaves(at_once))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(at_once))

    one_by_one = jax.jit(
        lambda system, plans: jax.lax.map(lambda plan: evaluate(system, plan), plans),
        compiler_options=compiler_options(),
    )
    assert_same(at_once, jax.device_get(one_by_one(system, plans)), 1e-9)

    for index in range(0, PLANS, PLANS // 50):
        plan = jax.tree.map(lambda leaf, index=index: leaf[index], plans)
        single = jax.device_get(run(system, plan))
        assert_same(jax.tree.map(lambda leaf, index=index: leaf[index], at_once), single, 1e-9)


def test_a_run_is_the_same_compiled_or_not(scenario, run):
    given = scenario("test-1b-h100")
    assert_same(run(given.system, given.plan), evaluate(given.system, given.plan), 1e-9)


def test_outputs_are_scalars_of_the_precision_of_the_caller(scenario, run):
    given = scenario("test-1b-h100")
    for precision, dtype in ((True, np.float64), (False, np.float32)):
        with jax.enable_x64(precision):
            outcome = jax.eval_shape(evaluate, given.system, given.plan)
        assert all(leaf.shape == () and leaf.dtype == dtype for leaf in jax.tree.leaves(outcome))
    assert jnp.shape(run(given.system, given.plan).carbon) == ()
