"""Are numbers printed with the digits that their interval supports?"""

import dataclasses

import pytest

from energymodel.report.answers.optimize import headline
from energymodel.report.answers.search_tables import risk_sentences
from energymodel.report.fields import Field
from energymodel.report.intervals import ends, percent, quantity, rounded, with_interval
from energymodel.report.number import sentence
from energymodel.sweeps.first_order import SavingAtRisk, saving_at_risk
from energymodel.sweeps.outcome_spread import DEVIATIONS
from report.reference_optimum import optimum

GWH = 3.6e12


@pytest.mark.parametrize(
    ("value", "half_width", "shown"),
    [
        (26.18, 4.5, "26 GWh"),
        (26.18, 0.7, "26.2 GWh"),
        (6.1, 4.9, "6 GWh"),
        (26.18, 0.001, "26.18 GWh"),
        (26.18, 0.0, "26.18 GWh"),
        (30.0, 1.0, "30.0 GWh"),
        (0.973, 1.05, "1.0 GWh"),
    ],
)
def test_the_last_digit_is_worth_at_most_half_of_half_the_interval(value, half_width, shown):
    assert rounded(quantity(value * GWH, "J"), (value - half_width) * GWH, (value + half_width) * GWH) == shown


def test_a_number_and_its_interval():
    assert with_interval(26.18 * GWH, 22.1 * GWH, 31.2 * GWH, "J", 0.9) == "26 GWh (90 %: 22 to 31)"
    assert with_interval(1.2 * GWH, 0.8 * GWH, 1.6 * GWH, "J", 0.9) == "1.2 GWh (90 %: 0.8 to 1.6)"
    assert with_interval(5.84e6, 5.7e6, 6.0e6, "s", 0.9) == "67.6 days (90 %: 66.0 to 69.4)"
    assert with_interval(5.0, 5.0, 5.0, "W", 0.9) == "5 W"


@pytest.mark.parametrize(
    ("name", "key", "unit", "value", "interval", "shown", "between"),
    [
        ("temperature", "temperature_k", "K", 347.21, (333.2, 361.9), "74 °C", "60 to 89"),
        ("mfu", "mfu", "1", 0.3871, (0.329, 0.461), "39 %", "33 to 46"),
        ("chip_time", "chip_hours", "s", 32443992.0, (26.8e6, 39.3e6), "32 million h", "27 to 39"),
        ("carbon_operational", "carbon_operational_kg", "kg", 11.94e6, (9.1e6, 15.6e6), "12 kt", "9 to 16"),
        ("steps", "steps", "1", 929832.0, (929832.0, 929832.0), "929,832", ""),
    ],
)
def test_outputs_are_read_in_their_usual_units(name, key, unit, value, interval, shown, between):
    field = Field(name, key, name, unit, value)
    assert rounded(field, *interval) == shown
    assert ends(field, *interval) == between


@pytest.mark.parametrize(
    ("share", "half_width", "shown"),
    [(-0.0687, 0.04, "-7 %"), (-0.0687, 0.0, "-6.9 %"), (0.612, 0.3, "+60 %"), (-0.0002, 0.0, "0.0 %")],
)
def test_changes_have_the_digits_of_their_interval(share, half_width, shown):
    assert percent(share, half_width, sign="+") == shown


def at_risk(**changes):
    found = optimum()
    saving = found.baseline_value - found.value
    known = SavingAtRisk(
        deviation=0.1,
        own_deviation=0.12,
        saving=saving,
        saving_deviation=0.25 * saving,
        prior_deviation=0.2 * saving,
        shares={"system.accelerator.busy_power": 0.5, "system.accelerator.leakage.power": 0.14},
        without=46,
    )
    return known._replace(**changes)


def test_share_that_rests_on_priors_by_hand():
    # 1.645 x 0.2 = 0.329 of the saving; (0.2 / 0.25)^2 = 0.64 of the variance.
    assert at_risk().resting_on_priors == pytest.approx(0.329, abs=5e-4)
    assert at_risk().prior_variance == pytest.approx(0.64)
    assert at_risk(prior_deviation=10.0 * at_risk().saving).resting_on_priors == 1.0
    assert pytest.approx(1.645, abs=5e-4) == DEVIATIONS


def test_the_report_says_what_rests_on_numbers_that_nobody_measured():
    found = dataclasses.replace(optimum(), saving={"clock": optimum().baseline_value - optimum().value})
    text = " ".join(map(sentence, risk_sentences(found, at_risk())))
    assert "33 % of that rests on numbers that nobody measured" in text
    assert "They cause 64 % of its variance." in text
    assert "accelerator.busy_power (50 %)" in text
    assert "46 more such numbers have no stated spread" in text
    assert "more such numbers" not in " ".join(map(sentence, risk_sentences(found, at_risk(without=0))))


def test_the_headline_has_the_interval_of_the_value_and_of_the_change():
    line = sentence(headline(optimum(), saving_at_risk(optimum())))
    assert line.count("(90 %: ") == 2
    shown = line.split(": ", 1)[1].split(" ")[0]
    assert len(shown.replace(".", "").lstrip("0")) <= 3
