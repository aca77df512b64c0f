"""One reader of the tables that users bring: CSV with commas, semicolons or tabs, and decimal commas."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.columns import AS_WRITTEN, TEXT, Column, Schema, TableChoices, column_index, number
from energymodel.readers.lines import SEPARATORS, decimal_point, separator_of
from energymodel.readers.text_file import is_file
from energymodel.units import counted

MOST_ROWS = 20_000
FEWEST_ROWS = 2
LISTED_PROBLEMS, LISTED_LINES = 20, 12


class Problem(NamedTuple):
    """A row that cannot be read: its line in the file, and why, with the next step."""

    line: int
    reason: str


class CsvTable(NamedTuple):
    """Header and rows as they were written, the line of each row, and rows that do not fit the header."""

    path: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


class Measurements(NamedTuple):
    """What a table says: an array for each column that it has, the line of each row, and what a reader must know."""

    path: str
    columns: Mapping[str, np.ndarray]
    lines: np.ndarray
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, name: str, default: str) -> np.ndarray:
        """A column of words, or one word for all rows if the table lacks it."""
        return self.columns.get(name, np.full(len(self), default))

    def select(self, rows: np.ndarray) -> "Measurements":
        """Some of the rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Measurements(self.path, columns, self.lines[rows], self.notes)

    def having(self, columns: Mapping[str, np.ndarray], notes: Sequence[str]) -> "Measurements":
        """The rows with some columns in place of theirs or beside them, and with other notes."""
        return Measurements(self.path, {**self.columns, **columns}, self.lines, tuple(notes))

    def error(self, row: int | np.integer, words: str, column: str = "") -> InputError:
        """What is wrong in a row, or in its cell of a column."""
        cell = f', column "{column}"' if column else ""
        return InputError(f"{self.path}, line {self.lines[row]}{cell}: {words}")


Records = Sequence[Mapping[str, Any]]  # mappings from column to number or text, in place of a file


def read_csv(
    source: Path | Records, where: Mapping[str, str] | None = None, most_rows: int = MOST_ROWS, name: str = "table"
) -> CsvTable:
    """Read a CSV file with a header, separated by commas, semicolons or tabs (then decimal commas are read), or rows.

    Empty lines are passed over, and so are copies of the header further down.

    **Arguments:**

    - `where`: words that a row must have in some columns to be taken.
    - `name`: what messages call rows.

    **Raises:** `InputError` if there is no such file, it is not text, its header cannot be, or no row is chosen.
    """
    if not isinstance(source, Path):
        header = tuple(dict.fromkeys(name for row in source for name in row))
        texts = [tuple("" if row.get(name) is None else str(row[name]).strip() for name in header) for row in source]
        return _csv_table(name, enumerate((header, *texts), start=1), ",", where or {}, len(source))
    path = source
    if not is_file(path):
        raise InputError(f"{path}: no such file. Give a CSV file with a header; `--columns` lists its columns.")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file. Tables are CSV in UTF-8.") from None
    first = next((line for line in text.splitlines() if line.strip(SEPARATORS + " ")), "")
    if not first:
        raise InputError(f"{path}: empty. The first line names the columns; `--columns` lists them.")
    separator = separator_of(first)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator, skipinitialspace=True)

    def cells() -> Iterable[tuple[int, tuple[str, ...]]]:
        for row in reader:
            yield reader.line_num, tuple(cell.strip() for cell in row)

    try:
        return _csv_table(str(path), cells(), separator, where or {}, most_rows)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a CSV file: {error}.") from None


def _csv_table(
    path: str, cells: Iterable[tuple[int, tuple[str, ...]]], separator: str, where: Mapping[str, str], most_rows: int
) -> CsvTable:
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    problems: list[Problem] = []
    chosen: dict[int, str] = {}
    copies = 0
    for line, row in cells:
        if not any(row):
            continue
        if not header:
            header = row
            chosen = {column_index(path, header, name, "--where"): word for name, word in where.items()}
            double = next((name for name in header if name and header.count(name) > 1), None)
            if double:
                raise InputError(f'{path}, line {line}: column "{double}" appears twice. Keep one.')
        elif row == header:
            copies += 1
        elif len(row) != len(header):
            reason = f"{len(row)} cells under {len(header)} columns. Check for a missing or extra {separator!r}."
            problems.append(Problem(line, reason))
        elif all(row[index] == word for index, word in chosen.items()):
            rows.append(row if separator == "," else tuple(map(decimal_point, row)))
            lines.append(line)
        if len(rows) > most_rows:
            raise InputError(
                f"{path}, line {line}: more than {most_rows:,} rows. Write one row for each setting, the mean of its "
                "measurements, or choose rows with --where COLUMN=VALUE."
            )
    if where and not rows:
        words = ", ".join(f"{name}={word}" for name, word in where.items())
        raise InputError(f"{path}: no row has {words}. Check the words in these columns.")
    notes = (f"{copies} copies of the header further down are passed over.",) if copies else ()
    return CsvTable(path, header, tuple(rows), tuple(lines), tuple(problems), notes)


