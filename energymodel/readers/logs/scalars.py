"""Scalars as CSV: of Weights & Biases and of TensorBoard.

Weights & Biases exports a chart, with the columns `Step` and `<run> - <scalar>` (and `__MIN` and `__MAX`, which are
left out), or the history, with `_step`, `_timestamp`, `_runtime` and one column for each scalar. Where a column counts
the optimizer steps (`train/global_step`), it counts rather than `_step`, which counts the calls to log. TensorBoard
saves one scalar, which the name of the file tells (`run-<run>-tag-<scalar>.csv`), with the columns
`Wall time,Step,Value`; of a scalar with another name only times and steps are taken.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.expressions import data_file
from energymodel.readers.lines import Lines, cells, time_of
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.line_kinds import made, number
from energymodel.units import whole_number

EVALUATION = "evaluation"  # the loss of an evaluation, in place of a field
TOTAL_RATE = "total_token_rate"  # tokens per second of the whole run, in place of a field
NAMES = {
    name: (group["field"], group["factor"])
    for group in data_file(__file__, "scalars.toml")["groups"]
    for name in group["names"].split()
}
HEADER = ("wall time", "step", "value")
STEPS = ("train/global_step", "trainer/global_step", "global_step", "iteration", "step", "_step")
TIMES = ("_timestamp", "timestamp", "wall time")
MOST_STEPS = 2_000_000  # steps of files that are joined, which are held at once
_ASIDE = re.compile(r"vs_(?:samples|tokens|consumed)|(?:^|_)gradients?_|(?:^|_)parameters_")
_EVALUATED = re.compile(r"(?:^|_)(?:eval|evaluation|val|valid|validation|test)(?:_|$)")
_FRACTION = re.compile(r"\.0*$")


def field_of(name: str) -> tuple[str, float] | None:
    """Field and factor of a scalar, told from the last words of its name; None if it is no quantity of a step."""
    words = re.sub(r"[^a-z0-9]+", "_", name[:500].lower()).strip("_").split("_")
    full = "_".join(words)
    tails = ("_".join(words[start:]) for start in range(max(0, len(words) - 8), len(words)))
    field, factor = next((NAMES[tail] for tail in tails if tail in NAMES), ("", 1.0))
    if not field or _ASIDE.search(full):
        return None
    if _EVALUATED.search(full):
        return (EVALUATION, 1.0) if field in ("loss", EVALUATION) else None
    return field, factor


def is_wandb(line: str) -> bool:
    """Whether a line is the header of an export: a step column beside others."""
    names = cells(line)
    if any(cell.endswith("__MIN") for cell in names) and any(cell.endswith("__MAX") for cell in names):
        return True
    scalars = any(name.startswith("_") or " - " in name or field_of(name) is not None for name in names)
    return len(names) > 1 and scalars and any(_scalar(name)[1].strip().lower() in STEPS for name in names)


def _scalar(column: str) -> tuple[str, str]:
    """Run and scalar of a column; history has no run."""
    run, dash, scalar = column.rpartition(" - ")
    return (run, scalar) if dash else ("", column)


def wandb_steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps of an export of Weights & Biases; rows of one step are joined.

    **Raises:** `InputError` if it holds several runs or no step column.
    """
    source = iter(lines)
    header = next((cells(line) for line in source if line.strip()), [])
    step_column, time_column, fields = _columns(header, name)
    joined: LoggedStep | None = None
    for line in source:
        row = cells(line)
        step = whole_number(_FRACTION.sub("", row[step_column])) if len(row) == len(header) else None
        values = {
            field: number(row[at]) * scale for at, (field, scale) in fields.items() if step is not None and row[at]
        }
        if step is None or not values:
            continue
        time = time_of(row[time_column]) if time_column is not None else NOT_SAID
        evaluated = values.pop(EVALUATION, NOT_SAID)
        values = _with_tokens(values)
        record = None if all(map(math.isnan, values.values())) else made(step, time, values)
        if joined is not None and record is not None and joined.step == step:
            first, second = dataclasses.asdict(joined), dataclasses.asdict(record)
            joined = LoggedStep(**{key: second[key] if math.isnan(value) else value for key, value in first.items()})
        elif record is not None:
            if joined is not None:
                yield joined
            joined = record
        if not math.isnan(evaluated):
            if joined is not None:
                yield joined
                joined = None
            yield LogEvent("evaluation", time, NOT_SAID, evaluated, step)
    if joined is not None:
        yield joined


