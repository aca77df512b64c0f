"""Read `tests/worked_numbers*.toml`: numbers that a source prints, or that were worked out by hand."""

import importlib
import inspect
import tomllib
from decimal import Decimal
from functools import partial, reduce
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

KEYS = {"function", "inputs", "expected", "select", "scale", "where"}


def cases() -> list[tuple[str, dict[str, Any]]]:
    """List every case with a readable name."""
    found = []
    for path in sorted(Path(__file__).parent.glob("worked_numbers*.toml")):
        part = path.stem.removeprefix("worked_numbers").lstrip(".")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        for number, case in enumerate(content["case"]):
            name = case["function"].removeprefix("energymodel.")
            case["inputs"] = _with_given(case["inputs"], content.get("given", {}))
            found.append((f"{part}{'-' if part else ''}{name}-{number}", case))
    return found


def _with_given(value: Any, given: dict[str, Any]) -> Any:
    """Put what a name stands for in the place of `{ given = "name" }`."""
    match value:
        case {"given": str(name)}:
            return _with_given(given[name], given)
        case dict():
            return {key: _with_given(entry, given) for key, entry in value.items()}
        case list():
            return [_with_given(entry, given) for entry in value]
        case _:
            return value


def resolve(dotted: str) -> Any:
    """Find the object at a dotted path, through modules first and attributes after."""
    names = dotted.split(".")
    for count in range(len(names), 0, -1):
        module = ".".join(names[:count])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            # A module that exists but misses a dependency is an error of its own.
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        return reduce(getattr, names[count:], found)
    raise ModuleNotFoundError(dotted)


def build(value: Any) -> Any:
    """Turn a TOML value into an argument: floats, arrays, components, constants, functions, results of calls."""
    match value:
        case {"module": dotted, **fields}:
            return call(resolve(dotted), fields)
        case {"constant": dotted}:
            return resolve(dotted)
        case {"function": dotted, **rest}:
            inputs = {name: build(entry) for name, entry in rest.get("inputs", {}).items()}
            return partial(resolve(dotted), **inputs) if inputs else resolve(dotted)
        case {"call": dotted, **rest}:
            names = rest["select"].split(".") if "select" in rest else []
            return reduce(getattr, names, call(resolve(dotted), rest.get("inputs", {})))
        case dict():
            return {name: build(entry) for name, entry in value.items()}
        case list():
            entries = [build(entry) for entry in value]
            return jnp.asarray(entries) if all(isinstance(entry, float) for entry in entries) else tuple(entries)
        case bool() | str():
            return value
        case _:
            return float(value)


def call(function: Any, inputs: dict[str, Any]) -> Any:
    """Call with the inputs of a case; an argument declared `*name` takes a list."""
    signature = inspect.signature(function)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for name, value in inputs.items():
        parameter = signature.parameters.get(name)
        if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL:
            positional = [build(entry) for entry in value]
        elif parameter is not None and parameter.annotation is int:
            keywords[name] = int(value)
        else:
            keywords[name] = build(value)
    if positional:
        return function(*(keywords.pop(name) for name in list(signature.parameters) if name in keywords), *positional)
    return function(**keywords)


def compute(case: dict[str, Any]) -> np.ndarray:
    """Run a case and return its numbers in the unit in which they are printed."""
    result = call(resolve(case["function"]), case["inputs"])
    select = case.get("select")
    if isinstance(select, int):
        result = result[select]
    elif select is not None:
        result = reduce(getattr, select.split("."), result)
    return np.ravel(np.asarray(result, dtype=np.float64)) * case.get("scale", 1.0)


def printed(case: dict[str, Any]) -> list[str]:
    """List the expected numbers of a case as printed."""
    expected = case["expected"]
    return [expected] if isinstance(expected, str) else list(expected)


def last_digit(text: str) -> Decimal:
    """Size of one unit in the last printed digit."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int), f"{text} is not a finite number"
    return Decimal(1).scaleb(exponent)


def agrees(value: float, text: str, shift: int = 0) -> bool:
    """Whether a value rounds to the printed digits, moved by `shift` units in the last one."""
    unit = last_digit(text)
    return bool(np.isfinite(value)) and abs(Decimal(float(value)) - (Decimal(text) + shift * unit)) <= unit / 2
