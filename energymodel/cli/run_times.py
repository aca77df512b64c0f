"""How long will a command take? As long as it took before on this machine, or a stated time where it never ran.

The record is a file in this project's private cache folder. It holds seconds by stage and by program, and of a command
line only a digest.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from energymodel.cli.cache_folder import LOWERED, folder_in_use, is_chosen, own_folder
from energymodel.runtime.private_folder import make_private, why_not_private

FILE = "run_times.json"
KEPT = 20  # command lines of one command
ASSUMED = 60.0  # seconds of a first run where no run is recorded; README, "Quick start"
AGAIN = 1.0 / 6.0  # of a first run, what later ones take [README, "Quick start"]
COMPILED = 0.25  # share of a run that is spent on programs, above which it was a first one
_QUIET = ("-o", "--output", "--plot", "--json", "--open")  # options that change no work


class RunTimes(NamedTuple):
    """Seconds of one run."""

    total: float
    stages: dict[str, float]
    """In the order in which they began."""
    programs: dict[str, float]
    """To make each program; several may be made at once."""

    @property
    def first(self) -> bool:
        """Whether programs were compiled, and not loaded."""
        return sum(self.programs.values()) > COMPILED * self.total


class Estimate(NamedTuple):
    """What a run is expected to take."""

    seconds: float
    basis: str
    times: RunTimes | None = None
    """Of the run that it is taken from, if that was alike."""
    programs: dict[str, float] = {}  # noqa: RUF012
    """Seconds to compile or to load each program, as far as runs of any command tell."""


def stage_of(message: str) -> str:
    """The name of a stage: a message without its numbers."""
    return re.sub(r"\d[\d,.e+]*", "#", message)


def estimate() -> Estimate:
    """What the command that was typed will take, as far as earlier runs tell."""
    version, recorded = _read()
    compiled = version == _version() and _has_programs()
    kind, other = ("again", "first") if compiled else ("first", "again")
    runs = recorded.get(_command(), {})
    of_kind = [kinds[kind] for digests in recorded.values() for kinds in digests.values() if kind in kinds]
    programs = {name: seconds for one in of_kind for name, seconds in one.programs.items()}
    own = runs.get(_digest(), {})
    like = [kinds[kind] for kinds in runs.values() if kind in kinds]
    if kind in own:
        return Estimate(own[kind].total, "as the last time", own[kind], programs)
    if like:
        return Estimate(like[-1].total, "as a run like it", like[-1], programs)
    if other in own:
        factor, word = (AGAIN, "after the first run") if compiled else (1.0 / AGAIN, "compiling first")
        return Estimate(own[other].total * factor, word, programs=programs)
    return Estimate(ASSUMED, "assumed: no such run is recorded here", programs=programs)


def record(times: RunTimes) -> None:
    """Keep the times of the command that was typed, if it runs in a process of its own."""
    if not is_chosen() or folder_in_use().refusal is not None:
        return
    _, runs = _read()
    of_command = runs.setdefault(_command(), {})
    own = of_command.pop(_digest(), {})
    of_command[_digest()] = {**own, "first" if times.first else "again": times}  # the last one is the latest
    for digest in list(of_command)[:-KEPT]:
        del of_command[digest]
    tree = {
        command: {digest: {kind: one._asdict() for kind, one in kinds.items()} for digest, kinds in digests.items()}
        for command, digests in runs.items()
    }
    if (path := _path()) is not None:
        with contextlib.suppress(OSError):
            make_private(path.parent)
            _write(path, json.dumps({"version": _version(), "runs": tree}))


def _write(path: Path, text: str) -> None:
    """Write at once or not at all: commands may run at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        whole.write_text(text, encoding="utf-8")
        os.replace(whole, path)


def _path() -> Path | None:
    own = own_folder()
    return None if own is None or why_not_private(own) is not None else own / FILE


def _read() -> tuple[str, dict[str, dict[str, dict[str, RunTimes]]]]:
    """The version of this package that ran last, and all recorded runs; nothing if the file is missing or damaged."""
    path = _path()
    if path is None:
        return "", {}
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return str(tree["version"]), {
            str(command): {
                str(digest): {str(kind): _times(one) for kind, one in kinds.items()} for digest, kinds in runs.items()
            }
            for command, runs in tree["runs"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", {}


def _version() -> str:
    """Changes with the source of this package, whose programs are then compiled anew."""
    files = [path.stat() for path in Path(__file__).parents[1].rglob("*.py")]
    return f"{len(files)} {sum(one.st_size for one in files)} {max(one.st_mtime_ns for one in files)}"


def _has_programs() -> bool:
    folder = folder_in_use().path
    return folder is not None and any(folder.glob(f"{LOWERED}*"))


def _times(one: dict[str, Any]) -> RunTimes:
    stages, programs = (
        {str(key): _seconds(value) for key, value in one[part].items()} for part in RunTimes._fields[1:]
    )
    return RunTimes(_seconds(one["total"]), stages, programs)


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise ValueError(f"{value} s is no time")
    return seconds


def _command() -> str:
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "")


def _digest() -> str:
    """Of the command line, without where its answer goes."""
    words, skipped = [], False
    for word in sys.argv[1:]:
        if skipped or word.partition("=")[0] in _QUIET:
            skipped = not skipped and word in _QUIET[:3]
            continue
        words.append(word)
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]
