"""Limits of `evaluate` as limits of the search, and messages for those that are exceeded."""

import math

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.search.layouts import take
from energymodel.search.problem import formulate
from energymodel.search.relaxation import evaluate_points
from energymodel.search.result import exceeded_limits
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import Slack
from energymodel.system.outputs import LIMIT_OF_SLACK, OUTPUTS, limits_of_system
from report.reference_optimum import optimum

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def scenario():
    return em.load_scenario(SMALL, {"system.capacity_per_parameter": "100 bit"})


@pytest.fixture(scope="module")
def baseline(scenario):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))


def test_every_slack_has_a_name_for_a_limit():
    assert set(LIMIT_OF_SLACK) == set(Slack.__dataclass_fields__)
    assert set(LIMIT_OF_SLACK.values()) <= set(OUTPUTS)
    assert len(set(LIMIT_OF_SLACK.values())) == len(LIMIT_OF_SLACK)


def test_limits_are_those_of_chip_and_building(scenario, baseline):
    limits = limits_of_system(scenario.system, scenario.plan, baseline)
    facility, chip = scenario.system.facility, scenario.system.accelerator
    assert limits["ramp"] == pytest.approx(float(facility.ramp_limit))
    assert limits["facility_power"] == pytest.approx(float(facility.power_limit))
    assert limits["temperature"] == pytest.approx(float(chip.maximum_temperature))
    assert limits["memory"] == pytest.approx(float(chip.memory_capacity))
    assert limits["lowest_clock_power"] == pytest.approx(1.0)
    assert limits["capacity_use"] == pytest.approx(1.0)


def test_every_slack_is_a_row_of_the_problem(scenario, baseline):
    """At the scenario's own plan each row is minus the slack, whatever the limit is called."""
    problem = formulate(scenario, baseline)
    assert set(LIMIT_OF_SLACK.values()) <= set(problem.limits)
    paths = problem.formulation.paths
    point = np.array([float(problem.formulation.coordinate(path, problem.run.number(path))) for path in paths])
    layout = take(jax.tree.map(lambda leaf: np.asarray(leaf)[None], scenario.plan.layout), np.array([0]))
    rows = evaluate_points(problem, point[None, None], layout).inequalities[0, 0]
    for slack, name in LIMIT_OF_SLACK.items():
        row = rows[problem.formulation.rows.index(name)]
        assert row == pytest.approx(-float(getattr(baseline.slack, slack)), abs=1e-9), name


def test_what_minimizes_an_output_keeps_its_limit(scenario, baseline):
    assert "temperature" in formulate(scenario.with_question("temperature"), baseline).limits
    assert "time" not in formulate(scenario.with_question("time"), baseline).limits


def test_a_message_names_each_limit_that_is_exceeded():
    best = optimum()
    unused_capacity = eqx.tree_at(lambda outcome: outcome.slack.information, best.outcome, 0.1)
    assert exceeded_limits(best.scenario, best.plan, unused_capacity) == ""
    broken = eqx.tree_at(lambda outcome: outcome.slack.ramp, unused_capacity, -math.log(2.0))
    assert exceeded_limits(best.scenario, best.plan, broken).startswith("ramp is ")


@pytest.mark.slow
def test_a_ramp_limit_binds_or_is_named():
    best = em.optimize(em.load_scenario(SMALL, {"system.facility.ramp_limit": "2 K/s"}), limits={"time": "1 day"})
    assert best.success
    assert float(best.outcome.slack.ramp) >= -1e-6
    # The own plan absorbs more than its parameters can store, and so does any other of the same loss.
    assert "obeys every limit" not in best.message
    assert "capacity_use" in best.message
    impossible = em.optimize(em.load_scenario(SMALL, {"system.facility.ramp_limit": "0.1 K/s"}))
    assert impossible.result == "infeasible"
    assert "ramp" in {conflict.limit for conflict in impossible.conflicts}
    assert "ramp" in impossible.message
    looser = em.optimize(
        em.load_scenario(SMALL, {"system.facility.ramp_limit": "1 K/s"}), limits={"ramp": "5 K/s"}, minimize="time"
    )
    assert looser.success
    assert "obeys the limits that were asked; ramp is" in looser.message
