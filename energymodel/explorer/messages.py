"""What a page may ask for: messages are JSON of a bounded size; all else is refused with one sentence."""

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from energymodel.errors import InputError
from energymodel.explorer.answer import FIGURES, OBJECTIVES
from energymodel.explorer.knobs import Knob
from energymodel.explorer.state import LAYOUT_FIELDS, Asked

LONGEST = 32_768
"""Bytes of a message, and of a form that is sent to be saved."""
MOST_PINS = 6
MINIMIZED = ("energy", "time", "money", "carbon", "etp")
"""What the page can optimize for."""
_KINDS = ("state", "settled", "pins", "optimize", "knob")
_WIDTHS = (240.0, 1200.0)
_LONGEST_NAME = 60


class RefusedPartError(InputError):
    """One part of a message cannot be; a page goes on without it.

    `path` names it: the path of a number, a field of the layout, or "pins." and the name of a pinned plan.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class Message(NamedTuple):
    """A request of the page.

    - `kind`: "state" draws a plan, "settled" adds intervals once the controls rest, "pins" replaces the pinned plans,
      "optimize" searches from a plan, "knob" asks for the control of another number.
    - `number`: comes back with the answer.
    - `pins`: plans by the name under which they were pinned.
    - `seen`: figures that are on the screen; others are drawn once the controls rest.
    """

    kind: str
    number: int
    asked: Asked
    width: float
    front: str
    minimize: str
    pins: Mapping[str, Asked]
    path: str
    seen: tuple[str, ...]


def read_message(text: str | bytes, knobs: Mapping[str, Knob]) -> Message:
    """A message of the page, if it is one.

    **Raises:** `InputError`, one sentence, for everything else; `RefusedPartError` where the rest of it is a message.
    """
    content = _table(_parsed(text), "message")
    kind, path = content.get("kind"), content.get("path", "")
    if kind not in _KINDS:
        raise InputError(f"kind: {_quoted(kind)} is not a request. Give one of {', '.join(_KINDS)}.")
    pins, seen = content.get("pins", []), content.get("seen", list(FIGURES))
    if not isinstance(pins, list) or len(pins) > MOST_PINS:
        raise InputError(f"pins: at most {MOST_PINS} plans can be compared. Remove one.")
    if not isinstance(seen, list) or len(seen) > len(FIGURES):
        raise InputError(f"seen: {_quoted(seen)} is no list of figures.")
    if kind == "knob":
        _known(path, knobs)
    return Message(
        kind=kind,
        number=_answered_under(content),
        asked=_asked(content, knobs),
        width=_number(content.get("width", 480.0), "width", *_WIDTHS),
        front=_word(content.get("front", "energy"), "front", OBJECTIVES),
        minimize=_word(content.get("minimize", "energy"), "minimize", MINIMIZED),
        pins=dict(_pin(_table(pin, "pins"), knobs) for pin in pins),
        path=path,
        seen=tuple(dict.fromkeys(_word(name, "seen", FIGURES) for name in seen)),
    )


def request_of(text: str | bytes) -> tuple[str, int]:
    """Kind and number under which a message is answered, also one that is refused; "" and 0 where it has none."""
    try:
        content = _table(_parsed(text), "message")
        kind = content.get("kind")
        return kind if kind in _KINDS else "", _answered_under(content)
    except InputError:
        return "", 0


def refused_pin(name: str, reason: object) -> RefusedPartError:
    """The refusal of a pinned plan."""
    return RefusedPartError(f"pins.{name}", f"Pinned plan {_quoted(name)}: {reason}")


def _asked(content: Mapping[str, Any], knobs: Mapping[str, Knob]) -> Asked:
    """Where the controls stand."""
    values = {}
    for path, value in _table(content.get("values", {}), "values").items():
        knob, number = _known(path, knobs), _number(value, path)
        if not knob.holds(number):
            low, high, words = map(knob.words, (knob.low, knob.high, number))
            raise RefusedPartError(path, f"{knob.label}: {words} is outside the range of the slider, {low} to {high}.")
        values[path] = knob.clipped(number)
    layout = {}
    for field, name in _table(content.get("layout", {}), "layout").items():
        if field not in LAYOUT_FIELDS:
            fields = ", ".join(LAYOUT_FIELDS)
            raise RefusedPartError(field, f"layout: {_quoted(field)} is not a field. Give one of {fields}.")
        if not isinstance(name, str) or not LAYOUT_FIELDS[field].has(name):
            raise RefusedPartError(field, f"layout.{field}: {_quoted(name)} is not a value of this field.")
        layout[field] = name
    moved = content.get("moved", "")
    is_control = isinstance(moved, str) and (moved in LAYOUT_FIELDS or moved in knobs)
    return Asked(values, layout, moved if is_control else "")


def _pin(content: Mapping[str, Any], knobs: Mapping[str, Knob]) -> tuple[str, Asked]:
    name = content.get("name", "")
    if not isinstance(name, str):
        raise InputError(f"pins.name: {_quoted(name)} is not a text.")
    if len(name) > _LONGEST_NAME:
        raise refused_pin(name, f"a name has at most {_LONGEST_NAME} characters.")
    try:
        return name, _asked(content, knobs)
    except RefusedPartError as error:
        raise refused_pin(name, error) from None


def _answered_under(content: Mapping[str, Any]) -> int:
    return int(_number(content.get("number", 0), "number", 0.0, 2.0**53))


def _known(path: Any, knobs: Mapping[str, Knob]) -> Knob:
    if isinstance(path, str) and path in knobs:
        return knobs[path]
    words = f"{_quoted(path)} is not a number of this scenario that has a slider."
    raise RefusedPartError(path, words) if isinstance(path, str) else InputError(words)


def _parsed(text: str | bytes) -> Any:
    if len(text) > LONGEST:
        raise InputError(f"The message is longer than {LONGEST:,} bytes. Move fewer numbers at once.")
    try:
        return json.loads(text, parse_constant=int)  # which refuses NaN and Infinity
    except (ValueError, RecursionError):
        raise InputError("The message is not JSON that this page sends. Reload the page.") from None


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{name}: {_quoted(value)} is not a table. Reload the page.")
    return value


def _number(value: Any, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if not (math.isfinite(number) and low <= number <= high):
        raise InputError(f"{name}: {_quoted(value)} is not a finite number that is possible here.")
    return number


def _word(value: Any, name: str, words: Collection[str]) -> str:
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{name}: {_quoted(value)} is unknown. Give one of {', '.join(words)}.")
    return value


def _quoted(value: Any) -> str:
    quoted = "".join(char if char.isprintable() else "?" for char in repr(value))
    return f"{quoted[:40]}…" if len(quoted) > 40 else quoted
