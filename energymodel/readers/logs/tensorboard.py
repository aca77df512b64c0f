"""Scalars that TensorBoard saved as CSV.

A file has the columns `Wall time,Step,Value` and one scalar, which its name tells: TensorBoard writes
`run-<run>-tag-<scalar>.csv`. Of a scalar with another name only times and steps are taken. `join_scalars` joins the
files of several scalars on the step.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.lines import Lines, cells
from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.scalars import EVALUATION, TOTAL_RATE, field_of
from energymodel.readers.logs.text import made, number, whole

HEADER = ("wall time", "step", "value")
MOST_STEPS = 2_000_000
"""Steps of files that are joined, which are held at once."""


def scalar_of(name: str) -> tuple[str, float] | None:
    """Field and factor of the scalar that a file's name tells."""
    stem = PurePath(name).name.removesuffix(".csv")
    stem = re.sub(r"\s*\(\d+\)$", "", stem)  # the second download of one name
    return field_of(re.split(r"[-_]tag[-_]", stem, maxsplit=1)[-1])


def rows(lines: Iterable[str]) -> Iterator[tuple[float, int, float]]:
    """Time [s since 1970], step and value of each row; damaged rows are left out."""
    for line in lines:
        row = cells(line)
        step = whole(row[1].removesuffix(".0")) if len(row) == 3 else None
        if step is not None and row[2]:
            time = number(row[0])
            yield (time if math.isfinite(time) else NOT_SAID), step, number(row[2])


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps of one scalar, or evaluations if it is the loss of one."""
    field = scalar_of(name)
    for time, step, value in rows(lines):
        if field is None or field[0] == TOTAL_RATE:
            yield LoggedStep(step, time)
        elif field[0] == EVALUATION:
            yield LogEvent("evaluation", time, NOT_SAID, value, step)
        else:
            record = made(step, time, {field[0]: value * field[1]})
            yield LoggedStep(step, time) if record is None else record


def join_scalars(paths: Sequence[str | Path]) -> Iterator[LoggedStep | LogEvent]:
    """Steps of several scalars of one run, joined on the step, with times of the first file that has the step.

    **Raises:** `InputError` if a file cannot be read or two tell the same quantity.
    """
    table: dict[int, dict[str, Any]] = {}
    events: list[LogEvent] = []
    told: dict[str, Path] = {}
    for path in map(Path, paths):
        field = scalar_of(path.name) or ("", 1.0)
        if field[0] and field[0] in told:
            raise InputError(
                f'"{told[field[0]]}" and "{path}" both hold the scalar "{field[0]}". Give the files of one run.'
            )
        told[field[0]] = path
        for time, step, value in rows(Lines(path)):
            if field[0] == EVALUATION:
                events.append(LogEvent("evaluation", time, NOT_SAID, value, step))
                continue
            row = table.setdefault(step, {"time": time})
            if field[0]:
                row[field[0]] = value * field[1]
            if len(table) > MOST_STEPS:
                raise InputError(f'"{path}" holds more than {MOST_STEPS} steps, the most that can be joined.')
    if not table:
        names = ", ".join(f'"{path}"' for path in paths)
        raise InputError(f"No step in {names or 'no file'}. Give CSV files that TensorBoard saved.")
    events.sort(key=lambda event: event.step or 0, reverse=True)
    for step in sorted(table):
        row = table[step]
        rate = row.pop(TOTAL_RATE, NOT_SAID)
        record = made(step, row.pop("time"), row) or LoggedStep(step)
        if math.isnan(record.tokens) and rate * record.step_time > 0:
            record = dataclasses.replace(record, tokens=rate * record.step_time)
        yield record
        while events and (events[-1].step or 0) <= step:
            yield events.pop()
    yield from reversed(events)


def is_header(line: str) -> bool:
    """Whether a line is the first of such a file."""
    return tuple(cell.lower() for cell in cells(line[:200])) == HEADER
