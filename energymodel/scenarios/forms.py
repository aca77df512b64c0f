"""Forms of what a person writes: text, finite numbers, lists and tables, each refused with one line.

A form takes a value and its path, and gives the value back typed or raises `InputError`. Forms of tables are made of
forms of their values, so that a schema is one expression and nothing behind it meets a value of another type.
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

DEEPEST = 32  # levels of tables and lists within each other; a scenario has 8
LONGEST_WORD = 200  # characters of a name, a unit, a path
LONGEST_TEXT = 10_000
LONGEST_QUOTE = 60
_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that change the direction of what follows them on a terminal."""


def quoted(value: Any) -> str:
    """A value on one line and short enough for a message."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a whole number of more digits than Python writes
        text = f"a number of more than {sys.get_int_max_str_digits()} digits"
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Text, finite numbers, lists and tables with text as keys, from a file or from a program; NumPy's become Python's.

    **Raises:** `InputError` for whatever else there is, such as dates, and for what is nested too deeply.
    """
    if depth > DEEPEST:
        raise InputError(
            f"{where[:LONGEST_WORD]}: tables and lists within each other, more than {DEEPEST} levels deep."
        )
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__jax_array__"):
        value = np.asarray(value).tolist()
    if isinstance(value, str | PurePath):
        return text(str(value), where)
    if isinstance(value, list | tuple):
        return [plain(part, where, depth + 1) for part in value]
    if not isinstance(value, Mapping):
        return number(value, where)
    for key in value:
        if not isinstance(key, str):
            raise InputError(f"{where}: the key {quoted(key)} is not a text. Give names as keys.")
        word(key, f"a key of {where}" if where else "a key")
    return {key: plain(part, f"{where}.{key}" if where else key, depth + 1) for key, part in value.items()}


def text(value: Any, where: str) -> str:
    """A text without control characters, of bounded length."""
    if not isinstance(value, str):
        raise InputError(f"{where}: {quoted(value)} is not a text. Write it in quotes.")
    if len(value) > LONGEST_TEXT:
        raise InputError(f"{where}: a text of {len(value)} characters. Give at most {LONGEST_TEXT}.")
    for character in "" if value.isprintable() else value:
        if (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\r\t") or character in _MARKS:
            quote = ascii(value)[:LONGEST_QUOTE]
            raise InputError(f"{where}: {quote} holds the control character {character!a}. Remove it.")
    return value


def word(value: Any, where: str) -> str:
    """A text of at most `LONGEST_WORD` characters: a name, a unit, a path."""
    if len(text(value, where)) > LONGEST_WORD:
        raise InputError(f"{where}: {quoted(value)} has {len(value)} characters. Give at most {LONGEST_WORD}.")
    return value


def number(value: Any, where: str) -> int | float:
    """A finite number; whole ones that no float can hold are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {quoted(value)} is neither a number nor a text with a unit.")
    try:
        finite = math.isfinite(float(value))
    except OverflowError:
        raise InputError(f"{where}: more digits than are read. Give at most 1.8e308.") from None
    if not finite:
        raise InputError(f"{where}: {value} is not a finite number.")
    return value


def listed(form: Callable[[Any, str], Typed]) -> Callable[[Any, str], list[Typed]]:
    """A list of values of one form."""

    def parse(values: Any, where: str) -> list[Typed]:
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise InputError(f"{where}: {quoted(values)} is not a list. Write it in brackets.")
        return [form(value, f"{where}[{index}]") for index, value in enumerate(values)]

    return parse


def table(value: Any, where: str) -> Mapping[str, Any]:
    """A table of anything."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: a table is needed, not {quoted(value)}.")
    return value


def record(fields: Mapping[str, Form]) -> Form:
    """A table of known keys, each of its own form."""

    def parse(tables: Any, where: str) -> dict[str, Any]:
        for key in table(tables, where):
            if key not in fields:
                raise InputError(f'{where}: unknown key "{key}". {suggest(key, fields)}')
        return {key: fields[key](value, f"{where}.{key}") for key, value in tables.items()}

    return parse


def flat(tables: Any, where: str) -> dict[str, Any]:
    """A table by dotted key, whose dotted keys may be nested tables."""
    values: dict[str, Any] = {}
    for key, value in table(tables, where).items():
        nested = isinstance(value, Mapping)
        values |= {f"{key}.{part}": below for part, below in flat(value, where).items()} if nested else {key: value}
    return values
