"""Can the layouts that `search_layouts` leaves out hold a better plan?"""

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.design.layout_search import MARGIN, lower_bounds, search_layouts
from energymodel.design.layouts import take
from energymodel.design.problem import formulate
from energymodel.design.relaxation import COARSE, FINE, OPTIONS, fitting_layouts, layout_bounds, screen, solve_relaxed
from energymodel.solver.minimize import RESULTS, minimize
from energymodel.system.evaluate import evaluate_once

DRAWN = 512  # layouts


def posed(**question):
    scenario = em.load_scenario("llama-3.1-405b-h100").with_question(**question)
    baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
    return formulate(scenario, baseline)


@pytest.fixture(scope="module")
def problem():
    return posed()


@pytest.fixture(scope="module")
def lattice(problem):
    return fitting_layouts(problem)[0]


@pytest.fixture(scope="module")
def searched(problem, lattice):
    return search_layouts(problem, lattice)


@pytest.mark.slow
def test_layouts_drawn_at_random_obey_their_bounds():
    # In the 78 days of the scenario's own plan only a few layouts reach its loss.
    problem = posed(limits={"time": "120 days"})
    lattice, _ = fitting_layouts(problem)
    searched = search_layouts(problem, lattice)
    coarse = screen(problem, lattice, COARSE)
    bound = lower_bounds(problem, lattice, searched, coarse)
    # Half of them from the layouts with the lowest bounds: those could win.
    drawn = np.random.default_rng(5).choice(len(bound), DRAWN, replace=False)
    drawn = np.unique(np.concatenate([drawn, np.argsort(bound)[:DRAWN]]))
    part = take(lattice, drawn)
    solution = solve_relaxed(problem, part, screen(problem, part, FINE).start)
    violation = np.sum(np.maximum(-solution.slacks.inequalities, 0.0), axis=1)
    usable = np.isfinite(solution.value) & (violation <= 1e-6)
    assert np.sum(usable) > 100
    assert np.all(bound[drawn][usable] - MARGIN <= solution.value[usable])
    best = searched.best()
    assert np.min(solution.value[usable]) >= searched.solution.value[best] - 1e-6


@pytest.mark.slow
def test_ipopt_finds_the_same_optimum_of_the_best_layout(problem, searched):
    best = searched.best()
    layout = take(searched.lattice, np.array([best]))
    low, high = layout_bounds(problem, layout)
    layout, criteria = jax.tree.map(lambda leaf: leaf[0], (layout, problem.repeated_criteria(1)))
    found = minimize(
        problem.formulation,
        0.5 * (low + high)[0],
        args=(layout, criteria, problem.given),
        bounds=(low[0], high[0]),
        options=OPTIONS,
        method="ipopt",
    )
    assert bool(found.result == RESULTS.successful)
    np.testing.assert_allclose(found.value, searched.solution.value[best], rtol=0.0, atol=1e-6)


@pytest.mark.slow
def test_the_others_are_worse_by_more_than_the_margin(searched):
    assert searched.left == 0
    assert searched.others >= searched.solution.value[searched.best()] + MARGIN
