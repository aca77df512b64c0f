"""`evaluate --trajectory`: table, rows and figure, and errors before the work."""

import csv

import pytest

from cli.shell import numbers, run, run_json

ARGUMENTS = ("evaluate", "test-1b-h100", "--trajectory", "--points", "5")


def test_rows_end_at_the_outcome(tmp_path):
    files = ("-o", str(tmp_path / "run.csv"), "--plot", str(tmp_path / "run.svg"))
    shown = run_json(*ARGUMENTS, *files)
    with open(tmp_path / "run.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    assert float(rows[-1]["energy [J]"]) == pytest.approx(numbers(shown)["energy"])
    assert numbers(shown, "trajectory", -1)["loss"] == pytest.approx(numbers(shown)["loss"])
    assert "After half of the energy the loss is" in (tmp_path / "run.svg").read_text(encoding="utf-8")


def test_table_says_what_the_loss_is():
    text = run(*ARGUMENTS).stdout
    assert "Run over time" in text
    assert "a run that ends there" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("evaluate", "test-1b-h100", "--points", "5"), "add --trajectory"),
        ((*ARGUMENTS[:3], "--points", "0"), "0 make no trajectory"),
    ],
)
def test_bad_input_is_refused(more, message):
    result = run(*more)
    assert result.exit_code == 2
    assert message in result.stderr
