"""Interpolations `${...}` of files for OmegaConf, worked out without reading the environment or following bombs.

A value is worked out once all that it refers to is a plain value, so that a chain costs as many steps as it has links.
Resolvers other than NeMo's arithmetic are left as placeholders, which a reader refuses where it needs their value.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from energymodel.errors import InputError

FUNCTION = re.compile(r"\$\{\s*([\w.]+)\s*:")
MOST_VALUES = 20_000
MOST_INTERPOLATED = 1_000
LONGEST_LIST = 64
LINKS = 12
Path = tuple[str, ...]
"""Keys from the root of a table to a value."""
UNKNOWN = "???"


def _number(value: Any) -> float | int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise ValueError("no number below 1e15")
    return value


RESOLVERS: dict[str, Callable[[Any, Any], float | int]] = {
    "multiply": lambda left, right: _number(left) * _number(right),
    "divide_ceil": lambda left, right: math.ceil(_number(left) / _number(right)),
    "divide_floor": lambda left, right: math.floor(_number(left) / _number(right)),
    "add": lambda left, right: _number(left) + _number(right),
}
"""NeMo's arithmetic: functions that an interpolation may use."""


def worked_out(table: Mapping[str, Any], sections: tuple[str, ...], where: str) -> list[dict[str, Any]]:
    """Sections of a table with their interpolations put in; those that cannot be worked out stay as they are.

    **Raises:** `InputError` if the table has more values or interpolations than a configuration has.
    """
    _register()
    pending: dict[Path, str] = {}
    plain = _masked(table, (), pending, [0], where)
    if not pending:
        return [dict(plain[name]) for name in sections]
    alone = "training" not in table
    config = OmegaConf.create(plain)
    texts = {path: _at_root(text) if alone else text for path, text in pending.items()}
    waiting = {path: text for path, text in texts.items() if _is_arithmetic(text)}
    for _ in range(LINKS):
        done = [path for path, text in waiting.items() if _put(config, path, text)]
        for path in done:
            del waiting[path], pending[path]
        if not done:
            break
    for path, text in pending.items():
        _set(config, path, _named(text))
    container = OmegaConf.to_container(config, resolve=False)
    assert isinstance(container, dict)
    return [container[name] for name in sections]


def _register() -> None:
    """Make NeMo's arithmetic known to OmegaConf, unless NeMo is there and has done so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # 2.4 has another name for it, which 2.3 has not
        for name, function in RESOLVERS.items():
            if not OmegaConf.has_resolver(name):
                OmegaConf.register_new_resolver(name, function)


def _masked(value: Any, path: Path, pending: dict[tuple[str, ...], str], count: list[int], where: str) -> Any:
    """A copy with each interpolation unknown, and noted by its path."""
    count[0] += 1
    if count[0] > MOST_VALUES or len(pending) > MOST_INTERPOLATED:
        raise InputError(
            f'"{where}" holds more than {MOST_VALUES} values or {MOST_INTERPOLATED} interpolations; '
            "is it the right file?"
        )
    if isinstance(value, Mapping):
        return {str(key): _masked(item, (*path, str(key)), pending, count, where) for key, item in value.items()}
    if isinstance(value, list):
        return [] if len(value) > LONGEST_LIST else [_harmless(item) for item in value]
    if isinstance(value, str) and "${" in value:
        pending[path] = value
        return UNKNOWN
    return _harmless(value)


def _harmless(value: Any) -> Any:
    """A value without interpolations, as OmegaConf takes it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:1000].replace("${", "<").replace(UNKNOWN, "")


def _is_arithmetic(text: str) -> bool:
    return len(text) <= 400 and all(name in RESOLVERS for name in FUNCTION.findall(text))


def _at_root(text: str) -> str:
    """A reference of a launcher's file to itself, which the launcher puts below `training`."""
    return re.sub(r"\$\{training\.(model|trainer|run)\.", r"${\1.", text)


def _put(config: DictConfig, path: Path, text: str) -> bool:
    """Work one interpolation out and put its value in; False while it refers to something unknown."""
    try:
        _set(config, path, text)
        value = _parent(config, path)[path[-1]]
    except (OmegaConfBaseException, ValueError, TypeError, ArithmeticError, RecursionError, KeyError, AttributeError):
        value = None
    if not isinstance(value, bool | int | float | str) or len(str(value)) > 400:
        _set(config, path, UNKNOWN)
        return False
    _set(config, path, value)
    return True


def _parent(config: DictConfig, path: Path) -> Any:
    for key in path[:-1]:
        config = config[key]
    return config


def _set(config: DictConfig, path: Path, value: Any) -> None:
    _parent(config, path)[path[-1]] = value


def _named(text: str) -> str:
    """An interpolation as a placeholder that is no interpolation any more."""
    return f"<{re.sub(r'[^A-Za-z0-9_.]+', ' ', text).strip()[:50] or 'interpolation'}>"
