"""How is the text of an axis read, such as "8..64 Mi token log 20", and what is said of one that is nearly right?

What is wrong is named, and the right form is shown with the numbers that were given.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.sweeps.axes import EXAMPLE, MOST_VALUES, Axis
from energymodel.units import parse_quantity, whole_number

SCALES = ("linear", "log")
_USUAL_COUNT = "20"
_LEADING = re.compile(r"\s*[+-]?[\d.,_]+(?:[eE][+-]?\d+)?(?P<rest>.*)")
_OTHER_SIGN = re.compile(r"\bto\b|[–—]|(?<=\d)-(?=[\d.])")
_JOINED = re.compile(r"[,;:](?=\s|$)|[;:]")


@dataclasses.dataclass(frozen=True)
class _Range:
    """A range as it is written: the sign between its ends, the ends, the word of its scale, the number of values."""

    name: str
    unit: str
    sign: str
    low: str
    high: str
    scale: str = ""
    count: str = ""

    def wrong(self, what: str, **parts: str) -> InputError:
        """An error that says what is wrong, and shows the range, some of its parts replaced, in the right form."""
        right = dataclasses.replace(self, **parts)
        high = right.high
        if right.unit != "1" and not _unit_of(high):
            high = f"{high} {_unit_of(right.low) or right.unit}"
        count = right.count if _is_count(right.count) else _USUAL_COUNT
        scale = right.scale if right.scale in SCALES else ""
        if right.sign == ":":
            form = ":".join((right.low, high, count, *([scale] if scale == "log" else [])))
        else:
            form = " ".join(filter(None, (f"{right.low}..{high}", scale, count)))
        return InputError(f'axis {self.name}: {what} Write for example "{form}".')


def parse_axis(name: str, text: Any, unit: str = "1", *, allow_negative: bool = False) -> Axis:
    """An axis from text: `LOW..HIGH UNIT [linear|log] COUNT`, `LOW:HIGH:COUNT[:log]`, or values with commas.

    The low end may leave its unit to the high end, listed values to the last one. Numbers and arrays are taken in SI.

    **Raises:** `InputError`.
    """
    if isinstance(text, Axis):
        return dataclasses.replace(text, name=name)
    if not isinstance(text, str):
        try:
            return Axis.of(name, np.ravel(np.asarray(text, np.float64)), unit)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"axis {name}: {text!r} are not numbers in {unit}. {EXAMPLE}") from None
    if ".." in text or ":" in text:
        given = _with_dots(name, text.strip(), unit) if ".." in text else _with_colons(name, text.strip(), unit)
        return _stepped(given, allow_negative)
    if _OTHER_SIGN.search(text):
        raise InputError(f'axis {name}: "{text.strip()}" has no ".." between the ends of its range. {EXAMPLE}')
    return Axis.of(name, _quantities(name, text.split(","), unit, allow_negative), unit)


def _with_dots(name: str, text: str, unit: str) -> _Range:
    """The parts of `LOW..HIGH UNIT [linear|log] COUNT`."""
    low, _, rest = text.partition("..")
    low, rest = low.strip(), rest.strip(".").strip()
    apart = " ".join(_JOINED.sub(" ", rest).split())
    if apart != " ".join(rest.split()):
        raise InputError(f'axis {name}: spaces separate the parts of "{text}". Write for example "{low}..{apart}".')
    words = apart.split()
    if not low or not words:
        raise InputError(f'axis {name}: "{text}" has no {"high" if low else "low"} end. {EXAMPLE}')
    given = _Range(name, unit, "..", low, " ".join(words))
    last = words[-1]
    if last.lower() in SCALES:
        scale = last.lower()
        if len(words) > 2 and _is_count(words[-2]):
            what = f'the number of values, {words[-2]}, comes last, after "{scale}".'
            raise given.wrong(what, high=" ".join(words[:-2]), scale=scale, count=words[-2])
        raise given.wrong("the number of values is missing.", high=" ".join(words[:-1]), scale=scale)
    if len(words) == 1 or (not _is_count(last) and _is_quantity(given.high, unit)):
        raise given.wrong("the number of values is missing.")
    given = dataclasses.replace(given, high=" ".join(words[:-1]), count=last)
    *shorter, last = words[:-1]
    if not shorter:
        return given
    if last in SCALES:
        return dataclasses.replace(given, high=" ".join(shorter), scale=last)
    near = suggest(last.lower(), SCALES)
    if not _is_quantity(given.high, unit) and (near.startswith("Did") or _is_quantity(" ".join(shorter), unit)):
        raise given.wrong(f'unknown scale "{last}". {near}', high=" ".join(shorter), scale=_named(near))
    return given


def _with_colons(name: str, text: str, unit: str) -> _Range:
    """The parts of `LOW:HIGH:COUNT[:log]`."""
    low, *rest = (part.strip() for part in text.split(":"))
    high, count, scale, *more = (*rest, "", "", "")[: max(3, len(rest))]
    if not low or not high or more:
        raise InputError(f'axis {name}: "{text}" is not LOW:HIGH:COUNT or LOW:HIGH:COUNT:log. {EXAMPLE}')
    given = _Range(name, unit, ":", low, high, scale, count)
    if count in SCALES and _is_count(scale):
        what = f'the number of values, {scale}, comes before "{count}".'
        raise given.wrong(what, count=scale, scale=count)
    if not count or count in SCALES:
        raise given.wrong("the number of values is missing.", scale=count or scale)
    if scale and scale not in SCALES:
        near = suggest(scale.lower(), SCALES)
        raise given.wrong(f'unknown scale "{scale}". {near}', scale=_named(near))
    return given


def _stepped(given: _Range, allow_negative: bool) -> Axis:
    """The axis of a range whose parts are known."""
    if not _is_count(given.count):
        raise given.wrong(f'"{given.count}" is not a number of values.')
    count = whole_number(given.count) or 0
    if not 1 <= count <= MOST_VALUES:
        raise given.wrong(f"{given.count} values: give 1 to {MOST_VALUES:,}.", count="")
    if given.unit != "1" and _LEADING.fullmatch(given.high) and not _unit_of(given.high):
        raise given.wrong(f'"{given.high}" has no unit.')
    low, high = _quantities(given.name, [given.low, given.high], given.unit, allow_negative)
    if low > high:
        raise given.wrong(f"{given.low} is above {given.high}. Give the low end first.", **_reversed(given))
    return (Axis.log if given.scale == "log" else Axis.linear)(given.name, low, high, count, given.unit)


def _reversed(given: _Range) -> dict[str, str]:
    """Both ends in their order: the low one has the unit that it took from the other."""
    low, unit = given.low, _unit_of(given.high)
    return {"low": given.high, "high": low if _unit_of(low) or not unit else f"{low} {unit}"}


def _quantities(name: str, parts: Sequence[str], unit: str, allow_negative: bool) -> list[float]:
    parts = [part.strip() for part in parts]
    if not all(parts):
        raise InputError(f"axis {name}: a value is missing. {EXAMPLE}")
    suffix = _unit_of(parts[-1]) if unit != "1" else ""
    written = [f"{part} {suffix}" if suffix and _LEADING.match(part) and not _unit_of(part) else part for part in parts]
    return [parse_quantity(part, unit, f"axis {name}", allow_negative=allow_negative) for part in written]


def _unit_of(text: str) -> str:
    match = _LEADING.match(text)
    return match["rest"].strip() if match else ""


def _named(suggestion: str) -> str:
    """The scale that a suggestion names; none where it lists them."""
    found = [scale for scale in SCALES if scale in suggestion]
    return found[0] if len(found) == 1 else ""


def _is_count(text: str) -> bool:
    return whole_number(text) is not None


def _is_quantity(text: str, unit: str) -> bool:
    if unit != "1" and not _unit_of(text):
        return False
    try:
        parse_quantity(text, unit, "axis", allow_negative=True)
    except InputError:
        return False
    return True
