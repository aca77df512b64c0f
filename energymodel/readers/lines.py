"""How are the lines of a log of any length read one by one, whatever bytes it holds?"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from energymodel.errors import InputError

LONGEST = 2**20
"""Characters of a line; a longer one is skipped and counted."""

Skipped = Counter[str]
"""How many lines or rows were passed over, by reason."""

TOO_LONG = "line longer than 1 MiB"
UNREAD = "line that holds no reading"
NO_VALUE = "reading without a usable number"


def file_lines(path: Path, skipped: Skipped) -> Iterator[str]:
    """Lines of a text file as they are asked for, in UTF-8, or in UTF-16 where its first bytes say so.

    Bytes that are no text become replacement characters.

    **Raises:** `InputError` if the file cannot be read.
    """
    try:
        with path.open("rb") as raw:
            start = raw.read(2)
        # PowerShell writes UTF-16 where its output goes to a file.
        encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        with path.open(encoding=encoding, errors="replace") as file:
            long = False
            while line := file.readline(LONGEST):
                ends = line.endswith("\n")
                if long or (not ends and len(line) >= LONGEST):
                    skipped[TOO_LONG] += not long
                    long = not ends
                    continue
                yield line.rstrip("\n")
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f'Cannot read "{path}": {reason}.') from error


def clean(lines: Iterable[str], skipped: Skipped) -> Iterator[str]:
    """Lines without what surrounds them; empty ones, and those that are no text or too long, are left out."""
    for line in lines:
        if len(line) > LONGEST:
            skipped[TOO_LONG] += 1
        elif "\0" in line:
            skipped[UNREAD] += 1
        elif text := line.strip().removeprefix("\ufeff"):
            yield text


def cells(line: str, separator: str = ",") -> list[str]:
    """Cells of a line of a table, without quotes and the spaces around them."""
    if '"' in line:
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
        except csv.Error:
            pass
    return [cell.strip() for cell in line.split(separator)]
