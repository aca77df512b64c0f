"""Interpolations `${...}` of files for OmegaConf, worked out without reading the environment or following bombs.

References (`${model.hidden_size}`, `${.hidden_size}`) and NeMo's arithmetic (`${multiply:a,b}`) are worked out from
the inside outwards, each value once. All else stays as a placeholder, which a reader refuses where it needs the value.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from energymodel.errors import InputError

INNERMOST = re.compile(r"\$\{([^${}]*)\}")
MOST_VALUES, MOST_INTERPOLATED = 20_000, 1_000
LONGEST = 400  # characters of a value
LINKS = 100  # of a chain of references
Path = tuple[str, ...]
"""Keys from the root of a table to a value."""


def _number(text: str) -> float | int:
    number = int(text) if re.fullmatch(r"-?\d{1,15}", text) else float(text)
    if not abs(number) < 1e15:
        raise ValueError("no number below 1e15")
    return number


FUNCTIONS: dict[str, Callable[[str, str], float | int]] = {
    "multiply": lambda left, right: _number(left) * _number(right),
    "divide_ceil": lambda left, right: math.ceil(_number(left) / _number(right)),
    "divide_floor": lambda left, right: math.floor(_number(left) / _number(right)),
    "add": lambda left, right: _number(left) + _number(right),
}
"""NeMo's arithmetic."""


def worked_out(table: Mapping[str, Any], sections: tuple[str, ...], where: str) -> list[dict[str, Any]]:
    """Sections of a table with their interpolations put in; those that cannot be worked out are placeholders.

    **Raises:** `InputError` if the table has more values or interpolations than a configuration has.
    """
    values = dict(_values(table))
    texts = {path: value for path, value in values.items() if isinstance(value, str) and "${" in value}
    if len(values) > MOST_VALUES or len(texts) > MOST_INTERPOLATED:
        raise InputError(
            f'"{where}" holds more than {MOST_VALUES} values or {MOST_INTERPOLATED} interpolations; '
            "is it the right file?"
        )
    solved: dict[Path, Any] = {path: value for path, value in values.items() if path not in texts}
    rooted = texts
    if "training" not in table:  # a launcher puts its file below `training`
        rooted = {path: re.sub(r"\$\{training\.(model|trainer|run)\.", r"${\1.", text) for path, text in texts.items()}
    for path in texts:
        _solve(path, rooted, solved, 0)
    return [_put(table[name], (name,), texts, solved) for name in sections]


def _values(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All values by their paths; a list is one value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _values(item, (*path, str(key)))
    else:
        yield path, value


def _solve(path: Path, texts: dict[Path, str], solved: dict[Path, Any], depth: int) -> Any:
    """The value at a path: a switch, number or text; None where it cannot be worked out."""
    if path not in solved:
        solved[path] = None  # while it is worked out: it may refer to itself
        if path not in texts:
            return None
        text: Any = texts[path][: LONGEST + 1]
        while isinstance(text, str) and len(text) <= LONGEST and (match := INNERMOST.search(text)):
            value = _inner(match[1], path, texts, solved, depth) if depth <= LINKS else None
            if not isinstance(value, bool | int | float | str):
                return None
            text = value if match[0] == text else f"{text[: match.start()]}{value}{text[match.end() :]}"
        solved[path] = None if isinstance(text, str) and (len(text) > LONGEST or "${" in text) else text
    return solved[path]


def _inner(text: str, path: Path, texts: dict[Path, str], solved: dict[Path, Any], depth: int) -> Any:
    """The value of what stands between the braces."""
    name, colon, arguments = text.partition(":")
    if colon:
        try:
            return FUNCTIONS[name.strip()](*(part.strip() for part in arguments.split(",")))
        except (KeyError, TypeError, ValueError, ArithmeticError):
            return None
    keys = text.strip().lstrip(".")
    dots = len(text.strip()) - len(keys)
    above = path[: len(path) - dots] if dots else ()
    return _solve((*above, *keys.split(".")), texts, solved, depth + 1)


def _put(value: Any, path: Path, texts: dict[Path, str], solved: dict[Path, Any]) -> Any:
    """A copy of a table with its values."""
    if isinstance(value, Mapping):
        return {str(key): _put(item, (*path, str(key)), texts, solved) for key, item in value.items()}
    if path not in texts:
        return value
    placeholder = re.sub(r"[^A-Za-z0-9_.]+", " ", texts[path]).strip()[:50] or "interpolation"
    return f"<{placeholder}>" if solved[path] is None else solved[path]
