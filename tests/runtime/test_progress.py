"""The progress bar: only on a terminal, true to what is compiled and searched, with a time whose basis it states."""

import json
import os
import pty
import re
import select
import subprocess
import sys

import pytest

from cli.shell import SMALL
from energymodel.runtime import cache_folder, progress
from energymodel.runtime.progress import ASSUMED, Estimate, Progress, estimate, record
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
        if "broken" in sys.argv: raise KeyboardInterrupt
        print("early")
    print("done")
commands.app = app
commands.run_command()
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache folder as of a command, without any record."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache_folder.FOLDER, raising=False)
    monkeypatch.setattr(cache_folder, "_CHOSEN", [])
    monkeypatch.setattr(sys, "argv", ["energymodel", "optimize", SMALL, "-o", "x.json"])
    cache_folder.keep_compiled_programs()
    return tmp_path / "energymodel"


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


def recorded_runs(home):
    return json.loads((home / progress.FILE).read_text(encoding="utf-8"))["runs"]


def plain(output):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)


def test_a_terminal_shows_stages_counts_and_the_time(home):
    output = on_a_terminal("sweep")
    text = plain(output)
    assert "compiling evaluate; loading \\u001b[31mthe model" in text
    assert "searching 10,517 layouts: 96 of 128 candidates" in text
    assert f"of about {ASSUMED:.0f} s (assumed: no such run is recorded here)" in text
    assert text.rstrip().endswith("done")
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h")  # the cursor is back


def test_the_second_time_the_bar_has_a_share(home):
    (home / "compiled" / "energymodel-evaluate-1").write_text("")  # a program, so that nothing is compiled
    assert " %" not in plain(on_a_terminal("sweep", "one"))  # nothing tells how much of the work is done
    (home / "compiled" / "energymodel-evaluate-1").unlink()
    text = plain(on_a_terminal("sweep", "one"))
    shares = [int(share) for share in re.findall(r"(\d+) % \d", text)]
    assert "(as the last time)" in text
    assert shares == sorted(shares)
    assert shares[-1] >= 45


def test_elsewhere_there_are_the_lines_and_nothing_else(home):
    result = subprocess.run(
        [sys.executable, "-c", WORK, "sweep"], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "early\ndone\n"
    assert result.stderr == "loading \\u001b[31mthe model ...\nsearching 10,517 layouts\n"


def test_an_answer_in_a_file_is_not_drawn(home, tmp_path):
    with (tmp_path / "answer.txt").open("w", encoding="utf-8") as file:
        text = plain(on_a_terminal("sweep", answer=file))
    assert (tmp_path / "answer.txt").read_text(encoding="utf-8") == "early\ndone\n"
    assert "early" not in text
    assert "96 of 128 candidates" in text


def test_a_run_that_fails_is_not_recorded(home):
    on_a_terminal("sweep", "broken")
    assert not (home / progress.FILE).exists()


def test_an_estimate_names_what_it_rests_on(home, monkeypatch):
    assert estimate() == Estimate(ASSUMED, "assumed: no such run is recorded here")
    record(60.0, 40.0)
    assert estimate() == Estimate(60.0, "as the last time", alike=True)  # no program is stored: the first time again
    (home / "compiled" / "energymodel-evaluate-1").write_text("")
    assert estimate() == Estimate(10.0, "after the first run")
    record(8.0, 0.0)
    assert estimate() == Estimate(8.0, "as the last time", alike=True)
    monkeypatch.setattr(sys, "argv", ["energymodel", "optimize", "--json", SMALL, "--output", "y.json"])
    assert estimate().basis == "as the last time"  # where the answer goes makes no work
    monkeypatch.setattr(sys, "argv", ["energymodel", "optimize", "llama-3.1-405b-h100"])
    assert estimate()[:2] == (8.0, "as a run like it")
    monkeypatch.setattr(progress, "_version", lambda: "another")
    assert estimate()[:2] == (60.0, "as a run like it")  # programs of another version are compiled anew
    monkeypatch.setattr(sys, "argv", ["energymodel", "pareto", SMALL])
    assert estimate().seconds == ASSUMED


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"version": 1, "runs": [1]}', '{"version": 1, "runs": {"optimize first": NaN}}', "[" * 100_000],
)
def test_a_record_that_cannot_be_read_is_no_record(home, content):
    (home / progress.FILE).write_text(content, encoding="utf-8")
    assert estimate().seconds == ASSUMED
    record(8.0, 0.0)
    assert len(recorded_runs(home)) == 2  # under the line's digest and the command's name


def test_a_record_is_small_and_private_and_only_of_commands(home, monkeypatch):
    monkeypatch.setattr(progress, "RECORDED", 5)
    for number in range(16):
        monkeypatch.setattr(sys, "argv", ["energymodel", "optimize", f"secret-{number}"])
        record(8.0, 0.0)
    assert len(recorded_runs(home)) == 10
    assert "secret" not in (home / progress.FILE).read_text(encoding="utf-8")
    assert home.stat().st_mode & 0o077 == 0
    (home / progress.FILE).unlink()
    home.chmod(0o777)
    record(8.0, 0.0)
    home.chmod(0o700)
    monkeypatch.setattr(cache_folder, "_CHOSEN", [])
    record(8.0, 0.0)
    assert not (home / progress.FILE).exists()


def test_a_full_disk_leaves_the_record_as_it_was(home, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    record(8.0, 0.0)
    before = (home / progress.FILE).read_bytes()
    monkeypatch.setattr(os, "replace", full)
    record(9.0, 0.0)
    assert (home / progress.FILE).read_bytes() == before
    assert sorted(path.name for path in home.iterdir()) == ["compiled", progress.FILE]


def test_the_share_is_that_of_the_last_run_and_never_whole(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    work = Progress()
    assert work.share() is None
    work.expected = Estimate(10.0, "after the first run")
    assert work.share() is None
    work.expected = Estimate(100.0, "as the last time", alike=True)
    now[0] += 10.0
    assert work.share() == pytest.approx(0.10)
    now[0] += 1000.0
    assert work.share() == 0.99  # it is not over
    assert work.clock() == "1010 s, longer than the 100 s expected"
    work("45 % of 1e+08 points, 88 million points/s, 12 s left")
    assert work.share() == 0.45  # as the sweep itself says


def test_programs_that_are_compiled_are_named():
    work = Progress()
    work("searching 10,517 layouts ...")
    work.started("solver")
    work.started("evaluate")
    assert work.words() == "compiling evaluate, solver; searching 10,517 layouts"
    work.finished("evaluate", 4.0)
    work.finished("solver", 4.0)
    assert work.words() == "searching 10,517 layouts"


def test_whoever_listens_hears_all_threads_and_whoever_left_does_not(capsys):
    with Progress() as work:
        work("searching")
        counted(128, 10517)
        with pytest.raises(ZeroDivisionError), making("evaluate"):
            raise ZeroDivisionError
    counted(1, 2)
    assert work.words() == "searching: 128 of 10,517 candidates"
