"""How is a file that comes from anywhere read without trusting it?

No reader runs what a file says: JSON, TOML and YAML give numbers, texts, lists and tables and nothing else. A file may
hold at most `LARGEST` bytes, and its tables and lists at most `MOST_VALUES` values: what the aliases of a YAML file
repeat is counted each time, before anything walks through it.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from energymodel.errors import InputError

LARGEST = 16 * 2**20
"""Bytes of a configuration file; the largest known one has 2 MB."""
SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, in C where PyYAML has it: ten times as fast."""
MOST_VALUES = 1_000_000
"""Values of a configuration file, repeated ones counted each time."""


def read_text(path: Path, largest: int = LARGEST) -> str:
    """The text of a file in UTF-8, with or without byte order mark.

    **Raises:** `InputError` if it is missing, no file, larger than `largest` bytes or no text.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(largest + 1)
    except OSError as error:
        raise InputError(f'Cannot read "{path}": {(error.strerror or str(error)).lower()}.') from error
    if len(raw) > largest:
        raise InputError(f'"{path}" holds more than {largest} bytes, the most that is read; is it the right file?')
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f'"{path}" is no text in UTF-8: byte {error.start} cannot be read. Is it the right file? '
            "If it is, save it as UTF-8."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The table of a JSON file; `Infinity` and `NaN`, which Python writes, are numbers."""
    return _table(path, "JSON", json.loads)


def read_yaml(path: Path) -> dict[str, Any]:
    """The table of a YAML file, by the safe loader: tags of Python objects are refused."""
    return _table(path, "YAML", lambda text: yaml.load(text, Loader=SAFE))


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file."""
    return _table(path, "TOML", tomllib.loads)


def _table(path: Path, format_name: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """What a parser makes of a file, if it is a table of bounded size."""
    text = read_text(path)
    if not text.strip():
        raise InputError(f'"{path}" is empty; is it the right file?')
    try:
        table = parse(text)
    except RecursionError as error:
        raise InputError(f'"{path}" nests its tables too deeply to be read.') from error
    except (ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        if "integer string conversion" in said:
            said = "a number has more digits than are read"
        raise InputError(f'"{path}" is no valid {format_name}: {said}.') from error
    if not isinstance(table, dict):
        raise InputError(f'"{path}" holds no table of keys but {type(table).__name__}; is it the right file?')
    _refuse_many(path, table)
    return table


def _refuse_many(path: Path, table: dict[str, Any]) -> None:
    """Count the values that a walk through a table would meet, and stop at the first one too many."""
    waiting: list[Any] = [table]
    met = 0
    while waiting:
        value = waiting.pop()
        met += 1
        if met > MOST_VALUES:
            raise InputError(f'"{path}" holds more than {MOST_VALUES} values, the most that is read.')
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            waiting.extend(value)
