"""Bad input: exit code 2, one line on stderr that names what was given and the next step, no traceback."""

import shlex
from pathlib import Path

import pytest
import yaml

from cli.shell import SMALL, assert_bad_input, run

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


def test_usage_errors_exit_with_2():
    for words in (("compare",), ("evaluate", SMALL, "--sett", "plan.clock=0.8"), ("evluate", SMALL)):
        assert run(*words).exit_code == 2
