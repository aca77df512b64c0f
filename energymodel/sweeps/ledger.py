"""How does a sweep survive the death of its process? Finished tiles are files in a folder.

`run.json` holds the fingerprint of the sweep, and `program` the name of the program that evaluates its tiles; each
tile is one file, written atomically, that starts with a digest of both, its number and its content. A lock keeps a
second process out, and dies with the first.
"""

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.fingerprint import difference

RUN, LOCK, TILES, PROGRAM = "run.json", "lock", "tiles", "program"
DIGEST_SIZE = 32
LONGEST_NAME = 100


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
        self.program: str | None = None

    def __enter__(self) -> "Ledger":
        try:
            (self.folder / TILES).mkdir(parents=True, exist_ok=True)
            for name in (LOCK, RUN, PROGRAM):
                if _is_other(self.folder / name):
                    raise InputError(f"{self.folder / name} is not a file. Remove it, or give another folder.")
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be used for a sweep: {error.strerror}.") from None
        except ValueError as error:  # a null byte in the name
            if isinstance(error, InputError):
                raise
            raise InputError(f"{str(self.folder)!r}: cannot be used for a sweep: {error}.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._open()
        except BlockingIOError:
            self._release()
            raise InputError(
                f"{self.folder}: another sweep runs in this folder. Wait for it, or give another folder."
            ) from None
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # which also unlocks
            self._lock = None

    def _open(self) -> None:
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
                f"{self.folder} holds another sweep: {difference(self._fingerprint, theirs)}. "
                "Give another folder, or the same scenario, axes, options and version."
            )
        with contextlib.suppress(OSError):
            self.program = (self.folder / PROGRAM).read_bytes()[:LONGEST_NAME].decode(errors="replace").strip()

    def keep_program(self, name: str) -> None:
        """Keep the name of the program that evaluates all tiles, before the first one is written.

        **Raises:** as `write`.
        """
        if self.program != name:
            self._write(self.folder / PROGRAM, f"{name}\n".encode())
            self.program = name

    def path(self, number: int) -> Path:
        """File of a tile."""
        return self.folder / TILES / f"{number:08d}.tile"

    def _digest(self, number: int, content: bytes) -> bytes:
        before = f"{self._fingerprint['checksum']} {self.program} {number} "
        return hashlib.sha256(before.encode() + content).digest()

    def read(self, number: int) -> Any | None:
        """State of a tile; `None` if it is missing, cut short, damaged, or of another sweep or number."""
        try:
            stored = b"" if _is_other(self.path(number)) else self.path(number).read_bytes()
        except OSError:
            return None
        kept, content = stored[:DIGEST_SIZE], stored[DIGEST_SIZE:]
        if kept != self._digest(number, content):
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                leaves = [arrays[f"arr_{place}"] for place in range(len(self._shapes))]
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
                f"{path.parent}: {reason}. Finished tiles are kept: make room and run the same command again."
            ) from None

    def finished(self, count: int) -> set[int]:
        """Numbers of the tiles that are complete and intact; leftovers of writes that were cut short are removed."""
        for leftover in self.folder.rglob(".*.part"):
            with contextlib.suppress(OSError):  # a folder that a person made stays
                leftover.unlink(missing_ok=True)
        return {number for number in range(count) if self.path(number).exists() and self.read(number) is not None}
