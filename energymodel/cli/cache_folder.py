"""Where are compiled programs kept between runs, how much room do they take, and how are they removed?"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = "JAX_COMPILATION_CACHE_DIR"
LOWERED = "energymodel-"  # the beginning of the names that `compilation.Compiled` gives
COMPILED, USED = "-cache", "-atime"  # the ends of the names that JAX gives: a program, and when it was last used


class CacheContents(NamedTuple):
    """Files of a cache folder."""

    lowered: int
    """Programs of this package, lowered, of this and of other versions."""
    compiled: int
    """Programs compiled by JAX."""
    size: int
    """Size of all files [B]."""


def default_folder() -> Path:
    """The folder of the command line, unless the environment names another."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "energymodel" / "compiled"


def keep_compiled_programs() -> None:
    """Point JAX at a cache folder, unless the environment already does; JAX reads this when it is imported."""
    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a home that cannot be written: compile each time
    os.environ.setdefault(FOLDER, str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def folder_in_use() -> Path:
    """The folder that commands use."""
    return Path(os.environ.get(FOLDER) or default_folder())


def contents(folder: Path) -> CacheContents:
    """Count the programs of a folder."""
    files = list(_files(folder))
    lowered = sum(path.name.startswith(LOWERED) for path, _ in files)
    compiled = sum(path.name.endswith(COMPILED) for path, _ in files)
    return CacheContents(lowered, compiled, sum(size for _, size in files))


def clear(folder: Path) -> CacheContents:
    """Remove the programs of a folder, and leave every other file.

    A folder that the environment names may hold compiled programs of other projects; there only this package's lowered
    programs are removed.

    **Returns:** what was removed.

    **Raises:** `OSError` if a file cannot be removed.
    """
    ours = folder.resolve() == default_folder().resolve()
    lowered = compiled = removed = 0
    for path, size in list(_files(folder)):
        is_lowered, is_compiled = path.name.startswith(LOWERED), path.name.endswith(COMPILED)
        if is_lowered or (ours and path.name.endswith((COMPILED, USED))):
            path.unlink(missing_ok=True)
            lowered, compiled, removed = lowered + is_lowered, compiled + is_compiled, removed + size
    return CacheContents(lowered, compiled, removed)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Files of a folder and their sizes [B]; another process may remove some at any time."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        try:
            size = path.stat().st_size
        except OSError:
            continue
        if path.is_file() and not path.is_symlink():
            yield path, size
