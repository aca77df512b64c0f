"""Lines of logs of any length, one at a time, whatever bytes they hold, and their cells."""

import codecs
import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from energymodel.errors import InputError

LONGEST = 2**20  # characters of a line; a longer one is left out and counted
Skipped = Counter[str]  # how many lines or rows were passed over, by reason
UNREAD = "line that holds no reading"
NO_VALUE = "reading without a usable number"
SEPARATORS = ",;\t"


def too_long(longest: int = LONGEST) -> str:
    """The reason for which a line is left out."""
    return f"lines of more than {longest} characters"


class Lines(Iterator[str]):
    """The lines of a file, without their ends; a carriage return alone ends one too, as progress bars print it.

    NUL, which a crash leaves behind, is dropped; bytes that are no text become U+FFFD.
    """

    def __init__(self, path: Path, longest: int = LONGEST, left_out: Skipped | None = None) -> None:
        self.left_out = Skipped() if left_out is None else left_out
        self.unfinished = False  # true once the last line has been given and nothing ended it: it may be half written
        self._lines = self._read(path, longest)

    def __next__(self) -> str:
        return next(self._lines)

    def _read(self, path: Path, longest: int) -> Iterator[str]:
        try:
            with path.open("rb") as start:  # a shell of Windows writes UTF-16
                marked = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            with path.open(encoding="utf-16" if marked else "utf-8-sig", errors="replace") as file:
                line, is_long = "", False
                for part in iter(lambda: file.readline(longest), ""):
                    line += part.rstrip("\n").replace("\0", "")
                    self.unfinished = not part.endswith("\n")
                    is_long = is_long or len(line) > longest
                    line = "" if is_long else line
                    if not self.unfinished:
                        yield from self._ended(line, is_long, longest)
                        line, is_long = "", False
                if line or is_long:
                    yield from self._ended(line, is_long, longest)
        except (OSError, ValueError) as error:  # a null byte in the name
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise InputError(f'Cannot read "{path}": {reason}.') from error

    def _ended(self, line: str, is_long: bool, longest: int) -> Iterator[str]:
        if is_long:
            self.left_out[too_long(longest)] += 1
        else:
            yield line


def clean(lines: Iterable[str], skipped: Skipped) -> Iterator[str]:
    """Lines without what surrounds them; empty ones, and those that are no text or too long, are left out."""
    for line in lines:
        if len(line) > LONGEST:
            skipped[too_long()] += 1
        elif "\0" in line:
            skipped[UNREAD] += 1
        elif text := line.strip().removeprefix("\ufeff"):
            yield text


def separator_of(line: str) -> str:
    """What separates the cells of a line: the most frequent of comma, semicolon and tab."""
    return max(SEPARATORS, key=line.count)


def decimal_point(cell: str) -> str:
    """A cell with a point for a decimal comma."""
    integer, comma, digits = cell.partition(",")
    return f"{integer}.{digits}" if comma and integer.lstrip("+-").isdigit() and digits[:1].isdigit() else cell


def cells(line: str, separator: str = ",") -> list[str]:
    """Cells of a line of a table, without quotes and the spaces around them."""
    if '"' in line:
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
        except csv.Error:
            pass
    return [cell.strip() for cell in line.split(separator)]
