"""How are numbers and times written in the lines of training logs?"""

import re
from collections.abc import Mapping

from energymodel.readers.cells import number, time_of
from energymodel.readers.log_records import NOT_SAID, LoggedStep

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]")
STAMP = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
AMERICAN = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d(?:[.,]\d+)?)", re.ASCII)
SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
NUMBER = r"[-+]?(?:(?:\d[\d,]*)?\.?\d+(?:[eE][-+]?\d+)?|\d[\d,]*\.?|nan|inf(?:inity)?)"
AMOUNT = re.compile(rf"({NUMBER})\s*([kKmMgGbBtT]?)(?![A-Za-z])", re.ASCII | re.IGNORECASE)
LONGEST = 16_384
"""Characters of a line that are looked at."""


def plain(line: str) -> str:
    """A line without the colours of a terminal, and with blanks in the place of progress bars' carriage returns."""
    line = line[:LONGEST]
    return ANSI.sub("", line) if "\x1b" in line else line


def stamp(line: str) -> float:
    """When a line was written, if it begins with a date or holds one in its first part [s since 1970]."""
    head = line[:160]
    if found := STAMP.search(head):
        return time_of(found[0].replace(",", "."))
    if found := AMERICAN.search(head):
        month, day, year, clock = found.groups()
        return time_of(f"{year}-{month}-{day} {clock.replace(',', '.')}")
    return NOT_SAID


def value(text: str) -> float:
    """A number that may have thousands separators; not finite ones, and what is no number, are not said."""
    return number(text.strip().replace(",", "").rstrip("%")) if len(text) <= 64 else NOT_SAID


def amount(text: str) -> float:
    """A number that may be shortened, as 1.2K, 3.4M or 2B."""
    found = AMOUNT.match(text.strip()) if len(text) <= 128 else None
    return NOT_SAID if found is None else value(found[1]) * SUFFIXES[found[2].lower()]


def count(text: str) -> int | None:
    """A number of steps; nothing where a text holds none that a run can have."""
    digits = text.strip().replace(",", "")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
        return None
    return int(digits)


def positive(found: float) -> float:
    """A number above zero."""
    return found if found > 0.0 else NOT_SAID


def step_of(number_of_step: int, said: Mapping[str, float]) -> LoggedStep:
    """A step with what a line says of it; durations, rates, powers and sizes are positive or not said."""
    signed = ("time", "loss", "learning_rate", "grad_norm")
    return LoggedStep(number_of_step, **{key: one if key in signed else positive(one) for key, one in said.items()})
