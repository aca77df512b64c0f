"""Numbers, times and fields of one line of a log.

Nothing here raises on what a line may hold: what cannot be read is NaN or None.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from energymodel.readers.log_records import NOT_SAID, LoggedStep

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
NUMBER = (
    r"(?:[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b)"
)
"""A number as logs print it: with thousands separators, an exponent, or no number at all."""
_NUMBER = re.compile(rf"\s*({NUMBER})", re.IGNORECASE)
_ISO = re.compile(
    r"(?<!\d)(\d{4})[-/]?(\d\d)[-/]?(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:(Z)|([+-])(\d\d):?(\d\d)(?!\d))?"
)
_MONTH_FIRST = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
MOST_DIGITS = 15
"""Digits of a step number; longer ones are damaged."""
DECLARED: Mapping[str, Any] = tomllib.loads((Path(__file__).parent / "lines.toml").read_text("utf-8"))
"""Patterns and fields of kinds of logs."""
POSITIVE = frozenset(
    ("step_time", "tokens", "tokens_so_far", "sequences", "token_rate", "flops_rate", "energy", "power", "memory")
)
"""Quantities that are above zero and finite, or else not said."""


def plain(line: str) -> str:
    """A line without colors."""
    return ANSI.sub("", line) if "\x1b" in line else line


def number(text: str) -> float:
    """The number that a text begins with, in whatever unit follows; NaN without one."""
    match = _NUMBER.match(text)
    return float(match[1].replace(",", "")) if match else NOT_SAID


def whole(text: str) -> int | None:
    """A count of at most `MOST_DIGITS` digits, with or without thousands separators."""
    digits = text.replace(",", "").strip()
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS else None


def stamp(text: str) -> float:
    """The last time that a text states [s since 1970].

    A time without zone is taken as UTC; one without year is none.
    """
    last = next(reversed(list(_ISO.finditer(text[-1000:]))), None)
    try:
        if last is not None:
            year, month, day, hour, minute, second = (int(part) for part in last.groups()[:6])
            zone = UTC
            if last[9]:
                shift = timedelta(hours=int(last[10]), minutes=int(last[11]))
                zone = timezone(shift if last[9] == "+" else -shift)
            moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
            return moment.timestamp() + (float(f"0.{last[7]}") if last[7] else 0.0)
        first = _MONTH_FIRST.search(text)
        if first is not None:
            month, day, year, hour, minute, second = (int(part) for part in first.groups())
            return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return NOT_SAID
    return NOT_SAID


def bar_fields(text: str) -> dict[str, str]:
    """Names in lower case and values of `name: value | name: value`; the first of two equal names counts."""
    fields: dict[str, str] = {}
    for part in text.split("|", 200)[:200]:
        name, colon, value = part.partition(":")
        if colon and len(name) < 100:
            fields.setdefault(" ".join(name.lower().split()), value.strip())
    return fields


def step_fields(
    kind: str, pairs: Iterable[tuple[str, str]], value: Callable[[str], float] = number
) -> dict[str, float]:
    """Fields of a record that named texts of a line say, in SI; the first of two that say the same counts."""
    values: dict[str, float] = {}
    for name, text in pairs:
        field, factor = DECLARED[kind]["fields"].get(" ".join(name.lower().split()), ("", 1.0))
        if field:
            values.setdefault(field, value(text) * factor)
    for field in [field for field in values if field.startswith("or ")]:
        values.setdefault(field.removeprefix("or "), values.pop(field))
    return values


def figure(value: object) -> float:
    """The number that a value of JSON is; NaN for everything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else NOT_SAID


def made(step: int, time: float, fields: Mapping[str, float]) -> LoggedStep | None:
    """A step of what a line says, without what cannot be; None if nothing is left."""
    possible = {
        name: value
        for name, value in fields.items()
        if not math.isnan(value) and (name not in POSITIVE or 0.0 < value < math.inf)
    }
    return LoggedStep(step, time, **possible) if possible or (fields and not math.isnan(time)) else None
