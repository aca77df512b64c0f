"""Tokens that the batch wastes, with an interval that widens beyond the data."""

import pytest

import energymodel as em
from energymodel.report.answers.details import batch_sentences, rate_sentence
from energymodel.report.number import sentence
from outcomes import outcome_of


def lines(name, *changes):
    scenario = em.load_scenario(name, changes)
    return batch_sentences(scenario, scenario.plan, outcome_of(name, *changes))


def interval(words):
    """Percent of the tokens that the batch wastes, and the ends of their interval."""
    return [100.0 * end for end in words.numbers["wasted"][1][:3]]


def test_batch_beyond_the_data_says_so():
    penalty, beyond = lines("llama-3.1-405b-h100", "plan.batch=64 Mi tokens")
    # By hand: B_c = 2.127e6 (15.6e12/5e9)^0.5435 = 1.686e8; u = (67.11e6/1.686e8)^1.1924 = 0.3333; 1.3333^0.8386 =
    # 1.2728; v = (0.01518 / 0.398)^2 = 0.00145; over 1.0771 at the best batch: 1.2746 / 1.0771 = 1.183.
    middle, low, high = interval(penalty)
    assert middle == pytest.approx(18.3, abs=0.1)
    assert low < middle < high < 100
    assert "67.11 M tokens is 8 times the largest tested (8.389 M tokens)" in sentence(beyond)
    assert "15.6 T tokens are 168.2 times the largest tested" in sentence(beyond)


def test_the_best_batch_and_those_as_good_and_batches_too_small_to_be_measured():
    """At 0.0909 B_c, 1.53e7; v = (0.01518 x 5.0e6 / 32768)^2 = 5.3 at 24 billion tokens, by hand."""
    words = lines("llama-3.1-405b-h100")[0]
    best, low, high = (words.numbers[name][1].value for name in ("best", "low", "high"))
    assert best == pytest.approx(0.0909 * 1.686e8, rel=0.01)
    assert low < best < high < 2.2 * low
    assert "more tokens than the best one" in sentence(words)
    assert "Nothing was measured" not in sentence(words)
    small = sentence(lines("test-1b-h100", "plan.batch=32768 token", "plan.chips=1")[0])
    assert "Nothing was measured at so small a batch: it adds 530 % of the tokens, tested up to 200 %." in small
    follows = sentence(lines("test-1b-h100", "system.learning.critical_batch=zhang-2024-runs")[0])
    assert "more tokens than a small one" in follows


def test_the_best_learning_rate_is_predicted_and_another_one_has_its_cost():
    # By hand: 1.573e-3 (4e8 / 4.034e11)^0.612 (16.78e6 / 5e5)^0.38 = 1.573e-3 x 0.01453 x 3.800 = 8.69e-5.
    scenario = em.load_scenario("llama-3.1-405b-h100")
    best = rate_sentence(scenario, scenario.plan).numbers["best"][1]
    assert best.value == pytest.approx(8.69e-5, rel=0.01)
    assert best.low is not None
    assert best.high is not None
    assert best.low < 3e-5 < 8e-5 < best.high  # 8e-5 is that of the published run
    own = em.load_scenario("llama-3.1-405b-h100", ["system.recipe.learning_rate.ratio=0.5"])
    # (0.0345 / 2) ln^2 2 = 8.3 mnat.
    words = sentence(rate_sentence(own, own.plan))
    assert "that of the run, 0.5 times the best, adds 8.3 mnat/token to the loss" in words


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
        "system.learning.critical_batch.small_batch_share=0",
        "system.learning.critical_batch.exponent=0.5",
        "system.learning.critical_batch.at_pivot=2 M tokens",
    )
    # B_c(13.78e9) = 2e6 sqrt(2.756) = 3.32e6; u = 0.9129, B_r = 3.32e6 (1 - u) / (1 - sqrt(u)) = 6.49e6; 16.78 / 6.49.
    wasted = lines("llama-3.1-405b-h100", *changes)[0]
    assert "more tokens than a small one after 12.58 G tokens seen" in sentence(wasted)
    assert interval(wasted)[0] == pytest.approx(258.0, abs=2.0)
    # Without the checkpoint: B_c(1.2e9) = 0.98e6.
    assert interval(lines("llama-3.1-405b-h100", *changes[1:])[0])[0] == pytest.approx(1713.0, abs=5.0)
