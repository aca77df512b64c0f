"""A limit on the power swing: its price, rows of the search, and messages."""

import numpy as np
import pytest

import energymodel as em
from cli.shell import run
from energymodel.search.layouts import fitting_layouts
from energymodel.search.problem import formulate
from energymodel.search.relaxation import COARSE, grid_points
from energymodel.system.outputs import parse_limit

SMALL = "test-1b-h100"
LAYOUT = tuple(f"plan.layout.{name}" for name in ("tensor", "pipeline", "context", "microbatch", "virtual_stages"))


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
    floors = grid_points(problem, lattice, COARSE)[..., problem.index("plan.power_floor")]
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
