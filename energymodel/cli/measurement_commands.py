"""Commands that read tables and logs: predictions beside them, calibrations by them, and runs that are watched."""

import math
import sys
import threading
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import energymodel as em
from energymodel.cli import completion, shell
from energymodel.cli.options import argument, flag, option, pairs
from energymodel.cli.search_commands import at_risk
from energymodel.cli.shell import Delivery, Run, command
from energymodel.cli.source import LAUNCH, LAUNCHED, OptionSource, Parts, Source, Tuned
from energymodel.errors import InputError, suggest
from energymodel.report import answers
from energymodel.runtime.process import INTERRUPTED
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.monitor.monitor import Monitor
    from energymodel.monitor.status import Status
    from energymodel.readers.columns import Column, TableChoices
    from energymodel.report.answer import Answer


TOKENS = "1 T"
"""Of a run where nothing says them: no constant depends on them, and only shares of it are printed."""
_LOGS = "Logs of training, and of power or energy; the kind of each is told from what it holds."


@dataclass(frozen=True)
class TableOptions:
    """How a table is read."""

    rename: list[str] | None = option("A column of the table under another name; repeatable.", "THEIRS=OURS")
    column: list[str] | None = option(
        "A column with one value for all rows, before the table's; repeatable.", "NAME=VALUE"
    )
    ignore_columns: list[str] | None = option(
        "Columns to leave out, with commas between; all stands for every unknown one; repeatable.", "NAMES"
    )
    skip_bad_rows: bool = flag("Leave out rows that cannot be read, and say how many.")
    where: list[str] | None = option("Take these rows only; repeatable.", "COLUMN=VALUE")

    def choices(self, cluster: str | None = None) -> "TableChoices":
        """The choices that the options make."""
        names = ",".join(self.ignore_columns or ()).split(",")
        return em.TableChoices(
            rename=pairs(self.rename, "--rename", "THEIRS=OURS", "gpus_used=chips"),
            constants=pairs(self.column, "--column", "NAME=VALUE", "vocabulary=51200"),
            ignore=tuple(name.strip() for name in names if name.strip()),
            where=pairs(self.where, "--where", "COLUMN=VALUE", "gpu=V100"),
            skip_bad_rows=self.skip_bad_rows,
            cluster=cluster or "",
        )


def _print_columns(columns: "tuple[Column, ...]", title: str = "", indent: str = "") -> None:
    """List the columns of a table, and end the command."""
    from energymodel.readers.columns import column_lines

    print("\n".join((*filter(None, (title,)), *(f"{indent}{line}" for line in column_lines(columns)))))
    raise typer.Exit


@command(OptionSource, writes=(".toml",), lines=True)
def calibrate(
    run: Run,
    table: TableOptions,
    kind: str = argument(
        "power, kernels, step-time, loss, batch or node; see --columns.", "KIND", ..., complete=completion.calibrations
    ),
    files: list[str] | None = argument(
        "A table of measurements (CSV, one row each, with a header), or logs of training and of power.", "FILE..."
    ),
    prior: str | None = option(
        "Scenario, scenario file, accelerator or cluster with what was known before.",
        "PRESET",
        complete=completion.priors,
    ),
    form: str | None = option(
        "Of switching power (kind power): voltage-floor or posynomial; by default what was measured decides.", "FORM"
    ),
    max_slowdown: str | None = option("Time that the best setting may cost (kind power), such as 10%.", "SHARE"),
    columns: bool = flag("List the columns of this kind and stop."),
) -> Any:
    """Fit the constants of a system to measurements.

    Their values, intervals and held-out errors, and what to measure next. -o constants.toml writes a scenario with
    them, which evaluate, optimize, sweep and calibrate --prior read.

    Example: energymodel calibrate step-time steps.csv --prior llama-3.1-405b-h100 -o cluster.toml
    """
    from energymodel.calibration.calibrate_logs import calibrate_logs, is_training_log
    from energymodel.calibration.kinds import KINDS
    from energymodel.units import parse_quantity

    source = run.source
    if kind not in KINDS:
        raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
    if columns:
        _print_columns(KINDS[kind].columns, f"{kind}: {KINDS[kind].title}", "  ")
    if not files:
        raise InputError(
            f"give a CSV file or logs; `energymodel calibrate {kind} --columns` lists the columns of a table."
        )
    slowdown = None if max_slowdown is None else parse_quantity(max_slowdown, "1", "--max-slowdown")
    asked = {"prior": prior, "form": form, "choices": table.choices(), "max_slowdown": slowdown}
    asked["progress"] = run.progress
    if any(map(is_training_log, files)):
        scenario = source.read(tokens_otherwise=TOKENS) if source.is_given else None
        fitted = calibrate_logs(kind, files, scenario, cluster=source.cluster or "", **asked)
    elif len(files) > 1:
        raise InputError(f"calibrate {kind}: {len(files)} tables, and no training log. Give one table, or logs.")
    elif source.is_given:
        raise InputError(f"{files[0]}: it is a table, whose rows say model and layout. Leave out the scenario.")
    else:
        fitted = em.calibrate(kind, files[0], **asked)
    return answers.calibrate_answer(fitted), {".toml": lambda: answers.calibration_toml(fitted)}


@dataclass(frozen=True)
class NoSource:
    """Of a command that works on the machine."""


