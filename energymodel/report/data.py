"""Answers for other programs: JSON with a schema, CSV and data frames of pandas; all in SI."""

import contextlib
import csv
import importlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from energymodel.errors import InputError, printable
from energymodel.report.answer import Answer, Table
from energymodel.report.cells import Cell, Column, Quantity
from energymodel.report.number import sentence

VERSION = 2
"""Of the schema, raised where a key is renamed or removed.

Version 1 had the unit in each key and a tree of its own for each command."""

FORMULA = ("=", "+", "-", "@")
"""What text of a spreadsheet's formula begins with."""


def tree(answer: Answer) -> dict[str, Any]:
    """The answer as a tree.

    `tables.NAME.columns` has unit, kind and title of each column, `tables.NAME.rows` an object for each row. A number
    with an interval or a prior is `{"value", "low", "high", "prior"}`. `scenario` gives the same answer again.
    """
    return {
        "schema": {"name": f"energymodel.{answer.command}", "version": VERSION},
        "scenario": answer.inputs,
        "title": answer.title,
        "result": str(answer.result),
        "message": answer.message,
        "headline": sentence(answer.headline),
        "sentences": [sentence(words) for words in answer.sentences],
        "notes": [sentence(words) for words in answer.notes],
        "warnings": [sentence(words) for words in answer.warnings],
        "tables": {table.name: _table(table) for table in answer.tables},
        "next": [command for _, command in answer.also],
    }


def dumps(answer: Answer) -> str:
    """Strict JSON: what is not finite is null, and `warnings` says where and why."""
    finite, dropped = strict(tree(answer))
    finite["warnings"] += [f"{path} is {value} and stands as null" for path, value in dropped]
    return json.dumps(finite, indent=1, ensure_ascii=False, allow_nan=False)


def _table(table: Table) -> dict[str, Any]:
    columns = {
        column.name: {"unit": column.unit, "kind": column.kind, "title": column.title} for column in table.columns
    }
    rows = [{name: _value(cell) for name, cell in zip(table.names, row, strict=True)} for row in table.rows]
    for index, (label, row) in enumerate(zip(table.labels, rows, strict=False)):
        rows[index] = {"row": label, "row_kind": table.kinds[index] if table.kinds else "", **row}
    return {"title": table.title, "columns": columns, "rows": rows}


def _value(cell: Cell) -> Any:
    if not isinstance(cell, Quantity):
        return cell
    value = float(cell.value)
    if cell.low is None and not cell.prior and not cell.unit:
        return value
    ends = {} if cell.low is None or cell.high is None else {"low": float(cell.low), "high": float(cell.high)}
    return {"value": value, **ends, **{name: getattr(cell, name) for name in ("unit", "prior") if getattr(cell, name)}}


def strict(branch: Any, path: str = "") -> tuple[Any, list[tuple[str, float]]]:
    """A tree without NaN and infinity, and where they were."""
    if isinstance(branch, Mapping):
        parts = {key: strict(value, f"{path}.{key}" if path else str(key)) for key, value in branch.items()}
        return {key: part[0] for key, part in parts.items()}, [drop for part in parts.values() for drop in part[1]]
    if isinstance(branch, list | tuple):
        items = [strict(value, f"{path}[{index}]") for index, value in enumerate(branch)]
        return [item[0] for item in items], [drop for item in items for drop in item[1]]
    if isinstance(branch, float) and not math.isfinite(branch):
        return None, [(path, branch)]
    return branch, []


def main_table(answer: Answer) -> Table:
    """The table of CSV: the one named `rows`, or the first, joined with other tables of one tall row."""
    if answer.rows:
        return answer.table(answer.rows)
    first = answer.tables[0]
    joined = [table for table in answer.tables if table.tall and len(table.rows) == 1]
    if first not in joined:
        return first
    columns = [
        Column(f"{table.name}.{column.name}", column.title, column.unit, column.kind)
        for table in joined
        for column in table.columns
    ]
    return Table("run", answer.title, columns, [[cell for table in joined for cell in table.rows[0]]])


def csv_text(table: Table, name: str = "") -> str:
    """A table as CSV: "energy [J]", "energy low [J]" where an interval is known; `name` fills a column "scenario".

    No text begins as a formula of a spreadsheet does, and controls are escapes.
    """
    columns = flat_columns(table)
    if table.labels:
        columns = {"row": list(table.labels), **columns}
    if name:
        columns = {"scenario": [name] * len(table.rows), **columns}
    out = io.StringIO()
    lines = [columns, *zip(*columns.values(), strict=True)]
    csv.writer(out, lineterminator="\n").writerows([map(_inert, line) for line in lines])
    return out.getvalue()


def _inert(cell: Any) -> Any:
    """A cell that no spreadsheet computes; a text that is a number stays."""
    if not isinstance(cell, str):
        return cell
    with contextlib.suppress(ValueError):
        float(cell)
        return cell
    return ("'" if cell.strip().startswith(FORMULA) else "") + printable(cell)


def flat_columns(table: Table) -> dict[str, list[Any]]:
    """Columns of a table by heading, intervals as columns of their own."""
    columns: dict[str, list[Any]] = {}
    for column, cells, own in _columns(table):
        unit = f" [{column.unit}]" if column.unit and column.kind != "words" and not own else ""
        columns |= {f"{column.name} unit": own} if own else {}
        columns[f"{column.name}{unit}"] = [_plain(cell) for cell in cells]
        if any(isinstance(cell, Quantity) and cell.low is not None for cell in cells):
            for end in ("low", "high"):
                columns[f"{column.name} {end}{unit}"] = [getattr(cell, end, None) for cell in cells]
    return columns


def _columns(table: Table) -> Iterator[tuple[Column, Sequence[Cell], list[str]]]:
    """Each column with its cells, and with their units where they have units of their own."""
    for column, cells in zip(
        table.columns, zip(*table.rows, strict=True) if table.rows else [[]] * len(table.columns), strict=True
    ):
        own = [getattr(cell, "unit", "") for cell in cells]
        yield column, cells, own if any(own) else []


def _plain(cell: Cell, missing: Any = None) -> Any:
    return cell.value if isinstance(cell, Quantity) else missing if cell is None else cell


def to_dataframe(table: Table) -> Any:
    """A table as a `pandas.DataFrame`, indexed by its words or its labels; `attrs` hold the units.

    **Raises:** `InputError` where pandas is not installed.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError:
        raise InputError('to_dataframe needs pandas. Install it: pip install "energymodel[notebook]".') from None
    columns = {column.name: [_plain(cell, np.nan) for cell in cells] for column, cells, _ in _columns(table)}
    columns |= {f"{column.name} unit": own for column, _, own in _columns(table) if own}
    name, labels = "row", table.labels or range(len(table.rows))
    if not table.labels and table.columns[0].kind == "words":
        name = table.names[0]
        labels = columns.pop(name)
    frame = pandas.DataFrame(columns, index=pandas.Index(labels, name=name))
    frame.attrs["units"] = {column.name: column.unit for column in table.columns if column.name in frame}
    return frame
