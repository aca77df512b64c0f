"""Whole runs: parts that add up, batches and schedules, one run among many, both precisions, extremes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.files import names
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate
from energymodel.system.plan import TargetLoss
from outcomes import outcome_of, replaced

SCENARIOS = [name for name in names("scenarios") if not name.startswith("_")]
LLAMA = "llama-3.1-405b-h100"
SMALL = "test-1b-h100"


@pytest.mark.parametrize("name", SCENARIOS)
def test_energy_parts_and_step_times_add_up_and_none_is_negative(name, scenario, run):
    case = scenario(name)
    system, plan = case.system, case.plan
    outcome = run(system, plan)
    parts = jax.tree.leaves(outcome.energy)
    assert len(parts) == 9
    assert all(part >= 0.0 for part in parts)

    # What the chips, links and hosts draw, carried through the building, is the whole (docs/physics.md E).
    energy = outcome.energy
    load = sum(parts[:6]) / outcome.chip_time
    assert parts[5] is energy.idle_wait
    meter = system.facility.power(load, system.facility.cooling.at(plan.coolant_temperature)).total(load)
    np.testing.assert_allclose(sum(parts), meter * outcome.chip_time, rtol=1e-9)
    np.testing.assert_allclose(sum(parts), energy.total, rtol=1e-12)
    np.testing.assert_allclose(energy.total, outcome.power_average * outcome.time, rtol=1e-12)
    assert 1.0 <= outcome.pue < 2.0

    terms = jax.tree.leaves(outcome.step_time)
    assert len(terms) == 12
    assert all(term >= 0.0 for term in terms)
    productive = outcome.steps * sum(terms)
    np.testing.assert_allclose(outcome.time, productive / outcome.availability * (1 + system.other_stages), rtol=1e-9)
    np.testing.assert_allclose(outcome.token_rate * productive, outcome.tokens, rtol=1e-12)


def test_batch_may_be_a_scalar_or_one_knot(scenario, run):
    case = scenario(LLAMA)
    scalar = eqx.tree_at(lambda p: p.batch, case.plan, np.reshape(case.plan.batch, ()))
    for left, other in zip(
        jax.tree.leaves(run(case.system, case.plan)), jax.tree.leaves(run(case.system, scalar)), strict=True
    ):
        assert left.shape == other.shape == ()
        np.testing.assert_allclose(left, other, rtol=1e-12)


@pytest.mark.slow
def test_a_schedule_of_equal_knots_is_the_constant_batch(scenario, run):
    case = scenario(LLAMA)
    schedule = eqx.tree_at(lambda p: p.batch, case.plan, np.repeat(case.plan.batch, 3))
    assert_same(run(case.system, case.plan), run(case.system, schedule), 1e-6)


@pytest.mark.parametrize("name", [LLAMA, "deepseek-v3-h800", SMALL])
def test_the_loss_of_a_token_budget_asks_for_the_same_tokens(name, scenario, run):
    case = scenario(name)
    outcome = run(case.system, case.plan)
    back = run(case.system, eqx.tree_at(lambda p: p.goal, case.plan, TargetLoss(outcome.loss)))
    np.testing.assert_allclose(back.tokens, outcome.tokens, rtol=1e-9)
    np.testing.assert_allclose(back.loss, outcome.loss, rtol=1e-12)
    np.testing.assert_allclose(back.energy.total, outcome.energy.total, rtol=1e-9)


def test_llama_405b_at_its_disclosed_plan(scenario, run):
    # Llama team 2024, table 4: 38 to 43 % MFU on 8,192 to 16,384 H100; model card: 30.84 million H100 hours.
    case = scenario(LLAMA)
    layout = case.plan.layout
    assert (layout.tensor, layout.pipeline, case.plan.chips) == (8.0, 16.0, 16384.0)
    assert case.plan.chips / (layout.tensor * layout.pipeline) == 128.0
    assert case.plan.batch == 16 * 2**20
    assert case.system.workload.sequence == 8192.0
    outcome = run(case.system, case.plan)
    assert 0.36 <= outcome.mfu <= 0.45
    np.testing.assert_allclose(outcome.chip_time / 3600.0, 30.84e6, rtol=0.15)
    assert outcome.slack.memory > 0.0
    assert jnp.isfinite(outcome.carbon)


def test_a_rise_over_a_share_of_the_progress_is_a_schedule():
    rise = "plan.batch=256 Ki token to 1 Mi token over 25 %"
    batch = load_scenario(SMALL, [rise]).plan.batch
    np.testing.assert_allclose(batch, np.array([0.25, 1.0, 1.0, 1.0, 1.0]) * 2**20, rtol=1e-12)
    risen, constant = outcome_of(SMALL, rise), outcome_of(SMALL, "plan.batch=1 Mi token")
    assert risen.loss < constant.loss  # a young model learns more from small batches
    assert risen.steps > constant.steps


GROUPS = ("energy", "step_time")
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
    case = scenario("llama-3.1-405b-h100")
    draw = np.random.default_rng(0)
    plan = jax.tree.map(lambda leaf: np.broadcast_to(np.reshape(leaf, ()), (PLANS,)), case.plan)
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
    return case.system, eqx.tree_at(lambda p: [getattr(p.layout, name) for name in DEGREES], plan, degrees)


def errors(entry, other):
    """Error of each output: relative, of the total of its group, or of one for logarithms."""
    result = {}
    for (path, value), again in zip(jax.tree_util.tree_leaves_with_path(entry), jax.tree.leaves(other), strict=True):
        group = path[0].name
        total = getattr(entry, group).total if group in GROUPS else 1.0 if group == "slack" else 0.0
        size = np.maximum(np.maximum(np.abs(value), total), 1e-300)
        result[jax.tree_util.keystr(path)] = np.max(np.abs(np.asarray(again, np.float64) - value) / size)
    return result


def assert_same(entry, other, rtol):
    wrong = {path: error for path, error in errors(entry, other).items() if not error < rtol}
    assert wrong == {}


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
    case = scenario("test-1b-h100")
    assert_same(run(case.system, case.plan), evaluate(case.system, case.plan), 1e-9)


def test_outputs_are_scalars_of_the_precision_of_the_caller(scenario, run):
    case = scenario("test-1b-h100")
    for precision, dtype in ((True, np.float64), (False, np.float32)):
        with jax.enable_x64(precision):
            outcome = jax.eval_shape(evaluate, case.system, case.plan)
        assert all(leaf.shape == () and leaf.dtype == dtype for leaf in jax.tree.leaves(outcome))
    assert jnp.shape(run(case.system, case.plan).carbon) == ()


QUICK = ("llama-3.1-405b-h100",)
IN_BOTH_PRECISIONS = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in names("scenarios")
    if not name.startswith("_")
]


@pytest.mark.parametrize("name", IN_BOTH_PRECISIONS)
def test_float32_agrees_with_float64(name, scenario, run):
    case = scenario(name)
    with jax.enable_x64(False):
        single = jax.device_get(run(case.system, case.plan))
    with jax.enable_x64(True):
        double = jax.device_get(run(case.system, case.plan))
    for outcome, dtype in ((single, np.float32), (double, np.float64)):
        assert {leaf.dtype for leaf in jax.tree.leaves(outcome)} == {np.dtype(dtype)}
    assert_same(double, single, 1e-4)


MAY_BE_ZERO = {
    "accelerator": ("launch_overhead", "overhead_time", "fixed_power", "idle_power", "memory_energy", "gemm_edge"),
    "accelerator.leakage": ("power", "temperature_sensitivity"),
    "accelerator.gate": ("fraction", "wake_energy"),
    "node.scale_up": ("latency", "lane_power"),
    "network.link": ("latency", "overhead"),
    "network": ("hop_energy", "static_power"),
    "reliability": ("straggler_variation", "restart_time"),
    "market": ("price.interest_rate", "carbon.intensity"),
    "facility": ("distribution.resistance", "power_supply.fixed_loss", "transformer_loss"),
}
ZEROS = [f"{owner}.{name}" for owner, owned in MAY_BE_ZERO.items() for name in owned]
ZEROS += ["accelerator.thermal_resistance", "node.overhead_power", "other_stages", "mixture_exponent", "workload.flash"]
ZEROS += ["learning.absorbed_overhead"]


@pytest.mark.parametrize("precision", [32, 64])
def test_outputs_stay_finite_without_what_may_be_zero(precision, scenario, run):
    case = scenario(LLAMA)
    systems = {path: replaced(case.system, {path: 0.0}) for path in ZEROS}
    failures = "reliability.checkpoint_time", "reliability.restart_time"
    systems["no failures"] = replaced(case.system, dict.fromkeys(failures, 0.0))
    systems["all"] = replaced(case.system, dict.fromkeys(ZEROS, 0.0))
    with jax.enable_x64(precision == 64):
        wrong = {name: unsound(run(system, case.plan)) for name, system in systems.items()}
    assert {name: paths for name, paths in wrong.items() if paths} == {}


@pytest.mark.parametrize("precision", [32, 64])
def test_outputs_stay_finite_for_extreme_plans(precision, scenario, extreme_plans, run):
    case = scenario(LLAMA)
    with jax.enable_x64(precision == 64):
        wrong = {name: unsound(run(case.system, plan)) for name, plan in extreme_plans(case.plan).items()}
    assert {name: paths for name, paths in wrong.items() if paths} == {}


def unsound(outcome):
    """Outputs that are not finite, and energies and times below zero."""
    entries = jax.tree_util.tree_leaves_with_path(jax.device_get(outcome))
    return [
        f"{jax.tree_util.keystr(path)} = {value:g}"
        for path, value in entries
        if not np.isfinite(value) or (path[0].name in GROUPS and value < 0.0)
    ]
