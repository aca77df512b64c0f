"""Numbers of a run so far from JSON, TOML or JSON lines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest
from energymodel.readers.text_file import read_json, read_text, read_toml


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
