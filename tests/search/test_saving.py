"""Shares of a saving by cause: their sum, and what each saves."""

import dataclasses

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.report.answers.search_parts import saving_table
from energymodel.search.causes import _shapley, saving_by_cause
from energymodel.search.problem import formulate
from energymodel.system.evaluate import evaluate_once
from report.reference_optimum import optimum

SMALL = "test-1b-h100"


def test_shares_of_two_causes_by_hand():
    # Alone the first saves 10 - 7 = 3 and the second 10 - 8 = 2; after the other 8 - 4 = 4 and 7 - 4 = 3.
    values = np.array([10.0, 7.0, 8.0, 4.0])  # none, first, second, both
    within = np.array([[False, False], [True, False], [False, True], [True, True]])
    np.testing.assert_allclose(_shapley(values, within), [(3 + 4) / 2, (2 + 3) / 2])


def test_a_cause_that_changes_nothing_saves_nothing():
    within = (np.arange(8)[:, None] >> np.arange(3)) & 1 == 1
    random = np.random.default_rng(5)
    values = random.uniform(1.0, 2.0, 8)
    values[within[:, 1]] = values[~within[:, 1]]  # the second cause has no effect
    shares = _shapley(values, within)
    assert shares[1] == pytest.approx(0.0, abs=1e-15)
    assert sum(shares) == pytest.approx(values[0] - values[-1])


def test_the_shares_add_up_to_the_saving():
    scenario = em.load_scenario(SMALL)
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        problem = formulate(scenario, baseline)
        changes = {"plan.clock": "0.8", "plan.coolant_temperature": "35 °C", "plan.layout.microbatch": "2"}
        changed = em.load_scenario(SMALL, changes)
        values = {path: problem.run.number(path) for path in problem.formulation.paths}
        values |= {"plan.clock": 0.8, "plan.coolant_temperature": 308.15}
        shares = saving_by_cause(problem, baseline, values, changed.plan.layout)
        after = jax.tree.map(np.asarray, evaluate_once(changed.system, changed.plan))
        colder = em.load_scenario(SMALL, {"plan.coolant_temperature": "35 °C"})
        alone = jax.tree.map(np.asarray, evaluate_once(colder.system, colder.plan))
    assert set(shares) == {"clock", "coolant", "layout"}
    saved = float(baseline.energy.total - after.energy.total)
    assert sum(shares.values()) == pytest.approx(saved, rel=1e-6)
    # The coolant hardly acts through the others, so that its share is about what it saves alone.
    assert shares["coolant"] == pytest.approx(float(baseline.energy.total - alone.energy.total), rel=0.1)


def test_the_table_shows_every_cause_and_their_sum():
    result = optimum()
    assert not saving_table(result, None).rows
    table = saving_table(dataclasses.replace(result, saving={"coolant": 3.6e9, "clock": -0.9e9}), None)
    causes, saved, share = zip(*table.rows, strict=True)
    assert causes == ("coolant", "clock", "total")
    assert [cell.value for cell in saved] == [3.6e9, -0.9e9, 2.7e9]
    np.testing.assert_allclose([cell.value for cell in share], [4 / 3, -1 / 3, 1.0])
