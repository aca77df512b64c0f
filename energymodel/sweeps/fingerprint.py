"""What makes two sweeps the same, so that one may go on with the tiles of the other?"""

import dataclasses
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from types import CodeType
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.runtime.compilation import PACKAGE, package_of, source_digest
from energymodel.sweeps.tile_program import TileProgram

FORMAT = 3
"""Version of the files of a ledger: 3 since the digest of a tile covers the program that evaluated it."""
MAX_DEPTH = 12  # of functions within functions that are described


def fingerprint(program: TileProgram, scenario: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that the bits of a tile depend on, readable; `checksum` covers it all.

    A function from outside this package is known by its source.
    """
    grid = program.grid
    described: dict[str, Any] = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("energymodel", "jax", "jaxlib", "numpy")},
        "source": source_digest(),
        "backend": jax.default_backend(),
        "scenario": scenario,
        "model": describe(program.function),
        "numbers": digest(program.function),
        "keep": describe(program.reduction),
        "precision": program.bits,
        "quick": program.quick,
        "axes": [
            {"name": axis.name, "unit": axis.unit, "values": axis.labels_or_values(), "digest": digest(axis.values)}
            for axis in grid.axes
        ],
        "tiles": {"cut": grid.cut, "block": grid.block, "tile_chunks": grid.tile_chunks, "count": grid.tiles},
    }
    plain = json.loads(json.dumps(described, default=str))
    return {**plain, "checksum": hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}


def describe(thing: Any, level: int = 0) -> str:
    """A function, a reduction or a model as text that changes with what it does, and with nothing else.

    What a function closes over or has bound is part of it; arrays are known by their digest.
    """
    if isinstance(thing, str | int | float | bool) or thing is None:
        return repr(thing)
    if eqx.is_array(thing):
        return f"array {digest(thing)[:16]}"
    if isinstance(thing, type) or level > MAX_DEPTH:
        return _name(thing if isinstance(thing, type) else type(thing))

    def inner(one: Any) -> str:
        return describe(one, level + 1)

    if isinstance(thing, Mapping):
        return f"{{{', '.join(f'{inner(key)}: {inner(value)}' for key, value in thing.items())}}}"
    if isinstance(thing, tuple | list):
        return f"({', '.join(map(inner, thing))})"
    if dataclasses.is_dataclass(thing):
        fields = (f"{field.name}={inner(getattr(thing, field.name, None))}" for field in dataclasses.fields(thing))
        return f"{_name(type(thing))}({', '.join(fields)})"
    if isinstance(thing, functools.partial):
        return f"partial({inner(thing.func)}, {inner(thing.args)}, {inner(thing.keywords)})"
    if inspect.ismethod(thing):
        return f"{_name(thing)} of {inner(thing.__self__)}"
    if inspect.isfunction(thing):
        held = [thing.__defaults__, thing.__kwdefaults__, *(_content(cell) for cell in thing.__closure__ or ())]
        return f"{_name(thing)}{inner([one for one in held if one is not None])}"
    return _name(thing if inspect.isroutine(thing) else type(thing))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _name(thing: Callable[..., Any] | type) -> str:
    name = f"{getattr(thing, '__module__', None)}.{thing.__qualname__}"
    if package_of(thing) == PACKAGE:
        return name
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):  # typed at a prompt, or built in
        source = repr(_instructions(getattr(thing, "__code__", None)))
    return f"{name} {hashlib.sha256(source.encode()).hexdigest()[:16]}"


def _instructions(code: CodeType | None) -> Any:
    """What a function does, without where it was written."""
    if code is None:
        return None
    parts = [_instructions(part) if isinstance(part, CodeType) else _constant(part) for part in code.co_consts]
    return code.co_code, parts, code.co_names, code.co_varnames, code.co_freevars


def _constant(value: Any) -> Any:
    """A constant of a function; the order of a set differs from process to process."""
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def digest(tree: Any) -> str:
    """Digest of all arrays of a tree."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)):
        array = np.asarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first difference of two fingerprints, as a dotted path with both values."""
    return _difference(ours, theirs, "") or "its checksum"


def _difference(ours: Any, theirs: Any, path: str) -> str:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*ours, *theirs} - {"checksum"}, key=lambda key: (key == "numbers", key != "scenario", key)):
            found = _difference(ours.get(key), theirs.get(key), f"{path}.{key}" if path else str(key))
            if found:
                return found
        return ""
    if ours == theirs:
        return ""
    shown = [text if len(text := repr(one)) <= 60 else f"{text[:60]} ..." for one in (theirs, ours)]
    return f"{path} was {shown[0]}, is {shown[1]}"
