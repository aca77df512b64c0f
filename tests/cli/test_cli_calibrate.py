"""Refusals of `calibrate`, and the scenario that it writes."""

import json
from pathlib import Path

import pytest

from cli.shell import assert_bad_input, run

HEADER = "workload,batch,power_limit_w,time_s,power_w"


def file_of(tmp_path, *lines):
    path = tmp_path / "m.csv"
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    return str(path)


def test_bad_files_and_words_are_answered_in_one_line(tmp_path):
    path = file_of(tmp_path, "a,8,100,20,98", "a,8,200,fast,180")
    assert_bad_input(["calibrate", "power", path], 'line 3, column "time_s"', "'fast' is not a number")
    good = file_of(tmp_path, "a,8,100,20,98", "a,8,200,14,180")
    assert_bad_input(["calibrate", "power", good, "--prior", "v100"], 'Unknown prior "v100"')
    assert_bad_input(["calibrate", "power", good, "--where", "gpu"], '"gpu" is not COLUMN=VALUE')
    assert_bad_input(["calibrate", "power", good, "-o", "m.xyz"], "cannot write")


def test_columns_are_listed():
    for kind in ("step-time", "loss", "batch", "power"):
        result = run("calibrate", kind, "--columns")
        assert result.exit_code == 0
    assert "power_limit_w [W], optional: power limit" in result.stdout


@pytest.mark.slow
def test_few_rows_give_constants_and_a_scenario_that_evaluate_accepts(tmp_path):
    lines = [
        f"{word},{batch},{limit},{time * (250 / limit) ** 0.5},{0.93 * limit}"
        for word, time in (("a", 30.0), ("b", 50.0), ("c", 20.0))
        for batch in (8, 32)
        for limit in (125, 150, 175, 200, 250)
    ]
    path, output = file_of(tmp_path, *lines), tmp_path / "measured.toml"
    result = run("calibrate", "power", path, "--prior", "v100-sxm2-32gb", "--json", "-o", str(output))
    assert result.exit_code == 0, result.stderr
    tree = json.loads(result.stdout)
    errors, constants, best = (tree["tables"][name]["rows"] for name in ("errors", "constants", "best"))
    assert [row["group"] for row in errors] == ["a", "b", "c", "all, held out", "all, in the fit"]
    assert errors[-1]["rows"] == 24
    for row in constants:
        assert row["updated"] in ("yes", "no")
        assert {*row["value"]} >= {"value", "low", "high"} <= {*row["prior"]}
    assert {row["workload"] for row in best} == {"a", "b", "c"}
    for row in best:  # t ~ 1 / sqrt(P): the lowest limit saves most: half the power for 1.4 the time
        assert row["limit"] == 125
        assert row["energy"]["value"] == pytest.approx(0.5**0.5 - 1.0, abs=0.1)
        assert row["time"]["value"] == pytest.approx(2.0**0.5 - 1.0, abs=0.15)
    assert run("evaluate", str(output)).exit_code == 0


@pytest.mark.slow
def test_losses_give_a_law_that_other_commands_accept(tmp_path):
    data = Path(__file__).parents[2] / "experiments" / "data" / "chinchilla_points.csv"
    output, plot = tmp_path / "law.toml", tmp_path / "residuals.svg"
    words = ("calibrate", "loss", str(data), "--where", "epoch_outlier_excluded=0")
    result = run(*words, "-o", str(output), "--plot", str(plot))
    assert result.exit_code == 0, result.stderr
    assert "size held out" in result.stdout
    assert plot.read_text(encoding="utf-8").startswith("<svg")
    again = run(*words, "--prior", str(output), "--json")
    tree = json.loads(again.stdout)
    # The same points twice: the same constants, each more certain.
    values = {row["constant"]: row["value"]["value"] for row in tree["tables"]["constants"]["rows"]}
    assert values["entropy_floor"] == pytest.approx(1.817, abs=0.02)
    assert run("evaluate", str(output)).exit_code == 0
