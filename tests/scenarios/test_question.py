"""A question reads the same from a file, from Python and from the command line, and a mistake has one message."""

from functools import partial

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


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"minimise": "time"}, '[optimize]: unknown key "minimise". Did you mean "minimize"?'),
        ({"minimize": "enrgy"}, 'Unknown objective "enrgy". Did you mean "energy"?'),
        ({"limits": {"tme": "2 days"}}, 'limit: unknown "tme". Did you mean "time"?'),
        ({"limits": {"time": "2 MW"}}, "limit time:"),
        ({"limits": {"time": [1.0]}}, "limit time: [1.0] is neither text with a unit nor a number in s."),
        ({"limits": {"time": 0.0}}, "limit time: 0.0 is not a positive number in s."),
        ({"vary": {"plan.clok": [0.5, 1.0]}}, 'vary: unknown path "plan.clok". Did you mean "plan.clock"?'),
        ({"vary": {"plan.clock": 0.5}}, "vary plan.clock: 0.5 is not a range."),
        ({"vary": {"plan.clock": [0.5, 0.7, 1.0]}}, "is not a range."),
        ({"vary": {"plan.clock": [1.0, 0.5]}}, "vary plan.clock: 1.0 is above 0.5."),
        ({"vary": {"plan.clock": [0.5, float("inf")]}}, "inf is not a finite number."),
        ({"vary": {"plan.batch": [0.0, 1e6]}}, "vary plan.batch: 0.0 is not positive."),
        ({"vary": {"plan.goal.loss": [1.9, 2.0]}}, "vary plan.goal.loss: the loss is held at its limit."),
        ({"fix": ["plan.clok"]}, 'fix: unknown path "plan.clok". Did you mean "plan.clock"?'),
        ("time", "[optimize]: a table with minimize, limits, vary, fix, tolerance, knots is needed"),
    ],
)
def test_one_message_for_files_and_for_python(scenario, section, message):
    with pytest.raises(em.InputError) as in_file:
        with_section(section)
    assert message in str(in_file.value)
    if isinstance(section, dict) and "minimise" not in section:
        every = (em.optimize, em.pareto, partial(em.sensitivity, optimum=True))
        for ask in every[:1] if "minimize" in section else every:
            with pytest.raises(em.InputError) as in_python:
                ask(scenario, **section)
            assert str(in_python.value) == str(in_file.value)


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
