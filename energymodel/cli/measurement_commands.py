"""Commands that read tables and logs: predictions beside them, calibrations by them, and tables made of them."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from energymodel.cli import completion, shell
from energymodel.cli.options import argument, flag, option, pairs
from energymodel.cli.shell import Delivery, command
from energymodel.cli.source import OptionSource, Parts
from energymodel.errors import InputError, suggest
from energymodel.runtime.progress import Progress

if TYPE_CHECKING:
    from energymodel.readers.columns import Column, TableChoices

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
        """The choices that the options make.

        **Raises:** `InputError`.
        """
        from energymodel.readers.columns import TableChoices

        return TableChoices(
            rename=pairs(self.rename, "--rename", "THEIRS=OURS", "gpus_used=chips"),
            constants=pairs(self.column, "--column", "NAME=VALUE", "vocabulary=51200"),
            ignore=tuple(
                name.strip() for names in self.ignore_columns or () for name in names.split(",") if name.strip()
            ),
            where=pairs(self.where, "--where", "COLUMN=VALUE", "gpu=V100"),
            skip_bad_rows=self.skip_bad_rows,
            cluster=cluster or "",
        )


def _print_columns(columns: "tuple[Column, ...]", title: str = "", indent: str = "") -> None:
    """List the columns of a table, and end the command."""
    from energymodel.readers.columns import column_lines

    print("\n".join((*filter(None, (title,)), *(f"{indent}{line}" for line in column_lines(columns)))))
    raise typer.Exit


@command(writes=(".toml",), lines=True)
def calibrate(
    *,
    progress: Progress,
    kind: str = argument(
        "power, step-time, loss, batch or node; see --columns.", "KIND", ..., complete=completion.calibrations
    ),
    files: list[str] | None = argument(
        "A table of measurements (CSV, one row each, with a header), or logs of training and of power.", "FILE..."
    ),
    prior: str | None = option(
        "Scenario, scenario file, accelerator or cluster with what was known before.",
        "PRESET",
        complete=completion.priors,
    ),
    table: TableOptions,
    form: str | None = option(
        "Of switching power (kind power): voltage-floor or posynomial; by default what was measured decides.", "FORM"
    ),
    max_slowdown: str | None = option("Time that the best setting may cost (kind power), such as 10%.", "SHARE"),
    columns: bool = flag("List the columns of this kind and stop."),
    source: OptionSource,
    show: Delivery,
) -> Any:
    """Fit the constants of a system to measurements.

    Their values, intervals and held-out errors, and what to measure next. -o constants.toml writes a scenario with
    them, which evaluate, optimize, sweep and calibrate --prior read.

    Example: energymodel calibrate step-time steps.csv --prior llama-3.1-405b-h100 -o cluster.toml
    """
    from energymodel.calibration.calibrate import calibrate
    from energymodel.calibration.calibrate_logs import calibrate_logs, is_training_log
    from energymodel.calibration.kinds import KINDS
    from energymodel.report.answers.calibrate import calibrate_answer, calibration_toml
    from energymodel.units import parse_quantity

    if kind not in KINDS:
        raise InputError(f'Unknown kind "{kind}". {suggest(kind, KINDS)}')
    if columns:
        _print_columns(KINDS[kind].columns, f"{kind}: {KINDS[kind].title}", "  ")
    if not files:
        raise InputError(
            f"give a CSV file or logs; `energymodel calibrate {kind} --columns` lists the columns of a table."
        )
    slowdown = None if max_slowdown is None else parse_quantity(max_slowdown, "1", "--max-slowdown")
    asked = {"prior": prior, "form": form, "choices": table.choices(), "max_slowdown": slowdown, "progress": progress}
    if any(map(is_training_log, files)):
        run = source.read(tokens_otherwise=TOKENS) if source.is_given else None
        fitted = calibrate_logs(kind, files, run, cluster=source.cluster or "", **asked)
    elif len(files) > 1:
        raise InputError(f"calibrate {kind}: {len(files)} tables, and no training log. Give one table, or logs.")
    elif source.is_given:
        raise InputError(f"{files[0]}: it is a table, whose rows say model and layout. Leave out the scenario.")
    else:
        fitted = calibrate(kind, files[0], **asked)
    return calibrate_answer(fitted), {".toml": lambda: calibration_toml(fitted)}


@command()
def measure(
    *,
    progress: Progress,
    files: list[str] = argument(_LOGS, "LOG...", ..., complete=completion.files),
    offset: str | None = option('Added to the times of the meters, such as "-30 s".', "TIME"),
    interval: str | None = option("Between samples, where a meter's log has no times.", "TIME"),
    source: OptionSource,
    show: Delivery,
) -> Any:
    """Step time, power, energy and phases from logs, as a table.

    `calibrate` reads the table. With --scenario, --training or --model its rows also have the model, the layout and
    the machine.

    Example: energymodel measure train.log gpu.csv --training train.toml --accelerator h100-sxm --chips 64 -o steps.csv
    """
    progress("reading the logs ...")
    from energymodel.calibration.calibrate_logs import measured_csv, measured_rows
    from energymodel.readers.measured_log import measure_logs
    from energymodel.report.answers.measure import measure_answer
    from energymodel.units import parse_quantity

    apart = None if interval is None else parse_quantity(interval, "s", "--interval")
    shift = 0.0 if offset is None else parse_quantity(offset, "s", "--offset", allow_negative=True)
    logs = measure_logs(files, offset=shift, interval=apart)
    scenario = source.read(tokens_otherwise=TOKENS) if source.is_given else None
    rows = measured_rows(logs, scenario, source.cluster or "")
    return measure_answer(logs, rows), {".csv": lambda: measured_csv(rows)}


@dataclass(frozen=True)
class ConfiguredRun(Parts):
    """A model, and what a configuration file lacks."""

    training: str | None = None


@command()
def predict(
    *,
    progress: Progress,
    file: str | None = argument(
        "A table of layouts (.csv; --columns lists its columns), a config.json, or a training configuration.",
        "FILE",
        show_default=False,
    ),
    columns: bool = flag("List the columns of the table and stop."),
    table: TableOptions,
    source: ConfiguredRun,
    show: Delivery,
) -> Any:
    """Predict step time, memory and cost of a configuration.

    Or step time and memory of each layout of a table.

    Example: energymodel predict train.toml --accelerator h100-sxm --chips 64
    """
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
        return _predict_table(Path(file), table.choices(source.cluster), source.changes, progress)
    for field in fields(table):
        if getattr(table, field.name):
            name = field.name.replace("_", "-")
            raise InputError(f"--{name} belongs to a table (.csv), and {file or source.model} is none. Leave it out.")
    if file is not None and file.endswith(".json") and _is_model(Path(file)):
        if source.model is not None:
            raise InputError(f"{file} describes a model, and --model another one. Leave out one of them.")
        return _predict_run(replace(source, model=file), progress, details=show.details)
    return _predict_run(replace(source, training=file), progress, details=show.details)


def _is_model(path: Path) -> bool:
    """Whether a JSON file is the `config.json` of a model and no configuration of a training."""
    from energymodel.readers.text_file import read_json

    try:
        table = read_json(path)
    except InputError:
        return False  # its reader says what is wrong
    return "model_type" in table or "architectures" in table


def _predict_run(source: Parts, progress: Progress, *, details: bool) -> Any:
    progress("loading JAX ...")
    import jax

    from energymodel.report.answers.predict import RunPrediction, run_prediction_answer
    from energymodel.sweeps.outcome_spread import outcome_spread
    from energymodel.system.evaluate import evaluate_once

    made = source.pieces("own", tokens_otherwise=TOKENS)
    scenario = made.scenario
    progress("compiling and evaluating the model ...")
    with shell.float64():
        outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
    unsaid = () if made.says_tokens else ("Nothing says how long the run is: costs are for each step and token.",)
    for sentence in (*made.assumed, *unsaid):
        shell.note(sentence)
    run = RunPrediction(scenario, outcome, outcome_spread(scenario), made.says_tokens)
    return run_prediction_answer(run, made.assumed, details=details)


def _predict_table(table: Path, choices: "TableChoices", changes: list[str] | None, progress: Progress) -> Any:
    progress("loading JAX ...")
    from energymodel.calibration import step_prediction
    from energymodel.calibration.step_table import read_step_table
    from energymodel.readers.table import read_csv
    from energymodel.report.answers.predict import table_prediction_answer

    csv = read_csv(table, choices.where, name=choices.name)
    layouts = read_step_table(csv, choices)
    progress(f"predicting {len(layouts):,} rows of {table} ...")
    prediction = step_prediction.predict(layouts, changes=changes or ())
    for note in layouts.notes:
        shell.note(note)
    return table_prediction_answer(csv, prediction, table.name)
