"""Columns of training steps, and rows of them as numbers.

One row is one step of one model in one layout on one cluster. The same columns serve predictions and measurements.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.workload import Transformer
from energymodel.readers.columns import Schema, declared_columns
from energymodel.readers.table import Measurements
from energymodel.scenarios.checks import check_precisions, check_rows
from energymodel.scenarios.components import build
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.layers import SHORT_WORDS, layout_switches, short_word
from energymodel.system.plan import PRECISIONS, ParallelLayout, TrainingPlan

LARGEST: Mapping[str, float] = {
    field.name: field.metadata["range"].high
    for owner in (Transformer, ParallelLayout, TrainingPlan)
    for field in dataclasses.fields(owner)
    if "range" in field.metadata
}
"""Largest value of each column that is a number of a model, a layout or a plan, in SI."""
DECLARED = declared_columns(Path(__file__).parent / "columns" / "steps.toml")
SHAPE, LAYOUT, OF_CLUSTER, RUN, MEASURED = (
    tuple(
        column._replace(highest=min(column.highest, LARGEST.get(column.name, math.inf))) for column in DECLARED[group]
    )
    for group in ("shape", "layout", "of_cluster", "run", "measured")
)
"""Columns of the model, the layout, numbers of the cluster's software that a row replaces, the run, and what was
measured."""
INPUTS = (*SHAPE, *LAYOUT, *OF_CLUSTER, *RUN)
UNMODELLED: Mapping[str, Sequence[str]] = DECLARED["unmodelled"]
SCHEMA = Schema((*INPUTS, *MEASURED, *DECLARED["words"]), (*DECLARED["notes"], *UNMODELLED))
WORDS = ("cluster", "model", "zero", "recomputation")
"""Columns of text or code: cluster and model presets, ZeRO stage 0 to 3, recomputation none, selective or full."""
ROW = "row"  # stands for a row in messages, until its line is known
STATED = ("sequence", "chips", "tensor", "pipeline", "microbatch", "batch_sequences")  # always in a row's words
SWITCHES = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "on": 1.0, "off": 0.0}


def layouts(rows: Sequence[Mapping[str, Any]]) -> Measurements:
    """Turn rows into columns of numbers; what is left out follows from the model preset or the default.

    **Arguments:**

    - `rows`: one mapping for each layout, from column of the schema to number or text; others are left alone
      (`step_table` reads other names and refuses unknown ones).

    **Raises:** `InputError` for a row that cannot be read.
    """
    return as_layouts(
        [row_numbers(row) for row in rows], [str(row["cluster"]) for row in rows], range(2, len(rows) + 2)
    )


def as_layouts(
    rows: Sequence[Mapping[str, float]], cluster: Sequence[str], lines: Sequence[int], path: str = "table"
) -> Measurements:
    """Columns of the numbers of rows, and the cluster of each."""
    columns = {column.name: np.array([row[column.name] for row in rows], float) for column in (*INPUTS, *MEASURED)}
    return Measurements(path, {**columns, "cluster": np.asarray(cluster, str)}, np.asarray(lines))


def inputs_of(layouts: Measurements) -> dict[str, np.ndarray]:
    """Columns that a prediction needs."""
    return {column.name: layouts.columns[column.name] for column in INPUTS}


def row_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of a row by column of the schema.

    **Raises:** `InputError` that begins with `ROW`.
    """
    values = _model_shape(model) if (model := str(row.get("model") or "")) else {}
    for column in (*INPUTS, *MEASURED):
        text = row.get(column.name)
        if text is None or text == "":
            values.setdefault(column.name, column.default)
            continue
        values[column.name] = value = cell_number(text, column.name)
        if math.isnan(value) and not math.isnan(column.default):
            raise InputError(f"{ROW}: {column.name}: {text!r} is not finite. Leave the cell empty for the default.")
        try:
            column.check(value)
        except InputError as error:
            raise InputError(f"{ROW}: {column.name}: {error}") from None
    values |= layout_switches({name: row.get(name) for name in ("zero", "recomputation")}, f"{ROW}: ")
    head_size, inner = values["hidden"] / values["heads"], 4.0 * values["hidden"]
    for name, default in (("kv_heads", values["heads"]), ("head_size", head_size), ("feed_forward", inner)):
        values[name] = default if math.isnan(values[name]) else values[name]
    for column in (*SHAPE, *LAYOUT, *RUN):
        if math.isnan(values[column.name]):
            raise InputError(f"{ROW}: {column.name} is missing: {column.meaning} [{column.unit}].")
    check_precisions({name: values[name] for name in PRECISIONS}, ROW)
    check_rows("attention", {**values, "prefix": f"{ROW}, "})
    ends = {name: values[name] for name in ("first_stage_layers", "last_stage_layers") if values[name] > 0.0}
    if ends and (values["pipeline"] < 2.0 or sum(ends.values()) > values["layers"]):
        words = " and ".join(f"{name} = {count:g}" for name, count in ends.items())
        raise InputError(
            f"{ROW}: {words} do not cut {values['layers']:g} layers over {values['pipeline']:g} pipeline ranks. "
            "Give fewer layers, or pipeline of 2 or more."
        )
    check_rows("heads", {**values, "where": ROW})
    ranks = values["tensor"] * values["pipeline"] * values["context"]
    if values["chips"] < ranks * (1.0 - 1e-9):
        raise InputError(
            f"{ROW}: {values['chips']:g} chips are fewer than tensor x pipeline x context = {ranks:g}. "
            "Give more chips or smaller degrees."
        )
    if not str(row.get("cluster") or ""):
        raise InputError(f"{ROW}: cluster is missing. Known: {', '.join(names('clusters'))}.")
    return values


def _model_shape(model: str) -> dict[str, float]:
    if model not in names("models"):
        raise InputError(f'Unknown model "{model}". {suggest(model, names("models"))}')
    shape = build(read_preset("models", model), Transformer, "model", {})
    return {column.name: float(getattr(shape, column.name)) for column in SHAPE}


def row_words(row: Mapping[str, float], model: str = "") -> str:
    """A row as the words of a table, such as "model=llama-3.1-8b, chips=64, zero=1"; defaults are left out.

    - `model`: preset of its shape, if it has one.
    """
    usual = {column.name: column.default for column in INPUTS} | (_model_shape(model) if model else {})
    other = {name for name, value in usual.items() if not np.array_equal(row[name], value, equal_nan=True)}
    words = {name: f"{row[name]:.12g}" for name in usual if name in other | {*STATED}}
    for key, choices in SHORT_WORDS.items():
        fields = {name for choice in choices.values() if isinstance(choice, dict) for name in choice}
        if fields & words.keys() and (word := short_word(row, key)) is not None:
            words = {name: number for name, number in words.items() if name not in fields} | {key: word}
    return ", ".join(f"{name}={word}" for name, word in (({"model": model} if model else {}) | words).items())


def cell_number(text: Any, name: str) -> float:
    """The number in a cell of a column, which may also be yes or no; not a number where nothing is measured.

    **Raises:** `InputError` that begins with `ROW`.
    """
    try:
        value = SWITCHES.get(str(text).strip().lower())
        value = float(text) if value is None else value
    except ValueError:
        raise InputError(f"{ROW}: {name}: {text!r} is not a number. Write it without a unit.") from None
    if math.isinf(value):
        raise InputError(f"{ROW}: {name}: {text!r} is not finite.")
    return value
