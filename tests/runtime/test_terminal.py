"""What names, titles and arguments hold reaches stdout and stderr as text, and never as orders to the terminal."""

import io
import subprocess
import sys

import pytest
from rich.table import Table

from cli.shell import run
from energymodel.errors import InputError
from energymodel.runtime import terminal
from energymodel.runtime.terminal import GuardedStream, console, guard_streams
from energymodel.scenarios.scenario import load_scenario

EVIL = "\x1b]0;title\x07\u202e\x9b2J\u2028"
COMMAND = [sys.executable, "-c", "from energymodel.cli import main; main()"]


def obeyed(text):
    """Characters that a terminal would not print."""
    return [character for character in text.replace("\n", "") if not character.isprintable()]


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", f"a\nb{EVIL}"),
        ("evaluate", "test-1b-h100", "--set", f"plan.clock{EVIL}=1"),
        ("evaluate", "test-1b-h100", "--set", f"plan.clock={EVIL}"),
        ("presets", "show", EVIL),
    ],
)
def test_arguments_are_quoted_on_one_line(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert obeyed(result.stderr) == []
    assert "2J" in result.stderr


def test_a_long_argument_is_cut_and_nobody_who_reads_a_table_ends_the_command():
    result = run("evaluate", "test-1b-h100", "--set", f"{'p' * 100_000}=1")
    assert result.exit_code == 2
    assert len(result.stderr) < 2100
    with pytest.raises(BrokenPipeError):
        terminal.console().on_broken_pipe()


def test_what_a_library_says_of_arguments_is_escaped_too():
    """The parser of arguments writes its messages itself."""
    result = subprocess.run([*COMMAND, "evaluate", f"--x{EVIL}"], capture_output=True, check=False, timeout=60)
    assert result.returncode == 2
    assert b"No such option" in result.stderr
    assert obeyed(result.stderr.decode()) == []


def test_streams_are_guarded_once_and_keep_what_they_are(monkeypatch):
    below = io.StringIO()
    monkeypatch.setattr(sys, "stdout", below)
    monkeypatch.setattr(sys, "stderr", None)
    guard_streams()
    guard_streams()
    assert isinstance(sys.stdout, GuardedStream)
    assert sys.stdout.stream is below
    print(f"a{EVIL}\tb")
    sys.stdout.writelines([EVIL, "\n"])
    assert obeyed(below.getvalue().replace("\t", "")) == []
    assert not sys.stdout.isatty()
    assert isinstance(sys.stderr, GuardedStream)  # of nothing: what is closed takes no text


def test_tables_keep_their_own_styles_and_escape_their_text(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    below = Terminal()
    monkeypatch.setattr(sys, "stdout", GuardedStream(below))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table("name", style="bold red")
    table.add_row(EVIL)
    console().print(table)
    output = below.getvalue()
    assert "\x1b[" in output  # a style of ours
    for character in ("\x1b]", "\u202e", "\x9b", "\u2028"):
        assert character not in output


def test_a_title_that_terminals_obey_is_refused_in_one_line(tmp_path):
    path = tmp_path / "evil.toml"
    path.write_text('base = "test-1b-h100"\ntitle = "a\\u001b[2J\\nfake: line"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"title: .* holds the control character") as error:
        load_scenario(path)
    assert not set("\x1b\n") & set(str(error.value))
