"""What stands in a CSV file that a person or another program wrote?"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from energymodel.errors import InputError
from energymodel.readers.text_file import is_file

MOST_ROWS = 20_000
SHOWN_PROBLEMS = 20
SHOWN_LINES = 12
SEPARATORS = (",", ";", "\t")


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
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def read_csv(path: Path) -> CsvTable:
    """Read a CSV file with a header, separated by commas, semicolons (then decimal commas are read) or tabs.

    Empty lines are passed over, and so are copies of the header further down.

    **Raises:** `InputError` if there is no such file, it is not text, or its header cannot be.
    """
    if not is_file(path):
        raise InputError(f"{path}: no such file. Give a CSV file with a header; `--columns` lists its columns.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file. Tables are CSV in UTF-8.") from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise InputError(f"{path}: empty. The first line names the columns; `--columns` lists them.")
    separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    problems: list[Problem] = []
    copies = 0
    try:
        for raw in reader:
            cells = tuple(cell.strip() for cell in raw)
            if not any(cells):
                continue
            if not header:
                header = _header(path, cells)
            elif cells == header:
                copies += 1
            elif len(cells) != len(header):
                reason = f"{len(cells)} cells under {len(header)} columns. Check for a missing or extra {separator!r}."
                problems.append(Problem(reader.line_num, reason))
            else:
                rows.append(tuple(_decimal_point(cell) for cell in cells) if separator == ";" else cells)
                lines.append(reader.line_num)
            if len(rows) > MOST_ROWS:
                raise InputError(
                    f"{path}, line {reader.line_num}: more than {MOST_ROWS:,} rows. Write several files, or one row "
                    "for each setting."
                )
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a CSV file: {error}.") from None
    notes = (f"{copies} copies of the header further down are passed over.",) if copies else ()
    return CsvTable(str(path), header, tuple(rows), tuple(lines), tuple(problems), notes)


def _header(path: Path, cells: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name in cells if name and cells.count(name) > 1), None)
    if twice:
        raise InputError(f'{path}, line 1: column "{twice}" stands there twice. Keep one.')
    return cells


def _decimal_point(cell: str) -> str:
    whole, comma, digits = cell.partition(",")
    return f"{whole}.{digits}" if comma and whole.lstrip("+-").isdigit() and digits[:1].isdigit() else cell


def refuse_problems(name: str, problems: Sequence[Problem], rows: int) -> None:
    """Refuse a table with rows that cannot be read, and name all of them.

    **Raises:** `InputError`: one line for one row, else a line for each reason.
    """
    if not problems:
        return
    ordered = sorted(problems)
    if len(ordered) == 1:
        raise InputError(f"{name}, line {ordered[0].line}: {ordered[0].reason}")
    first = f"{name}: {len(ordered)} of {rows} rows cannot be read. Correct them, or leave them out: --skip-bad-rows."
    raise InputError(first, *listed_problems(ordered))


def listed_problems(problems: Sequence[Problem]) -> list[str]:
    """A line for each reason, with the lines of the file that it holds for; at most 20, and the count of others."""
    by_reason: dict[str, list[int]] = {}
    for one in problems:
        by_reason.setdefault(one.reason, []).append(one.line)
    listed = []
    for reason, lines in list(by_reason.items())[:SHOWN_PROBLEMS]:
        shown = ", ".join(str(line) for line in lines[:SHOWN_LINES])
        more = f" and {len(lines) - SHOWN_LINES:,} more" if len(lines) > SHOWN_LINES else ""
        listed.append(f"line{'s' * (len(lines) > 1)} {shown}{more}: {reason}")
    hidden = sum(len(lines) for lines in list(by_reason.values())[SHOWN_PROBLEMS:])
    return [*listed, f"and {hidden:,} more rows"] if hidden else listed
