"""CSV files exported from Weights & Biases.

Either of a chart, with the columns `Step` and `<run> - <scalar>` (and `__MIN` and `__MAX`, which are left out), or of
the history, with `_step`, `_timestamp`, `_runtime` and one column for each scalar. Where a column counts the optimizer
steps (`train/global_step`), it counts rather than `_step`, which counts the calls to log.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from energymodel.errors import InputError
from energymodel.readers.cells import time_of
from energymodel.readers.lines import cells
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.scalars import EVALUATION, TOTAL_RATE, field_of
from energymodel.readers.logs.text import made, number, whole

STEPS = ("train/global_step", "trainer/global_step", "global_step", "iteration", "step", "_step")
TIMES = ("_timestamp", "timestamp", "wall time")
_WHOLE = re.compile(r"\.0*$")


def is_header(line: str) -> bool:
    """Whether a line is the first of such a file: a step column beside others."""
    names = cells(line)
    if any(cell.endswith("__MIN") for cell in names) and any(cell.endswith("__MAX") for cell in names):
        return True
    scalars = any(name.startswith("_") or " - " in name or field_of(name) is not None for name in names)
    return len(names) > 1 and scalars and any(_scalar(name)[1].strip().lower() in STEPS for name in names)


def _scalar(column: str) -> tuple[str, str]:
    """Run and scalar of a column; history has no run."""
    run, dash, scalar = column.rpartition(" - ")
    return (run, scalar) if dash else ("", column)


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps of a file; rows of one step are joined.

    **Raises:** `InputError` if it holds several runs or no step column.
    """
    source = iter(lines)
    header = next((cells(line) for line in source if line.strip()), [])
    step_column, time_column, fields = _columns(header, name)
    held: LoggedStep | None = None
    for line in source:
        row = cells(line)
        if len(row) != len(header):
            continue
        step = whole(_WHOLE.sub("", row[step_column]))
        values = {field: number(row[column]) * scale for column, (field, scale) in fields.items() if row[column]}
        if step is None or not values:
            continue
        time = time_of(row[time_column]) if time_column is not None else NOT_SAID
        evaluated = values.pop(EVALUATION, NOT_SAID)
        rate = values.pop(TOTAL_RATE, NOT_SAID)
        values.setdefault("tokens", rate * values.get("step_time", NOT_SAID))
        record = made(step, time, values) if any(not math.isnan(value) for value in values.values()) else None
        if record is not None:
            if held is not None and held.step != step:
                yield held
                held = None
            held = record if held is None else _joined(held, record)
        if not math.isnan(evaluated):
            if held is not None:
                yield held
                held = None
            yield LogEvent("evaluation", time, NOT_SAID, evaluated, step)
    if held is not None:
        yield held


def _columns(header: Sequence[str], name: str) -> tuple[int, int | None, dict[int, tuple[str, float]]]:
    """Columns of the step, of the time and of each quantity."""
    plain = [_scalar(column)[1].strip().lower() for column in header]
    columns = [column for column in range(len(header)) if not header[column].endswith(("__MIN", "__MAX"))]
    step = next((plain.index(name) for name in STEPS if name in plain), None)
    if step is None:
        raise InputError(f'"{name}" has no column Step or _step. Export the chart with the step on its x axis.')
    fields: dict[int, tuple[str, float]] = {}
    runs: dict[str, None] = {}
    for column in columns:
        run, scalar = _scalar(header[column])
        field = None if column == step or plain[column] in STEPS else field_of(scalar)
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
    time = next((plain.index(name) for name in TIMES if name in plain), None)
    return step, time, fields


def _joined(first: LoggedStep, second: LoggedStep) -> LoggedStep:
    """Two rows of one step: what the first does not say is taken from the second."""
    missing = {
        field.name: getattr(second, field.name)
        for field in dataclasses.fields(first)
        if math.isnan(getattr(first, field.name))
    }
    return dataclasses.replace(first, **missing)
