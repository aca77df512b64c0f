"""A question reads the same from a file, from Python and from the command line, and a mistake has one message."""

import pytest

import energymodel as em
from energymodel.scenarios.question import Question
from energymodel.scenarios.scenario import load_scenario

SMALL = "test-1b-h100"
TABLE = {
    "minimize": "money",
    "limits": {"time": "2 days"},
    "vary": {"plan.power_cap": ["400 W", "0.7 kW"]},
    "fix": ["plan.clock"],
}
ASKED = Question("money", {"time": 172800.0}, {"plan.power_cap": (400.0, 700.0)}, ("plan.clock",))


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(SMALL)


def with_section(section):
    return load_scenario({"base": SMALL, "optimize": section})


def test_all_ways_to_ask_mean_the_same(scenario):
    assert with_section(TABLE).optimize == ASKED
    assert scenario.with_question(**TABLE).optimize == ASKED
    in_si = scenario.with_question("money", {"time": 172800.0}, {"plan.power_cap": (400.0, 700.0)}, ["plan.clock"])
    assert in_si.optimize == ASKED
    texts = scenario.with_question("money", ["time=2 days"], ["plan.power_cap=400 W:0.7 kW"], ["plan.clock"])
    assert texts.optimize == ASKED
    changes = [
        "optimize.minimize=money",
        "optimize.limits.time=2 days",
        "optimize.vary.plan.power_cap=400 W:0.7 kW",
        "optimize.fix=plan.clock",
    ]
    assert load_scenario(SMALL, changes).optimize == ASKED


def test_nothing_asked_is_energy(scenario):
    assert scenario.optimize == Question("energy", {}, {}, ())
    assert scenario.with_question().tables["optimize"] == {"minimize": "energy"}


def test_later_statements_replace_earlier_ones():
    scenario = load_scenario({"base": SMALL, "optimize": TABLE}, ["optimize.limits.time=1 day"])
    assert scenario.optimize.limits == {"time": 86400.0}
    asked = scenario.with_question("time", {"energy": "1 GWh", "time": 3600.0}).optimize
    assert asked.minimize == "time"
    assert asked.limits == {"time": 3600.0, "energy": pytest.approx(3.6e12)}
    assert asked.fix == ("plan.clock",)
    freed = scenario.with_question(vary={"plan.clock": (0.5, 1.0)}).optimize
    assert freed.fix == ()
    assert set(freed.vary) == {"plan.power_cap", "plan.clock"}


def test_the_section_of_a_question_reads_back(scenario):
    asked = scenario.with_question(**TABLE)
    assert load_scenario(asked.tables).optimize == ASKED


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [("10", "45 °C", (283.15, 318.15)), ("10 °C", "45 °C", (283.15, 318.15)), (283.15, 318.15, (283.15, 318.15))],
)
def test_the_low_bound_may_leave_its_unit_to_the_high_one(scenario, low, high, expected):
    asked = scenario.with_question(vary={"plan.coolant_temperature": (low, high)}).optimize
    assert asked.vary["plan.coolant_temperature"] == pytest.approx(expected)


def test_a_misspelled_key_is_refused_by_python_as_by_the_command():
    with pytest.raises(em.InputError, match="minimise"):
        em.optimize(load_scenario(SMALL, {"optimize.minimise": "time"}))


@pytest.mark.parametrize("value", [0.01, "0.01", "1 %"])
def test_a_tolerance_is_a_share(scenario, value):
    assert with_section({"tolerance": value}).optimize.tolerance == pytest.approx(0.01)
    asked = scenario.with_question(tolerance=value)
    assert asked.optimize.tolerance == pytest.approx(0.01)
    assert load_scenario(asked.tables).optimize == asked.optimize
    assert scenario.optimize.tolerance == 0.005


@pytest.mark.parametrize("value", ["2 days", "-0.1", 1.0, [1, [2, 3]], [0.01], {"a": 0.01}])
def test_a_bad_tolerance_is_refused(scenario, value):
    with pytest.raises(em.InputError, match="tolerance"):
        scenario.with_question(tolerance=value)
    with pytest.raises(em.InputError, match="tolerance"):
        with_section({"tolerance": value})
