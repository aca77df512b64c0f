"""How far work is: on a terminal a bar with what is compiled and searched, and the time; elsewhere plain lines.

The bar knows the stages of the last run of the same command line on this machine
(`run_times`). It shows the share of that run's time which the finished stages took, and never more of a stage than that
stage took then. A run that is not recorded has no share: the bar moves, and the time is stated as assumed.
"""

import re
import sys
import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from energymodel.errors import one_line
from energymodel.runtime.run_times import Estimate, RunTimes, estimate, record, stage_of
from energymodel.runtime.work_in_progress import LISTENERS

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWN = 8.0  # times per second
BAR = 24  # characters
STARTING = "starting ..."
SOON = 0.99  # the largest share before the end
_COMPILING = "compiling "
_SHARE = re.compile(r"(\d+) % of ")  # begins what a sweep says


class Progress:
    """What was done so far, and when; says on stderr what is being done: a bar on a terminal; elsewhere lines."""

    def __init__(self, *, lines: bool = False) -> None:
        self.lines = lines
        self.expected: Estimate | None = None
        self._message = self._stage = ""
        self._count: tuple[int, int] | None = None
        self._lock = Lock()
        self._start = self._since = time.monotonic()
        self._stages: dict[str, float] = {}
        self._made: dict[str, float] = {}
        self._making: dict[str, float] = {}
        self._live: Any = None
        self._spinner: Any = None

    def __enter__(self) -> "Progress":
        LISTENERS.append(self)
        self.begin(STARTING)  # importing takes seconds
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
        self.begin(message)
        if self.lines and not sys.stderr.isatty():
            print(one_line(message), file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        LISTENERS.remove(self)
        if kind is None:
            record(self.times())

    def begin(self, message: str) -> None:
        """A stage begins; the one before ends."""
        with self._lock:
            self._end_stage()
            self._message, self._stage, self._count = message, stage_of(message), None

    def started(self, program: str) -> None:
        """A program is being made."""
        with self._lock:
            self._making[program] = time.monotonic()

    def finished(self, program: str, seconds: float) -> None:
        """It is made, or could not be."""
        with self._lock:
            self._making.pop(program, None)
            self._made[program] = self._made.get(program, 0.0) + seconds

    def counted(self, done: int, total: int) -> None:
        """So many candidates of a search are done."""
        self._count = done, total

    def times(self) -> RunTimes:
        """Seconds of the run, which ends now."""
        with self._lock:
            self._end_stage()
            return RunTimes(self._since - self._start, dict(self._stages), dict(self._made))

    def share(self) -> float | None:
        """How much of the work is done; `None` where nothing tells."""
        if (percent := _SHARE.match(self._message)) is not None:
            return min(float(percent[1]) / 100.0, SOON)
        stages = self.expected.stages if self.expected is not None else {}
        total = sum(stages.values())
        if not total:
            return None
        with self._lock:
            if self._stage in stages:
                before = list(stages)[: list(stages).index(self._stage)]
                done = min(time.monotonic() - self._since, stages[self._stage])
            else:
                before, done = list(self._stages), 0.0
            return min((done + sum(stages.get(name, 0.0) for name in before)) / total, SOON)

    def words(self) -> str:
        """What is being done: the programs that are compiled, the stage, and how many candidates are done."""
        with self._lock:
            making, count = self._compiling(), self._count
        counts = f": {count[0]:,} of {count[1]:,} candidates" if count is not None else ""
        stage = f"{self._message.removesuffix(' ...')}{counts}"
        if making and stage.startswith(_COMPILING):
            return one_line(f"{stage} ({making.removeprefix(_COMPILING)})")
        return one_line(f"{making}; {stage}" if making else stage)

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

    def _compiling(self) -> str:
        """Which share of the programs is compiled, if some are being made and an earlier run tells."""
        if not self._making:
            return ""
        expected = self.expected.programs if self.expected is not None else {}
        now, total = time.monotonic(), sum(expected.values())
        if not total or set(self._making) - set(expected):
            return f"{_COMPILING}{', '.join(sorted(self._making))}"
        done = sum(min(seconds, expected.get(name, 0.0)) for name, seconds in self._made.items())
        done += sum(min(now - since, expected[name]) for name, since in self._making.items())
        return f"{_COMPILING}{100.0 * min(done / total, SOON):.0f} %"

    def _end_stage(self) -> None:
        now = time.monotonic()
        if self._stage:
            self._stages[self._stage] = self._stages.get(self._stage, 0.0) + now - self._since
        self._since = now
