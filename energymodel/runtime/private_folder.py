"""Can a folder hold programs that this process runs: is it the user's own, and can nobody else put files there?"""

import contextlib
import os
import stat
from pathlib import Path

OWN = 0o700
OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as of Linux


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can enter, and close one to readers that this user left open to them.

    A folder to which others could write stays as it is: what they put there would be trusted.

    **Raises:** `OSError`.
    """
    for one in [*reversed(folder.parents), folder]:
        if not one.exists():
            with contextlib.suppress(FileExistsError):  # another process has just made it
                one.mkdir(mode=OWN)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == _user() and not found.st_mode & OTHERS:
        with contextlib.suppress(OSError):
            folder.chmod(OWN)


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
    for one in [*reversed(folder.parents), folder]:
        try:
            found = one.lstat()
        except FileNotFoundError:
            return None
        trusted = (_user(),) if one == folder else (0, _user())
        if found.st_uid not in trusted:
            return f"{one} belongs to another user. Name a folder of your own."
        if stat.S_ISLNK(found.st_mode):
            if links == _MOST_LINKS:
                return f"{folder} has too many links. Name the folder itself."
            target = os.path.normpath(one.parent / os.readlink(one))
            return _reachable(Path(target) / folder.relative_to(one), links + 1)
        if not stat.S_ISDIR(found.st_mode):
            return f"{one} is no folder. Name another one."
        # In a sticky folder, such as /tmp, nobody can exchange what others own.
        if found.st_mode & OTHERS and not (found.st_mode & stat.S_ISVTX and one != folder):
            return f"others can write to {one}. Close it to them: chmod go-w {one}, or name another folder."
    return None


def _foreign(folder: Path) -> str | None:
    """What a folder holds that its owner did not put there."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return None
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            if entry.is_symlink() or entry.stat(follow_symlinks=False).st_uid != _user():
                return f"{entry.path} is a link or belongs to another user. Remove it, or name another folder."
    return None


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
