"""Order of the tree: file sizes, license, machine paths, unfinished places, README commands, import layers."""

import os
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import energymodel

ROOT = Path(__file__).parents[1]
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".rst", ".cff", ".csv", ".cfg", ""}
MOST_LINES = 500


def tree() -> list[Path]:
    """List the files of the project: what git tracks or would track, or all of an unpacked archive."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        patterns = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
        files = [path for path in ROOT.rglob("*") if not is_ignored(path.relative_to(ROOT), patterns)]
    return sorted(path for path in files if path.is_file())


def is_ignored(path: Path, patterns: list[str]) -> bool:
    """Whether a folder of a path, or the path itself, is one that git ignores."""
    folders = [path, *path.parents]
    return any(fnmatch(folder.name, own) or folder == Path(own) for folder in folders for own in patterns)


FILES = tree()


def complaints(pattern: str, files: list[Path]) -> list[str]:
    """List the lines that match, by file and number."""
    result = []
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(pattern, line):
                result.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}")
    return result


def texts() -> list[Path]:
    return [path for path in FILES if path.suffix in TEXT and path != Path(__file__)]


def test_no_source_file_is_long():
    long = {path.relative_to(ROOT): lines(path) for path in FILES if path.suffix == ".py" and lines(path) > MOST_LINES}
    assert not long, f"more than {MOST_LINES} lines: {long}"


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_path_of_one_machine_and_nothing_unfinished():
    # Any absolute path that is not part of every Linux. Letters before the slash make it a unit or a quotient.
    absolute = r"(?<![\w.$}~)-])/(?!usr/|bin/|proc/|sys/class|dev/null)[A-Za-z]\w*/\w"
    assert not complaints(absolute, texts())
    markers = r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError\b|except( \w+)?:\s*pass\b"
    assert not complaints(markers, [path for path in texts() if path.suffix == ".py"])


def test_license_is_apache_and_versions_agree():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    assert "license: Apache-2.0" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert energymodel.__version__ == project["version"]
    assert project["version"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_quick_start_is_exactly_two_commands():
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Quick start\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2, "the quick start installs by exactly two ```sh blocks"
    main, test = (block.strip() for block in blocks)
    assert "\n" not in main
    assert "\n" not in test
    assert re.fullmatch(r"python3\.11 -m venv (\S+) && \1/bin/pip install .+ && \1/bin/energymodel .+", main)
    assert re.fullmatch(r"python3\.11 -m venv (\S+) && \1/bin/pip install .+ && \1/bin/python -m pytest", test)


def test_layers_for_contributors_are_those_of_the_import_rules():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    told = re.findall(r"^\| \d+ \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    words = [set(re.findall(r"\w+", layer)) - {"__main__"} for layer in layers]
    assert [set(re.findall(r"\w+", row)) for row in told] == [entry for entry in words if entry]


def test_every_directory_of_the_package_is_a_package():
    """A folder of Python files without `__init__.py` would be missing from types, documentation and import rules."""
    python = [path for path in FILES if path.suffix == ".py" and path.is_relative_to(ROOT / "energymodel")]
    missing = {path.parent.relative_to(ROOT) for path in python if not (path.parent / "__init__.py").exists()}
    assert not missing
    assert not (ROOT / "kernels" / "__init__.py").exists(), "kernels/ is a source root, not a package"


def test_every_source_file_says_what_it_answers():
    silent = [
        path.relative_to(ROOT)
        for path in FILES
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in {"energymodel", "kernels", "experiments", "benchmarks"}
        and not re.match(r'(#!.*\n)?r?"""\S', path.read_text(encoding="utf-8"))
    ]
    assert not silent, f"no docstring at the top: {silent}"


@pytest.mark.skipif(os.name != "posix", reason="execute permission exists on POSIX systems only")
def test_continuous_integration_can_run():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
