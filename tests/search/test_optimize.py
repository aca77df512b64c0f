"""The plan of `optimize`: realizable, within limits, better than random search."""

import math

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.scenarios.checks import check_plan
from energymodel.search.layout_search import turned_on
from energymodel.search.layouts import concatenate, fitting_layouts
from energymodel.search.problem import formulate
from energymodel.search.relaxation import COARSE, evaluate_points, screen
from energymodel.search.result import SearchResult
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import SEARCHED, candidates
from energymodel.system.outputs import objective_value

README_SCENARIO = "llama-3.1-405b-h100"
OF_PLAN = ["plan.batch", "plan.clock", "plan.coolant_temperature", "plan.chips"]


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario(README_SCENARIO)


@pytest.fixture(scope="module")
def optimum(scenario, room):
    return em.optimize(scenario, minimize="energy", tolerance=0.0)


def test_plan_is_realizable(scenario, optimum):
    plan, layout = optimum.plan, optimum.plan.layout
    assert optimum.success, optimum.message
    group = layout.tensor * layout.pipeline * layout.context
    data = float(plan.chips / group)
    assert data == round(data)
    microbatches = float(plan.batch.item() / (data * layout.microbatch * scenario.system.workload.sequence))
    assert microbatches == round(microbatches)
    assert microbatches >= 1
    check_plan(scenario.system, plan)  # also that the pipeline runs
    assert float(plan.chips) % float(scenario.system.node.chips) == 0


def test_plan_keeps_the_limits_at_the_loss_of_the_baseline(scenario, optimum):
    outcome, baseline = optimum.outcome, optimum.baseline
    np.testing.assert_allclose(outcome.loss, baseline.loss, rtol=1e-9)
    assert float(outcome.time) <= float(baseline.time) * (1 + 1e-6)
    assert float(outcome.out_of_memory) <= 0.05 * (1 + 1e-6)
    assert float(outcome.power_peak) <= float(scenario.system.facility.power_limit)
    assert float(outcome.temperature) <= float(scenario.system.accelerator.maximum_temperature)
    assert optimum.value < optimum.baseline_value
    assert optimum.value >= optimum.relaxed_value * (1 - 1e-6)


def test_plan_is_what_evaluate_says(optimum):
    outcome = evaluate_once(optimum.scenario.system, optimum.plan)
    np.testing.assert_allclose(outcome.energy.total, optimum.value, rtol=1e-12)


@pytest.mark.parametrize("wanted", [20, pytest.param(2_000, marks=pytest.mark.slow)])
def test_not_beaten_by_random_realizable_plans(scenario, optimum, wanted):
    """So many plans that obey every limit at the same loss: promising layouts, whole counts, other clocks."""
    problem = formulate(scenario, optimum.baseline)
    chips = float(scenario.plan.chips)
    lattice = candidates(problem.run.system, problem.run.plan.layout, chips)
    promising = screen(problem, lattice, COARSE).best(32)
    lattice = jax.tree.map(lambda leaf: leaf[promising], lattice)
    random = np.random.default_rng(7)
    sequence, node = float(scenario.system.workload.sequence), int(scenario.system.node.chips)

    feasible, best = 0, math.inf
    for _ in range(3 * wanted):
        count = 4096
        pick = random.integers(len(lattice.tensor), size=count)
        layouts = jax.tree.map(lambda leaf, pick=pick: leaf[pick], lattice)
        group = layouts.tensor * layouts.pipeline * layouts.context
        most = np.floor(chips / group)
        data = np.maximum(1, np.floor(most * random.uniform(0.5, 1.0, count)))
        data = np.where(random.random(count) < 0.8, most, data)
        whole_nodes = (data * group) % node == 0
        replica = data * layouts.microbatch * sequence
        tokens = float(scenario.plan.batch.item()) * random.uniform(0.3, 1.5, count)
        replica = replica * np.where(layouts.virtual_stages > 1.0, layouts.pipeline, 1.0)  # whole groups
        batch = np.maximum(1.0, np.floor(tokens / replica)) * replica
        point = {
            "plan.batch": batch,
            "plan.clock": random.uniform(0.75, 1.0, count),
            "plan.coolant_temperature": random.uniform(*problem.bounds["plan.coolant_temperature"], count),
            "plan.chips": data * group,
        }
        points = np.log(np.stack([point[path] for path in problem.formulation.paths], axis=1))
        values = evaluate_points(problem, points[:, None], layouts)
        allowed = np.all(values.inequalities[:, 0] <= 0.0, axis=1) & whole_nodes
        feasible += int(allowed.sum())
        best = min(best, float(np.min(values.objective[allowed, 0], initial=math.inf)))
        if feasible >= wanted:
            break
    assert feasible >= wanted
    assert np.exp(best) >= optimum.value * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("minimize", ["money", "time", "carbon", "energy*time^2", "loss"])
def test_each_objective_improves_on_the_baseline(scenario, minimize):
    optimum = em.optimize(scenario, minimize=minimize)
    assert optimum.success, optimum.message
    assert optimum.value <= optimum.baseline_value
    np.testing.assert_allclose(float(objective_value(optimum.outcome, minimize)), optimum.value)


