"""Tables as TOML that reads back to the same numbers.

tomli-w has no inline tables: the scenario llama-3.1-405b-h100 takes 1,132 lines with it and 271 here, one a number.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dumps(tables: Mapping[str, Any]) -> str:
    """TOML of nested tables of text, numbers, arrays and tables; every float reads back exactly.

    A quantity, that is a table with a value, stands on one line with its unit and source.

    **Raises:** `TypeError` for what TOML cannot hold.
    """
    return "\n".join(_table(tables, ())).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not _is_section(value)]
    if lines and path:
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in table.items():
        if _is_section(value):
            lines += _table(value, (*path, key)) or ["", f"[{'.'.join(map(_key, (*path, key)))}]"]
    return lines


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) and "value" not in value


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + " }"
        case bool() | int():
            return str(value).lower()
        case float():
            return number(value)
        case str():
            return _text(value)
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"TOML holds no {type(value).__name__}: {value!r}")


def number(value: float) -> str:
    """Shortest text that TOML reads back as the same float."""
    if np.isfinite(value) and value != 0.0 and not 1e-3 <= abs(value) < 1e7:
        return np.format_float_scientific(value, trim="-", exp_digits=1).replace("e+", "e")
    return repr(float(value))