def _with_tokens(values: dict[str, float]) -> dict[str, float]:
    """Values of a step with the tokens that follow from the rate of the whole run, where they are not said."""
    tokens = values.get(TOTAL_RATE, NOT_SAID) * values.get("step_time", NOT_SAID)
    return {"tokens": tokens} | {field: value for field, value in values.items() if field != TOTAL_RATE}


def _columns(header: Sequence[str], name: str) -> tuple[int, int | None, dict[int, tuple[str, float]]]:
    """Columns of the step, of the time and of each quantity."""
    plain = [_scalar(column)[1].strip().lower() for column in header]
    step = next((plain.index(name) for name in STEPS if name in plain), None)
    if step is None:
        raise InputError(f'"{name}" has no column Step or _step. Export the chart with the step on its x axis.')
    fields: dict[int, tuple[str, float]] = {}
    runs: dict[str, None] = {}
    for column, heading in enumerate(header):
        run, scalar = _scalar(heading)
        field = None if plain[column] in STEPS or heading.endswith(("__MIN", "__MAX")) else field_of(scalar)
        if field is None:
            continue
        runs[run] = None
        # Of two that tell one quantity, "train/loss" rather than "train/text_loss".
        rival = next((other for other, taken in fields.items() if taken[0] == field[0]), None)
        if rival is None or len(plain[column]) < len(plain[rival]):
            fields.pop(-1 if rival is None else rival, None)
            fields[column] = field
    if len(runs) > 1:
        names = ", ".join(f'"{run}"' for run in list(runs)[:4])
        raise InputError(f'"{name}" holds {len(runs)} runs ({names}). Export one run at a time.')
    return step, next((plain.index(name) for name in TIMES if name in plain), None), fields


def is_tensorboard(line: str) -> bool:
    """Whether a line is the header of a scalar of TensorBoard."""
    return tuple(cell.lower() for cell in cells(line[:200])) == HEADER


def _scalar_of_file(name: str) -> tuple[str, float]:
    """Field and factor of the scalar that a file's name tells; no field for an unknown one."""
    stem = re.sub(r"\s*\(\d+\)$", "", PurePath(name).name.removesuffix(".csv"))  # the second download of one name
    return field_of(re.split(r"[-_]tag[-_]", stem, maxsplit=1)[-1]) or ("", 1.0)


def _rows(lines: Iterable[str]) -> Iterator[tuple[float, int, float]]:
    """Time [s since 1970], step and value of each row; damaged rows are left out."""
    for line in lines:
        row = cells(line)
        step = whole_number(row[1].removesuffix(".0")) if len(row) == 3 else None
        if step is not None and row[2]:
            time = number(row[0])
            yield (time if math.isfinite(time) else NOT_SAID), step, number(row[2])


def tensorboard_steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps of one scalar of TensorBoard, or evaluations if it is the loss of one."""
    field, factor = _scalar_of_file(name)
    for time, step, value in _rows(lines):
        if field == EVALUATION:
            yield LogEvent("evaluation", time, NOT_SAID, value, step)
        else:
            values = {field: value * factor} if field and field != TOTAL_RATE else {}
            yield made(step, time, values) or LoggedStep(step, time)


def join_scalars(paths: Sequence[str | Path]) -> Iterator[LoggedStep | LogEvent]:
    """Steps of several scalars of one run, joined on the step, with times of the first file that has the step.

    **Raises:** `InputError` if a file cannot be read or two tell the same quantity.
    """
    table: dict[int, dict[str, Any]] = {}
    events: list[LogEvent] = []
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        field, factor = _scalar_of_file(path.name)
        if field and field in files:
            raise InputError(
                f'"{files[field]}" and "{path}" both hold the scalar "{field}". Give the files of one run.'
            )
        files[field] = path
        for time, step, value in _rows(Lines(path)):
            if field == EVALUATION:
                events.append(LogEvent("evaluation", time, NOT_SAID, value, step))
                continue
            table.setdefault(step, {"time": time})[field] = value * factor
            if len(table) > MOST_STEPS:
                raise InputError(f'"{path}" holds more than {MOST_STEPS} steps, the most that can be joined.')
    if not table:
        names = ", ".join(f'"{path}"' for path in paths)
        raise InputError(f"No step in {names or 'no file'}. Give CSV files that TensorBoard saved.")
    events.sort(key=lambda event: event.step or 0, reverse=True)
    for step, row in sorted(table.items()):
        row.pop("", None)
        yield made(step, row.pop("time"), _with_tokens(row)) or LoggedStep(step)
        while events and (events[-1].step or 0) <= step:
            yield events.pop()
    yield from reversed(events)