@pytest.mark.slow
def test_price_of_time_is_the_slope_of_the_optimum(scenario, optimum):
    """A relaxed time limit saves what its multiplier says [envelope theorem]."""
    longer = em.optimize(scenario, limits={"time": optimum.limits["time"] * 1.01}, tolerance=0.0)
    predicted = optimum.prices["time"].elasticity * math.log(1.01)
    assert math.log(optimum.relaxed_value / longer.relaxed_value) == pytest.approx(predicted, rel=0.1)


@pytest.mark.slow
def test_infeasible_names_the_conflict_and_what_each_must_give(scenario):
    optimum = em.optimize(scenario, limits={"time": "90 days", "facility_power": "12 MW"})
    assert optimum.result == SearchResult.infeasible == "infeasible"
    with pytest.raises(RuntimeError, match="infeasible: No plan obeys these limits together"):
        optimum.result.throw_unless_successful(optimum.message)
    conflicts = {conflict.limit: conflict for conflict in optimum.conflicts}
    # Each of time and power can hold alone with the loss and the chips, so that a smallest conflict has both.
    assert {"time", "facility_power", "loss"} == set(conflicts)
    assert "move" in optimum.message
    nearest = {name: conflict.nearest / conflict.asked for name, conflict in conflicts.items()}
    assert all(ratio > 1.0 for ratio in nearest.values())
    # The plan obeys all limits but the one that gives.
    obeyed = [optimum.outcome.time <= 90 * 86400 * (1 + 1e-6), optimum.outcome.power_peak <= 12e6 * (1 + 1e-6)]
    assert sum(map(bool, obeyed)) == 1
    # Minimizing an output under the other limits gives the nearest value of its limit.
    fastest = em.optimize(scenario, minimize="time", limits={"facility_power": "12 MW"}, tolerance=0.0)
    nearest = conflicts["time"].nearest / float(fastest.outcome.time)
    assert 1.0 - 2e-3 < nearest < 1.02  # of the layouts that were searched again, which may lack the fastest


@pytest.mark.slow
def test_a_time_that_the_loss_and_the_chips_forbid(scenario):
    optimum = em.optimize(scenario, limits={"time": "20 days"})
    assert {"time", "loss", "chips"} == {conflict.limit for conflict in optimum.conflicts}
    assert float(optimum.outcome.time) > 20 * 86400


@pytest.mark.slow
def test_layouts_are_searched_where_all_else_is_fixed(scenario):
    optimum = em.optimize(scenario, fix=OF_PLAN, tolerance=0.0)
    assert optimum.varied == ()
    assert optimum.result == SearchResult.successful
    plan, own = optimum.plan, scenario.plan
    for name in ("chips", "batch", "clock", "coolant_temperature"):
        np.testing.assert_allclose(getattr(plan, name), getattr(own, name), rtol=1e-12)
    # No layout of whole replicas and micro-batches within the limits beats it.
    with jax.enable_x64(True):
        asked = scenario.with_question("energy", None, None, OF_PLAN, 0.0)
        problem = formulate(asked, optimum.baseline)
        lattice, _ = fitting_layouts(problem)
        lattice = concatenate(lattice, turned_on(lattice, "async_tensor"))
        values = evaluate_points(problem, np.log(np.full((len(lattice.tensor), 1, 1), float(own.clock))), lattice)
    data = float(own.chips) / (lattice.tensor * lattice.pipeline * lattice.context)
    count = float(own.batch[0]) / (data * lattice.microbatch * float(scenario.system.workload.sequence))
    whole = np.all([np.round(n) == n for n in (data, data * lattice.context / lattice.expert, count)], axis=0)
    obeys = np.all(values.inequalities[:, 0] <= 1e-7, axis=-1)
    multiple = np.where(lattice.virtual_stages > 1.0, lattice.pipeline, 1.0)
    best = np.min(values.objective[:, 0], where=whole & obeys & (count % multiple == 0.0), initial=np.inf)
    np.testing.assert_allclose(math.log(optimum.value), best, rtol=0, atol=1e-9)


def test_bad_questions_are_refused(scenario):
    with pytest.raises(em.InputError, match='limit: unknown "tme"'):
        em.optimize(scenario, limits={"tme": "3 days"})
    with pytest.raises(em.InputError, match="energy"):
        em.optimize(scenario, minimize="enregy")
    with pytest.raises(em.InputError, match="Nothing is left to vary"):
        em.optimize(scenario, fix=[*OF_PLAN, *(f"plan.layout.{name}" for name in SEARCHED)])
    with pytest.raises(em.InputError, match="even unlimited data leave"):
        em.optimize(scenario, limits={"loss": "1 nat/token"})
    with pytest.raises(em.InputError, match="no layout has tensor 3 to 3"):
        em.optimize(scenario, vary={"plan.layout.tensor": (3, 3)})
    with pytest.raises(em.InputError, match=r"coolant_temperature: 10 °C to 45 °C is outside 10 °C to 35 °C.*inlet"):
        em.optimize(scenario, vary={"plan.coolant_temperature": (283.15, 318.15)})
    hot = em.load_scenario("test-1b-h100", ["plan.coolant_temperature=40 °C"])
    with pytest.raises(em.InputError, match="40 °C is outside"):
        em.optimize(hot, fix=["plan.coolant_temperature"])
    with pytest.raises(em.InputError, match="loss is held"):
        em.optimize(scenario, vary={"plan.goal.loss": (1.9, 2.0)})
