"""The answer of a sensitivity analysis: what to measure, what to change, in tables, JSON, CSV and a figure."""

import csv
import dataclasses
import io
import json
import re

import pytest

from cli.shell import numbers
from energymodel.report import data, drawing
from energymodel.report.answer import Answer
from energymodel.report.answers.sensitivity import choices, headline, notes, sensitivity_answer
from energymodel.report.number import sentence
from energymodel.search.result import SearchResult
from report.reference_sensitivity import of_optimum, sensitivity
from report.stored_answers import on_terminal


def lines_of(answer: Answer) -> list[str]:
    return on_terminal(answer, 300).splitlines()


def line_with(lines: list[str], *words: str) -> str:
    return next(line for line in lines if all(word in line for word in words))


def row_of(answer: Answer, path: str) -> dict:
    tree = json.loads(data.dumps(answer), parse_constant=pytest.fail)
    rows = tree["tables"]["numbers"]["rows"]
    return next(numbers(tree, "numbers", index) for index, row in enumerate(rows) if row["path"] == path)


def test_the_answer_says_what_to_measure_and_what_to_change():
    lines = lines_of(sensitivity_answer(sensitivity()))
    measured = line_with(lines, "system.accelerator.gemm_efficiency", "0.6")
    # Mean squares of +10 and -8 % and of -1 and +3 %: 82 and 5, of 87.
    for words in ("+10 %", "-8.0 %", "94 %", "measured"):
        assert words in measured
    assert "5.7 %" in line_with(lines, "system.facility.cooling.coil_approach", "5 K", "15 K")
    assert "± 9.3 %" in line_with(lines, "All 2 together")
    # The efficiency has a source, the approach is a prior: 5 of 87.
    assert "priors (1 of the 1 have any effect): energy 5.7 %, loss 0.0 %." in line_with(lines, "Share of the variance")
    assert "-5.0 %" in line_with(lines, "plan.clock", "0.9")


def test_a_value_that_breaks_a_limit_is_not_proposed():
    first, second = choices(sensitivity())
    assert (first.row.path, first.value) == ("plan.clock", 0.9)
    # Eight sequences would save a fifth but do not fit, so the other value is shown.
    assert (second.row.path, second.value, second.breaks) == ("plan.layout.microbatch", 2.0, ())


def test_the_headline_says_what_of():
    assert sentence(headline(sensitivity())) == "The scenario's own plan: energy 100 J, loss 2 nat/token."
    assert "Lowest energy within the limits: 100 J" in sentence(headline(of_optimum()))
    nothing = dataclasses.replace(of_optimum(), rows=(), result=SearchResult.infeasible)
    words = "The search for the lowest energy ended infeasible, so the optimum has no sensitivities."
    assert sentence(headline(nothing)) == words
    assert words in " ".join(lines_of(sensitivity_answer(nothing)))


def test_notes_say_what_the_tables_leave_out():
    text = " ".join(map(sentence, notes(sensitivity())))
    assert "At 8, plan.layout.microbatch exceeds" not in text
    assert "Not varied alone, because their distribution is joint (chinchilla): system.learning.loss_law.*." in text
    assert "without a stated uncertainty: 1, such as system.workload.hidden (1.5)" in text
    assert "(--json gives their derivatives): 1." in text


def test_the_answer_of_an_optimum_has_limits_and_marks_what_was_searched_again():
    lines = lines_of(sensitivity_answer(of_optimum()))
    assert "-0.25" in line_with(lines, "time", "24 hours", "moves with it")
    assert "≈" in line_with(lines, "system.facility.cooling.coil_approach", "5 K")
    assert "≈" not in line_with(lines, "system.accelerator.gemm_efficiency", "0.6")
    assert not any("plan.clock" in line for line in lines)
    assert any("hold one with --limit" in line for line in lines)


def test_json_is_strict_and_complete():
    answer = sensitivity_answer(sensitivity())
    tree = json.loads(data.dumps(answer), parse_constant=pytest.fail)
    outputs = numbers(tree, "outputs")
    assert (outputs["output"], outputs["value"]) == ("energy", 100.0)
    assert outputs["together"] == pytest.approx(0.0932738, abs=1e-6)
    assert outputs["prior_share"] == pytest.approx(5.0 / 87.0)
    row = row_of(answer, "system.accelerator.gemm_efficiency")
    assert (row["kind"], row["action"], row["distribution"]) == ("measured", "measure", "lognormal 0.0087")
    assert row["energy.at_low"] == 110.0
    assert row["energy.share"] == pytest.approx(82.0 / 87.0)
    assert row["range"] == "quantiles"
    assert row_of(answer, "plan.clock")["range"] == "next values"
    zero = row_of(answer, "system.market.price.delay_cost")
    assert (zero["energy.elasticity"], zero["energy.derivative"]) == (None, 7.0)
    assert tree["tables"]["numbers"]["rows"][0]["path"] == "system.accelerator.gemm_efficiency"
    assert numbers(tree, "elasticities")["number"] == "system.workload.hidden"
    assert row_of(answer, "plan.layout.microbatch")["breaks"] == "memory at high"


def test_what_is_not_a_number_is_null():
    row = sensitivity().rows[0]
    lost = dataclasses.replace(row, effects={"energy": dataclasses.replace(row.effects["energy"], low=float("nan"))})
    other = dataclasses.replace(sensitivity().rows[1], effects={"energy": sensitivity().rows[1].effects["energy"]})
    answer = sensitivity_answer(dataclasses.replace(sensitivity(), rows=(lost, other), values={"energy": 100.0}))
    assert row_of(answer, row.path)["energy.at_low"] is None
    assert any("at_low" in warning for warning in json.loads(data.dumps(answer))["warnings"])
    assert "no plan" in " ".join(lines_of(answer))


def test_csv_has_a_line_for_each_number():
    rows = list(csv.DictReader(io.StringIO(data.csv_text(data.main_table(sensitivity_answer(sensitivity()))))))
    assert len(rows) == len(sensitivity().rows)
    clock = next(row for row in rows if row["path"] == "plan.clock")
    effects = [clock[f"energy.{name}"] for name in ("elasticity [1]", "at_low [J]", "at_high [J]")]
    assert effects == ["0.5", "95.0", ""]
    assert next(row for row in rows if row["path"] == "plan.layout.microbatch")["breaks"] == "memory at high"


def test_the_figure_shows_the_changes_with_the_ends_of_the_numbers():
    answer = sensitivity_answer(sensitivity())
    hover = re.findall(r"<title>([^<]* % \([^<]*)</title>", drawing.svg(answer, answer.charts[0]))
    assert [words.rpartition(": ")[2] for words in hover] == ["+10 %", "-8.0 %", "-1.0 %", "+3.0 %"]
    assert [re.findall(r"\((.*)\)", words)[0] for words in hover] == ["0.6", "0.8", "5 K", "15 K"]
