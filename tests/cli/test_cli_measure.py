"""`measure` and `calibrate` on logs, from the command line."""

import pytest

from cli.shell import assert_bad_input, numbers, rows_of, run, run_json
from readers.test_measured_log import STEP, write_run

PIECES = ("--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "4", "--tokens", "50 G")


def test_measure_writes_a_table_and_a_figure(tmp_path):
    log, meter = map(str, write_run(tmp_path))
    table, picture = tmp_path / "steps.csv", tmp_path / "run.svg"
    result = run("measure", log, meter, *PIECES, "-o", str(table), "--plot", str(picture))
    assert result.exit_code == 0, result.stderr
    assert "power of a chip" in result.stdout
    assert "Energy by phase" in result.stdout
    assert picture.read_text().count("<svg") == 1
    (row,) = rows_of(table)
    assert float(row["step_time_s"]) == STEP


@pytest.mark.slow
def test_calibrate_reads_the_table_of_measure(tmp_path):
    log, meter = map(str, write_run(tmp_path))
    table = tmp_path / "steps.csv"
    assert run("measure", log, meter, *PIECES, "-o", str(table)).exit_code == 0
    fitted = run_json("calibrate", "step-time", str(table))
    straight = run_json("calibrate", "step-time", log, meter, *PIECES)
    assert fitted["headline"].startswith("1 row,")
    assert fitted["tables"]["constants"] == straight["tables"]["constants"]


def test_measure_prints_json(tmp_path):
    tree = run_json("measure", *map(str, write_run(tmp_path)))
    assert numbers(tree, "rows")["step_time_s"] == numbers(tree, "steps")["step_time"] == STEP
    assert {row["phase"] for row in tree["tables"]["phases"]["rows"]} == {"training", "checkpoint", "all"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("calibrate", "step-time", "LOG"), "does not say model and layout"),
        (("measure", "LOG", "--offset", "3 kg"), "--offset"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, words, message):
    log, _ = write_run(tmp_path)
    assert_bad_input([str(log) if word == "LOG" else word for word in words], message)
