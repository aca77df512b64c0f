"""Limits of `evaluate` as limits of the search, messages for those that are exceeded, and the price of a swing."""

import math

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.search.layouts import fitting_layouts
from energymodel.search.problem import formulate
from energymodel.search.relaxation import COARSE, evaluate_points, screen
from energymodel.search.result import exceeded_limits
from energymodel.system.evaluate import evaluate_once
from energymodel.system.memory import memory_limit
from energymodel.system.outcome import Slack
from energymodel.system.outputs import LIMIT_OF_SLACK, OUTPUTS, limits_of_system, parse_limit
from energymodel.units import format_quantity
from report.reference_optimum import optimum

SMALL = "test-1b-h100"
LAYOUT = tuple(f"plan.layout.{name}" for name in ("tensor", "pipeline", "context", "microbatch", "virtual_stages"))


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
    assert limits["memory"] == pytest.approx(float(memory_limit(scenario.system, scenario.plan)))
    assert limits["lowest_clock_power"] == pytest.approx(1.0)
    assert limits["capacity_use"] == pytest.approx(1.0)


def test_every_slack_is_a_row_of_the_problem(scenario, baseline):
    """At the scenario's own plan each row is minus the slack, whatever the limit is called."""
    problem = formulate(scenario, baseline)
    assert set(LIMIT_OF_SLACK.values()) <= set(problem.limits)
    paths = problem.formulation.paths
    point = np.array([float(problem.formulation.coordinate(path, problem.run.number(path))) for path in paths])
    layout = jax.tree.map(lambda leaf: np.asarray(leaf)[None], scenario.plan.layout)
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
    assert exceeded_limits(best.scenario, best.plan, broken).startswith("temperature ramp at start and stop (ramp) is ")


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
    assert "asked; temperature ramp at start and stop (ramp) is" in looser.message


def search(changes, limits):
    """The lowest energy where clock and power floor vary."""
    return em.optimize(
        em.load_scenario(SMALL, changes),
        limits={"time": "1 day", **limits},
        vary={"plan.power_floor": (0.0, 1.0)},
        fix=["plan.chips", "plan.batch", "plan.coolant_temperature", *LAYOUT],
        tolerance=0.0,
    )


@pytest.mark.slow
def test_a_limit_on_the_swing_binds_and_has_a_price():
    free = search({}, {})
    half = 0.5 * float(free.outcome.power_swing)
    of_grid = search({"system.facility.swing_limit": f"{half!r} W"}, {})
    asked = search({}, {"power_swing": half})
    assert "power_swing" not in free.active
    for result in (of_grid, asked):
        np.testing.assert_allclose(result.outcome.power_swing, half, rtol=1e-3)
        assert "power_swing" in result.active
        assert float(result.plan.power_floor) > 0.3
        assert result.value > free.value
    # The price is what a slightly wider swing saves.
    price = asked.prices["power_swing"].price
    wider = search({}, {"power_swing": 1.02 * half})
    np.testing.assert_allclose(price, (asked.value - wider.value) / (0.02 * half), rtol=0.1)
    assert asked.prices["power_swing"].price_unit == "J/(W)"


def test_the_search_of_layouts_looks_at_floors_without_a_swing():
    """Below what waiting chips draw a floor changes nothing: a search from the scenario's zero stands still."""
    scenario = em.load_scenario(SMALL, {"system.facility.swing_limit": "500 W"})
    scenario = scenario.with_question("energy", None, {"plan.power_floor": (0.0, 1.0)}, (), None)
    problem = formulate(scenario, em.evaluate(scenario.system, scenario.plan))
    lattice = fitting_layouts(problem)[0]
    floors = screen(problem, lattice, COARSE).points[..., problem.index("plan.power_floor")]
    assert set(np.unique(floors)) == {0.0, 1.0}


def test_a_swing_beyond_the_limit_exits_with_3_and_says_what_to_do():
    limit = ["--set", "system.facility.swing_limit=100 W", "--set", "system.facility.power_ramp_limit=1 kW/s"]
    result = run("evaluate", SMALL, *limit)
    assert result.exit_code == 3
    assert "power_swing: " in result.stderr
    assert "exceeds the limit 100 W. Raise plan.power_floor" in result.stderr
    assert "power_ramp: " in result.stderr
    assert "exceeds the limit 1 kW/s" in result.stderr
    assert "power swing within a step" in result.stdout


def test_limits_that_nobody_states_are_not_shown():
    result = run("evaluate", SMALL, "--full")
    assert result.exit_code == 0
    margins = result.stdout[result.stdout.index("Margin to each limit") :].partition("\n\n")[0]
    assert "power swing" not in margins
    assert "memory" in margins


def test_limits_are_read_with_their_units():
    assert parse_limit("power_swing", "5 MW") == 5e6
    np.testing.assert_allclose(parse_limit("power_ramp", "600 MW/min"), 1e7)
    with pytest.raises(em.InputError, match="power ramp such as"):
        parse_limit("power_ramp", "5 MW")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "fix"),
    [
        (["money=159 USD"], ()),
        (["time=1 s"], ()),
        (["memory_per_chip=1 GB"], ()),
        (["time=10 h", "energy=140 kWh"], ()),
        (["mfu=0.9"], ()),
        (["energy=120 kWh"], ["plan.clock", "plan.batch"]),
    ],
)
def test_what_a_conflict_advises_is_obeyed_by_a_plan(limits, fix):
    scenario = em.load_scenario("test-1b-h100")
    conflict = em.optimize(scenario, limits=limits, fix=fix)
    assert conflict.result == "infeasible"
    advised = [limit for limit in conflict.conflicts if np.isfinite(limit.nearest)]
    assert advised
    for limit in advised:
        text = format_quantity(limit.nearest, limit.unit)  # as printed
        assert f"{limit.limit} to {text}" in conflict.message
        others = [other for other in limits if not other.startswith(f"{limit.limit}=")]
        found = em.optimize(scenario, limits=[*others, f"{limit.limit}={text}"], fix=fix)
        assert found.result in ("successful", "not converged"), (text, found.message)
