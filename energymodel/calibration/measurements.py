"""Which numbers does a CSV file of measurements hold, and what is wrong with it?

Every message names the file, the line and the column, and says what to write instead.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.readers.text_file import is_file
from energymodel.units import convert, counted

MOST_ROWS = 20_000
FEWEST_ROWS = 2
MAGNITUDES = ("k", "m", "g", "t", "b", "bn", "thousand", "million", "millions", "billion", "billions", "trillion")


class Column(NamedTuple):
    """A column of a file of measurements.

    - `name`: with the unit as suffix, as in `power_w`.
    - `unit`: of its numbers; "text" for words.
    - `meaning`: in a few words.
    - `needed`: whether a file without it is refused.
    - `others`: names under which public files have it, taken as well.
    - `may_be_zero`, `may_be_empty`: whether a number of 0, or none in a row, is no mistake.
    - `lowest`: that a number may be; `highest`: 1 for a share of time or power.
    """

    name: str
    unit: str
    meaning: str
    needed: bool = True
    others: tuple[str, ...] = ()
    may_be_zero: bool = False
    may_be_empty: bool = False
    lowest: float = 0.0
    highest: float = math.inf


def optional(name: str, unit: str, meaning: str, *others: str) -> Column:
    """A column that a file may lack."""
    return Column(name, unit, meaning, needed=False, others=others)


class Measurements(NamedTuple):
    """What was measured: one array for each column that the file has, and the line of each row in the file; what a
    reader must know stands in `notes`.
    """

    path: str
    columns: Mapping[str, np.ndarray]
    lines: np.ndarray
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, name: str, default: str) -> np.ndarray:
        """A column of words, or one word for all rows if the file lacks it."""
        return self.columns.get(name, np.full(len(self), default))

    def select(self, rows: np.ndarray) -> "Measurements":
        """Some of the rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Measurements(self.path, columns, self.lines[rows], self.notes)