@command(NoSource, writes=(".toml",), lines=True, large=True)
def benchmark(
    run: Run,
    like: str | None = option(
        "Preset or file with what is not measured; by default the preset of the device by its name.",
        "PRESET|FILE",
        complete=completion.accelerators,
    ),
    seconds: float = option(
        "Time that kernels run; compiling and fitting them take about half a minute more.", "S", 60.0
    ),
    busy: bool = flag("Measure although others use the device, which widens intervals."),
) -> Any:
    """Measure this machine: an accelerator with intervals.

    Matrix products, attention, memory, launches, collectives, and power where a meter can be read. -o mine.toml writes
    what --accelerator takes; -o rows.csv what `calibrate kernels` reads. No clock and no limit is changed.

    Example: energymodel benchmark -o mine.toml
    """
    measured = em.benchmark(like=like, seconds=seconds, busy=busy, progress=run.progress)
    return answers.benchmark_answer(measured), {".toml": lambda: answers.calibration_toml(measured.calibration)}


@command(OptionSource)
def measure(
    run: Run,
    files: list[str] = argument(_LOGS, "LOG...", ..., complete=completion.files),
    offset: str | None = option('Added to the times of the meters, such as "-30 s".', "TIME"),
    interval: str | None = option("Between samples, where a meter's log has no times.", "TIME"),
) -> Any:
    """Step time, power, energy and phases from logs, as a table.

    `calibrate` reads the table. With --scenario, --training or --model its rows also have the model, the layout and
    the machine.

    Example: energymodel measure train.log gpu.csv --training train.toml --accelerator h100-sxm --chips 64 -o steps.csv
    """
    from energymodel.calibration.calibrate_logs import measured_rows
    from energymodel.readers.measured_log import measure_logs
    from energymodel.units import parse_quantity

    run.progress("reading the logs ...")
    apart = None if interval is None else parse_quantity(interval, "s", "--interval")
    shift = 0.0 if offset is None else parse_quantity(offset, "s", "--offset", allow_negative=True)
    logs = measure_logs(files, offset=shift, interval=apart)
    scenario = run.source.read(tokens_otherwise=TOKENS) if run.source.is_given else None
    return answers.measure_answer(logs, measured_rows(logs, scenario, run.source.cluster or ""))


@dataclass(frozen=True)
class ConfiguredRun(Tuned):
    """A model, and what a configuration file lacks."""

    training: str | None = None


@command(ConfiguredRun, writes=LAUNCHED)
def predict(
    run: Run,
    table: TableOptions,
    file: str | None = argument(
        "A table of layouts (.csv; --columns lists its columns), a config.json, or a training configuration.",
        "FILE",
        show_default=False,
    ),
    columns: bool = flag("List the columns of the table and stop."),
    launch: str | None = LAUNCH,
) -> Any:
    """Predict step time, memory and cost of a configuration.

    Or step time and memory of each layout of a table.

    Example: energymodel predict train.toml --accelerator h100-sxm --chips 64
    """
    source = run.source
    if columns:
        from energymodel.calibration.layout_table import SCHEMA

        _print_columns(SCHEMA.columns)
    if file is None and source.model is None:
        raise InputError(
            "give a configuration file, or a CSV file of layouts; `energymodel predict --columns` lists its columns."
        )
    if file is not None and file.endswith(".csv"):
        for name in source.of_pieces:
            raise InputError(f"--{name}: a table says it itself, row by row. Leave it out, or use --column.")
        if launch is not None:
            raise InputError(f"--launch {launch}: a table has no plan to launch. Leave it out.")
        return _predict_table(Path(file), table.choices(source.cluster), run)
    for field in fields(table):
        if getattr(table, field.name):
            name = field.name.replace("_", "-")
            raise InputError(f"--{name} belongs to a table (.csv), and {file or source.model} is none. Leave it out.")
    if file is None or not (file.endswith(".json") and _is_model(Path(file))):
        return _predict_run(replace(source, training=file), run, launch)
    if source.model is not None:
        raise InputError(f"{file} describes a model, and --model another one. Leave out one of them.")
    return _predict_run(replace(source, model=file), run, launch)


def _is_model(path: Path) -> bool:
    """Whether a JSON file is the `config.json` of a model and no configuration of a training."""
    from energymodel.readers.text_file import read_json

    try:
        table = read_json(path)
    except InputError:
        return False  # its reader says what is wrong
    return "model_type" in table or "architectures" in table


def _predict_run(source: Parts, run: Run, launch: str | None) -> Any:
    import jax

    from energymodel.sweeps.outcome_spread import outcome_spread
    from energymodel.system.evaluate import evaluate_once

    made = source.pieces("own", tokens_otherwise=TOKENS)
    scenario = made.scenario
    files = source.launch_files(run.show.output, scenario, launch)
    run.progress("compiling and evaluating the model ...")
    outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
    for sentence in made.assumed:
        shell.note(sentence)
    wanted = {"of_whole_run": made.says_tokens, "details": run.show.details}
    answer = answers.run_prediction_answer(scenario, outcome, outcome_spread(scenario), made.assumed, **wanted)
    return answer, files(scenario, scenario.plan, float(outcome.tokens))


def _predict_table(path: Path, choices: "TableChoices", run: Run) -> Any:
    from energymodel.calibration.step_table import read_step_table
    from energymodel.readers.table import read_csv

    table = read_csv(path, choices.where, name=choices.name)
    layouts = read_step_table(table, choices)
    run.progress(f"predicting {len(layouts):,} rows of {path} ...")
    prediction = em.predict(layouts, changes=run.source.changed)
    for note in layouts.notes:
        shell.note(note)
    return answers.table_prediction_answer(table, prediction, path.name)


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
