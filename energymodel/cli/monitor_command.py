"""`energymodel monitor`: where is a run that trains, where does it go, what is wrong, and what should change?"""

import math
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from energymodel.cli import completion, shell
from energymodel.cli.process import INTERRUPTED
from energymodel.cli.source import Source
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.monitor.monitor import Monitor
    from energymodel.monitor.status import Status
    from energymodel.search.replan import Replan
    from energymodel.sweeps.first_order import SavingAtRisk

LINES = ".jsonl"
DRAWN_PER_SECOND = 4
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="FILE",
        help="Log of the training; the kind is told from what it holds. Repeatable.",
        autocompletion=completion.files,
    ),
]
Power = Annotated[
    list[str] | None,
    typer.Option(
        "--power",
        metavar="FILE",
        help="Log of power or energy of the devices or nodes. Repeatable.",
        autocompletion=completion.files,
    ),
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on as the files grow, until Ctrl-C or the run's end.")]
Replay = Annotated[
    float | None, typer.Option("--replay", metavar="N", help="Show the recorded run N times as fast as it was.")
]
Every = Annotated[float, typer.Option("--every", metavar="SHARE", help="Share of the run between two forecasts.")]
NoReplan = Annotated[bool, typer.Option("--no-replan", help="Leave out the search for a better plan of the rest.")]
AsLines = Annotated[bool, typer.Option("--json", help="Print JSON lines in SI, one for each forecast.")]
Metrics = Annotated[
    Path | None, typer.Option("--metrics", metavar="FILE", help="Keep a text file of Prometheus up to date.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the JSON lines (.jsonl), which `replan --so-far` reads, or at the end a page (.html) or a figure.",
    ),
]


@shell.guarded
def command(
    source: Source,
    log: Log = None,
    power: Power = None,
    follow: Follow = False,
    replay: Replay = None,
    every: Every = 0.05,
    no_replan: NoReplan = False,
    as_json: AsLines = False,
    metrics: Metrics = None,
    output: Output = None,
    opened: shell.Open = False,
) -> int:
    """Watch a run by its log and its meters.

    Progress, forecast with intervals, what is wrong, what to change.

    Example: energymodel monitor llama-3.1-405b-h100 --log train.log --power gpu.csv --follow -o run.jsonl
    """
    shell.check_report(output, opened=opened, extensions=(LINES, shell.PAGE, *shell.PICTURES))
    lines = output if output is not None and output.suffix == LINES else None
    if not log:
        raise InputError("--log is missing. Give the log of the training that is watched.")
    if follow and replay is not None:
        raise InputError("--follow is of a run that goes on, --replay of one that is over. Leave out one of them.")
    if replay is not None and not (math.isfinite(replay) and replay > 0.0):
        raise InputError(f"--replay {replay}: no speed. Give for example 1000.")
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.monitor.monitor import Monitor
        from energymodel.monitor.sources import followed, recorded, replayed

        scenario = source.read()
        progress("evaluating the plan ...")
        if lines is not None:
            shell.write(lines, b"")
        shown = _Shown(as_json)
        monitor = Monitor(scenario, output=lines, metrics=metrics, every=every, on_status=shown.status)
    stop = threading.Event()
    records: Any = followed(log, power or (), stop) if follow else recorded(log, power or ())
    records = records if replay is None else replayed(records, replay)
    ended = False
    try:
        with shell.keeping(), shown:
            for record in records:
                monitor.add(record)
                shown.tick(monitor)
                if monitor.state.progress >= 1.0:
                    break
    except KeyboardInterrupt:  # or SIGTERM, by which a job scheduler ends a job
        if not follow:
            raise
        ended = True
    finally:
        stop.set()
    replanned = _final(monitor, replan=not (no_replan or ended), as_json=as_json)
    if output is not None and lines is None:
        _draw(monitor, replanned, output, opened=opened)
    return shell.fail("interrupted.", INTERRUPTED) if ended else shell.TRUSTED


class _Shown:
    """What is printed while records come: a live table on a terminal, else a line or JSON for each forecast."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._drawn = -math.inf
        self._live: Any = None
        self._is_terminal = sys.stdout.isatty() and not as_json

    def __enter__(self) -> "_Shown":
        if self._is_terminal:
            from rich.live import Live

            from energymodel.cli.terminal import console

            self._live = Live(console=console(), refresh_per_second=DRAWN_PER_SECOND, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def tick(self, monitor: "Monitor") -> None:
        """Draw the table anew, where there is one."""
        if self._live is not None and time.monotonic() - self._drawn > 1.0 / DRAWN_PER_SECOND:
            from energymodel.report.monitor_report import monitor_table

            self._drawn = time.monotonic()
            self._live.update(monitor_table(monitor.status()))

    def status(self, status: "Status") -> None:
        """Print a status with a new forecast."""
        from energymodel.monitor.status import status_line
        from energymodel.report.monitor_report import monitor_line

        if self._as_json:
            print(status_line(status), flush=True)
        elif self._live is None:
            print(monitor_line(status), flush=True)


class _Replanned(NamedTuple):
    """What a new plan for the rest would change, or why there is none."""

    found: "Replan | None" = None
    risk: "SavingAtRisk | None" = None
    refusal: str = ""


def _draw(monitor: "Monitor", replanned: _Replanned, output: Path, *, opened: bool) -> None:
    """Write the page or the figure of the last state."""
    from energymodel.report.page.monitor_page import monitor_page

    page = monitor_page(monitor.status(), *replanned, shell.command_line())
    if output.suffix == shell.PAGE:
        shell.written(page, output, opened=opened)
    elif page.figure is None:
        raise InputError(f"{output}: nothing is measured yet that could be drawn.")
    else:
        shell.write(output, shell.picture(page.figure, output.suffix))


def _final(monitor: "Monitor", *, replan: bool, as_json: bool) -> _Replanned:
    """The last state, and what a new plan for the rest would change."""
    from energymodel.cli.terminal import console
    from energymodel.report.monitor_report import monitor_report
    from energymodel.sweeps.first_order import saving_at_risk

    monitor.on_status = None if not as_json else monitor.on_status
    status = monitor.update() if not as_json else monitor.status()
    found: Replan | None = None
    risk, refusal = None, ""
    if replan and monitor.state.progress < 1.0:
        with shell.Progress(lines=not as_json) as progress:
            try:
                found = monitor.replan(progress)
                risk = saving_at_risk(found.optimum) if found is not None and found.optimum.success else None
            except InputError as error:
                refusal = str(error)
    if as_json:
        if monitor.on_status is not None:
            monitor.update(found)
        return _Replanned(found, risk, refusal)
    print()
    console(shell.WIDTH).print(monitor_report(status, found, risk, refusal), crop=False)
    return _Replanned(found, risk, refusal)
