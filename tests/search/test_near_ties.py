"""Near ties: of plans as good as the best, the one that needs the least of something else."""

import re

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.report.answers.search_parts import near_tie_sentence
from energymodel.report.number import sentence
from energymodel.runtime.compilation import compiler_options
from energymodel.search.layout_choice import chances_of_lowest, constant_draws
from energymodel.search.problem import formulate, row_of_objective
from energymodel.search.refinement import saved_beside, tolerance_of
from energymodel.search.training_run import TrainingRun
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import FIELDS, SCHEDULING
from energymodel.system.outputs import objective_value

README_SCENARIO = "llama-3.1-405b-h100"
SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def scenario():
    """At a cap that throttles the chips: the colder they are, the less they leak and the faster they run."""
    return em.load_scenario(README_SCENARIO, {"system.facility.power_limit": "30 MW", "plan.power_cap": "600 W"})


@pytest.fixture(scope="module")
def fastest(scenario):
    """Of the plans that are as fast as the fastest, the one with the least energy."""
    return em.optimize(scenario, minimize="time")


@pytest.mark.parametrize(
    ("minimize", "row"),
    [("time", "time"), ("loss", "loss"), ("energy*time^2", "energy^1.0*time^2.0"), ("mfu", "mfu^1.0")],
)
def test_the_row_of_an_objective_is_below_its_limit_where_the_objective_is(minimize, row):
    assert row_of_objective(minimize) == row


def test_chances_of_the_lowest_by_hand():
    # Two of three are equal; the difference of two errors of 0.1 is sqrt(2) x 0.1, and Phi(1) is 0.841345.
    np.testing.assert_allclose(chances_of_lowest(np.array([1.0, 1.0, np.inf]), 0.1), [0.5, 0.5, 0.0], rtol=1e-7)
    apart = chances_of_lowest(np.array([0.0, 0.1 * 2**0.5]), 0.1)
    np.testing.assert_allclose(apart, [0.841345, 0.158655], rtol=1e-5)
    np.testing.assert_array_equal(chances_of_lowest(np.array([2.0, 1.0]), 0.0), [0.0, 1.0])
    draws = np.random.default_rng(0).normal(size=(400_000, 4)) * 0.1 + np.array([0.0, 0.05, 0.1, 0.3])
    counted = np.bincount(np.argmin(draws, axis=1), minlength=4) / len(draws)
    np.testing.assert_allclose(chances_of_lowest(np.array([0.0, 0.05, 0.1, 0.3]), 0.1), counted, atol=3e-3)


def test_a_loss_has_no_near_ties(scenario):
    assert tolerance_of(scenario.with_question("loss")) == tolerance_of(scenario.with_question("loss^2*time")) == 0.0
    assert tolerance_of(scenario.with_question("time", tolerance=0.01)) == 0.01


def test_energy_is_saved_and_money_where_energy_is_minimized():
    assert saved_beside("time") == saved_beside("energy*time^2") == "energy"
    assert saved_beside("energy") == "money"


def test_colder_coolant_speeds_up_throttled_chips_only(scenario):
    """Without a throttle every coolant gives the same time, so that the coolant of the fastest plan is arbitrary."""

    def time(cap, coolant):
        plan = eqx.tree_at(lambda plan: (plan.power_cap, plan.coolant_temperature), scenario.plan, (cap, coolant))
        outcome = evaluate_once(scenario.system, plan)
        return float(outcome.time), float(outcome.power_busy)

    (cold, capped), (warm, _) = time(600.0, 291.15), time(600.0, 300.15)
    assert capped == pytest.approx(600.0, rel=1e-6)
    assert cold < warm * (1.0 - 1e-3)
    (cold, _), (warm, drawn) = time(700.0, 291.15), time(700.0, 300.15)
    assert drawn < 700.0
    assert cold == pytest.approx(warm, rel=1e-9)


@pytest.mark.slow
def test_the_fastest_plan_does_not_cool_for_the_last_tenths(fastest):
    tie = fastest.near_tie
    assert fastest.success
    assert tie.taken
    assert 0.0 < tie.cost <= 0.005 * (1 + 1e-6)
    assert tie.saving > tie.cost
    exact, energy = float(tie.outcome.time), float(tie.outcome.energy.total)
    np.testing.assert_allclose(float(fastest.outcome.time) / exact - 1.0, tie.cost, rtol=1e-6)
    np.testing.assert_allclose(1.0 - float(fastest.outcome.energy.total) / energy, tie.saving, rtol=1e-6)
    coldest, _ = formulate(fastest.scenario, fastest.baseline).bounds["plan.coolant_temperature"]
    assert float(tie.plan.coolant_temperature) == pytest.approx(coldest, abs=1e-3)
    assert float(fastest.plan.coolant_temperature) > coldest + 1.0
    line = sentence(near_tie_sentence(fastest, tie))
    assert re.search(
        r"takes the lowest energy\. The plan of the lowest time .* saves 0\.50? % .* and takes .* % more", line
    )
    assert "coolant temperature" in line


@pytest.mark.slow
def test_the_own_layout_stays_unless_another_one_is_surely_better(scenario, fastest):
    (ranked, claim), own = fastest.choice, scenario.plan.layout
    chances = [layout.probability for layout in ranked]
    assert chances == sorted(chances, reverse=True)
    assert 0.9 < sum(chances) <= 1.0 + 1e-9
    assert min(layout.excess for layout in ranked) == 0.0
    if claim is not None:
        assert claim.taken == (claim.probability >= 0.9)
        assert 0.0 < claim.gain < 1.0
        turned = {name for name in FIELDS if float(getattr(own, name)) != float(getattr(fastest.plan.layout, name))}
        assert claim.taken or turned <= set(SCHEDULING)


