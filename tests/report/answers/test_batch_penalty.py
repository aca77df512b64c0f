"""Tokens that the batch wastes, with an interval that widens beyond the data."""

import pytest

import energymodel as em
from energymodel.report.answers.details import batch_sentences
from energymodel.report.number import sentence
from outcomes import outcome_of


def lines(name, *changes):
    scenario = em.load_scenario(name, changes)
    return batch_sentences(scenario, scenario.plan, outcome_of(name, *changes))


def interval(words):
    """Percent of the tokens that the batch wastes, and the ends of their interval."""
    return [100.0 * end for end in words.numbers["wasted"][1][:3]]


def test_batch_beyond_the_data_says_so():
    penalty, beyond = lines("llama-3.1-405b-h100")
    # By hand: B_c = 2.1145e6 (15.6e12/5e9)^0.5695 = 2.07e8; u = (16.78e6/2.07e8)^1.2526 = 0.0430; 1.0430^0.798 = 1.034.
    middle, low, high = interval(penalty)
    assert middle == pytest.approx(3.4, abs=0.06)
    assert low < middle < high < 40
    assert "16.78 M tokens is 2 times the largest tested (8.389 M tokens)" in sentence(beyond)
    assert "15.6 T tokens are 673.3 times the largest tested" in sentence(beyond)


def test_interval_widens_with_the_distance_from_the_data():
    far = interval(lines("llama-3.1-405b-h100")[0])
    near = interval(
        lines("llama-3.1-405b-h100", "plan.goal.tokens=20e9 token", "plan.batch=4 Mi tokens", "plan.chips=4096")[0]
    )
    assert far[2] / far[1] > 1.3 * near[2] / near[1]


def test_run_within_the_data_has_no_second_line():
    assert len(lines("test-1b-h100", "plan.goal.tokens=20e9 token")) == 1


def test_law_without_a_tested_range_says_nothing():
    assert lines("test-1b-h100", "system.learning.critical_batch=kaplan-2020") == []


def test_a_run_from_a_checkpoint_wastes_what_a_late_batch_wastes():
    """Of GPT-3 in MLPerf: 1.2 billion tokens after 12.58 billion, by hand with the law at p = 1."""
    changes = (
        "system.tokens_seen=12.58 G tokens",
        "plan.goal.tokens=1.2 G tokens",
        "system.learning.critical_batch.sharpness=1",
        "system.learning.critical_batch.exponent=0.5",
        "system.learning.critical_batch.at_pivot=2 M tokens",
    )
    # B_c(13.78e9) = 2e6 sqrt(2.756) = 3.32e6; u = 0.9129, B_r = 3.32e6 (1 - u) / (1 - sqrt(u)) = 6.49e6; 16.78 / 6.49.
    wasted = lines("llama-3.1-405b-h100", *changes)[0]
    assert "more tokens than a small one after 12.58 G tokens seen" in sentence(wasted)
    assert interval(wasted)[0] == pytest.approx(258.0, abs=2.0)
    # Without the checkpoint: B_c(1.2e9) = 0.98e6.
    assert interval(lines("llama-3.1-405b-h100", *changes[1:])[0])[0] == pytest.approx(1713.0, abs=5.0)
