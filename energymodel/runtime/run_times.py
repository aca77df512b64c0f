"""Times of earlier runs on this machine, from which the time of the next is estimated.

The record is a file in this project's private cache folder. It holds seconds by stage and by program, and of a command
line only a digest.
"""

import contextlib
import hashlib
import json
import math
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from energymodel.runtime.cache_folder import LOWERED, folder_in_use, own_folder, records_runs
from energymodel.runtime.private_folder import make_private, why_not_private, write_whole

FILE = "run_times.json"
RECORDED = 200  # runs
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
    command: str = ""
    digest: str = ""
    """Of the command line, without where its answer goes."""

    @property
    def first(self) -> bool:
        """Whether programs were compiled, and not loaded."""
        return sum(self.programs.values()) > COMPILED * self.total


class Estimate(NamedTuple):
    """What a run is expected to take."""

    seconds: float
    basis: str
    stages: dict[str, float] = {}  # noqa: RUF012
    """Of the run that it is taken from, if that was alike."""
    programs: dict[str, float] = {}  # noqa: RUF012
    """Seconds to compile or to load each program, as far as runs of any command tell."""


def stage_of(message: str) -> str:
    """The name of a stage: a message without its numbers."""
    return re.sub(r"\d[\d,.e+]*", "#", message)


def estimate() -> Estimate:
    """What the command that was typed will take, as far as earlier runs tell."""
    version, runs = _read()
    folder = folder_in_use().path
    loads = version == _version() and folder is not None and any(folder.glob(f"{LOWERED}*"))
    programs = {name: seconds for run in runs if run.first != loads for name, seconds in run.programs.items()}
    command, digest = _typed()
    alike = [run for run in runs if run.command == command]
    same = [run for run in alike if run.digest == digest]
    for basis, candidates in (("as the last time", same), ("as a run like it", alike)):
        if matching := [run for run in candidates if run.first != loads]:
            return Estimate(matching[-1].total, basis, matching[-1].stages, programs)
    if same:
        factor, basis = (AGAIN, "after the first run") if loads else (1.0 / AGAIN, "compiling first")
        return Estimate(same[-1].total * factor, basis, {}, programs)
    return Estimate(ASSUMED, "assumed: no such run is recorded here", {}, programs)


def record(times: RunTimes) -> None:
    """Keep the times of the command that was typed, if it runs in a process of its own."""
    path = _path()
    if path is None or not records_runs():
        return
    command, digest = _typed()
    own = times._replace(command=command, digest=digest)
    others = [run for run in _read()[1] if (run.digest, run.first) != (digest, own.first)]
    runs = [run._asdict() for run in [*others, own][-RECORDED:]]
    with contextlib.suppress(OSError):
        make_private(path.parent)
        write_whole(path, json.dumps({"version": _version(), "runs": runs}).encode())


def _path() -> Path | None:
    own = own_folder()
    return None if own is None or why_not_private(own) is not None else own / FILE


def _read() -> tuple[str, list[RunTimes]]:
    """The version of this package that ran last, and all recorded runs; nothing if the file is missing or damaged."""
    path = _path()
    try:
        tree = json.loads("" if path is None else path.read_text(encoding="utf-8"))
        return str(tree["version"]), [_times(**run) for run in tree["runs"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", []


def _times(total: Any, stages: Any, programs: Any, command: Any, digest: Any) -> RunTimes:
    own, made = ({str(name): float(seconds) for name, seconds in part.items()} for part in (stages, programs))
    for seconds in (float(total), *own.values(), *made.values()):
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"{seconds} s is no time")
    return RunTimes(float(total), own, made, str(command), str(digest))


def _version() -> str:
    """Changes with the source of this package, whose programs are then compiled anew."""
    files = [path.stat() for path in Path(__file__).parents[1].rglob("*.py")]
    return f"{len(files)} {sum(file.st_size for file in files)} {max(file.st_mtime_ns for file in files)}"


def _typed() -> tuple[str, str]:
    """The command that was typed, and a digest of its line without where its answer goes."""
    words, skipped = [], False
    for word in sys.argv[1:]:
        if skipped or word.partition("=")[0] in _QUIET:
            skipped = not skipped and word in _QUIET[:3]
            continue
        words.append(word)
    digest = hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]
    return next((word for word in sys.argv[1:] if not word.startswith("-")), ""), digest
