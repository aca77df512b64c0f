"""`replan`: what was measured comes from a file, the rest is a scenario, and bad files are refused."""

import pytest

from cli.shell import numbers, run, run_json
from energymodel.errors import InputError
from energymodel.readers.so_far import read_so_far
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.replan import MeasuredRun
from energymodel.search.training_run import TrainingRun

SMALL = "test-1b-h100"
KNOWN = MeasuredRun._fields


@pytest.mark.slow
def test_the_rest_of_a_run_is_planned_and_written(tmp_path):
    measured, rest = tmp_path / "so_far.toml", tmp_path / "rest.toml"
    measured.write_text('tokens = "4 G tokens"\ntime = "3 h"\nfailures = 0\n')
    fixed = [word for name in ("batch", "coolant_temperature", "chips") for word in ("--fix", f"plan.{name}")]
    tree = run_json("replan", SMALL, "--so-far", str(measured), "--rest", str(rest), *fixed)
    assert numbers(tree, "whole_run")["time"] == 3 * 3600.0
    end = tree["tables"]["whole_run"]["rows"][1]["time"]
    assert end["low"] < end["value"] < end["high"]
    assert 0.0 <= numbers(tree, "rest")["saving"] < 1.0
    written = load_scenario(rest)
    planned = load_scenario(SMALL)
    left = [
        float(TrainingRun(scenario.system, scenario.plan).number("plan.goal.tokens")) for scenario in (written, planned)
    ]
    assert left[0] == pytest.approx(left[1] - 4e9)


@pytest.mark.parametrize("extension", ["toml", "json", "jsonl"])
def test_each_kind_of_file_is_read(tmp_path, extension):
    texts = {
        "toml": 'tokens = 2e12\ntime = "9 days"\n',
        "json": '{"tokens": 2e12, "time": "9 days"}',
        "jsonl": '{"tokens": 1e12, "time": "4 days"}\n{"tokens": 2e12, "time": "9 days"}\n{"tokens": 3e1',
    }
    file = tmp_path / f"so_far.{extension}"
    file.write_text(texts[extension])
    assert read_so_far(file, KNOWN) == {"tokens": 2e12, "time": "9 days"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "token = 1", 'unknown key "token".*tokens'),
        ("a.json", '{"tokens": true}', "neither a number in SI nor text"),
        ("a.json", '{"tokens": [1]}', "neither a number in SI nor text"),
        ("a.jsonl", "nothing\n", "no line is a JSON table"),
        ("a.csv", "tokens\n1\n", 'extension ".csv" is not known'),
    ],
)
def test_what_says_nothing_of_a_run_is_refused(tmp_path, name, text, words):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        read_so_far(file, KNOWN)


def test_a_number_that_no_float_holds_is_refused(tmp_path):
    file = tmp_path / "so_far.jsonl"
    file.write_text(f'{{"tokens": {"9" * 400}, "time": 1}}\n')
    result = run("replan", SMALL, "--so-far", str(file))
    assert result.exit_code == 2
    assert "tokens" in result.stderr.splitlines()[-1]
    assert "inf is not a positive number" in result.stderr.splitlines()[-1]


def test_tokens_are_asked_for(tmp_path):
    file = tmp_path / "so_far.toml"
    file.write_text('time = "1 day"\n')
    result = run("replan", SMALL, "--so-far", str(file))
    assert result.exit_code == 2
    assert "tokens is missing" in result.stderr
