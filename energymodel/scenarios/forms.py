"""Which forms may what a person writes have? Each form takes what was given and its path, and gives it back typed.

A form is a function that refuses what it does not know with one `InputError`. Forms of tables are made of forms of
their values, so that a schema is one expression and nothing behind it meets a value of another type.
"""

import math
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np

from energymodel.errors import InputError, suggest

Form = Callable[[Any, str], Any]
Typed = TypeVar("Typed")

DEEPEST = 32
"""Levels of tables and lists within each other; a scenario has 8."""
LONGEST_WORD = 200
"""Characters of a name, a unit, a path."""
LONGEST_TEXT = 10_000
SHOWN = 60
_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that change the direction of what follows them on a terminal."""


def shown(given: Any) -> str:
    """What was given, on one line and short enough for a message."""
    try:
        text = " ".join(repr(given).split())
    except ValueError:  # a whole number of more digits than Python writes
        text = f"a number of more than {sys.get_int_max_str_digits()} digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def plain(given: Any, where: str, depth: int = 0) -> Any:
    """Text, finite numbers, lists and tables with text as keys, from a file or from a program; NumPy's become Python's.

    **Raises:** `InputError` for whatever else there is, such as dates, and for what is nested too deeply.
    """
    if depth > DEEPEST:
        raise InputError(
            f"{where[:LONGEST_WORD]}: tables and lists within each other, more than {DEEPEST} levels deep."
        )
    if isinstance(given, np.ndarray | np.generic) or hasattr(given, "__jax_array__"):
        given = np.asarray(given).tolist()
    if isinstance(given, PurePath):
        given = str(given)
    if isinstance(given, str):
        return text(given, where)
    if isinstance(given, Mapping):
        return {
            _key(key, where): plain(value, f"{where}.{key}" if where else str(key), depth + 1)
            for key, value in given.items()
        }
    if isinstance(given, list | tuple):
        return [plain(value, where, depth + 1) for value in given]
    return number(given, where)


def _key(given: Any, where: str) -> str:
    if not isinstance(given, str):
        raise InputError(f"{where}: the key {shown(given)} is not a text. Give names as keys.")
    return word(given, f"a key of {where}" if where else "a key")


def text(given: Any, where: str) -> str:
    """A text without control characters, of bounded length."""
    if not isinstance(given, str):
        raise InputError(f"{where}: {shown(given)} is not a text. Write it in quotes.")
    if len(given) > LONGEST_TEXT:
        raise InputError(f"{where}: a text of {len(given)} characters. Give at most {LONGEST_TEXT}.")
    if not given.isprintable():
        for character in given:
            if (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\r\t") or character in _MARKS:
                raise InputError(
                    f"{where}: {ascii(given)[:SHOWN]} holds the control character {character!a}. Remove it."
                )
    return given


def word(given: Any, where: str) -> str:
    """A text of at most `LONGEST_WORD` characters: a name, a unit, a path."""
    if len(given := text(given, where)) > LONGEST_WORD:
        raise InputError(f"{where}: {shown(given)} has {len(given)} characters. Give at most {LONGEST_WORD}.")
    return given


def number(given: Any, where: str) -> int | float:
    """A finite number; whole ones that no float can hold are refused."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"{where}: {shown(given)} is neither a number nor a text with a unit.")
    try:
        finite = math.isfinite(float(given))
    except OverflowError:
        raise InputError(f"{where}: more digits than are read. Give at most 1.8e308.") from None
    if not finite:
        raise InputError(f"{where}: {given} is not a finite number.")
    return given


def positive(given: Any, where: str) -> float:
    """A number above zero."""
    if (value := float(number(given, where))) <= 0.0:
        raise InputError(f"{where}: {value:g} is not above zero.")
    return value


def at_least_zero(given: Any, where: str) -> float:
    """A number that is not negative."""
    if (value := float(number(given, where))) < 0.0:
        raise InputError(f"{where}: {value:g} is negative. Give a number of at least 0.")
    return value


def listed(form: Callable[[Any, str], Typed]) -> Callable[[Any, str], list[Typed]]:
    """A list of values of one form."""

    def parse(given: Any, where: str) -> list[Typed]:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InputError(f"{where}: {shown(given)} is not a list. Write it in brackets.")
        return [form(one, f"{where}[{place}]") for place, one in enumerate(given)]

    return parse


def table(given: Any, where: str) -> Mapping[str, Any]:
    """A table of anything."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: a table is needed, not {shown(given)}.")
    return given


def record(fields: Mapping[str, Form], needed: Sequence[str] = ()) -> Form:
    """A table of known keys, each of its own form."""

    def parse(given: Any, where: str) -> dict[str, Any]:
        for key in table(given, where):
            if key not in fields:
                raise InputError(f'{where}: unknown key "{key}". {suggest(key, fields)}')
        for key in needed:
            if key not in given:
                raise InputError(f"{where}: {key} is missing. Give it.")
        return {key: fields[key](value, f"{where}.{key}") for key, value in given.items()}

    return parse


def flat(given: Any, where: str) -> dict[str, Any]:
    """A table by dotted key, whose dotted keys may be nested tables."""
    found: dict[str, Any] = {}
    for key, value in table(given, where).items():
        found |= (
            {f"{key}.{below}": one for below, one in flat(value, where).items()}
            if isinstance(value, Mapping)
            else {key: value}
        )
    return found
