"""What number or time does a cell of a log hold? What it does not hold is NaN."""

import math
import re
from datetime import UTC, datetime

from energymodel.readers.log_records import NOT_SAID

MOST_POWER = 1e5
"""Power that no device draws [W]."""
MOST_SITE_POWER = 1e10
"""Power that no site draws [W]."""
ZERO_CELSIUS = 273.15
UNITS = {
    "w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3, "j": 1.0, "kj": 1e3, "kwh": 3.6e6, "wh": 3600.0, "uj": 1e-6,
    "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "%": 0.01, "pct": 0.01, "percent": 0.01,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0,
    "joule": 1.0, "joules": 1.0, "uw": 1e-6,
}  # fmt: skip
"""Units in lower case, in SI; those that begin with m or M for milli or mega are told apart by `unit_factor`."""
MEASURE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)", re.ASCII)
STAMP = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
OF_DATE = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?: ([AP]M))?(?: [A-Z]{2,5})? (\d{4})", re.ASCII
)
POWER_OR_HEAT = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Bits of NVML's reasons for a lowered clock: power cap, hardware slowdown, heat (software, hardware), power brake."""


def unit_factor(unit: str) -> float:
    """SI value of a unit; NaN for an unknown one, or one that may be milli or mega."""
    if unit[:1] in ("m", "M") and unit[1:] in ("W", "J"):
        return 1e-3 if unit[0] == "m" else 1e6
    return UNITS.get(unit.lower(), math.nan)


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
    found = MEASURE.fullmatch(text.strip()) if len(text) <= 64 else None
    if found is None:
        return NOT_SAID
    unit = found[2]
    return number(found[1]) * (factor if unit in ("", "C") else unit_factor(unit))


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
    if (
        found := STAMP.search(text)
        or OF_DATE.search(text)
        or re.search(r"(?<![\d.])1\d{9}(?:\.\d+|\d{3})?(?!\d)", text)
    ):
        return time_of(found[0])
    return NOT_SAID


def _time_of_date(text: str) -> float:
    """The time that the command `date` prints."""
    found = OF_DATE.fullmatch(text)
    if found is None:
        return NOT_SAID
    month, day, clock, half, year = found.groups()
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
