"""How far work is: on a terminal a bar with what is compiled and searched, and the time; elsewhere plain lines."""

import re
import sys
import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from energymodel.errors import one_line
from energymodel.runtime.work_in_progress import LISTENERS

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWN = 8.0  # times per second
BAR = 24  # characters
STARTING = "starting ..."
_SHARE = re.compile(r"(\d+) % of ")  # begins what a sweep says


class Progress:
    """Says on stderr what is being done: a bar on a terminal; elsewhere lines."""

    def __init__(self, *, lines: bool = False) -> None:
        self.lines = lines
        self._message = STARTING  # importing takes seconds
        self._count: tuple[int, int] | None = None
        self._lock = Lock()
        self._start = time.monotonic()
        self._making: list[str] = []
        self._live: Any = None
        self._spinner: Any = None

    def __enter__(self) -> "Progress":
        LISTENERS.append(self)
        if sys.stderr.isatty():
            from rich.live import Live
            from rich.spinner import Spinner

            from energymodel.runtime.terminal import console

            self._spinner = Spinner("dots")
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

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        LISTENERS.remove(self)

    def started(self, program: str) -> None:
        """A program is being made."""
        with self._lock:
            self._making.append(program)

    def finished(self, program: str) -> None:
        """It is made, or could not be."""
        with self._lock:
            self._making.remove(program)

    def counted(self, done: int, total: int) -> None:
        """So many candidates of a search are done."""
        self._count = done, total

    def share(self) -> float | None:
        """How much of the work is done; `None` where nothing tells."""
        percent = _SHARE.match(self._message)
        return None if percent is None else float(percent[1]) / 100.0

    def words(self) -> str:
        """What is being done: the programs that are compiled, the stage, and how many candidates are done."""
        with self._lock:
            making, count = ", ".join(sorted({*self._making})), self._count
        counts = f": {count[0]:,} of {count[1]:,} candidates" if count is not None else ""
        stage = f"{self._message.removesuffix(' ...')}{counts}"
        return one_line(f"compiling {making}; {stage}" if making else stage)

    def __rich__(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        share, passed = self.share(), time.monotonic() - self._start
        bar = ProgressBar(1.0, share or 0.0, width=BAR, pulse=share is None)
        percent = "" if share is None else f"{100.0 * share:.0f} % "
        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True)
        line.add_row(self._spinner, Text(self.words()), bar, Text(f"{percent}{passed:.0f} s"))
        return line
