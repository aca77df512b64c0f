"""Objectives and limits: names, powers, units, and what is refused."""

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.problem import excess
from energymodel.system import outputs
from energymodel.system.evaluate import evaluate_once


@pytest.fixture(scope="module")
def run():
    scenario = load_scenario("test-1b-h100")
    with jax.enable_x64(True):
        return scenario.system, scenario.plan, evaluate_once(scenario.system, scenario.plan)


@pytest.mark.parametrize(
    ("text", "factors", "unit"),
    [
        ("energy", {"energy": 1.0}, "J"),
        ("etp", {"energy": 1.0, "time": 1.0}, "J s"),
        ("energy*time^2", {"energy": 1.0, "time": 2.0}, "J s^2"),
        ("energy * energy", {"energy": 2.0}, "J^2"),
        ("money^0.5*carbon^0.5", {"money": 0.5, "carbon": 0.5}, "USD^0.5 kg^0.5"),
        ("mfu^-1", {"mfu": -1.0}, "1"),
        ("energy.cooling", {"energy.cooling": 1.0}, "J"),
    ],
)
def test_objectives(text, factors, unit):
    objective = outputs.parse_objective(text)
    assert dict(objective.factors) == factors
    assert objective.unit == unit


@pytest.mark.parametrize(
    "text", ["", "enregy", "energy^x", "energy^nan", "2*energy", "energy*energy^-1", "chips", "e+t"]
)
def test_bad_objectives_are_refused(text):
    with pytest.raises(InputError):
        outputs.parse_objective(text)


def test_every_output_has_a_unit_and_a_value_and_objectives_are_products(run):
    system, plan, outcome = run
    values = outputs.limited_values(system, plan, outcome)
    assert set(values) == set(outputs.OUTPUTS)
    assert all(np.isfinite(float(value)) for value in values.values())
    assert set(outputs.OUTPUTS) >= outputs.AT_LEAST
    np.testing.assert_allclose(
        values["energy"], sum(float(outputs.output(outcome, n)) for n in outputs.OUTPUTS if "energy." in n)
    )
    np.testing.assert_allclose(values["heat_flux"] * system.accelerator.die_area, outcome.power_busy)
    expected = float(outcome.energy.total) * float(outcome.time) ** 2
    np.testing.assert_allclose(outputs.objective_value(outcome, "energy*time^2"), expected, rtol=1e-12)
    np.testing.assert_allclose(outputs.objective_value(outcome, "etp"), float(outcome.etp), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("time", "60 days", 60 * 86400.0), ("mfu", "0.4", 0.4), ("pue", 1.1, 1.1), ("energy.cooling", "1 GWh", 3.6e12)],
)
def test_limits(name, value, expected):
    np.testing.assert_allclose(outputs.parse_limit(name, value), expected)


@pytest.mark.parametrize(("name", "value"), [("tme", "1 day"), ("time", "0 s"), ("time", float("nan")), ("mfu", -0.1)])
def test_bad_limits_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        outputs.parse_limit(name, value)


def test_limits_of_better_outputs_are_from_below():
    assert float(excess("mfu", 0.5, 0.4)) == pytest.approx(np.log(0.4 / 0.5))
    assert float(excess("time", 0.5, 0.4)) == pytest.approx(np.log(0.5 / 0.4))
    assert np.isfinite(float(excess("energy.idle_wait", 0.0, 1.0)))
