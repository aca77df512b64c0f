"""Lines of logs of any length, whatever bytes they hold, and numbers and times of their cells, NaN for none."""

import codecs
import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError
from energymodel.readers.columns import unit_factor
from energymodel.readers.log_records import NOT_SAID, PowerReading

LONGEST = 2**20  # characters of a line; a longer one is left out and counted
Skipped = Counter[str]  # how many lines or rows were passed over, by reason
UNREAD = "line that holds no reading"
NO_VALUE = "reading without a usable number"
SEPARATORS = ",;\t"
MOST_POWER = 1e5  # power that no device draws [W]
MOST_SITE_POWER = 1e10  # power that no site draws [W]
MEASURE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)", re.ASCII)
STAMP = re.compile(
    r"(?<!\d)\d{4}[-/]?\d\d[-/]?\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d(?!\d))?", re.ASCII
)
MONTH_FIRST = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d)", re.ASCII)
OF_DATE = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?: ([AP]M))?(?: [A-Z]{2,5})? (\d{4})", re.ASCII
)
EPOCH = re.compile(r"(?<![\d.])1\d{9}(?:\.\d+|\d{3})?(?!\d)", re.ASCII)
POWER_OR_HEAT = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Bits of NVML's reasons for a lowered clock: power cap, hardware slowdown, heat (software, hardware), power brake."""


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


def number(text: str) -> float:
    """A finite number; NaN for anything else."""
    try:
        value = float(text)
    except ValueError:
        return NOT_SAID
    return value if math.isfinite(value) else NOT_SAID


def measure(text: str, factor: float = 1.0) -> float:
    """A number with or without a unit, in SI; `factor` is the unit of a number that has none."""
    value = number(text)
    if not math.isnan(value):
        return value * factor
    match = MEASURE.fullmatch(text.strip()) if len(text) <= 64 else None
    return number(match[1]) * (factor if match[2] in ("", "C") else unit_factor(match[2])) if match else NOT_SAID


def between(value: float, lowest: float, highest: float) -> float:
    """A number within its bounds, NaN outside them."""
    return value if lowest <= value <= highest else NOT_SAID


def time_of(text: str, factor: float = math.nan) -> float:
    """When [s]: of a number, by `factor` or by its size in s, ms, µs or ns, or of a date; without a zone UTC."""
    text = text.strip()
    value = number(text)
    if not math.isnan(value):
        size = abs(value)
        by_size = 1.0 if size < 1e11 else 1e-3 if size < 1e14 else 1e-6 if size < 1e17 else 1e-9
        return value * (by_size if math.isnan(factor) else factor)
    try:
        if match := OF_DATE.fullmatch(text):  # what the command `date` prints
            month, day, clock, half, year = match.groups("")
            pattern = "%b %d %Y %I:%M:%S %p" if half else "%b %d %Y %H:%M:%S"
            when = datetime.strptime(f"{month} {day} {year} {clock} {half}".strip(), pattern)
        elif 10 <= len(text) <= 64:
            when = datetime.fromisoformat(text.replace("/", "-").removesuffix(" UTC"))
        else:
            return NOT_SAID
        since = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return NOT_SAID
    return since if since >= 0 else NOT_SAID


def stamp(text: str) -> float:
    """The last date and time that a line states [s since 1970]; without a zone UTC, without a year none."""
    if dates := STAMP.findall(text[-1000:]):
        return time_of(dates[-1])
    match = MONTH_FIRST.search(text)
    return time_of(f"{match[3]}-{match[1]}-{match[2]} {match[4]}") if match else NOT_SAID


def time_within(text: str) -> float:
    """When, if a date or the seconds since 1970 stand somewhere in a text."""
    match = STAMP.search(text) or OF_DATE.search(text) or EPOCH.search(text)
    return time_of(match[0]) if match else NOT_SAID


def throttled_by_mask(text: str) -> float:
    """Whether a mask of NVML's reasons, in hexadecimal or decimal, names power or heat."""
    try:
        mask = int(text, 16) if text[:2].lower() == "0x" else int(number(text))
    except (ValueError, OverflowError):
        return NOT_SAID
    return float(bool(mask & POWER_OR_HEAT)) if 0 <= mask < 2**32 else NOT_SAID


def reading_of(device: str, time: float, most: float = MOST_POWER, **values: float) -> PowerReading:
    """A reading of a device; what cannot be is left out.

    **Arguments:**

    - `most`: power that it cannot exceed [W].
    - `values`: fields of the reading in SI, the temperature in °C; 0 °C, 0 Hz and a limit of 0 W are not reported.
    """
    ranges = {"power": (0.0, most), "energy": (0.0, 1e15), "clock": (1.0, 1e11), "utilization": (0.0, 1.0)}
    ranges |= {"power_limit": (1.0, most), "throttled": (0.0, 1.0)}
    fields: dict[str, Any] = {name: between(values.get(name, NOT_SAID), *bounds) for name, bounds in ranges.items()}
    celsius = values.get("temperature", NOT_SAID)
    kelvin = celsius + ZERO_CELSIUS if -100 < celsius < 300 and celsius != 0 else NOT_SAID
    return PowerReading(time=time, device=device, temperature=kelvin, **fields)
