"""`batch`: the curve as table, rows and figure, and errors before the work."""

import csv

import pytest

from cli.shell import run, run_json

ARGUMENTS = ("batch", "test-1b-h100", "--points", "6")


def test_rows_are_the_batches(tmp_path):
    shown = run_json(*ARGUMENTS, "-o", str(tmp_path / "b.csv"), "--plot", str(tmp_path / "b.svg"))
    with open(tmp_path / "b.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["time_s"]) for row in rows] == [row["time_s"] for row in shown["batches"]]
    best = shown["best"]["energy"]
    assert best["interval_tokens"][0] < best["batch_tokens"] < best["interval_tokens"][1]
    assert "over the lowest value" in (tmp_path / "b.svg").read_text(encoding="utf-8")


def test_table_says_where_larger_stops_to_pay():
    text = run(*ARGUMENTS).stdout
    assert "to break even" in text
    assert "above which a larger batch stops to pay" in " ".join(text.split())


@pytest.mark.parametrize(
    ("more", "message"), [(("--points", "1"), "1 make no curve"), (("--plot", "b.gif"), "Choose one of .svg, .png")]
)
def test_bad_input_is_refused(more, message):
    result = run(*ARGUMENTS[:2], *more)
    assert result.exit_code == 2
    assert message in result.stderr
