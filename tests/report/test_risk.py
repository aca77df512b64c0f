"""How sure a saving is, in words: what rests on numbers that nobody measured, and its interval."""

import dataclasses

import pytest

from energymodel.report.answers.optimize import headline
from energymodel.report.answers.search_parts import risk_sentences
from energymodel.report.number import sentence
from energymodel.sweeps.first_order import SavingAtRisk, saving_at_risk
from energymodel.sweeps.outcome_spread import DEVIATIONS
from report.reference_optimum import optimum


def at_risk(**changes):
    saving = optimum().baseline_value - optimum().value
    risk = SavingAtRisk(
        deviation=0.1,
        own_deviation=0.12,
        saving=saving,
        saving_deviation=0.25 * saving,
        prior_deviation=0.2 * saving,
        shares={"system.accelerator.busy_power": 0.5, "system.accelerator.leakage.power": 0.14},
        without=46,
    )
    return risk._replace(**changes)


def test_share_that_rests_on_priors_by_hand():
    # 1.645 x 0.2 = 0.329 of the saving; (0.2 / 0.25)^2 = 0.64 of the variance.
    assert at_risk().resting_on_priors == pytest.approx(0.329, abs=5e-4)
    assert at_risk().prior_variance == pytest.approx(0.64)
    assert at_risk(prior_deviation=10.0 * at_risk().saving).resting_on_priors == 1.0
    assert pytest.approx(1.645, abs=5e-4) == DEVIATIONS


def test_the_report_says_what_rests_on_numbers_that_nobody_measured():
    saved = dataclasses.replace(optimum(), saving={"clock": optimum().baseline_value - optimum().value})
    text = " ".join(map(sentence, risk_sentences(saved, at_risk())))
    assert "33 % of that rests on numbers that nobody measured" in text
    assert "They cause 64 % of its variance." in text
    assert "accelerator.busy_power (50 %)" in text
    assert "46 more such numbers have no stated spread" in text
    assert "more such numbers" not in " ".join(map(sentence, risk_sentences(saved, at_risk(without=0))))


def test_the_headline_has_the_interval_of_the_value_and_of_the_change():
    line = sentence(headline(optimum(), saving_at_risk(optimum())))
    assert line.count("(90 %: ") == 2
    number = line.split(": ", 1)[1].split(" ")[0]
    assert len(number.replace(".", "").lstrip("0")) <= 3
