"""Lowered programs as files: the program in the format of `jax.export`, and the tree that it returns as JSON."""

import contextlib
import importlib
import json
import logging
import os
import zlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from energymodel.runtime.private_folder import write_whole

PACKAGE = __name__.partition(".")[0]
_PLAIN = (list, tuple, dict)
_LOG = logging.getLogger(__name__)


class Lowered(NamedTuple):
    """A lowered program as it stands in a file, and the structure of what it returns."""

    lowered: jax.export.Exported
    structure: Any


def package_of(thing: Any) -> str:
    """The package that a function or a class comes from; nothing if it does not say, as one made by `exec`."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0]


def read_lowered(path: Path) -> Lowered | None:
    """The program that `write_lowered` wrote, unless it is missing or damaged."""
    try:
        content = path.read_bytes()
        os.utime(path)  # `Compiled.preload` looks for the last use
    except OSError:
        return None
    try:
        header, _, program = zlib.decompress(content).partition(b"\n")
        return Lowered(jax.export.deserialize(bytearray(program)), jax.tree.structure(_rebuild(json.loads(header))))
    except Exception as error:  # whatever is wrong with it, it can be made again
        _LOG.warning("%s cannot be read and is made again: %s", path, error)
        return None


def write_lowered(path: Path, stored: Lowered) -> None:
    """Write at once or not at all: processes may share the folder, and a program that is not kept only costs time."""
    try:
        numbered = jax.tree.unflatten(stored.structure, range(stored.structure.num_leaves))
        header = json.dumps(_describe(numbered)).encode()
        content = zlib.compress(header + b"\n" + stored.lowered.serialize(), level=1)
    except (TypeError, ValueError) as error:  # a result that is no plain tree
        _LOG.warning("%s cannot be kept: %s", path, error)
        return
    with contextlib.suppress(OSError):
        write_whole(path, content)


def _describe(tree: Any) -> Any:
    """A tree of numbered leaves as JSON: lists, and the classes of this package and of Equinox by name."""
    if tree is None or isinstance(tree, int | float):
        return tree
    if isinstance(tree, str):
        return {"text": tree}
    if isinstance(tree, type):
        return {"type": f"{tree.__module__}:{tree.__qualname__}"}
    if isinstance(tree, dict):
        return {"items": {key: _describe(value) for key, value in tree.items()}}
    parts = {"list": [_describe(part) for part in tree]} if isinstance(tree, list | tuple) else {}
    if is_dataclass(tree):
        parts = {"fields": {field.name: _describe(getattr(tree, field.name)) for field in fields(tree)}}
    return _describe(type(tree)) | parts


def _rebuild(described: Any) -> Any:
    """The tree that `_describe` described. No constructor is called but those of lists, tuples and dictionaries."""
    if described is None or isinstance(described, int | float):
        return described
    if "text" in described:
        return described["text"]
    if "items" in described:
        return {key: _rebuild(value) for key, value in described["items"].items()}
    kind = _class(*described["type"].split(":"))
    if "list" in described:
        parts = [_rebuild(part) for part in described["list"]]
        if not issubclass(kind, list | tuple):
            raise ValueError(f"{described['type']} holds no list")
        return getattr(kind, "_make", kind)(parts)
    if "fields" not in described:
        return kind
    rebuilt = object.__new__(kind)
    for key, value in described["fields"].items():
        object.__setattr__(rebuilt, key, _rebuild(value))
    return rebuilt


def _class(module: str, name: str) -> Any:
    """A class of this package or of Equinox, or a plain container; a module's other names may be functions that act."""
    if module.partition(".")[0] not in (PACKAGE, "equinox", "builtins"):
        raise ValueError(f"{module} is not a module of {PACKAGE}")
    kind: Any = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    ours = isinstance(kind, type) and package_of(kind) in (PACKAGE, "equinox")
    if not (ours or kind in _PLAIN):
        raise ValueError(f"{module}:{name} is no class of {PACKAGE}")
    return kind
