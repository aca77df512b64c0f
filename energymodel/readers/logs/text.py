"""Numbers and fields of one line of a log.

Nothing here raises on what a line may hold: what cannot be read is NaN or None.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from energymodel.readers.log_records import NOT_SAID, LoggedStep

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
NUMBER = (
    r"(?:[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b)"
)
"""A number as logs print it: with thousands separators, an exponent, or no number at all."""
_NUMBER = re.compile(rf"\s*({NUMBER})", re.IGNORECASE)
MOST_DIGITS = 15  # digits of a step number; longer ones are damaged
DECLARED: Mapping[str, Any] = tomllib.loads((Path(__file__).parent / "lines.toml").read_text("utf-8"))
"""Patterns and fields of kinds of logs."""
POSITIVE = frozenset(
    ("step_time", "tokens", "tokens_so_far", "sequences", "token_rate", "flops_rate", "energy", "power", "memory")
)
"""Quantities that are above zero and finite, or else not said."""


def pattern(text: str) -> re.Pattern[str]:
    """A pattern of `lines.toml`, in which <number> stands for a number as logs print it."""
    return re.compile(text.replace("<number>", NUMBER))


def plain(line: str) -> str:
    """A line without colors."""
    return ANSI.sub("", line) if "\x1b" in line else line


def number(text: str) -> float:
    """The number that a text begins with, in whatever unit follows; NaN without one."""
    match = _NUMBER.match(text)
    return float(match[1].replace(",", "")) if match else NOT_SAID


def figure(value: object) -> float:
    """The number that a value of JSON is; NaN for everything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else NOT_SAID


def whole(text: str) -> int | None:
    """A count of at most `MOST_DIGITS` digits, with or without thousands separators."""
    digits = text.replace(",", "").strip()
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS else None


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


def made(step: int | None, time: float, fields: Mapping[str, float]) -> LoggedStep | None:
    """A step of what a line says, without what cannot be; None without a number, or if nothing is left."""
    possible = {
        name: value
        for name, value in fields.items()
        if not math.isnan(value) and (name not in POSITIVE or 0.0 < value < math.inf)
    }
    if step is None or not (possible or (fields and not math.isnan(time))):
        return None
    return LoggedStep(step, time, **possible)
