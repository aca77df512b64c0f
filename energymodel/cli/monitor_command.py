"""`energymodel monitor`: a run that trains, beside its plan, with its forecast and what is wrong."""

import math
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import energymodel as em
from energymodel.cli import shell
from energymodel.cli.options import flag, option
from energymodel.cli.search_commands import at_risk
from energymodel.cli.shell import Delivery
from energymodel.cli.source import Source
from energymodel.errors import InputError
from energymodel.report import answers
from energymodel.runtime.process import INTERRUPTED
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.monitor.monitor import Monitor
    from energymodel.monitor.status import Status
    from energymodel.report.answer import Answer

LINES = ".jsonl"
DRAWN_PER_SECOND = 4


@shell.guarded
def monitor(
    *,
    log: list[str] | None = option("Log of the training; the kind is told from what it holds. Repeatable.", "FILE"),
    power: list[str] | None = option("Log of power or energy of the devices or nodes. Repeatable.", "FILE"),
    follow: bool = flag("Go on as the files grow, until Ctrl-C or the run's end."),
    replay: float | None = option("Show the recorded run N times as fast as it was.", "N"),
    every: float = option("Share of the run between two forecasts.", "SHARE", 0.05),
    no_replan: bool = flag("Leave out the search for a better plan of the rest."),
    metrics: Path | None = option("Keep a text file of Prometheus up to date.", "FILE"),
    source: Source,
    show: Delivery,
) -> int:
    """Watch a run by its log and its meters.

    Progress, forecast with intervals, what is wrong, what to change. --json prints JSON lines, one for each forecast;
    -o FILE.jsonl keeps them, for `replan --so-far`.

    Example: energymodel monitor llama-3.1-405b-h100 --log train.log --power gpu.csv --follow -o run.jsonl
    """
    show.check(LINES)
    lines = next((path for path in show.output or () if path.suffix == LINES), None)
    if not log:
        raise InputError("--log is missing. Give the log of the training that is watched.")
    if follow and replay is not None:
        raise InputError("--follow is of a run that goes on, --replay of one that is over. Leave out one of them.")
    if replay is not None and not (math.isfinite(replay) and replay > 0.0):
        raise InputError(f"--replay {replay}: no speed. Give for example 1000.")
    printed = _Printed(show.as_json)
    with Progress() as progress:
        progress("loading JAX ...")
        from energymodel.monitor.sources import followed, recorded, replayed

        scenario = source.read()
        progress("evaluating the plan ...")
        if lines is not None:
            shell.write(lines, b"")
        watch = em.Monitor(scenario, output=lines, metrics=metrics, every=every, on_status=printed.status)
    stop = threading.Event()
    records: Any = followed(log, power or (), stop) if follow else recorded(log, power or ())
    records = records if replay is None else replayed(records, replay)
    ended = False
    try:
        with shell.keeping(), printed:
            for record in records:
                watch.add(record)
                printed.tick(watch)
                if watch.state.progress >= 1.0:
                    break
    except KeyboardInterrupt:  # or SIGTERM, by which a job scheduler ends a job
        if not follow:
            raise
        ended = True
    finally:
        stop.set()
    answer = _final(watch, show, replan=not (no_replan or ended))
    if show.as_json:
        show.write(answer, but=LINES)
    else:
        print()
        show.deliver(answer, but=LINES)
    return shell.fail("interrupted.", INTERRUPTED) if ended else shell.TRUSTED


class _Printed:
    """What is printed while records come: a live table on a terminal, else a line or JSON for each forecast."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._drawn = -math.inf
        self._live: Any = None

    def __enter__(self) -> None:
        if sys.stdout.isatty() and not self._as_json:
            from rich.live import Live

            from energymodel.runtime.terminal import console

            self._live = Live(console=console(), refresh_per_second=DRAWN_PER_SECOND, transient=True)
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def tick(self, monitor: "Monitor") -> None:
        """Draw the table anew, where there is one."""
        if self._live is not None and time.monotonic() - self._drawn > 1.0 / DRAWN_PER_SECOND:
            from energymodel.report.terminal import terminal

            self._drawn = time.monotonic()
            self._live.update(terminal(answers.monitor_answer(monitor.status())))

    def status(self, status: "Status") -> None:
        """Print a status with a new forecast."""
        from energymodel.monitor.status import status_line

        if self._as_json:
            print(status_line(status), flush=True)
        elif self._live is None:
            print(answers.forecast_line(status), flush=True)


def _final(monitor: "Monitor", show: Delivery, *, replan: bool) -> "Answer":
    """The last state, and what a new plan for the rest would change."""
    monitor.on_status = monitor.on_status if show.as_json else None
    status = None if show.as_json else monitor.update()
    new, risk, refusal = None, None, ""
    if replan and monitor.state.progress < 1.0:
        with Progress(lines=not show.as_json) as progress:
            try:
                new = monitor.replan(progress)
                risk = at_risk(new.optimum) if new is not None else None
            except InputError as error:
                refusal = str(error)
    return answers.monitor_answer(status or monitor.update(new), new, risk, refusal, details=show.details)
