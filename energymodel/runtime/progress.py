"""How far work is: on a terminal a bar with what is compiled and searched, and the time; elsewhere plain lines.

The bar shows the share of the seconds that such a run took the last time on this machine, or what a sweep says of
itself. A run that is not recorded has no share: the bar moves, and the time is stated as assumed. The record is a file
in this project's private cache folder. Of a command line it holds only a digest.
"""

import contextlib
import hashlib
import json
import math
import re
import sys
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from energymodel.errors import one_line
from energymodel.runtime.cache_folder import LOWERED, folder_in_use, own_folder, records_runs
from energymodel.runtime.private_folder import make_private, why_not_private, write_whole
from energymodel.runtime.work_in_progress import LISTENERS

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWN = 8.0  # times per second
BAR = 24  # characters
STARTING = "starting ..."
SOON = 0.99  # the largest share before the end
_SHARE = re.compile(r"(\d+) % of ")  # begins what a sweep says
FILE = "run_times.json"
RECORDED = 200  # runs
ASSUMED = 60.0  # seconds of a first run where no run is recorded; README, "Quick start"
AGAIN = 1.0 / 6.0  # of a first run, what later ones take [README, "Quick start"]
COMPILED = 0.25  # share of a run that is spent on programs, above which it was a first one
FIRST, LATER = "first", "later"
_QUIET = ("-o", "--output", "--plot", "--json", "--open")  # options that change no work


