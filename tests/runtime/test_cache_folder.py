"""The cache of the command line: private or not used, whatever happens to its disk, and healed when it is damaged."""

import os
import subprocess
import sys
import time
import warnings
import zlib

import pytest

from energymodel.cli import shell
from energymodel.runtime import cache_folder
from energymodel.runtime.cache_folder import FOLDER, keep_compiled_programs, what_jax_complains_of

COMMAND = [sys.executable, "-c", "from energymodel.cli import main; main()"]
PROGRAM = """
import os, sys, warnings
from energymodel.cli import commands, shell
def app():
    import jax
    with warnings.catch_warnings():
        warnings.showwarning = shell.partial(shell._show_warning, warnings.showwarning)
        for factor in (2.0, 3.0):
            print(float(jax.jit(lambda x: factor * x)(4.0)), jax.config.jax_compilation_cache_dir)
commands.app = app
commands.run_command()
"""
"""Two programs compiled by JAX as in a command, and the folder that it keeps them in."""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A home without a cache, and nothing of the tests' own."""
    for name in (FOLDER, "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache_folder, "_CHOSEN", [])
    monkeypatch.setattr(shell, "_TOLD", set())
    return tmp_path


@pytest.fixture
def folder(environment):
    return environment / "energymodel" / "compiled"


def _run(before=""):
    result = subprocess.run(
        [sys.executable, "-c", before + PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.split(), result.stderr


def test_programs_are_kept_in_a_private_folder(environment, folder):
    assert _run() == (["8.0", str(folder), "12.0", str(folder)], "")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.glob("*-cache"))) == 2


def test_a_folder_that_others_can_write_is_refused_with_a_warning(environment, folder, monkeypatch):
    shared = environment / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv(FOLDER, str(shared))
    printed, errors = _run()
    assert printed == ["8.0", "None", "12.0", "None"]
    assert errors == (
        f"energymodel: warning: compiled programs are not kept: others can write to {shared}. "
        f"Close it to them: chmod go-w {shared}, or name another folder.\n"
    )
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("named", ["gs://bucket", "relative/folder"])
def test_a_folder_that_is_named_is_local(environment, monkeypatch, named):
    monkeypatch.chdir(environment)
    monkeypatch.setenv(FOLDER, named)
    reason = keep_compiled_programs()
    assert (reason is None) == ("://" not in named)
    assert os.environ.get(FOLDER) == (named if reason is None else None)


def test_a_home_that_cannot_be_written_only_costs_time(environment, monkeypatch):
    def read_only(folder):
        raise OSError(30, "Read-only file system", str(folder))

    monkeypatch.setattr(cache_folder, "make_private", read_only)
    assert keep_compiled_programs() is None
    assert FOLDER not in os.environ


def test_a_full_disk_is_one_warning(environment, folder):
    full = (
        "import pathlib\n"
        "def write_bytes(path, content):\n"
        "    with open(path, 'wb') as file: file.write(content[:100])\n"
        "    raise OSError(28, 'No space left on device')\n"
        "pathlib.Path.write_bytes = write_bytes\n"
    )
    printed, errors = _run(full)
    assert printed[::2] == ["8.0", "12.0"]
    assert errors == (
        f"energymodel: warning: {folder}: compiled programs cannot be kept: No space left on device. "
        "The next run compiles again.\n"
    )


def test_a_damaged_program_is_removed_and_made_again(environment, folder):
    _run()
    for path in folder.glob("*-cache"):
        path.write_bytes(path.read_bytes()[:100])
        os.utime(path, (0, 0))
    printed, errors = _run()
    assert printed[::2] == ["8.0", "12.0"]
    assert errors == (
        f"energymodel: warning: {folder}: 2 damaged programs were removed. The compiler makes what is missing again.\n"
    )
    assert _run()[1] == ""
    assert len(list(folder.glob("*-cache"))) == 2


def test_what_another_process_is_writing_is_left(environment, folder):
    folder.mkdir(parents=True)
    names = ("new-cache", "old-cache", "whole-cache", "other-cache", "energymodel-program")
    for name in names:
        (folder / name).write_bytes(zlib.compress(b"program") if name == "whole-cache" else b"\x78\x9c")
    (folder / "other-cache").write_bytes(b"\x28\xb5\x2f\xfd of another compression")
    for name in names[1:]:
        os.utime(folder / name, (time.time() - 3600.0, time.time() - 3600.0))
    meant = what_jax_complains_of(f"Error reading {cache_folder.JAX_COMPLAINS}")
    assert meant == f"{folder}: a damaged program was removed. The compiler makes what is missing again."
    assert sorted(path.name for path in folder.iterdir()) == sorted(set(names) - {"old-cache"})
    assert what_jax_complains_of(f"Error reading {cache_folder.JAX_COMPLAINS}") is None


def test_other_warnings_of_libraries_are_shown_as_usual(environment):
    warned = []
    shell._show_warning(lambda *arguments: warned.append(arguments[0]), "something else", UserWarning, "library.py", 1)
    assert warned == ["something else"]
    assert warnings.showwarning is not None


@pytest.mark.slow
def test_first_runs_at_once_share_a_cache(environment, folder):
    command = [*COMMAND, "evaluate", "test-1b-h100"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=600) for process in runs]
    assert [process.returncode for process in runs] == [0, 0, 0]
    assert len({answer for answer, _ in answers}) == 1
    assert [errors for _, errors in answers] == ["", "", ""]
