"""Numbers of a scenario moved by measurements of its run, and the plan of its rest."""

import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.special import ndtri

import energymodel as em
from energymodel.errors import InputError
from energymodel.scenarios.distributions import NumberDistribution
from energymodel.scenarios.scenario import load_scenario
from energymodel.search import posterior as updating
from energymodel.search.posterior import FARTHEST, Posterior, UncertainNumber, failure_posterior, posterior_of
from energymodel.search.replan import rest_of
from energymodel.search.training_run import TrainingRun
from energymodel.system.evaluate import evaluate_once

SHARE = 0.25


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("test-1b-h100")


def outcome_of(scenario):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))


@pytest.fixture(scope="module")
def planned(scenario):
    return outcome_of(scenario)


def state(planned, **changes):
    """A quarter of the run as planned, or with some measurements times a factor."""
    values = {"tokens": SHARE * planned.tokens, "time": SHARE * planned.time, "power": planned.power_average}
    return em.MeasuredRun(**{name: float(value) * changes.get(name, 1.0) for name, value in values.items()})


@pytest.mark.slow
def test_run_that_goes_as_planned_moves_nothing(scenario, planned):
    rest = rest_of(scenario, state(planned))
    assert rest.updates == ()
    left = outcome_of(rest.scenario)
    np.testing.assert_allclose(left.loss, planned.loss, rtol=1e-9)
    np.testing.assert_allclose(rest.used["time"] + left.time, planned.time, rtol=1e-6)
    np.testing.assert_allclose(rest.used["energy"] + left.energy.total, planned.energy.total, rtol=1e-6)
    np.testing.assert_allclose(rest.used["money"] + left.money, planned.money, rtol=1e-6)
    forecast = rest.forecast(left)
    equipment = planned.energy.total / planned.pue
    for name, total in {"time": planned.time, "energy": planned.energy.total, "equipment_energy": equipment}.items():
        assert rest.used[name] < forecast[name].lower < forecast[name].value < forecast[name].upper
        np.testing.assert_allclose(forecast[name].value, total, rtol=1e-6)


@pytest.mark.slow
def test_slow_and_frugal_run_is_believed(scenario, planned):
    """A tenth slower at a twentieth less power, measured within a percent: the updated scenario says so as well."""
    rest = rest_of(scenario, state(planned, time=1.10, power=0.95))
    left = outcome_of(rest.scenario)
    np.testing.assert_allclose(left.time, 1.10 * 0.75 * planned.time, rtol=0.015)
    np.testing.assert_allclose(left.power_average, 0.95 * planned.power_average, rtol=0.015)
    paths = [update.path for update in rest.updates]
    assert "system.accelerator.gemm_efficiency" in paths
    for update in rest.updates:
        assert update.lower < update.after < update.upper
        assert rest.scenario.provenance[update.path].kind == "measured"
        assert update.before != update.after


@pytest.mark.slow
def test_a_run_that_no_number_explains_is_told(scenario, planned):
    assert rest_of(scenario, state(planned, time=1.05)).caution == ""
    unlikely = rest_of(scenario, state(planned, time=30.0)).caution
    assert "Only an unlikely number explains the run so far: system.accelerator.overhead_time" in unlikely
    assert "instead of 17.91 ms, 3.6 standard deviations" in unlikely
    assert "times as long as the scenario explains" in rest_of(scenario, state(planned, time=300.0)).caution


@pytest.mark.slow
def test_loss_above_the_law_is_believed(scenario, planned):
    """0.02 nat above what the law says: it says so as well, partly by its floor, partly by its critical batch."""
    tokens = float(SHARE * planned.tokens)
    law = float(outcome_of(load_scenario("test-1b-h100", {"plan.goal": {"tokens": f"{tokens!r} token"}})).loss)
    rest = rest_of(scenario, em.MeasuredRun(tokens=tokens, loss=law + 0.02))
    update = next(update for update in rest.updates if update.path.endswith("entropy_floor"))
    assert 0.0 < update.after - update.before < 0.02
    start = outcome_of(load_scenario({"name": "now", **rest.scenario.tables}, {"plan.goal": {"tokens": "1 token"}}))
    np.testing.assert_allclose(start.loss, law + 0.02, atol=0.004)


@pytest.mark.slow
def test_limits_are_of_the_whole_run(scenario, planned):
    limits = {"energy": 1.2 * float(planned.energy.total), "time": "1 day", "facility_power": "1 MW"}
    rest = rest_of(scenario.with_question(limits=limits), state(planned))
    left = rest.scenario.optimize.limits
    np.testing.assert_allclose(left["energy"], 0.95 * planned.energy.total, rtol=1e-9)
    np.testing.assert_allclose(left["time"], 86400.0 - 0.25 * planned.time, rtol=1e-9)
    assert left["facility_power"] == 1e6


@pytest.mark.slow
def test_rest_reads_back(scenario, planned):
    rest = rest_of(scenario, state(planned, time=1.05)).scenario
    again = load_scenario({"name": rest.name, **rest.tables})
    assert jax.tree.leaves(jax.tree.map(float, rest.system)) == jax.tree.leaves(jax.tree.map(float, again.system))


