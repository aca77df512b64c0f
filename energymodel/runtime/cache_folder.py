"""Folder of the programs that are compiled once and run again: its place, its size, and how it is cleared.

A compiled program is code that later runs execute. So it is kept in a folder of the user's own, into which nobody else
can write (`private_folder`), or not at all.
"""

import contextlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from energymodel.runtime.private_folder import make_private, why_not_private

FOLDER = "JAX_COMPILATION_CACHE_DIR"
LOWERED = "energymodel-"  # the beginning of the names that `compilation.Compiled` gives
COMPILED, USED = "-cache", "-atime"  # the ends of the names that JAX gives: a program, and when it was last used
JAX_COMPLAINS = "persistent compilation cache entry"  # in warnings, after "Error writing" or "Error reading"
WRITING = 60.0  # seconds after which a file that is cut short is no longer being written by another process


class CacheContents(NamedTuple):
    """Files of a cache folder."""

    lowered: int
    """Programs of this package, lowered, of this and of other versions."""
    compiled: int
    """Programs compiled by JAX."""
    size: int
    """Size of all files [B]."""


class CacheFolder(NamedTuple):
    """A folder for compiled programs, or why none is used."""

    path: Path | None
    """`None` where there is no home."""
    refusal: str | None
    """Why it is not used, with what to do."""


_CHOSEN: list[CacheFolder] = []  # by `keep_compiled_programs`, which changes the environment


def default_folder() -> Path | None:
    """The folder of the command line, unless the environment names another; `None` where there is no home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # to be ignored then [XDG Base Directory Specification 0.8]
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "energymodel" / "compiled"


def folder_in_use() -> CacheFolder:
    """The folder that commands use, or why they use none."""
    if _CHOSEN:
        return _CHOSEN[-1]
    named = os.environ.get(FOLDER)
    if named and "://" in named:
        return CacheFolder(Path(named), f"{named} is on another machine. Name a folder of your own on this one.")
    folder = Path(named) if named else default_folder()
    if folder is None:
        return CacheFolder(None, "there is no home folder. Set HOME or XDG_CACHE_HOME.")
    return CacheFolder(folder, why_not_private(folder))


def keep_compiled_programs() -> str | None:
    """Point JAX at a private cache folder, or at none; JAX reads this when it is imported.

    **Returns:** why compiled programs are not kept, where that is a danger that somebody should end.
    """
    folder, refusal = folder_in_use()
    danger = refusal if folder is not None else None
    if folder is not None and refusal is None:
        try:
            make_private(folder)
            danger = refusal = why_not_private(folder)
        except OSError as error:  # a home that cannot be written: compile each time
            refusal = f"{folder} cannot be made: {error.strerror}."
    _CHOSEN[:] = [CacheFolder(folder, refusal)]
    os.environ.pop(FOLDER, None)
    if refusal is None:
        os.environ[FOLDER] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    return danger


def what_jax_complains_of(warning: str) -> str | None:
    """What a warning of JAX means for a person: its cache cannot be written, or held a damaged program.

    Damaged programs are removed, so that they are made again; those that another process may be writing are left.
    """
    folder = folder_in_use().path
    removed = 0
    for path, _ in [] if folder is None else list(_files(folder)):
        with contextlib.suppress(OSError):
            old = time.time() - path.stat().st_mtime > WRITING
            if path.name.endswith(COMPILED) and old and not _is_complete(path.read_bytes()):
                path.unlink()
                removed += 1
    if warning.startswith("Error writing"):
        reason = warning.rpartition("] ")[2] if "] " in warning else warning.rpartition(": ")[2]
        return f"{folder}: compiled programs cannot be kept: {reason}. The next run compiles again."
    programs = "a damaged program was" if removed == 1 else f"{removed} damaged programs were"
    return f"{folder}: {programs} removed. The compiler makes what is missing again." if removed else None


def _is_complete(content: bytes) -> bool:
    if content[:1] != b"\x78":  # no zlib: JAX compresses in another way where it can
        return bool(content)
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True


def contents(folder: Path) -> CacheContents:
    """Count the programs of a folder."""
    return _counted(_files(folder))


def clear(folder: Path) -> CacheContents:
    """Remove the programs of a folder, and leave every other file.

    A folder that the environment names may hold compiled programs of other projects; there only this package's lowered
    programs are removed.

    **Returns:** what was removed.

    **Raises:** `OSError` if a file cannot be removed.
    """
    own = default_folder()
    ours = (COMPILED, USED) if own is not None and folder.resolve() == own.resolve() else ()
    removed = [file for file in _files(folder) if file[0].name.startswith(LOWERED) or file[0].name.endswith(ours)]
    for path, _ in removed:
        path.unlink(missing_ok=True)
    return _counted(removed)


def _counted(files: Iterable[tuple[Path, int]]) -> CacheContents:
    counts = [(path.name.startswith(LOWERED), path.name.endswith(COMPILED), size) for path, size in files]
    return CacheContents(*(sum(column) for column in zip((False, False, 0), *counts, strict=True)))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Files of a folder and their sizes [B]; another process may remove some at any time."""
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.stat().st_size
