"""`energymodel predict`: step time and memory of a configuration, or of a table of layouts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from energymodel.cli import completion, shell, source
from energymodel.cli.delivery import Delivery
from energymodel.cli.table_options import Constant, Ignore, Rename, SkipBadRows, Where, table_choices
from energymodel.errors import InputError

if TYPE_CHECKING:
    from energymodel.readers.columns import TableChoices

TABLE = ".csv"
TOKENS = "1 T"
"""Of a run where nothing says them: only shares of it are shown."""
File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="A table of layouts (.csv; --columns lists its columns), a config.json, or a training configuration.",
        autocompletion=completion.files,
        show_default=False,
    ),
]
Columns = Annotated[bool, typer.Option("--columns", help="List the columns of the table and stop.")]


@shell.guarded
def command(
    show: Delivery,
    file: File = None,
    columns: Columns = False,
    rename: Rename = None,
    column: Constant = None,
    ignore_columns: Ignore = None,
    skip_bad_rows: SkipBadRows = False,
    where: Where = None,
    model: source.Model = None,
    accelerator: source.Accelerator = None,
    chips: source.Chips = None,
    tokens: source.Tokens = None,
    batch: source.Batch = None,
    sequence: source.Sequence = None,
    microbatch: source.Microbatch = None,
    vocabulary: source.Vocabulary = None,
    cluster: source.Cluster = None,
    changes: source.Changes = None,
) -> int:
    """Predict step time, memory and cost of one configuration, or step time and memory for a table of layouts."""
    if columns:
        from energymodel.calibration.layout_table import SCHEMA
        from energymodel.readers.columns import column_lines

        print("\n".join(column_lines(SCHEMA.columns)))
        return shell.TRUSTED
    if file is None and model is None:
        raise InputError(
            "give a configuration file, or a CSV file of layouts; `energymodel predict --columns` lists its columns."
        )
    show.check()
    of_run = {"model": model, "accelerator": accelerator, "chips": chips, "tokens": tokens}
    of_run |= {"batch": batch, "sequence": sequence, "vocabulary": vocabulary, "microbatch": microbatch}
    if file is not None and file.endswith(TABLE):
        for name, value in of_run.items():
            if value is not None:
                raise InputError(f"--{name}: a table says it itself, row by row. Leave it out, or use --column.")
        choices = table_choices(rename, column, ignore_columns, skip_bad_rows, where, cluster)
        return _predict_table(Path(file), choices, changes, show)
    of_table = {"rename": rename, "column": column, "ignore-columns": ignore_columns, "where": where}
    for name, value in {**of_table, "skip-bad-rows": skip_bad_rows or None}.items():
        if value is not None:
            raise InputError(f"--{name} belongs to a table (.csv), and {file or model} is none. Leave it out.")
    key = "training"
    if file is not None and file.endswith(".json") and _is_model(Path(file)):
        if model is not None:
            raise InputError(f"{file} describes a model, and --model another one. Leave out one of them.")
        key = "model"
    given = source.Source(**{**of_run, **({key: file} if file else {})}, cluster=cluster, changes=changes)
    return _predict_run(given, show)


def _is_model(path: Path) -> bool:
    """Whether a JSON file is the `config.json` of a model and no configuration of a training."""
    from energymodel.readers.text_file import read_json

    try:
        table = read_json(path)
    except InputError:
        return False  # its reader says what is wrong
    return "model_type" in table or "architectures" in table


def _predict_run(given: source.Source, show: Delivery) -> int:
    with shell.Progress() as progress:
        progress("loading JAX ...")
        import jax

        from energymodel.report.answers.predict import RunPrediction, run_prediction_answer
        from energymodel.sweeps.outcome_spread import outcome_spread
        from energymodel.system.evaluate import evaluate_once

        made = given.pieces("own", tokens_otherwise=TOKENS)
        scenario = made.scenario
        progress("compiling and evaluating the model ...")
        with jax.enable_x64(True):
            outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
        run = RunPrediction(scenario, outcome, outcome_spread(scenario), made.says_tokens)
        answer = run_prediction_answer(run, made.assumed, details=show.details)
    unsaid = () if made.says_tokens else ("Nothing says how long the run is: costs are for each step and token.",)
    for sentence in (*made.assumed, *unsaid):
        shell.note(sentence)
    return show.deliver(answer)


def _predict_table(table: Path, choices: "TableChoices", changes: list[str] | None, show: Delivery) -> int:
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.calibration.step_prediction import predict_table
        from energymodel.calibration.step_table import read_step_table
        from energymodel.report.answers.predict import table_prediction_answer

        read = read_step_table(table, choices)
        progress(f"predicting {len(read.layouts):,} rows of {table} ...")
        prediction = predict_table(read, changes or ())
    for note in read.notes:
        shell.note(note)
    return show.deliver(table_prediction_answer(prediction, table.name))
