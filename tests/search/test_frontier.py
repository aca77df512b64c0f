"""Does the way to the limit start at today's best plan, get cheaper by generation, and refuse what is no path?"""

import pytest

from cli.shell import run
from energymodel.errors import InputError
from energymodel.report.frontier_report import frontier_csv, frontier_figure, frontier_json
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.compare import CHOICES, frontier
from energymodel.search.optimize import optimize

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def found():
    return frontier(SMALL, points=2, last=4.0)


@pytest.mark.slow
def test_each_step_is_the_best_plan_of_its_generation(found):
    today, later = found.steps
    assert (today.generations, later.generations) == (0.0, 4.0)
    assert not today.reason
    assert not later.reason
    scenario = load_scenario(SMALL, ["system.chip_design=scaled", "system.chip_design.generations=4"])
    again = optimize(scenario, minimize="etp", limits=found.limits, vary=CHOICES)
    assert later.optimum.value == pytest.approx(again.value, rel=1e-9)
    assert later.optimum.value < 0.5 * today.optimum.value
    assert later.optimum.found["system.chip_design.voltage"] == pytest.approx(
        again.found["system.chip_design.voltage"], rel=1e-6
    )
    # Energy of an operation goes with 0.69 a generation and with the square of the supply, but for the cache.
    volts = [step.optimum.found["system.chip_design.voltage"] for step in (today, later)]
    expected = 0.69**4 * (volts[1] / volts[0]) ** 2
    assert later.operation_energy / today.operation_energy == pytest.approx(expected, rel=0.05)
    ratio = later.landauer_multiple / today.landauer_multiple
    assert ratio == pytest.approx(later.operation_energy / today.operation_energy)


@pytest.mark.slow
def test_table_rows_and_figure_hold_all_steps(found):
    assert len(frontier_csv(found).splitlines()) == 3
    steps = frontier_json(found)["steps"]
    assert steps[1]["energy_j"] < steps[0]["energy_j"]
    assert "loss" in steps[0]["binds"]
    assert b"Best plans on the way" in frontier_figure(found, "svg")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"points": 1}, "points: 1 make no path"),
        ({"last": 0.0}, "generations: 0 is not above 0"),
        ({"last": 61.0}, "at most 60"),
        ({"limits": {"tme": "1 day"}}, 'limit: unknown "tme"'),
    ],
)
def test_what_is_no_path_is_refused(asked, message):
    with pytest.raises(InputError, match=message):
        frontier(SMALL, **asked)


def test_the_command_refuses_bad_input():
    result = run("frontier", SMALL, "--generations", "-3")
    assert result.exit_code == 2
    assert "generations: -3 is not above 0" in result.stderr
