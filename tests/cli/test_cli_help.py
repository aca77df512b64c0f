"""Help of commands: an example, and the kinds of file that it writes."""

import pytest

from cli.shell import run
from energymodel.cli.commands import COMMANDS


def helped(*words: str) -> str:
    return " ".join(run(*words, "--help").stdout.split())


@pytest.mark.parametrize(
    "words", [(), ("presets",), ("presets", "show"), ("presets", "list"), *((name,) for name in COMMANDS)]
)
def test_help_has_an_example(words):
    assert "Example: energymodel " in helped(*words)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_kinds_of_file_that_are_written(name):
    text = helped(name)
    if "-o, --output" in text:
        about = text.partition("-o, --output")[2].removeprefix(", --plot").partition(" --")[0]
        assert any(kind in about for kind in (".json", ".toml", ".jsonl", ".csv")), about


def test_the_list_of_commands_fits_on_one_screen():
    lines = run("--help").stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "..." not in "".join(lines).partition("Commands:")[2]
