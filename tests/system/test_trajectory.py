"""A run over time: it ends at the outcome, and its rates are the slopes of its columns."""

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.learning.loss_ode import loss_rate
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.training_system import learning_of, parameters_in_loss
from energymodel.system.trajectory import run_trajectory

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def schedule():
    scenario = load_scenario(SMALL, ["plan.batch=[262144 token, 1048576 token]"])
    return scenario, *run_trajectory(scenario.system, scenario.plan, 40)


@pytest.fixture(scope="module")
def constant():
    scenario = load_scenario(SMALL)
    return scenario, *run_trajectory(scenario.system, scenario.plan, 40)


@pytest.mark.parametrize("kind", ["constant", pytest.param("schedule", marks=pytest.mark.slow)])
def test_the_last_row_is_the_outcome(kind, request):
    _, outcome, run = request.getfixturevalue(kind)
    for name in ("loss", "tokens", "time", "money", "information"):
        np.testing.assert_allclose(getattr(run, name)[-1], getattr(outcome, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(run.energy[-1], outcome.energy.total, rtol=1e-9)
    np.testing.assert_allclose(run.carbon[-1], outcome.carbon, rtol=1e-9)
    np.testing.assert_allclose(run.progress[-1], 1.0, rtol=1e-9)
    np.testing.assert_allclose(outcome.information_rate * outcome.energy_per_bit, outcome.power_average, rtol=1e-12)


@pytest.mark.slow
def test_a_schedule_follows_the_progress(schedule):
    _, _, run = schedule
    np.testing.assert_allclose(np.log2(run.batch), 18.0 + 2.0 * run.progress, rtol=1e-9)
    assert np.all(np.diff(run.token_rate) > 0.0)


@pytest.mark.parametrize("kind", ["constant", pytest.param("schedule", marks=pytest.mark.slow)])
def test_rates_are_slopes_of_the_columns(kind, request):
    _, _, run = request.getfixturevalue(kind)
    for column, rate in (("loss", run.loss_rate), ("information", run.information_rate), ("energy", run.power)):
        values = getattr(run, column)
        slopes = (values[2:] - values[:-2]) / (run.time[2:] - run.time[:-2])
        np.testing.assert_allclose(rate[11:-1], slopes[10:], rtol=5e-3, err_msg=column)
    np.testing.assert_allclose(run.energy_per_bit, run.power / run.information_rate, rtol=1e-12)


def test_the_loss_falls_as_the_closed_form_says(constant):
    scenario, _, run = constant
    learning, parameters = learning_of(scenario.system, scenario.plan), parameters_in_loss(scenario.system)
    law = scenario.system.learning
    assert isinstance(law.loss_law, ChinchillaLaw)
    end = learning.effective_tokens(parameters, run.loss[-1])
    critical = law.critical_batch.instantaneous(run.progress * end, run.loss)
    published = loss_rate(run.loss, parameters, run.token_rate, run.batch, critical, law.loss_law)
    # The closed form has the penalty 1 + B/B_n; the law has absorbed an overhead and bends more sharply.
    penalty = learning.penalty(parameters, run.progress * end, run.batch)
    np.testing.assert_allclose(published * (1.0 + run.batch / critical) / penalty, run.loss_rate, rtol=1e-6)


@pytest.mark.parametrize("points", [0, -3, 10_001])
def test_other_numbers_of_points_are_refused(points):
    scenario = load_scenario(SMALL)
    with pytest.raises(InputError, match=f"points: {points} make no trajectory"):
        run_trajectory(scenario.system, scenario.plan, points)
