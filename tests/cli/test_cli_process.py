"""The installed command: help without JAX, verdicts as exit codes, a compiled program kept between runs."""

import signal
import subprocess
import sys

import pytest

from cli.shell import SMALL

# A process in the background of a shell ignores Ctrl-C, and so would the processes that it starts.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
COMMAND = [sys.executable, "-c", f"{START}from energymodel.cli import main; main()"]


def _run(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=300)


def test_help_needs_no_heavy_import():
    code = (
        "import sys; from energymodel.cli import app; print([m for m in ('jax', 'numpy', 'pint') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
    shown = _run("--help")
    assert shown.returncode == 0
    for command in ("evaluate", "optimize", "limits", "presets"):
        assert command in shown.stdout


def test_bad_input_of_the_process():
    result = _run("evaluate", "llama-3.1-405b-h10")
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert 'Did you mean "llama-3.1-405b-h100"?' in result.stderr


def test_a_defect_is_named_before_its_traceback():
    code = (
        "import sys; from energymodel.cli import main\n"
        "def broken(): raise RuntimeError('no such thing')\n"
        "sys.modules[main.__module__].app = broken\n"
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


@pytest.mark.parametrize("stage", ["loading", "evaluating", "searching"])
def test_interruption_of_the_process(stage):
    with subprocess.Popen(
        [*COMMAND, "optimize", SMALL], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith(stage):
                    break
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1].startswith("energymodel: interrupted")
    assert "Traceback" not in errors
