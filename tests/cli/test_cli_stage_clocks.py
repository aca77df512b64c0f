"""`stage-clocks`: the front as table, rows and figure, and errors before the work."""

import csv

import pytest

from cli.shell import run, run_json

ARGUMENTS = (
    *("stage-clocks", "test-1b-h100", "--set", "plan.layout.pipeline=4", "--set", "plan.layout.microbatch=2"),
    *("--set", "plan.layout.last_stage_layers=1", "--points", "2"),
)


def test_rows_are_the_clocks(tmp_path):
    files = ("-o", str(tmp_path / "clocks.csv"), "--plot", str(tmp_path / "front.svg"))
    shown = run_json(*ARGUMENTS, "--slowdown", "10%", *files)
    with open(tmp_path / "clocks.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 4  # step times, directions, ranks
    last = shown["front"][-1]
    assert last["step_time_s"] == pytest.approx(1.1 * shown["front"][0]["step_time_s"], rel=1e-5)
    assert float(rows[-1]["clock"]) == pytest.approx(last["clocks"]["backward"][-1][0])
    assert last["energy_j"] < last["one_clock_energy_j"]
    assert "Clocks by rank save up to" in (tmp_path / "front.svg").read_text(encoding="utf-8")


def test_table_has_megahertz():
    text = run(*ARGUMENTS).stdout
    assert "with one clock" in text
    assert "MHz)" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--per", "stage"), 'per: unknown "stage"'),
        (("--slowdown", "2 s"), "slowdown:"),
        (("--plot", "front.html"), "Choose one of .svg, .png"),
    ],
)
def test_bad_input_is_refused(more, message):
    result = run(*ARGUMENTS, *more)
    assert result.exit_code == 2
    assert message in result.stderr
