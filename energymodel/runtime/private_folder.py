"""Folders that can hold programs to run: the user's own, where nobody else can put files."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

OWN = 0o700
OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as of Linux


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can enter, and close one to readers that this user left open to them.

    A folder to which others could write stays as it is: what they put there would be trusted.

    **Raises:** `OSError`.
    """
    for path in [*reversed(folder.parents), folder]:
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # another process has just made it
                path.mkdir(mode=OWN)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == _user() and not status.st_mode & OTHERS:
        with contextlib.suppress(OSError):
            folder.chmod(OWN)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once or not at all: processes may share its folder.

    **Raises:** `OSError`.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        complete = Path(folder) / path.name
        complete.write_bytes(content)
        os.replace(complete, path)


def why_not_private(folder: Path) -> str | None:
    """Why others can put files into a folder, or may have done so, and what to do; `None` if nobody can.

    A folder that does not exist is as private as those above it. Where files have no owner, such as on Windows, the
    folder of a user counts as private.
    """
    if not hasattr(os, "geteuid"):
        return None
    folder = Path(os.path.abspath(folder))
    try:
        if folder.is_symlink():
            return f"{folder} is a link. Name the folder itself."
        return _reachable(folder) or _foreign(folder)
    except OSError as error:
        return f"{error.filename or folder} cannot be checked: {error.strerror}."


def _reachable(folder: Path, links: int = 0) -> str | None:
    """Why others can write to a folder or exchange it, one of those above it, or a link on the way."""
    for path in [*reversed(folder.parents), folder]:
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        if status.st_uid not in ((_user(),) if path == folder else (0, _user())):
            return f"{path} belongs to another user. Name a folder of your own."
        if stat.S_ISLNK(status.st_mode):
            if links == _MOST_LINKS:
                return f"{folder} has too many links. Name the folder itself."
            target = os.path.normpath(path.parent / os.readlink(path))
            return _reachable(Path(target) / folder.relative_to(path), links + 1)
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is no folder. Name another one."
        # In a sticky folder, such as /tmp, nobody can exchange what others own.
        if status.st_mode & OTHERS and not (status.st_mode & stat.S_ISVTX and path != folder):
            return f"others can write to {path}. Close it to them: chmod go-w {path}, or name another folder."
    return None


def _foreign(folder: Path) -> str | None:
    """What a folder holds that its owner did not put there."""
    with contextlib.suppress(FileNotFoundError):
        for entry in [*os.scandir(folder)]:
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                if entry.is_symlink() or entry.stat(follow_symlinks=False).st_uid != _user():
                    return f"{entry.path} is a link or belongs to another user. Remove it, or name another folder."
    return None


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
