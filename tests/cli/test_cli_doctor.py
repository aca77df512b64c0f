"""`doctor`: versions, missing packages with the extra that brings them, and a cache that it counts and clears."""

import importlib.metadata
import subprocess
import sys
import tomllib

import jax
import pytest

from cli.shell import assert_bad_input, numbers, run, run_json
from energymodel.report.answers import doctor
from energymodel.runtime.cache_folder import clear, contents, default_folder
from energymodel.scenarios.files import CATEGORIES, names
from test_repository import ROOT

FILES = {
    "energymodel-evaluate-1234-abcd": 1000,
    "energymodel-optimize-1234-abcd": 500,
    "jit_call-abcd-cache": 2000,
    "jit_call-abcd-atime": 8,
    "notes.txt": 40,
}


@pytest.fixture
def ours(tmp_path, monkeypatch):
    """A cache folder as the command line makes it, with a file that it did not write."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    return _filled(default_folder())


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A cache folder that the environment names."""
    folder = _filled(tmp_path / "shared")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
    return folder


def _filled(folder):
    folder.mkdir(mode=0o700, parents=True)
    for name, size in FILES.items():
        (folder / name).write_bytes(bytes(size))
    return folder


def _left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_says_what_is_here(ours):
    tree = run_json("doctor")
    here, tables = numbers(tree, "installation"), tree["tables"]
    assert here["version"] == importlib.metadata.version("energymodel")
    assert here["python"] == ".".join(map(str, sys.version_info[:3]))
    assert here["backend"] == jax.default_backend()
    assert here["devices"].startswith(f"{jax.device_count()} x ")
    counts = {row["category"]: row["presets"] for row in tables["presets"]["rows"]}
    assert counts == {category: len(names(category)) for category in CATEGORIES}
    assert {row["name"]: row["version"] for row in tables["packages"]["rows"]}["jax"] == jax.__version__
    assert here["kernels"] == "importable"
    assert tree["warnings"] == []
    assert (here["cache"], here["cache_size"]) == (str(ours), 3548)
    assert (here["lowered_programs"], here["compiled_programs"]) == (2, 1)


def test_a_missing_extra_is_named_with_its_command(ours, monkeypatch):
    version = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda name: None if name == "matplotlib" else version(name))
    result = run("doctor")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("matplotlib missing") for line in lines)
    assert any(line.startswith("plot ") and line.endswith('pip install "energymodel[plot]"') for line in lines)
    assert "it takes 3.548 kB" in lines
    assert "it holds 2 lowered and 1 compiled programs" in lines


def test_a_package_that_is_too_old_is_a_problem(ours, monkeypatch):
    version = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda name: "0.0.1" if name == "scipy" else version(name))
    result = run("doctor")
    assert result.exit_code == 3
    wanted = next(row[2] for row in doctor.packages_table().rows if row[0] == "scipy")
    assert f'Warning: scipy 0.0.1; needed: {wanted}. Install it: pip install "energymodel".' in result.stdout


def test_each_extra_of_the_project_has_its_purpose():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for_changes = {"test", "lint", "docs", "benchmark"}  # of this project itself
    assert {*doctor.EXTRAS, *for_changes} >= set(extras)


def test_the_project_s_own_folder_is_cleared_of_all_programs(ours):
    result = run("doctor", "--clear-cache", "--yes")
    assert result.exit_code == 0
    assert f"Removed 3 programs, 3.508 kB, from {ours}." in " ".join(result.stdout.split())
    assert _left(ours) == ["notes.txt"]
    assert numbers(run_json("doctor", "--clear-cache"), "cleared")["removed"] == 0


def test_a_shared_folder_keeps_what_others_compiled(shared):
    result = run("doctor", "--clear-cache", "--yes")
    assert "Removed 2 programs, 1.5 kB" in " ".join(result.stdout.split())
    assert "Left in place: 1 compiled by JAX, perhaps for other projects." in result.stdout
    assert _left(shared) == ["jit_call-abcd-atime", "jit_call-abcd-cache", "notes.txt"]


def test_it_asks_first(ours):
    assert_bad_input(["doctor", "--clear-cache"], "there is nobody to ask. Add --yes.")
    assert _left(ours) == sorted(FILES)


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    assert contents(tmp_path / "none") == clear(tmp_path / "none") == (0, 0, 0)


def test_a_folder_that_others_can_write_is_named_and_can_be_cleared(ours):
    ours.chmod(0o777)
    assert numbers(run_json("doctor"), "installation")["refusal"] == (
        f"others can write to {ours}. Close it to them: chmod go-w {ours}, or name another folder."
    )
    assert run("doctor", "--clear-cache", "--yes").exit_code == 0
    assert _left(ours) == ["notes.txt"]


def test_where_there_is_no_home_there_is_no_cache(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setattr("pathlib.Path.home", _no_home)
    here = numbers(run_json("doctor"), "installation")
    assert (here["cache"], here["cache_size"], here["refusal"]) == (
        "",
        0,
        "there is no home folder. Set HOME or XDG_CACHE_HOME.",
    )
    assert run("doctor", "--clear-cache", "--yes").exit_code == 2


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_the_module_is_the_command():
    result = subprocess.run(
        [sys.executable, "-m", "energymodel", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == f"energymodel {importlib.metadata.version('energymodel')}\n"