@pytest.mark.slow
def test_text_with_units(scenario, planned):
    tokens = float(planned.tokens) / 4.0
    rest = rest_of(scenario, em.MeasuredRun(tokens=f"{tokens / 1e9} G tokens", time="4 h", failures="2"))
    assert rest.used["time"] == 14400.0
    assert rest.updates[0].path == "system.reliability.chip_mtbf"


@pytest.mark.parametrize(
    ("measured", "limits", "words"),
    [
        (em.MeasuredRun(tokens=1e15), {}, "nothing is left to plan"),
        (em.MeasuredRun(tokens=-1.0), {}, "measured tokens: -1.0 is not a positive number in token"),
        (em.MeasuredRun(tokens=1e9, failures=3.0), {}, "give the time in which they happened"),
        (em.MeasuredRun(tokens=1e9, power="3 nat"), {}, "measured power"),
        (em.MeasuredRun(tokens=1e9, time="2 days"), {"time": "1 day"}, "limit time: the run has used"),
    ],
)
def test_impossible_states(scenario, measured, limits, words):
    with pytest.raises(InputError, match=words):
        rest_of(scenario.with_question(limits=limits), measured)


def test_a_batch_that_changes_with_progress_is_refused(scenario):
    measured = em.MeasuredRun(tokens=1e9)
    with pytest.raises(InputError, match="the rest of a run is planned with one batch"):
        rest_of(scenario.with_question(vary={"plan.batch@0..1": ""}), measured)
    with pytest.raises(InputError, match=r"plan\.batch.*cannot be planned anew"):
        rest_of(load_scenario("test-1b-h100", ["plan.batch=[1 Mi tokens, 2 Mi tokens]"]), measured)


def test_failures_by_hand():
    # a = 1/0.4^2 = 6.25: (6.25 x 1.8e8 + 1e9) / (6.25 + 10) = 2.125e9 / 16.25 = 1.3077e8 s; 1/sqrt(16.25) = 0.24807
    posterior = failure_posterior(1.8e8, 0.4, 1e9, 10.0)
    np.testing.assert_allclose(posterior, (1.307692e8, 0.2480695), rtol=1e-6)


def number(family, numbers, value):
    return UncertainNumber(NumberDistribution(family, numbers), value, (0.0, math.inf))


def test_linear_model_against_its_closed_form(scenario, monkeypatch):
    """Two numbers with normal priors, one measurement of the logarithm of a linear output: conjugate normal update."""
    slopes = np.array([[0.3, -0.1]])
    numbers = {name: number("normal", (spread,), value) for name, spread, value in (("a", 1.0, 5.0), ("b", 2.0, 7.0))}
    prior = Posterior(numbers, np.zeros(2), np.eye(2))
    run = TrainingRun(scenario.system, scenario.plan)
    monkeypatch.setattr(updating, "_slopes", lambda now, run, products: (slopes @ now.z, slopes))
    monkeypatch.setattr(Posterior, "at", lambda now, run: SimpleNamespace(system=now, plan=None))
    monkeypatch.setattr(updating, "evaluate_once", lambda system, plan: system)
    monkeypatch.setattr(updating, "_logarithms", lambda now, products: slopes @ now.z)
    posterior = posterior_of(prior, run, [({"time": 1.0}, math.exp(0.2), 0.05)])
    gain = slopes[0] / (0.3**2 + 0.1**2 + 0.05**2)
    np.testing.assert_allclose(posterior.z, gain * 0.2, rtol=1e-9)
    np.testing.assert_allclose(posterior.covariance, np.eye(2) - np.outer(gain, slopes[0]), rtol=1e-9)
    np.testing.assert_allclose(posterior.values["b"], 7.0 + 2.0 * gain[1] * 0.2, rtol=1e-9)
    update = posterior.update("a", "1")
    half = ndtri(0.95) * math.sqrt(posterior.covariance[0, 0])
    np.testing.assert_allclose([update.lower, update.upper], [update.after - half, update.after + half], rtol=1e-6)
    far = posterior_of(prior, run, [({"time": 1.0}, math.exp(50.0), 1e-3)])
    assert np.max(np.abs(far.z)) <= FARTHEST


@pytest.mark.parametrize(
    ("family", "numbers", "value"),
    [("lognormal", (0.3,), 2.0), ("normal", (0.1,), 1.0), ("uniform", (0.0, 4.0), 3.0), ("beta", (8.0, 2.0), 0.7)],
)
def test_coordinates_lead_back_to_values(family, numbers, value):
    x = number(family, numbers, value)
    z = x.coordinate(value)
    np.testing.assert_allclose(x.value(z), value, rtol=1e-9)
    moved = Posterior({"x": x}, np.array([z + 0.5]), np.eye(1))
    assert moved.values["x"] > value
    assert moved.moved() == ["x"]


@pytest.mark.slow
def test_new_plan_is_no_worse_than_going_on(scenario, planned):
    answer = em.replan(scenario, state(planned, time=1.10), limits={"time": 1.2 * float(planned.time)})
    assert answer.optimum.success
    assert answer.saving >= -1e-9
    assert float(answer.optimum.outcome.time) <= 0.95 * float(planned.time) * (1 + 1e-6)
    assert answer.forecast["energy"].lower < answer.forecast["energy"].value < answer.forecast["energy"].upper
