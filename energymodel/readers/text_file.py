"""Files from anywhere, read without trusting them.

No reader runs what a file says: JSON, TOML and YAML give numbers, texts, lists and tables and nothing else. A file may
hold at most `LARGEST` bytes, and its tables and lists at most `MOST_VALUES` values, `DEEPEST` levels deep: what the
aliases of a YAML file repeat is counted each time, before anything walks through it. Every whole number fits into a
float.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from energymodel.errors import InputError, suggest

LARGEST = 16 * 2**20  # bytes of a configuration file; the largest known one has 2 MB
SAFE: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
"""The safe loader, in C where PyYAML has it: ten times as fast. A tag such as `!include` leaves the text behind it."""
SAFE.add_multi_constructor("!", lambda loader, tag, node: f"{tag} {node.value}" if isinstance(node.value, str) else tag)
MOST_VALUES = 1_000_000  # values of a configuration file, repeated ones counted each time
DEEPEST = 40  # levels of tables and lists within each other; the deepest known configuration has 12


def is_file(path: str | Path) -> bool:
    """Whether there is such a file, also of a text that no file could be called."""
    return _holds(path, Path.is_file)


def is_folder(path: str | Path) -> bool:
    """Whether there is such a folder, also of a text that no folder could be called."""
    return _holds(path, Path.is_dir)


def _holds(path: str | Path, test: Callable[[Path], bool]) -> bool:
    try:
        return test(Path(path))
    except (OSError, ValueError):  # a name that is too long, or holds a null byte
        return False


def read_text(path: Path, largest: int = LARGEST) -> str:
    """The text of a file in UTF-8, with or without byte order mark.

    **Raises:** `InputError` if it is missing, no file, larger than `largest` bytes or no text.
    """
    try:
        if path.is_fifo():  # opening it would wait for a writer, perhaps forever
            raise InputError(f'"{path}" is a pipe. Save what it gives as a file, and give that.')
        with path.open("rb") as file:
            raw = file.read(largest + 1)
    except (OSError, ValueError) as error:  # a null byte in the name
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f'Cannot read "{path}": {reason}.') from error
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
        reason = " ".join(str(error).split())
        if "integer string conversion" in reason:
            reason = "a number has more digits than are read"
        raise InputError(f'"{path}" is no valid {format_name}: {reason}.') from error
    if not isinstance(table, dict):
        what = "nothing" if table is None else "a list" if isinstance(table, list) else "one value"
        raise InputError(f'"{path}" holds {what} where a table of keys is needed; is it the right file?')
    # Count the values that a walk through the table would meet, and stop at the first that is too many or too deep.
    waiting: list[tuple[Any, int]] = [(table, 1)]
    met = 0
    while waiting:
        value, depth = waiting.pop()
        met += 1
        if met > MOST_VALUES:
            raise InputError(f'"{path}" holds more than {MOST_VALUES} values, the most that is read.')
        if depth > DEEPEST:
            raise InputError(f'"{path}" nests its tables too deeply to be read: more than {DEEPEST} deep.')
        if isinstance(value, Mapping):
            waiting.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            waiting.extend((item, depth + 1) for item in value)
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            raise InputError(f'"{path}": a number has more digits than are read. Give at most 1.8e308.')
    return table


def read_so_far(path: str | Path, names: Sequence[str]) -> dict[str, float | str]:
    """Numbers in SI, or texts with a unit, by name: of a JSON or TOML table, or of the last line of JSON lines.

    **Arguments:**

    - `names`: that may be there. In the lines of `energymodel monitor` they stand in `so_far`.

    **Raises:** `InputError` for another file, an unknown name, and what is neither number nor text.
    """
    path = Path(path)
    readers = {".toml": read_toml, ".jsonl": _last_line, ".json": read_json}
    if path.suffix not in readers:
        raise InputError(f'{path}: extension "{path.suffix}" is not known. Give .toml, .json or .jsonl.')
    table = readers[path.suffix](path)
    for name, value in table.items():
        if name not in names:
            raise InputError(f'{path}: unknown key "{name}". {suggest(name, names)}')
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InputError(f"{path}: {name} is {value!r}, neither a number in SI nor text with a unit. Correct it.")
    return {name: value if isinstance(value, str) else float(value) for name, value in table.items()}


def _last_line(path: Path) -> dict[str, Any]:
    """The last table of a file of JSON lines, or the last state that `energymodel monitor` wrote there.

    A last line that is being written is left out, and so are those of a monitor before its first forecast.
    """
    for line in reversed(read_text(path).splitlines()):
        try:
            table = json.loads(line, parse_int=float)  # one of 400 digits is infinite, and refused as such
        except (ValueError, RecursionError):
            continue
        if isinstance(table, dict) and "progress" in table:
            table = table.get("so_far")
        if isinstance(table, dict):
            return table
    raise InputError(f"{path}: no line is a JSON table with what was measured. Give the file that the monitor wrote.")
