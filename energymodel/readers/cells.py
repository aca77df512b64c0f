"""Numbers and times in cells of logs; what a cell does not hold is NaN."""

import math
import re
from datetime import UTC, datetime

from energymodel.constants import ZERO_CELSIUS
from energymodel.readers.columns import UNITS
from energymodel.readers.log_records import NOT_SAID

MOST_POWER = 1e5
"""Power that no device draws [W]."""
MOST_SITE_POWER = 1e10
"""Power that no site draws [W]."""
MEASURE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)", re.ASCII)
STAMP = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
OF_DATE = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?: ([AP]M))?(?: [A-Z]{2,5})? (\d{4})", re.ASCII
)
EPOCH = re.compile(r"(?<![\d.])1\d{9}(?:\.\d+|\d{3})?(?!\d)", re.ASCII)
POWER_OR_HEAT = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Bits of NVML's reasons for a lowered clock: power cap, hardware slowdown, heat (software, hardware), power brake."""


def unit_factor(unit: str) -> float:
    """SI value of a unit of power, energy, frequency, time or share; NaN for an unknown one."""
    values = (UNITS[kind].get(unit, UNITS[kind].get(unit.lower())) for kind in ("W", "J", "Hz", "s", "1"))
    return next((value for value in values if value is not None), math.nan)


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
    if match is None:
        return NOT_SAID
    unit = match[2]
    return number(match[1]) * (factor if unit in ("", "C") else unit_factor(unit))


def between(value: float, lowest: float, largest: float) -> float:
    """A number within its bounds, NaN outside them."""
    return value if lowest <= value <= largest else NOT_SAID


def kelvin(celsius: float) -> float:
    """A temperature that a chip can have; zero stands for one that is not reported."""
    return celsius + ZERO_CELSIUS if -100 < celsius < 300 and celsius != 0 else NOT_SAID


def time_of(text: str, factor: float = math.nan) -> float:
    """When [s]: of a number, by `factor` or by its size in s, ms, µs or ns, or of a date; without a zone UTC."""
    text = text.strip()
    value = number(text)
    if not math.isnan(value):
        if not math.isnan(factor):
            return value * factor
        size = abs(value)
        return value * (1.0 if size < 1e11 else 1e-3 if size < 1e14 else 1e-6 if size < 1e17 else 1e-9)
    if len(text) > 64 or len(text) < 10:
        return NOT_SAID
    try:
        when = datetime.fromisoformat(text.replace("/", "-").removesuffix(" UTC"))
    except ValueError:
        return _time_of_date(text)
    return _seconds(when)


def time_within(text: str) -> float:
    """When, if a date or the seconds since 1970 stand somewhere in a text."""
    match = STAMP.search(text) or OF_DATE.search(text) or EPOCH.search(text)
    return time_of(match[0]) if match else NOT_SAID


def _time_of_date(text: str) -> float:
    """The time that the command `date` prints."""
    match = OF_DATE.fullmatch(text)
    if match is None:
        return NOT_SAID
    month, day, clock, half, year = match.groups()
    pattern = "%b %d %Y %I:%M:%S %p" if half else "%b %d %Y %H:%M:%S"
    try:
        return _seconds(datetime.strptime(f"{month} {day} {year} {clock} {half or ''}".strip(), pattern))
    except ValueError:
        return NOT_SAID


def _seconds(when: datetime) -> float:
    try:
        since = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return NOT_SAID
    return since if since >= 0 else NOT_SAID


def throttled_by_mask(text: str) -> float:
    """Whether a mask of NVML's reasons, in hexadecimal or decimal, names power or heat."""
    try:
        mask = int(text, 16) if text[:2].lower() == "0x" else int(number(text))
    except (ValueError, OverflowError):
        return NOT_SAID
    return float(bool(mask & POWER_OR_HEAT)) if 0 <= mask < 2**32 else NOT_SAID