def read_table(
    source: Path | Records | CsvTable,
    schema: Sequence[Column] | Schema,
    choices: TableChoices = AS_WRITTEN,
    *,
    fewest: int = FEWEST_ROWS,
) -> Measurements:
    """Read numbers and words of a CSV file, of rows, or of what `read_csv` read of them.

    **Arguments:**

    - `schema`: columns that are read; others are left alone.
    - `fewest`: rows without which the file is refused.

    **Raises:** `InputError` that names file, line and column of every row that cannot be read.
    """
    schema = schema if isinstance(schema, Schema) else Schema(schema)
    table = source if isinstance(source, CsvTable) else read_csv(source, choices.where, name=choices.name)
    targets, constants, unused = schema.matched(table.path, table.header, choices)
    problems = list(table.problems)
    columns: dict[str, list[Any]] = {}
    cells = {index: [row[index] for row in table.rows] for index in targets}
    words = [(target, table.header[index], cells[index]) for index, target in targets.items()]
    words += [(target, name, [word] * len(table.rows)) for name, (target, word) in constants.items()]
    for target, name, column in words:
        values: list[Any] = []
        for line, word in zip(table.lines, column, strict=True):
            try:
                values.append(word if target.column.unit == TEXT else number(word, target))
            except InputError as error:
                problems.append(Problem(line, f'column "{name}": {error}'))
                values.append(math.nan)
        columns[target.column.name] = values
    bad_rows = left_out(table.path, problems, len(table.rows) + len(table.problems), choices)
    warnings = [schema.warning(name) for name in unused if not {name, "all"} & {*choices.ignore}]
    notes = (*table.notes, *filter(None, warnings), *bad_rows)
    bad = {problem.line for problem in problems}
    good = np.array([line not in bad for line in table.lines], bool)
    if np.sum(good) < fewest:
        raise InputError(
            f"{table.path}: {counted(int(np.sum(good)), 'row')} of measurements; at least {fewest} "
            f"{'is' if fewest == 1 else 'are'} needed. Measure more settings."
        )
    order = [column.name for column in schema.columns if column.name in columns]
    return Measurements(
        table.path, {name: np.array(columns[name])[good] for name in order}, np.array(table.lines)[good], notes
    )


def left_out(path: str, problems: Sequence[Problem], rows: int, choices: TableChoices) -> list[str]:
    """A note on the rows that cannot be read, if they may be left out.

    **Raises:** `InputError` otherwise: one line for one row, else a line for each reason.
    """
    if not problems:
        return []
    listed = listed_problems(sorted(problems))
    if choices.skip_bad_rows:
        count = f"Left out because they cannot be read: {len(problems):,} of {counted(rows, 'row')}"
        return [f"{count}. {listed[0]}" + (" And for other reasons." if len(listed) > 1 else "")]
    if len(problems) == 1:
        line, reason = problems[0]
        raise InputError(f"{path}, line {line}{', ' if reason.startswith('column') else ': '}{reason}")
    first = f"{path}: {len(problems)} of {rows} rows cannot be read. Correct them, or leave them out: --skip-bad-rows."
    raise InputError(first, *listed)


def listed_problems(problems: Sequence[Problem]) -> list[str]:
    """A line for each reason, with the lines of the file that it holds for; at most 20, and the count of others."""
    by_reason: dict[str, list[int]] = {}
    for line, reason in problems:
        by_reason.setdefault(reason, []).append(line)
    listed = []
    for reason, lines in list(by_reason.items())[:LISTED_PROBLEMS]:
        numbers = ", ".join(str(line) for line in lines[:LISTED_LINES])
        more = f" and {len(lines) - LISTED_LINES:,} more" if len(lines) > LISTED_LINES else ""
        listed.append(f"line{'s' * (len(lines) > 1)} {numbers}{more}: {reason}")
    hidden = sum(len(lines) for lines in list(by_reason.values())[LISTED_PROBLEMS:])
    return [*listed, f"and {hidden:,} more rows"] if hidden else listed


def check_repeats(table: Measurements, names: Sequence[str]) -> None:
    """Refuse rows that repeat the setting of another row.

    **Raises:** `InputError` that names both lines.
    """
    seen: dict[tuple[str, ...], int] = {}
    present = [name for name in names if name in table.columns]
    for row, line in enumerate(table.lines):
        setting = tuple(str(table.columns[name][row]) for name in present)
        if setting in seen:
            words = ", ".join(f"{name} {value}" for name, value in zip(present, setting, strict=True))
            raise InputError(
                f"{table.path}, line {line}: repeats the setting of line {seen[setting]} ({words}). Drop one of the "
                "two lines, write the mean of both in one, or number them in a column `run` to fit both."
            )
        seen[setting] = int(line)
