"""`timeline`: the passes of a step and the clocks of its ranks as table, rows and figure; errors before the work."""

import csv

import pytest

from cli.shell import numbers, run, run_json

ARGUMENTS = ("timeline", "llama-3.1-405b-h100", "--set", "plan.layout.virtual_stages=1")
CLOCKS = (
    *("timeline", "test-1b-h100", "--clocks", "--set", "plan.layout.pipeline=4", "--set", "plan.layout.microbatch=2"),
    *("--set", "plan.layout.last_stage_layers=1", "--points", "2"),
)


def test_rows_are_the_passes(tmp_path):
    tree = run_json(*ARGUMENTS, "-o", str(tmp_path / "passes.csv"), "--plot", str(tmp_path / "step.svg"))
    with open(tmp_path / "passes.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(tree["tables"]["passes"]["rows"]) == 2 * 16 * 16  # directions, ranks, micro-batches
    assert float(rows[0]["end [s]"]) == pytest.approx(numbers(tree, "passes")["end"])
    assert max(float(row["end [s]"]) for row in rows) == pytest.approx(numbers(tree, "times")["pipeline_time"])
    assert sum(rank["layers"] for rank in tree["tables"]["ranks"]["rows"]) == 126
    picture = (tmp_path / "step.svg").read_text(encoding="utf-8")
    assert "The mean rank waits" in picture
    assert "forward" in picture


def test_table_compares_simulation_and_closed_form():
    text = run(*ARGUMENTS).stdout
    assert "by simulation, and" in text
    assert "by the closed form" in " ".join(text.split())
    assert "16 ranks, 16 virtual stages" in text


def test_rows_are_the_clocks(tmp_path):
    files = ("-o", str(tmp_path / "clocks.csv"), "--plot", str(tmp_path / "front.svg"))
    tree = run_json(*CLOCKS, "--slowdown", "10%", *files)
    with open(tmp_path / "clocks.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 4  # step times, directions, ranks
    first, last = (numbers(tree, "front", row) for row in (0, -1))
    assert last["step_time"] == pytest.approx(1.1 * first["step_time"], rel=1e-5)
    assert float(rows[-1]["clock [1]"]) == pytest.approx(numbers(tree, "clocks", -1)["clock"])
    assert last["energy"] < last["one_clock_energy"]
    assert "Clocks by rank save up to" in (tmp_path / "front.svg").read_text(encoding="utf-8")


def test_table_has_megahertz():
    text = run(*CLOCKS).stdout
    assert "with one clock" in text
    assert "GHz" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ARGUMENTS, "--plot", "step.gif"), "Choose one of .json, .csv"),
        ((*ARGUMENTS, "--set", "plan.batch=16.5 Mi tokens"), "whole micro-batches"),
        ((*ARGUMENTS, "--per", "phase"), "Add --clocks"),
        ((*CLOCKS, "--per", "stage"), 'per: unknown "stage"'),
        ((*CLOCKS, "--slowdown", "2 s"), "slowdown:"),
        (("stage-clocks", "test-1b-h100", "--per", "rank"), "`energymodel timeline --clocks` now"),
        (("site-power", "test-1b-h100", "--power", "1 MW"), "`energymodel fleet --site` now"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
