"""Are numbers printed with the digits that their interval supports?"""

import dataclasses

import pytest

from energymodel.report.intervals import supported_digits, with_interval
from energymodel.report.plan_report import headline, optimum_report
from energymodel.report.saving_report import risk_lines
from energymodel.uncertainty.first_order import DEVIATIONS, SavingAtRisk
from report.reference_optimum import optimum
from report.test_optimum import _text

GWH = 3.6e12


@pytest.mark.parametrize(
    ("value", "half_width", "digits"),
    [(26.18, 4.5, 2), (26.18, 0.7, 3), (6.1, 4.9, 1), (26.18, 0.001, 4), (26.18, 0.0, 4), (0.3, 4.9, 1)],
)
def test_the_last_digit_is_worth_at_most_half_of_the_interval(value, half_width, digits):
    assert supported_digits(value * GWH, half_width * GWH, "J") == digits


def test_a_number_and_its_interval():
    assert with_interval(26.18 * GWH, 22.1 * GWH, 31.2 * GWH, "J", 0.9) == "26 GWh (90 %: 22 to 31)"
    assert with_interval(1.2 * GWH, 0.8 * GWH, 1.6 * GWH, "J", 0.9) == "1.2 GWh (90 %: 800 MWh to 1.6 GWh)"
    assert with_interval(5.84e6, 5.7e6, 6.0e6, "s", 0.9) == "67.6 days (90 %: 66 to 69.4)"


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
    text = " ".join(_text(optimum_report(found, at_risk())).split())
    assert "Of the saving, 33 % rests on numbers that nobody measured" in text
    assert "They make 64 % of its variance." in text
    assert "system.accelerator.busy_power (50 %)" in text
    assert "46 more priors state no spread" in text
    assert "more priors" not in "\n".join(risk_lines(found, at_risk(without=0)))


def test_the_headline_has_the_interval_of_the_value_and_of_the_change():
    line = headline(optimum(), at_risk())
    assert line.count("(90 %: ") == 2
    shown = line.split(": ", 1)[1].split(" ")[0]
    assert len(shown.replace(".", "").lstrip("0")) <= 3
