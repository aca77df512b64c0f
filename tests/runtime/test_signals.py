"""Ctrl-C and SIGTERM: one line, 128 plus the number of the signal, within two seconds, at any moment of any command."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.shell import SMALL

WITHIN = 2.0  # seconds, as promised; on a machine that is not overloaded
# A process in the background of a shell ignores Ctrl-C, and so would the processes that it starts. What comes before
# the command line handles signals waits, or Python itself would answer.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM]); print(flush=True); "
)
PREDICT = Path(__file__).parents[2] / "docs" / "quick_start" / "train.toml"
LONG = "--axis=plan.clock=0.5:1:2000", "--axis=plan.chips=64:128:65", "--axis=plan.batch=1e6:4e6 token:3000"
COMMANDS = {
    "evaluate": ("evaluate", SMALL),
    "optimize": ("optimize", SMALL),
    "pareto": ("pareto", SMALL),
    "sensitivity": ("sensitivity", SMALL, "--optimum"),
    "predict": ("predict", str(PREDICT), "--accelerator", "h100-sxm", "--chips", "64"),
    "sweep": ("sweep", SMALL, *LONG),
    "samples": ("sweep", SMALL, "--samples", "1000000000"),
    "compare": ("compare", SMALL, "--accelerator", "h200-sxm"),
    "batch": ("batch", SMALL),
    "frontier": ("frontier", SMALL),
    "explore": ("explore", SMALL, "--no-browser"),
    "limits": ("limits", SMALL),
    "timeline": ("timeline", SMALL),
}


def _ended(arguments, delay, number=signal.SIGINT, *, group=False, folder=None, until=lambda: True):
    """Exit code, stderr and seconds of a command that gets a signal after a delay, alone or with all its children.

    The signal waits `until` something holds. Of a command that has done its work by then, the same without seconds.
    """
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(folder)} if folder else {})}
    if folder:
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    with subprocess.Popen(
        [sys.executable, "-c", f"{START}from energymodel.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            while process.poll() is None and not until():
                time.sleep(0.05)
            if process.poll() is not None:
                _, errors = process.communicate()
                assert process.returncode == 0, errors
                return 0, errors, None
            begun = time.monotonic()
            (os.killpg if group else os.kill)(process.pid, number)
            process.wait(timeout=60)
            seconds = time.monotonic() - begun
            return process.returncode, process.communicate(timeout=60)[1], seconds
        finally:
            process.kill()


def assert_ended_by_signal(ended, number=signal.SIGINT):
    code, errors, _ = ended
    assert code == 128 + number
    lines = [line for line in errors.splitlines() if line.startswith("energymodel: ")]
    assert len(lines) == 1, errors
    assert lines[0].startswith("energymodel: interrupted" if number == signal.SIGINT else "energymodel: terminated")
    assert errors.endswith(f"{lines[0]}\n")
    assert "Traceback" not in errors


@pytest.mark.parametrize("delay", [0.05, 2.0])
def test_interruption(delay):
    assert_ended_by_signal(_ended(COMMANDS["optimize"], delay))


def test_termination_and_interruption_of_all_processes():
    assert_ended_by_signal(_ended(COMMANDS["samples"], 2.5, group=True))
    assert_ended_by_signal(_ended(COMMANDS["predict"], 1.0, signal.SIGTERM), signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_ignored():
    start = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from energymodel.runtime import process; "
    code = f"{start} process.start(); import os; os.kill(os.getppid(), 2); os.kill(os.getpid(), 2); print('still here')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "still here\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a command has one process")
@pytest.mark.parametrize(
    ("ending", "code", "line"),
    [
        ("sys.exit(3)", 3, ""),
        ("os.kill(os.getpid(), 11)", 139, "energymodel: ended by signal 11.\n"),
        ("os.kill(os.getpid(), 9)", 137, "energymodel: ended by signal 9, perhaps for lack of memory.\n"),
    ],
)
def test_how_a_command_ends_is_passed_on(ending, code, line):
    program = f"import os, sys; from energymodel.runtime import process; process.start(); {ending}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (code, line)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a command has one process")
def test_native_code_that_never_returns_is_ended():
    # Large powers hold the interpreter as a compiler may: no signal handler runs before the result is there.
    program = "from energymodel.runtime import process; process.start(); print(flush=True); 7 ** 10 ** 9"
    with subprocess.Popen(
        [sys.executable, "-c", f"{START}{program}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "energymodel: interrupted.\n")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a command has one process")
def test_the_child_ends_with_its_parent():
    program = "import os; from energymodel.runtime import process; process.start(); print(os.getpid(), flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}import time; time.sleep(60)"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert child != process.pid
        process.kill()
        assert process.stdout.read() == ""  # which the child would keep open


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_interruption_at_random_moments(name, tmp_path):
    """Twenty signals to each command, half of them in the first second, half of them with nothing compiled before."""
    draw = random.Random(name)
    for count in range(20):
        delay = draw.uniform(0.0, 0.5) if count % 2 else draw.uniform(0.5, 12.0 if name == "explore" else 6.0)
        number = draw.choice((signal.SIGINT, signal.SIGTERM))
        how = {"group": draw.random() < 0.5, "folder": tmp_path / str(count) if count % 4 < 2 else None}
        ended = _ended(COMMANDS[name], delay, number, **how)
        while ended[2] is None:  # it was done by then: interrupt it sooner
            delay *= 0.5
            ended = _ended(COMMANDS[name], delay, number, **how)
        assert_ended_by_signal(ended, number)
        assert ended[2] < WITHIN


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_goes_on_from_its_tiles(tmp_path):
    folder = tmp_path / "kept"
    tiles = folder / "tiles"
    arguments = (
        "sweep",
        SMALL,
        "--axis=plan.clock=0.5:1:500",
        "--axis=plan.batch=1e6:4e6 token:400",
        "--axis=plan.chips=64:128:65",
    )
    code, errors, _ = _ended((*arguments, "--resume", str(folder)), 0.0, until=lambda: any(tiles.glob("*.tile")))
    assert code == 130
    assert f"Finished tiles are kept in {folder}." in errors
    finished = {path: path.stat().st_mtime_ns for path in tiles.glob("*.tile")}
    again = subprocess.run(
        [sys.executable, "-m", "energymodel", *arguments, "--resume", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode in (0, 3), again.stderr  # 3: no point obeys all limits
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert len(list(tiles.glob("*.tile"))) > len(finished)
