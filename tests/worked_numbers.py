"""Cases of `tests/worked_numbers*.toml`: numbers that a source prints, or that were worked out by hand."""

import importlib
import inspect
import json
import tomllib
from decimal import Decimal
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

KEYS = {"function", "inputs", "expected", "select", "scale", "where", "gradient"}


def cases() -> list[tuple[str, dict[str, Any]]]:
    """List every case with a readable name."""
    listed = []
    for path in sorted(Path(__file__).parent.glob("worked_numbers*.toml")):
        part = path.stem.removeprefix("worked_numbers").lstrip(".")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        for number, case in enumerate(content["case"]):
            name = case["function"].removeprefix("energymodel.")
            case["inputs"] = _with_shared(case["inputs"], content.get("given", {}))
            listed.append((f"{part}{'-' if part else ''}{name}-{number}", case))
    return listed


def _with_shared(value: Any, shared: dict[str, Any]) -> Any:
    """Put what a name stands for in the place of `{ given = "name" }`."""
    match value:
        case {"given": str(name)}:
            return _with_shared(shared[name], shared)
        case dict():
            return {key: _with_shared(entry, shared) for key, entry in value.items()}
        case list():
            return [_with_shared(entry, shared) for entry in value]
        case _:
            return value


def resolve(dotted: str) -> Any:
    """Find the object at a dotted path, through modules first and attributes after."""
    names = dotted.split(".")
    for count in range(len(names), 0, -1):
        module = ".".join(names[:count])
        try:
            owner = importlib.import_module(module)
        except ModuleNotFoundError as error:
            # A module that exists but misses a dependency is an error of its own.
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        return reduce(getattr, names[count:], owner)
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
            return reduce(getattr, names, _called(dotted, json.dumps(rest.get("inputs", {}))))
        case dict():
            return {name: build(entry) for name, entry in value.items()}
        case list():
            entries = [build(entry) for entry in value]
            return jnp.asarray(entries) if all(isinstance(entry, float) for entry in entries) else tuple(entries)
        case bool() | str():
            return value
        case _:
            return float(value)


@cache
def _called(dotted: str, inputs: str) -> Any:
    """Result of a call that several cases ask for, mostly of `load_scenario`, made once."""
    return call(resolve(dotted), json.loads(inputs))


def build_inputs(function: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Build the inputs of a case by name; an argument declared `*name` takes a list, one annotated `int` an integer."""
    parameters = inspect.signature(function).parameters
    values: dict[str, Any] = {}
    for name, value in inputs.items():
        parameter = parameters.get(name)
        if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL:
            values[name] = [build(entry) for entry in value]
        elif parameter is not None and parameter.annotation is int:
            values[name] = int(value)
        else:
            values[name] = build(value)
    return values


def call_with(function: Any, values: dict[str, Any]) -> Any:
    """Call with built inputs."""
    bound = inspect.signature(function).bind_partial()
    assert set(values) <= set(bound.signature.parameters), f"{function} has no {set(values)}"
    bound.arguments.update(values)
    return function(*bound.args, **bound.kwargs)


def call(function: Any, inputs: dict[str, Any]) -> Any:
    """Call with the inputs of a case."""
    return call_with(function, build_inputs(function, inputs))


def selected(case: dict[str, Any], result: Any) -> Any:
    """The part of a result that a case prints."""
    match case.get("select"):
        case int(index):
            return result[index]
        case str(path):
            return reduce(getattr, path.split("."), result)
        case _:
            return result


def compute(case: dict[str, Any]) -> np.ndarray:
    """Run a case and return its numbers in the unit in which they are printed."""
    result = selected(case, call(resolve(case["function"]), case["inputs"]))
    return np.ravel(np.asarray(result, dtype=np.float64)) * case.get("scale", 1.0)


def differentiated(cases: list[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The first case of each formula, and cases that say `gradient = true`; a reason stands where there is no slope.

    Left out are whole systems (tests/system/test_evaluate_gradients.py) and what the sources state.
    """
    chosen: dict[str, dict[str, Any]] = {}
    functions = set()
    for name, case in cases:
        wanted = case.get("gradient", case["function"] not in functions)
        if wanted is True and "sources" not in case["function"] and not _calls(case["inputs"]):
            chosen[name] = case
            functions.add(case["function"])
    return chosen


def _calls(value: Any) -> bool:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and "call" in value) or any(map(_calls, entries))


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
