"""`batch`: the same numbers in JSON and CSV, and errors before the work."""

import csv

import pytest

from cli.shell import run, run_json

ARGUMENTS = ("batch", "test-1b-h100", "--points", "6")


def test_rows_are_the_batches(tmp_path):
    answer = run_json(*ARGUMENTS, "-o", str(tmp_path / "b.csv"), "-o", str(tmp_path / "b.svg"))
    with open(tmp_path / "b.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    batches = answer["tables"]["batches"]["rows"]
    assert [float(row["time [s]"]) for row in rows] == [row["time"] for row in batches]
    best = {row["objective"]: row["batch"] for row in answer["tables"]["best"]["rows"]}["energy"]
    assert best["low"] < best["value"] < best["high"]
    assert "over the lowest value" in (tmp_path / "b.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "message"), [(("--points", "1"), "1 make no curve"), (("-o", "b.gif"), "Choose one of .json")]
)
def test_bad_input_is_refused(more, message):
    result = run(*ARGUMENTS[:2], *more)
    assert result.exit_code == 2
    assert message in result.stderr
