"""Bad input: exit code 2, one line on stderr that names what was given and the next step, no traceback."""

import errno
import json
import os
import shlex
from pathlib import Path

import pytest
import yaml

from cli.shell import SMALL, assert_bad_input, refused_json, run
from energymodel.cli.shell import of_environment

COMMANDS = ("evaluate", "optimize", "limits")
FILES = [
    ("empty.toml", b"", "empty.toml", "empty"),
    ("blank.toml", b" \n\n", "blank.toml", "empty"),
    ("binary.toml", bytes(range(256)), "binary.toml", "no text in UTF-8"),
    ("broken.toml", b"[system\n", "broken.toml", "TOML"),
    ("key.toml", b'base = "test-1b-h100"\n[sistem]\n', 'Did you mean "system"?'),
    ("missing-section.toml", b'title = "nothing"\n', "missing-section", "[system]"),
    ("number.toml", b'base = "test-1b-h100"\n[plan]\npower_cap = 700\n', "no unit"),
    ("section.toml", b'base = "test-1b-h100"\nplan = 3\n', "[plan]"),
    ("broken.json", b"{", "broken.json", "JSON"),
    ("list.json", b"[1]", "list.json", "scenario"),
    ("binary.json", bytes(range(256)), "binary.json", "JSON"),
    ("config.json", b'{"model_type": "llama"}', "config.json", "Give it as --model"),
    ("missing.toml", None, "missing.toml", "missing.toml"),
    ("missing.json", None, "missing.json", "missing.json: no such file"),
    ("folder/missing", None, "folder/missing", "folder/missing"),
]
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_preset_suggests_the_nearest(command):
    assert_bad_input([command, "llama-3.1-405b-h10"], "llama-3.1-405b-h10", 'Did you mean "llama-3.1-405b-h100"?')


@pytest.mark.parametrize("change", REFUSED["changes"], ids=lambda change: change[0])
def test_bad_change(change):
    assert_bad_input(["evaluate", SMALL, "--set", change[0]], *change[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_checks_changes(command):
    change, *mentioned = REFUSED["changes"][0]
    assert_bad_input([command, SMALL, "--set", change], *mentioned)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file[0])
def test_bad_file(file, tmp_path, monkeypatch):
    name, content, *mentioned = file
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert_bad_input(["evaluate", name], *mentioned)


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [("run.parquet", (".parquet", ".json", ".csv")), ("run", ("run", ".json")), ("nowhere/run.json", ("nowhere",))],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written(command, name, mentioned, tmp_path):
    assert_bad_input([command, SMALL, "-o", str(tmp_path / name)], *mentioned)


@pytest.mark.parametrize(("line", "message"), REFUSED["commands"])
def test_options_that_cannot_be_answered(line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*shlex.split(line))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert result.stderr.splitlines()[-1].startswith("energymodel: error: ")


@pytest.mark.parametrize(("line", "message"), REFUSED["sources"])
@pytest.mark.parametrize("command", ["evaluate", "pareto"])
def test_what_is_no_source_is_refused(command, line, message):
    assert_bad_input([command, *shlex.split(line)], message)


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", SMALL),
        ("sensitivity", SMALL),
        ("sweep", SMALL, "--axis", "plan.clock=0.5:1:2"),
        ("predict", "--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "8"),
        ("calibrate", "power", "runs.csv"),
        ("monitor", SMALL, "--log", "train.log"),
    ],
)
def test_files_that_cannot_be_made_are_refused_before_the_work(words, tmp_path, monkeypatch):
    assert_bad_input([*words, "--open"], "--open shows a page, and none is written. Add -o report.html.")
    assert_bad_input([*words, "-o", "report.docx"], ".html")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert_bad_input(
        [*words, "-o", str(tmp_path / "f.png")], 'figures need matplotlib. Install it: pip install "energy'
    )


REPEATED = [
    ("evaluate", "--set", "plan.clock=0.8", "plan.clock = 0.9", "--set: plan.clock is given twice, as 0.8 and as 0.9"),
    ("evaluate", "--set", "system.node.chips=8", "system.node=dgx-h100", "would replace system.node.chips=8"),
    ("optimize", "--limit", "time=1 d", "time=2 d", "--limit: time is given twice"),
    ("optimize", "--vary", "plan.clock=0.5:1", "plan.clock=0.6:1", "--vary: plan.clock is given twice"),
    ("optimize", "--vary", "plan.batch=1:2 Mi token", "plan.batch@0..1=1:4 Mi token", "plan.batch: given twice"),
    ("sweep", "--axis", "plan.clock=0.5:1:2", "plan.clock=0.6:1:2", "--axis: plan.clock is given twice"),
]


@pytest.mark.parametrize(("command", "option", "first", "second", "message"), REPEATED)
def test_what_is_given_twice_is_refused(command, option, first, second, message):
    assert_bad_input([command, SMALL, option, first, option, second], message)


def test_a_plan_has_a_whole_chip():
    assert_bad_input(["optimize", SMALL, "--limit", "chips=0.5"], "limit chips: 0.5 leaves no chip. Give at least 1.")


def test_oom_risk_is_said_once():
    change = "system.out_of_memory_risk=0.1"
    assert_bad_input(["evaluate", SMALL, "--set", change, "--oom-risk", "0.2"], f"--set {change} says it, too")


@pytest.mark.parametrize("command", COMMANDS)
def test_output_into_a_folder_is_refused_before_the_work(command, tmp_path):
    (tmp_path / "a.json").mkdir()
    assert_bad_input([command, SMALL, "-o", str(tmp_path / "a.json")], "a.json: it is a folder. Name a file")


def test_output_on_a_full_disk_is_refused_before_the_work(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert_bad_input(["evaluate", SMALL, "-o", str(tmp_path / "a.json")], "No space left on device")


def test_errors_are_json_where_json_is_asked_for():
    error = refused_json("evaluate", SMALL, "--set", "plan.chips=0.5")
    about = {name: error[name] for name in ("kind", "thing", "value", "unit", "next_step")}
    step = "give a value between 1 and 1000000000000."
    assert about == {"kind": "bad input", "thing": "plan.chips", "value": 0.5, "unit": "1", "next_step": step}
    error = refused_json("optimize", "llama-3.1-405b-h10")
    assert (error["thing"], error["value"]) == ("scenario", "llama-3.1-405b-h10")
    assert error["next_step"] == 'Did you mean "llama-3.1-405b-h100"?'
    assert "--sett" in refused_json("evaluate", SMALL, "--sett", "x")["message"]  # a usage error
    assert json.loads(run("--json", "evluate").stdout)["next_step"] == "Did you mean 'evaluate'?"


@pytest.mark.parametrize(
    ("name", "value"), [("JAX_PLATFORMS", "bogus"), ("JAX_ENABLE_X64", "maybe"), ("JAX_LOG_COMPILES", "7")]
)
def test_an_environment_that_jax_refuses_is_named(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    refused = {
        "JAX_PLATFORMS": RuntimeError("Unable to initialize backend 'bogus': not known. (set JAX_PLATFORMS='')")
    }.get(name, ValueError(f"invalid truth value {value!r} for environment {name!r}"))
    assert str(of_environment(refused)).startswith(f'{name}: JAX refuses "{value}": ')
    assert of_environment(ValueError("another")) is None


def test_usage_errors_exit_with_2():
    for words in (("compare",), ("evaluate", SMALL, "--sett", "plan.clock=0.8"), ("evluate", SMALL)):
        assert run(*words).exit_code == 2