class Progress:
    """Says on stderr what is being done: a bar on a terminal; elsewhere lines."""

    def __init__(self, *, lines: bool = False) -> None:
        self.lines = lines
        self.expected: Estimate | None = None
        self._message = STARTING  # importing takes seconds
        self._count: tuple[int, int] | None = None
        self._lock = Lock()
        self._start = time.monotonic()
        self._on_programs = 0.0
        self._making: list[str] = []
        self._live: Any = None
        self._spinner: Any = None

    def __enter__(self) -> "Progress":
        LISTENERS.append(self)
        if sys.stderr.isatty():
            from rich.live import Live
            from rich.spinner import Spinner

            from energymodel.runtime.terminal import console

            self.expected, self._spinner = estimate(), Spinner("dots")
            # What is printed meanwhile appears above the bar, but an answer that goes into a file stays there.
            apart = {"redirect_stdout": sys.stdout.isatty(), "refresh_per_second": REDRAWN, "transient": True}
            self._live = Live(self, console=console(stderr=True), **apart)
            self._live.start()
        return self

    def __call__(self, message: str) -> None:
        """Say what is being done now."""
        with self._lock:
            self._message, self._count = message, None
        if self.lines and not sys.stderr.isatty():
            print(one_line(message), file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        LISTENERS.remove(self)
        if kind is None:
            record(time.monotonic() - self._start, self._on_programs)

    def started(self, program: str) -> None:
        """A program is being made."""
        with self._lock:
            self._making.append(program)

    def finished(self, program: str, seconds: float) -> None:
        """It is made, or could not be."""
        with self._lock:
            self._making.remove(program)
            self._on_programs += seconds

    def counted(self, done: int, total: int) -> None:
        """So many candidates of a search are done."""
        self._count = done, total

    def share(self) -> float | None:
        """How much of the work is done; `None` where nothing tells."""
        if (percent := _SHARE.match(self._message)) is not None:
            return min(float(percent[1]) / 100.0, SOON)
        if self.expected is None or not self.expected.alike:
            return None
        return min((time.monotonic() - self._start) / self.expected.seconds, SOON) if self.expected.seconds else SOON

    def words(self) -> str:
        """What is being done: the programs that are compiled, the stage, and how many candidates are done."""
        with self._lock:
            making, count = ", ".join(sorted({*self._making})), self._count
        counts = f": {count[0]:,} of {count[1]:,} candidates" if count is not None else ""
        stage = f"{self._message.removesuffix(' ...')}{counts}"
        return one_line(f"compiling {making}; {stage}" if making else stage)

    def clock(self) -> str:
        """Seconds that passed, of how many that are expected, and why."""
        passed, expected = time.monotonic() - self._start, self.expected
        if expected is None:
            return f"{passed:.0f} s"
        if passed > expected.seconds:
            return f"{passed:.0f} s, longer than the {expected.seconds:.0f} s expected"
        return f"{passed:.0f} s of about {max(expected.seconds, 1.0):.0f} s ({expected.basis})"

    def __rich__(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        share = self.share()
        bar = ProgressBar(1.0, share or 0.0, width=BAR, pulse=share is None)
        percent = "" if share is None else f"{100.0 * share:.0f} % "
        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True)
        line.add_row(self._spinner, Text(self.words()), bar, Text(f"{percent}{self.clock()}"))
        return line


class Estimate(NamedTuple):
    """Seconds that a run is expected to take, and why; `alike` if such a run is recorded."""

    seconds: float
    basis: str
    alike: bool = False


def estimate() -> Estimate:
    """What the command that was typed will take, as far as earlier runs tell."""
    version, runs = _read()
    folder = folder_in_use().path
    loads = version == _version() and folder is not None and any(folder.glob(f"{LOWERED}*"))
    kind, other, factor, basis = (
        (LATER, FIRST, AGAIN, "after the first run") if loads else (FIRST, LATER, 1.0 / AGAIN, "compiling first")
    )
    command, digest = _typed()
    for name, words in ((digest, "as the last time"), (command, "as a run like it")):
        if (seconds := runs.get(f"{name} {kind}")) is not None:
            return Estimate(seconds, words, alike=True)
    if (seconds := runs.get(f"{digest} {other}")) is not None:
        return Estimate(seconds * factor, basis)
    return Estimate(ASSUMED, "assumed: no such run is recorded here")


def record(seconds: float, on_programs: float) -> None:
    """Keep the seconds of the command that was typed, if it runs in a process of its own.

    **Arguments:**

    - `on_programs`: of `seconds`, those in which programs were compiled or loaded.
    """
    path = _path()
    if path is None or not records_runs():
        return
    kind = FIRST if on_programs > COMPILED * seconds else LATER
    own = {f"{name} {kind}": seconds for name in _typed()}
    runs = {name: value for name, value in _read()[1].items() if name not in own} | own
    last = dict([*runs.items()][-2 * RECORDED :])
    with contextlib.suppress(OSError):
        make_private(path.parent)
        write_whole(path, json.dumps({"version": _version(), "runs": last}).encode())


def _path() -> Path | None:
    own = own_folder()
    return None if own is None or why_not_private(own) is not None else own / FILE


def _read() -> tuple[str, dict[str, float]]:
    """The version of this package that ran last, and all recorded runs; nothing if the file is missing or damaged."""
    path = _path()
    try:
        tree = json.loads("" if path is None else path.read_text(encoding="utf-8"))
        runs = {str(name): float(seconds) for name, seconds in tree["runs"].items()}
        return (str(tree["version"]), runs) if all(0.0 <= each < math.inf for each in runs.values()) else ("", {})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", {}


def _version() -> str:
    """Changes with the source of this package, whose programs are then compiled anew."""
    files = [path.stat() for path in Path(__file__).parents[1].rglob("*.py")]
    return f"{len(files)} {sum(file.st_size for file in files)} {max(file.st_mtime_ns for file in files)}"


def _typed() -> tuple[str, str]:
    """The command that was typed, and a digest of its line without where its answer goes."""
    words, skipped = [], False
    for word in sys.argv[1:]:
        if skipped or word.partition("=")[0] in _QUIET:
            skipped = not skipped and word in _QUIET[:3]
            continue
        words.append(word)
    digest = hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]
    return next((word for word in sys.argv[1:] if not word.startswith("-")), ""), digest
