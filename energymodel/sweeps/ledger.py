"""Files of a sweep that survive the death of its process: finished tiles, and the fingerprint of the sweep.

`run.json` holds the fingerprint; each tile is one file, written atomically, that starts with a digest of the sweep, its
number and its content. A lock keeps a second process out, and dies with the first.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import inspect
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import source_digest
from energymodel.runtime.lowered_programs import PACKAGE, package_of
from energymodel.sweeps.tile_program import TileProgram

RUN, LOCK, TILES = "run.json", "lock", "tiles"
DIGEST_SIZE = 32
RANK = {"scenario": 0, "model": 2, "numbers": 3}  # parts of a fingerprint, of which the first difference is told
FORMAT = 4
"""Version of the files: 4 since the fingerprint names the program that evaluates the tiles."""


def _is_other(path: Path) -> bool:
    """Whether something other than a regular file has this name: a folder, or a pipe, whose reader would wait."""
    return path.exists() and not path.is_file()


class Ledger:
    """The folder of a sweep, locked while it is open.

    **Raises:** `InputError` where another process holds the folder, or it belongs to another sweep.
    """

    def __init__(self, folder: str | os.PathLike[str], fingerprint: Mapping[str, Any], state_shapes: Any) -> None:
        self.folder, self._fingerprint = Path(folder), fingerprint
        leaves, self._structure = jax.tree.flatten(state_shapes)
        self._shapes = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves]
        self._lock: int | None = None

    def __enter__(self) -> "Ledger":
        try:
            (self.folder / TILES).mkdir(parents=True, exist_ok=True)
            others = [path for path in (self.folder / LOCK, self.folder / RUN) if _is_other(path)]
            self._lock = None if others else os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except (OSError, ValueError) as error:  # such as a null byte in the name
            reason = getattr(error, "strerror", error)
            raise InputError(f"{str(self.folder)!r}: cannot be used for a sweep: {reason}.") from None
        if self._lock is None:
            raise InputError(f"{others[0]} is not a file. Remove it, or give another folder.")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check()
        except BaseException as error:
            self.__exit__()
            if isinstance(error, BlockingIOError):
                words = "another sweep runs in this folder. Wait for it, or give another folder."
                raise InputError(f"{self.folder}: {words}") from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)  # which also unlocks
            self._lock = None

    def _check(self) -> None:
        """Write the fingerprint into a new folder; that of an old one is the same."""
        path = self.folder / RUN
        if not path.exists():
            self._write(path, (json.dumps(self._fingerprint, indent=1, ensure_ascii=False) + "\n").encode())
            return
        try:
            theirs = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            theirs = None
        if not isinstance(theirs, dict):
            raise InputError(f"{path}: cannot be read. Remove the folder, or give another one.")
        if theirs.get("checksum") != self._fingerprint["checksum"]:
            raise InputError(
                f"{self.folder} holds another sweep: {difference(self._fingerprint, theirs) or 'its checksum'}. "
                "Give another folder, or the same scenario, axes, options and version."
            )

    def path(self, number: int) -> Path:
        """File of a tile."""
        return self.folder / TILES / f"{number:08d}.tile"

    def _digest(self, number: int, content: bytes) -> bytes:
        before = f"{self._fingerprint['checksum']} {number} "
        return hashlib.sha256(before.encode() + content).digest()

    def read(self, number: int) -> Any | None:
        """State of a tile; `None` if it is missing, cut short, damaged, or of another sweep or number."""
        try:
            stored = b"" if _is_other(self.path(number)) else self.path(number).read_bytes()
        except OSError:
            return None
        digest, content = stored[:DIGEST_SIZE], stored[DIGEST_SIZE:]
        if digest != self._digest(number, content):
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                leaves = [arrays[f"arr_{index}"] for index in range(len(self._shapes))]
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile):  # written by another program
            return None
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != self._shapes:
            return None
        return jax.tree.unflatten(self._structure, leaves)

    def write(self, number: int, state: Any) -> None:
        """Keep the state of a tile.

        **Raises:** `InputError` where the disk is full or the folder cannot be written; finished tiles stay.
        """
        buffer = io.BytesIO()
        np.savez(buffer, *(np.asarray(leaf) for leaf in jax.tree.leaves(state)))
        content = buffer.getvalue()
        self._write(self.path(number), self._digest(number, content) + content)

    def _write(self, path: Path, content: bytes) -> None:
        name = None
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
                name = file.name
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except OSError as error:
            if name is not None:
                Path(name).unlink(missing_ok=True)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            reason = "the disk is full" if full else f"cannot be written: {error.strerror}"
            raise InputError(
                f"{path.parent}: {reason}. Finished tiles are kept: free some space and run the same command again."
            ) from None

    def finished(self, count: int) -> set[int]:
        """Numbers of the tiles that are complete and intact; leftovers of writes that were cut short are removed."""
        for leftover in self.folder.rglob(".*.part"):
            with contextlib.suppress(OSError):  # a folder that a person made stays
                leftover.unlink(missing_ok=True)
        return {number for number in range(count) if self.path(number).exists() and self.read(number) is not None}


def fingerprint(program: TileProgram, scenario: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that the bits of a tile depend on, readable; `checksum` covers it all.

    A function is known by its trace, and by the arrays that it holds.
    """
    grid = program.grid
    facts: dict[str, Any] = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("energymodel", "jax", "jaxlib", "numpy")},
        "source": source_digest(),
        "backend": jax.default_backend(),
        "scenario": scenario,
        "model": program.digest(),
        "numbers": digest(program.function),
        "keep": _described(program.reduction),
        "program": program.name,
        "precision": program.bits,
        "quick": program.quick,
        "axes": [
            {"name": axis.name, "unit": axis.unit, "values": axis.labels_or_values(), "digest": digest(axis.values)}
            for axis in program.axes
        ],
        "tiles": {"cut": grid.cut, "block": grid.block, "tile_chunks": grid.tile_chunks, "count": grid.tiles},
    }
    plain = json.loads(json.dumps(facts, default=str))
    return {**plain, "checksum": hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}


def _described(reduction: Any) -> str:
    """A reduction in words, and by its source where it is not of this package."""
    kind = type(reduction)
    words = re.sub("0x[0-9a-f]+", "0x", repr(reduction)) if dataclasses.is_dataclass(reduction) else kind.__qualname__
    if package_of(kind) == PACKAGE:
        return words
    with contextlib.suppress(OSError, TypeError):  # typed at a prompt
        return f"{words} {hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()[:16]}"
    return words


def digest(tree: Any) -> str:
    """Digest of all arrays of a tree."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)):
        array = np.asarray(leaf)
        total.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def difference(ours: Any, theirs: Any, path: str = "") -> str:
    """The first difference of two fingerprints, as a dotted path with both values; empty if there is none."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = sorted({*ours, *theirs} - {"checksum"}, key=lambda key: (RANK.get(key, 1), key))
        parts = (difference(ours.get(key), theirs.get(key), f"{path}.{key}" if path else str(key)) for key in keys)
        return next(filter(None, parts), "")
    if ours == theirs:
        return ""
    before, now = (text if len(text := repr(value)) <= 60 else f"{text[:60]} ..." for value in (theirs, ours))
    return f"{path} was {before}, is {now}"