def read_measurements(
    path: Path, schema: Sequence[Column], *, where: Mapping[str, str] | None = None, fewest: int = FEWEST_ROWS
) -> Measurements:
    """Read a CSV file with a header.

    **Arguments:**

    - `schema`: columns that are read; others are left alone.
    - `where`: words that columns of a row must have for it to be taken, such as `{"gpu": "V100"}`.
    - `fewest`: rows without which the file is refused.

    **Raises:** `InputError`, one line that names file, line and column.
    """
    if not is_file(path):
        raise InputError(f"{path}: no such file. Give a CSV file with a header; `--columns` lists its columns.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            places = _places(path, header, schema)
            rows = _rows(path, reader, header, where or {})
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file. Measurements are CSV in UTF-8.") from None
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file: {error}.") from None
    if len(rows) < fewest:
        raise InputError(
            f"{path}: {counted(len(rows), 'row')} of measurements; at least {fewest} "
            f"{'is' if fewest == 1 else 'are'} needed. Measure more settings."
        )
    columns: dict[str, np.ndarray] = {}
    for column in schema:
        found = places.get(column.name)
        if found is None:
            continue
        words = [row[found].strip() for _, row in rows]
        if column.unit == "text":
            columns[column.name] = np.array(words)
        else:
            lines = [line for line, _ in rows]
            columns[column.name] = _numbers(path, lines, words, column, header[found])
    return Measurements(str(path), columns, np.array([line for line, _ in rows]))


def check_repeats(table: Measurements, names: Sequence[str]) -> None:
    """Refuse rows that repeat the setting of another row.

    **Raises:** `InputError` that names both lines.
    """
    seen: dict[tuple[str, ...], int] = {}
    present = [name for name in names if name in table.columns]
    for row, line in enumerate(table.lines):
        setting = tuple(str(table.columns[name][row]) for name in present)
        if setting in seen:
            shown = ", ".join(f"{name} {value}" for name, value in zip(present, setting, strict=True))
            raise InputError(
                f"{table.path}, line {line}: repeats the setting of line {seen[setting]} ({shown}). Drop one of the "
                "two lines, write the mean of both in one, or number them in a column `run` to fit both."
            )
        seen[setting] = int(line)


def _places(path: Path, header: list[str], schema: Sequence[Column]) -> dict[str, int]:
    if not any(header):
        raise InputError(f"{path}: empty. The first line names the columns: {_needed(schema)}.")
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice:
        raise InputError(f'{path}, line 1: column "{twice}" stands there twice. Keep one.')
    places: dict[str, int] = {}
    for column in schema:
        found = next((name for name in (column.name, *column.others) if name in header), None)
        if found is not None:
            places[column.name] = header.index(found)
            continue
        known = {name for one in schema for name in (one.name, *one.others)}
        check_unit(str(path), [name for name in header if name not in known], column)
        if column.needed:
            given = [name for name in header if name]
            near = suggest(column.name, given) if given else ""
            hint = near.replace("Did you mean", "Is it") if near.startswith("Did") else f"The file has {_words(given)}."
            raise InputError(
                f'{path}, line 1: column "{column.name}" is missing: {column.meaning} [{column.unit}]. {hint}'
            )
    return places


def check_unit(path: str, header: Sequence[str], column: Column) -> None:
    """Refuse a column of the right name with another unit.

    **Raises:** `InputError`.
    """
    if column.unit == "text":
        return
    stem, separator, suffix = column.name.rpartition("_")
    for name in header:
        other_stem, _, other = name.rpartition("_")
        in_thousands = other_stem == column.name and other.lower() in MAGNITUDES
        if in_thousands or (separator and column.unit != "1" and other_stem == stem and other != suffix):
            raise InputError(
                f'{path}, line 1: column "{name}" has the unit "{other}"; {column.meaning}: read in {column.unit}. '
                f'Convert the numbers and call it "{column.name}".'
            )


def _rows(path: Path, reader: Any, header: list[str], where: Mapping[str, str]) -> list[tuple[int, list[str]]]:
    for name in where:
        if name not in header:
            raise InputError(f'{path}, line 1: there is no column "{name}" to choose rows by. {suggest(name, header)}')
    chosen = {header.index(name): word for name, word in where.items()}
    rows: list[tuple[int, list[str]]] = []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise InputError(
                f"{path}, line {reader.line_num}: {len(row)} cells under {len(header)} columns. "
                "Check for a missing or extra comma."
            )
        if all(row[place].strip() == word for place, word in chosen.items()):
            rows.append((reader.line_num, row))
        if len(rows) > MOST_ROWS:
            raise InputError(
                f"{path}, line {reader.line_num}: more than {MOST_ROWS:,} rows. A few constants need far fewer: write "
                "one row for each setting, the mean of its measurements, or choose rows with --where COLUMN=VALUE."
            )
    if where and not rows:
        shown = ", ".join(f"{name}={word}" for name, word in where.items())
        raise InputError(f"{path}: no row has {shown}. Check the words in these columns.")
    return rows


def _numbers(path: Path, lines: list[int], words: list[str], column: Column, name: str) -> np.ndarray:
    values, unit = np.empty(len(words)), _unit_in(name)
    for row, (line, word) in enumerate(zip(lines, words, strict=True)):
        place = f'{path}, line {line}, column "{name}"'
        if unit:
            word = "" if word.startswith("[") else word.removesuffix(unit).strip()
        value, reason = number(word, column)
        if reason:
            raise InputError(f"{place}: {reason}")
        values[row] = convert(value, unit, column.unit, place) if unit and math.isfinite(value) else value
    return values


def number(word: str, column: Column) -> tuple[float, str]:
    """The number in a cell of a column, NaN where it may be empty; or why it is none, with the next step."""
    if not word and (not column.needed or column.may_be_empty):
        return math.nan, ""
    try:
        value = float(word)
    except ValueError:
        shown = f"{word!r} is not a number" if word else "empty"
        return math.nan, f"{shown}. Write {column.meaning} in {column.unit}, without a unit."
    if not math.isfinite(value):
        return math.nan, f"{word} is not finite. Leave out rows without a measurement."
    if value < column.lowest or (value == 0.0 and not column.may_be_zero):
        return math.nan, f"{value:g} {column.unit} cannot be; {column.meaning} is above 0."
    if value > column.highest:
        return math.nan, f"{value:g} cannot be; {column.meaning} is at most 1. Divide percentages by 100."
    return value, ""


def _unit_in(name: str) -> str:
    """The unit at the end of a column's name as `nvidia-smi` writes it, `power.draw [W]`; its cells may repeat it."""
    stem, bracket, unit = name.partition(" [")
    return unit.removesuffix("]") if stem and bracket else ""


def _needed(schema: Sequence[Column]) -> str:
    return ", ".join(column.name for column in schema if column.needed)


def _words(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")
