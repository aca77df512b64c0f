"""The progress bar: only on a terminal, true to what is compiled and searched."""

import os
import pty
import re
import select
import subprocess
import sys

import pytest

from energymodel.runtime.progress import Progress
from energymodel.runtime.work_in_progress import counted, making

WORK = """
import sys, time
from energymodel.cli import commands
from energymodel.runtime.progress import Progress
from energymodel.runtime.work_in_progress import counted, making
def app():
    with Progress(lines=True) as progress:
        progress("loading \\x1b[31mthe model ...")
        with making("evaluate"):
            time.sleep(0.4)
        progress("searching 10,517 layouts")
        counted(96, 128)
        time.sleep(0.4)
        print("early")
    print("done")
commands.app = app
commands.run_command()
"""


def on_a_terminal(*arguments, answer=None):
    """What a program writes to a terminal of 150 columns, perhaps without its answer, which goes into a file."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, *arguments], stdin=child, stdout=answer or child, stderr=child, env=environment
    )
    os.close(child)
    output = b""
    while select.select([parent], [], [], 60.0)[0]:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    os.close(parent)
    process.wait(timeout=60)
    return output.decode()


def plain(output):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)


def test_a_terminal_shows_stages_counts_and_the_time():
    output = on_a_terminal("sweep")
    text = plain(output)
    assert "compiling evaluate; loading \\u001b[31mthe model" in text
    assert "searching 10,517 layouts: 96 of 128 candidates" in text
    assert re.search(r"━ \d+ s\b", text)
    assert text.rstrip().endswith("done")
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h")  # the cursor is back


def test_elsewhere_there_are_the_lines_and_nothing_else():
    result = subprocess.run(
        [sys.executable, "-c", WORK, "sweep"], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "early\ndone\n"
    assert result.stderr == "loading \\u001b[31mthe model ...\nsearching 10,517 layouts\n"


def test_an_answer_in_a_file_is_not_drawn(tmp_path):
    with (tmp_path / "answer.txt").open("w", encoding="utf-8") as file:
        text = plain(on_a_terminal("sweep", answer=file))
    assert (tmp_path / "answer.txt").read_text(encoding="utf-8") == "early\ndone\n"
    assert "early" not in text
    assert "96 of 128 candidates" in text


def test_the_share_is_what_a_sweep_says_of_itself():
    work = Progress()
    assert work.share() is None
    work("45 % of 1e+08 points, 88 million points/s, 12 s left")
    assert work.share() == 0.45


def test_programs_that_are_compiled_are_named():
    work = Progress()
    work("searching 10,517 layouts ...")
    work.started("solver")
    work.started("evaluate")
    assert work.words() == "compiling evaluate, solver; searching 10,517 layouts"
    work.finished("evaluate")
    work.finished("solver")
    assert work.words() == "searching 10,517 layouts"


def test_whoever_listens_hears_all_threads_and_whoever_left_does_not(capsys):
    with Progress() as work:
        work("searching")
        counted(128, 10517)
        with pytest.raises(ZeroDivisionError), making("evaluate"):
            raise ZeroDivisionError
    counted(1, 2)
    assert work.words() == "searching: 128 of 10,517 candidates"
