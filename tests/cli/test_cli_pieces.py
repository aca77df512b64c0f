"""--model, --training and --cluster in place of a scenario, and what is offered at the cursor."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.shell import numbers, run, run_json
from cli.test_cli_scenario import TITAN
from energymodel.cli import app
from energymodel.cli.commands import COMMANDS, EXAMPLE
from energymodel.cli.source import Parts
from energymodel.errors import InputError
from energymodel.scenarios.files import names
from energymodel.scenarios.pieces import accelerator_of, title_of_model

PIECES = ("--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "16", "--tokens", "50 G")


def test_tokens_from_which_a_search_begins_are_named_for_the_next_command():
    assert shlex.split(Parts(model="test-1b", accelerator="h100-sxm", chips="8").read((), "1 T").source)[-1] == "1 T"


def test_what_was_assumed_is_said_beside_the_result():
    result = run("limits", *PIECES, "--json")
    assert json.loads(result.stdout)["tables"]["bounds"]["rows"]
    assert "note: The layout was chosen, not given" in result.stderr
    assert "prices of United States, " in result.stderr


def test_a_cluster_says_its_accelerator():
    assert accelerator_of("nanotron-h100") == "h100-sxm"
    assert accelerator_of("a100-sxm4-80gb + megatron") == "a100-sxm4-80gb"
    words = ("--model", "test-1b", "--chips", "16", "--tokens", "50 G", "--cluster", "nanotron-h100")
    tree = run_json("evaluate", *words)
    assert tree["scenario"]["system"]["accelerator"]["title"] == "NVIDIA H100 SXM5, 80 GB"


def test_predict_answers_for_a_training_configuration(tmp_path):
    file = tmp_path / "train.toml"
    file.write_text(TITAN)
    words = ("predict", str(file), "--accelerator", "h100-sxm", "--chips", "64")
    tree = run_json(*words)
    assert numbers(tree, "prediction")["fits"] == "yes"
    assert numbers(tree)["tokens"] == 1000 * 32 * 2 * 4096
    text = run(*words, "--set", "plan.layout.microbatch=1").stdout
    assert " of 85.52 GB per chip: out of memory with a probability of " in text
    assert "money per step" in text
    small = run(*words, "--set", "system.accelerator.memory_capacity=3 GB")
    assert small.exit_code == 3
    assert "It does not fit" in small.stderr


def test_predict_answers_for_a_model_without_tokens(tmp_path):
    result = run("predict", "--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "8")
    assert result.exit_code == 0
    assert "energy per 1e9 tokens" in result.stdout
    assert "energy of the run" not in result.stdout
    assert "Nothing says how many tokens the run trains" in result.stdout


def test_the_title_of_a_model():
    assert title_of_model("llama-3.1-8b") == "llama-3.1-8b"
    assert title_of_model("models/olmo/config.json") == "olmo"
    assert title_of_model("models/olmo.json") == "olmo"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_help_text_has_an_example_that_is_understood(name):
    text = run(name, "--help").stdout
    program, word, *arguments = shlex.split(text.rpartition(EXAMPLE)[2])
    assert (program, word) == ("energymodel", name)
    group: Any = typer.main.get_command(app)
    context = group.commands[name].make_context(name, list(arguments))  # raises for an unknown option
    scenario = context.params.get("scenario")
    assert scenario is None or scenario in names("scenarios")


def complete(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        "_ENERGYMODEL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    script = "import sys; sys.argv[0] = 'energymodel'; from energymodel.cli import app; app(prog_name='energymodel')"
    run = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return run.stdout.split()


def test_commands_presets_and_files_are_offered(tmp_path):
    assert complete("energymodel", "opt") == ["optimize"]
    assert "llama-3.1-405b-h100" in complete("energymodel", "evaluate", "llama")
    assert complete("energymodel", "evaluate", "--accelerator", "h100-s") == ["h100-sxm"]
    assert complete("energymodel", "calibrate", "step") == ["step-time"]
    assert complete("energymodel", "calibrate", "power", "x.csv", "--prior", "h100-s") == ["h100-sxm"]
    (tmp_path / "mine.toml").write_text("")
    assert complete("energymodel", "evaluate", f"{tmp_path}/mi") == [f"{tmp_path}/mine.toml"]


def test_a_refusal_in_python_too():
    with pytest.raises(InputError, match="Unknown cluster"):
        accelerator_of("nowhere")


def test_the_files_of_the_quick_start_are_a_plan():
    folder = Path(__file__).parents[2] / "docs" / "quick_start"
    words = ("predict", str(folder / "train.toml"), "--model", str(folder / "config.json"))
    tree = run_json(*words, "--accelerator", "h100-sxm", "--chips", "64")
    assert numbers(tree, "prediction")["fits"] == "yes"
    assert numbers(tree, "plan")["chips"] == 64.0
    assert numbers(tree)["tokens"] == 200_000 * 64 * 8192
    assert run("predict", str(folder / "config.json"), "--accelerator", "h100-sxm", "--chips", "64").exit_code == 0
