"""`timeline`: the passes of a step as table, rows and figure, and errors before the work."""

import csv

import pytest

from cli.shell import run, run_json

ARGUMENTS = ("timeline", "llama-3.1-405b-h100", "--set", "plan.layout.virtual_stages=1")


def test_rows_are_the_passes(tmp_path):
    shown = run_json(*ARGUMENTS, "-o", str(tmp_path / "passes.csv"), "--plot", str(tmp_path / "step.svg"))
    with open(tmp_path / "passes.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(shown["passes"]) == 2 * 16 * 16  # forward and backward, ranks, micro-batches
    assert float(rows[0]["end_s"]) == pytest.approx(shown["passes"][0]["end_s"])
    assert max(float(row["end_s"]) for row in rows) == pytest.approx(shown["pipeline_time_s"])
    assert sum(rank["layers"] for rank in shown["ranks"]) == 126
    picture = (tmp_path / "step.svg").read_text(encoding="utf-8")
    assert "The mean rank waits" in picture
    assert "forward" in picture


def test_table_compares_simulation_and_closed_form():
    text = run(*ARGUMENTS).stdout
    assert "by simulation and" in text
    assert "closed form of `evaluate`" in text
    assert "16 ranks, 16 virtual stages" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--plot", "step.gif"), "Choose one of .svg, .png"),
        (("--set", "plan.batch=16.5 Mi tokens"), "whole micro-batches"),
    ],
)
def test_bad_input_is_refused(more, message):
    result = run(*ARGUMENTS, *more)
    assert result.exit_code == 2
    assert message in result.stderr
