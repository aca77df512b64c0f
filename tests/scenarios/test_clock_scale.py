"""Clocks in MHz, as `nvidia-smi -lgc` takes them: read as shares, and shown as both."""

import json

import pytest
from typer.testing import CliRunner

from energymodel.cli import app
from energymodel.errors import InputError
from energymodel.report.answers.run_tables import plan_table
from energymodel.scenarios.clock_scale import ClockScale, is_frequency
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.scenario_axes import scenario_axis

SMALL = "test-1b-h100"  # reference clock 1830 MHz, lowest 345 MHz


@pytest.mark.parametrize("clock", ["1464 MHz", "1.464 GHz", "1464MHz", {"value": 1464, "unit": "MHz"}])
def test_clock_in_megahertz_is_a_share_of_the_reference(clock):
    scenario = load_scenario(SMALL, {"plan.clock": clock})
    assert float(scenario.plan.clock) == pytest.approx(1464 / 1830)
    assert plan_table(scenario, {"run": scenario.plan}).number("clock_frequency")[1].value == pytest.approx(1464e6)
    # What is resolved gives the same scenario when read back.
    again = load_scenario({"name": SMALL, **scenario.tables})
    assert float(again.plan.clock) == float(scenario.plan.clock)


def test_megahertz_are_those_of_the_accelerator_that_is_put_in():
    scenario = load_scenario(SMALL, ["plan.clock=1050 MHz", "system.accelerator=a100-sxm4-80gb"])
    assert float(scenario.plan.clock) == pytest.approx(1050 / 1410)


@pytest.mark.parametrize("end", [345, 1830])
def test_the_ends_of_the_range_are_in_it(end):
    scale = ClockScale(reference=1830e6, minimum=0.1885)  # 345/1830 = 0.18852, stated to four digits
    assert scale.share_of(end * 1e6, "clock") == pytest.approx(end / 1830, abs=1e-4)
    assert scale.minimum <= scale.share_of(end * 1e6, "clock") <= 1.0


@pytest.mark.parametrize("ends", ["915:1464 MHz", "915 MHz:1.464 GHz", ["915 MHz", "1464 MHz"]])
def test_a_range_of_clocks_may_be_in_megahertz(ends):
    question = load_scenario(SMALL).with_question(vary={"plan.clock": ends}).optimize
    assert question.vary["plan.clock"] == pytest.approx((0.5, 0.8))


def test_a_range_beyond_the_chip_is_refused():
    with pytest.raises(InputError, match=r"vary plan\.clock: 1900 MHz is above"):
        load_scenario(SMALL).with_question(vary=["plan.clock=915:1900 MHz"])
    with pytest.raises(InputError, match=r'900 has no unit.*Did you mean "900 MHz"'):
        load_scenario(SMALL).with_question(vary=["plan.clock=900:1500"])


def test_an_axis_of_clocks_may_be_in_megahertz():
    axis = scenario_axis(load_scenario(SMALL), "plan.clock", "915..1830 MHz 3")
    assert list(axis.values) == pytest.approx([0.5, 0.75, 1.0])
    assert axis.unit == "1"


def test_megahertz_of_a_prior_are_told_to_be_so():
    with pytest.warns(UserWarning, match=r"1750 MHz, is a prior"):
        load_scenario(SMALL, ["system.accelerator=tpu-v6e", "plan.chips=16", "plan.clock=1400 MHz"])


def test_reports_have_both():
    run = CliRunner().invoke(app, ["evaluate", SMALL, "--set", "plan.clock=1464 MHz", "--full"])
    assert "80.0 %" in run.output
    assert "1.464 GHz" in run.output
    run = CliRunner().invoke(app, ["evaluate", SMALL, "--set", "plan.clock=0.8", "--json"])
    (plan,) = json.loads(run.output)["tables"]["plan"]["rows"]
    assert (plan["clock"], plan["clock_frequency"]) == (pytest.approx(0.8), pytest.approx(1.464e9))


@pytest.mark.parametrize(
    ("clock", "expected"), [("1.2 GHz", True), ("0.8", False), (0.8, False), ({"value": 1}, False)]
)
def test_what_a_frequency_is(clock, expected):
    assert is_frequency(clock) is expected
