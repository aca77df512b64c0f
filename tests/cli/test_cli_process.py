"""The installed command: help without JAX, verdicts as exit codes, a compiled program kept between runs."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.shell import SMALL

FULL = Path(os.devnull).with_name("full")  # of Linux: a device that never has room
COMMAND = [sys.executable, "-c", "from energymodel.cli import main; main()"]


def _run(*arguments, **environment):
    variables = {**os.environ, **environment}
    return subprocess.run(
        [*COMMAND, *arguments], env=variables, capture_output=True, text=True, check=False, timeout=300
    )


def test_help_needs_no_heavy_import():
    code = (
        "import sys; from energymodel.cli import app; print([m for m in ('jax', 'numpy', 'pint') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
    result = _run("--help")
    assert result.returncode == 0
    for command in ("evaluate", "optimize", "limits", "presets"):
        assert command in result.stdout


def test_bad_input_of_the_process():
    result = _run("evaluate", "llama-3.1-405b-h10")
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert 'Did you mean "llama-3.1-405b-h100"?' in result.stderr


def test_what_native_code_refuses_is_one_line():
    result = _run("evaluate", SMALL, XLA_FLAGS="--bogus")
    assert result.returncode == 2
    last = result.stderr.splitlines()[-1]
    assert last == "energymodel: error: native code ended the command. XLA_FLAGS=--bogus: change or unset it."


@pytest.mark.parametrize("closed", ["1>&-", "2>&-"])
def test_a_closed_stream_takes_nothing_from_the_other(closed):
    command = f"{shlex.join([*COMMAND, 'evaluate', 'nosuch'])} {closed}"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 2
    assert result.stdout == ""
    assert ("nosuch" in result.stderr) is (closed == "1>&-")


def test_what_an_encoding_lacks_is_an_escape():
    result = _run("evaluate", "25 °C", "--json", PYTHONIOENCODING="ascii")
    assert result.returncode == 2
    assert json.loads(result.stdout)["value"] == "25 °C"
    assert "\\u00b0" in result.stderr


def test_a_defect_is_named_before_its_traceback():
    code = (
        "from energymodel.cli import commands, main\n"
        "def broken(): raise RuntimeError('no such thing')\n"
        "commands.app = broken\n"
        "main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert result.stderr.startswith("energymodel: defect: RuntimeError: no such thing Please report this")
    assert result.stderr.endswith("RuntimeError: no such thing\n")


@pytest.mark.slow
def test_compiled_programs_are_kept(tmp_path, monkeypatch):
    folder = tmp_path / "energymodel" / "compiled"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = (_run("evaluate", SMALL) for _ in range(2))
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    assert first.stderr == second.stderr == ""
    assert any(folder.iterdir())


def test_output_that_nobody_reads_ends_the_command_quietly():
    with subprocess.Popen(
        [*COMMAND, "presets", "list", "scenarios"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 141  # as of a program that SIGPIPE ends
    assert errors == ""


@pytest.mark.skipif(not FULL.exists(), reason="a device of Linux that is always full")
def test_output_to_a_full_disk_is_one_line():
    with FULL.open("w", encoding="utf-8") as full:
        result = subprocess.run(
            [*COMMAND, "presets", "list", "scenarios"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert result.returncode == 2
    assert result.stderr == "energymodel: error: the output cannot be written: No space left on device.\n"
