"""How far is a command? On a terminal a bar with what is compiled and searched, and the time; elsewhere plain lines.

The bar knows the stages of the last run of the same command line on this machine (`run_times`). It shows the share of
that run's time which the finished stages took, and never more of a stage than that stage took then. A run that is not
recorded has no share: the bar moves, and the time is stated as assumed.
"""

import contextlib
import re
import sys
import time
from threading import Lock
from typing import TYPE_CHECKING

from energymodel.cli.run_times import Estimate, RunTimes, estimate, record, stage_of
from energymodel.errors import one_line
from energymodel.runtime.work_in_progress import heard_by

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWN = 8.0  # times per second
BAR = 24  # characters
STARTING = "starting ..."
SOON = 0.99  # the largest share before the end
_COMPILING = "compiling "
_SHARE = re.compile(r"(\d+) % of ")  # begins what a sweep says


class Progress:
    """Says on stderr what is being done: a bar on a terminal; elsewhere lines, once the work is long."""

    def __init__(self, *, lines: bool = False) -> None:
        self.lines = lines
        self._work = Work()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "Progress":
        self._open.enter_context(heard_by(self._work))
        self._work.begin(STARTING)  # importing takes seconds
        if sys.stderr.isatty():
            self._draw()
        return self

    def __call__(self, message: str) -> None:
        """Say what is being done now."""
        self._work.begin(message)
        if self.lines and not sys.stderr.isatty():
            print(one_line(message), file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._open.close()
        if kind is None:
            record(self._work.times())

    def _draw(self) -> None:
        from rich.live import Live

        from energymodel.cli.terminal import console

        self._work.expected = estimate()
        drawn = Drawn(self._work)
        # What is printed meanwhile appears above the bar, but an answer that goes into a file stays there.
        apart = {"redirect_stdout": sys.stdout.isatty(), "refresh_per_second": REDRAWN, "transient": True}
        self._open.enter_context(Live(drawn, console=console(stderr=True), **apart))


class Work:
    """What was done so far, and when; a listener of programs and searches."""

    def __init__(self) -> None:
        self.expected: Estimate | None = None
        self.message = self.stage = ""
        self._lock = Lock()
        self._start = self._since = time.monotonic()
        self._stages: dict[str, float] = {}
        self._made: dict[str, float] = {}
        self._making: dict[str, float] = {}
        self._count: tuple[int, int] | None = None

    def begin(self, message: str) -> None:
        """A stage begins; the one before ends."""
        now = time.monotonic()
        with self._lock:
            self._end_stage(now)
            self.message, self.stage, self._since, self._count = message, stage_of(message), now, None

    def started(self, program: str) -> None:
        """A program is being made."""
        with self._lock:
            self._making[program] = time.monotonic()

    def finished(self, program: str, seconds: float) -> None:
        """It is made."""
        with self._lock:
            self._making.pop(program, None)
            self._made[program] = self._made.get(program, 0.0) + seconds

    def counted(self, done: int, total: int) -> None:
        """So many candidates of a search are done."""
        with self._lock:
            self._count = done, total

    def times(self) -> RunTimes:
        """Seconds of the run, which ends now."""
        now = time.monotonic()
        with self._lock:
            self._end_stage(now)
            self._since = now
            return RunTimes(now - self._start, dict(self._stages), dict(self._made))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def share(self) -> float | None:
        """How much of the work is done; `None` where nothing tells."""
        if (said := _SHARE.match(self.message)) is not None:
            return min(float(said[1]) / 100.0, SOON)
        known = self.expected.times if self.expected is not None else None
        if known is None or not sum(known.stages.values()):
            return None
        with self._lock:
            names = list(known.stages)
            place = names.index(self.stage) if self.stage in known.stages else None
            if place is None:
                done = sum(known.stages.get(one, 0.0) for one in self._stages)
            else:
                done = sum(list(known.stages.values())[:place])
                done += min(time.monotonic() - self._since, known.stages[self.stage])
        return min(done / sum(known.stages.values()), SOON)

    def words(self) -> str:
        """What is being done: the programs that are compiled, the stage, and how many candidates are done."""
        with self._lock:
            making, count = self._compiling(), self._count
        counted = f": {count[0]:,} of {count[1]:,} candidates" if count is not None else ""
        stage = f"{self.message.removesuffix(' ...')}{counted}"
        if making and stage.startswith(_COMPILING):
            return one_line(f"{stage} ({making.removeprefix(_COMPILING)})")
        return one_line(f"{making}; {stage}" if making else stage)

    def _compiling(self) -> str:
        """Which share of the programs is compiled, if some are being made and an earlier run tells."""
        if not self._making:
            return ""
        known = self.expected.programs if self.expected is not None else {}
        now, total = time.monotonic(), sum(known.values())
        if not total or set(self._making) - set(known):
            return f"{_COMPILING}{', '.join(sorted(self._making))}"
        done = sum(min(seconds, known.get(name, 0.0)) for name, seconds in self._made.items())
        done += sum(min(now - since, known[name]) for name, since in self._making.items())
        return f"{_COMPILING}{100.0 * min(done / total, SOON):.0f} %"

    def _end_stage(self, now: float) -> None:
        if self.stage:
            self._stages[self.stage] = self._stages.get(self.stage, 0.0) + now - self._since


class Drawn:
    """The line of a terminal that shows the work."""

    def __init__(self, work: Work) -> None:
        from rich.spinner import Spinner

        self._work = work
        self._spinner = Spinner("dots")

    def __rich__(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        work, share = self._work, self._work.share()
        bar = ProgressBar(1.0, share or 0.0, width=BAR, pulse=share is None)
        parts = [f"{100.0 * share:.0f} %"] if share is not None else []
        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True)
        line.add_row(self._spinner, Text(work.words()), bar, Text(" ".join((*parts, clock(work)))))
        return line


def clock(work: Work) -> str:
    """Seconds that passed, of how many that are expected, and why."""
    passed, expected = work.elapsed, work.expected
    if expected is None:
        return f"{passed:.0f} s"
    if passed > expected.seconds:
        return f"{passed:.0f} s, longer than the {expected.seconds:.0f} s expected"
    return f"{passed:.0f} s of about {max(expected.seconds, 1.0):.0f} s ({expected.basis})"