@pytest.mark.slow
def test_no_other_clock_and_coolant_within_the_tolerance_need_less(scenario, fastest):
    """On a grid of both, at the layout and the counts of the answer."""
    problem = formulate(scenario.with_question("time"), fastest.baseline)
    clocks, coolants = np.linspace(0.9, 1.0, 101), np.linspace(*problem.bounds["plan.coolant_temperature"], 176)
    clock, coolant = map(np.ravel, np.meshgrid(clocks, coolants))
    values = {
        "plan.batch": np.full(clock.size, fastest.plan.batch.item()),
        "plan.chips": np.full(clock.size, float(fastest.plan.chips)),
        "plan.clock": clock,
        "plan.coolant_temperature": coolant,
    }
    points = np.log(np.stack([values[path] for path in problem.formulation.paths], axis=1))
    lanes = jax.vmap(problem.formulation.values, in_axes=(0, None, None, None))
    evaluate = jax.jit(lanes, compiler_options=compiler_options(once=True))
    times, rows, _ = evaluate(points, fastest.plan.layout, problem.criteria, problem.run)
    energies = np.asarray(rows)[:, problem.formulation.rows.index("energy")]
    energies = np.exp(energies) * float(problem.criteria.limits["energy"])
    obeyed = np.all(np.asarray(rows) <= 1e-6, axis=1)
    near = np.exp(np.asarray(times)) <= float(fastest.near_tie.outcome.time) * 1.005
    assert np.sum(obeyed & near) > 10
    assert np.min(energies[obeyed & near]) >= float(fastest.outcome.energy.total) * (1 - 1e-3)


@pytest.mark.slow
def test_no_tolerance_is_the_exact_optimum(scenario, fastest):
    exact = em.optimize(scenario, minimize="time", tolerance=0.0)
    assert exact.near_tie is None
    assert exact.choice.claim is None
    # The layout of the model's fastest plan claims too little to be taken otherwise.
    assert not fastest.choice.claim.taken
    assert exact.value < float(fastest.near_tie.outcome.time)


@pytest.mark.slow
def test_least_energy_gives_up_half_a_percent_for_much_money(scenario):
    optimum = em.optimize(scenario, limits={"time": "120 days"}, tolerance="0.5 %")
    tie = optimum.near_tie
    assert tie is not None
    assert tie.saved == "money"
    assert tie.taken == (tie.saving > tie.cost)
    best = float(objective_value(tie.outcome, "energy"))
    assert best <= optimum.value <= best * (1.005 + 1e-6)


def chips_allowed(chips, limits=None):
    scenario = em.load_scenario(SMALL).with_question(limits=limits, vary={"plan.chips": chips})
    return formulate(scenario, jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan)))


def test_a_range_of_chips_is_not_cut_to_those_of_the_own_plan():
    problem = chips_allowed((8, 64))
    assert problem.bounds["plan.chips"] == (8, 64)
    assert problem.limits["chips"] == problem.most_chips == 64
    assert chips_allowed((8, 32), {"chips": 32}).most_chips == 32


def test_a_range_of_chips_above_their_limit_is_refused():
    with pytest.raises(em.InputError, match=re.escape("vary plan.chips: 64 is more than the limit of 16 chips.")):
        chips_allowed((8, 64), {"chips": 16})


def test_constants_are_drawn_as_they_are_known():
    scenario = em.load_scenario("test-1b-h100", {"system.software.data_overlap": 0.5}, cluster="llm-foundry-a100")
    draws = constant_draws(scenario, TrainingRun(scenario.system, scenario.plan))
    table, path = scenario.tables["calibration"]["step-time"], "software.product_efficiency"
    index = table["names"].index(path)
    logarithms = np.log(draws[f"system.{path}"])
    np.testing.assert_allclose(logarithms.mean(), table["coordinates"][index], rtol=1e-12)
    np.testing.assert_allclose(logarithms.std(), table["covariance"][index][index] ** 0.5, rtol=0.25)
    assert "system.software.data_overlap" not in draws  # stated, so exact
    alone = em.load_scenario("test-1b-h100")
    priors = constant_draws(alone, TrainingRun(alone.system, alone.plan))
    expected = float(alone.system.software.product_efficiency)
    assert np.median(priors[f"system.{path}"]) == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
def test_the_own_layout_takes_the_switches_that_surely_save(scenario):
    """Communication beside the products saves at every draw, and another layout with 70 % only."""
    best = em.optimize(scenario)
    assert best.choice.claim is not None
    assert not best.choice.claim.taken
    own, new = vars(scenario.plan.layout), vars(best.plan.layout)
    assert {name for name in own if float(own[name]) != float(new[name])} == {"async_tensor"}
    without = em.optimize(scenario, fix=["plan.layout.async_tensor"])
    assert float(without.plan.layout.async_tensor) == 0.0
    assert best.value < 0.98 * without.value


@pytest.mark.slow
def test_no_layout_pays_for_a_limit_that_moves_with_it():
    # The own plan's time is the limit, at which its layout has no slack: draws that are slow for both are neutral.
    claim = em.optimize(em.load_scenario("test-1b-h100")).choice.claim
    assert claim is not None
    assert 0.0 < claim.gain < 0.5
