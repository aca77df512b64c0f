"""Seconds that earlier runs of a command took on this machine, from which those of the next are estimated.

The record is a file in this project's private cache folder. Of a command line it holds only a digest.
"""

import contextlib
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import NamedTuple

from energymodel.runtime.cache_folder import LOWERED, folder_in_use, own_folder, records_runs
from energymodel.runtime.private_folder import make_private, why_not_private, write_whole

FILE = "run_times.json"
RECORDED = 200  # runs
ASSUMED = 60.0  # seconds of a first run where no run is recorded; README, "Quick start"
AGAIN = 1.0 / 6.0  # of a first run, what later ones take [README, "Quick start"]
COMPILED = 0.25  # share of a run that is spent on programs, above which it was a first one
FIRST, LATER = "first", "later"
_QUIET = ("-o", "--output", "--plot", "--json", "--open")  # options that change no work


class Estimate(NamedTuple):
    """Seconds that a run is expected to take, and why; `alike` if such a run is recorded."""

    seconds: float
    basis: str
    alike: bool = False


def estimate() -> Estimate:
    """What the command that was typed will take, as far as earlier runs tell."""
    version, runs = _read()
    folder = folder_in_use().path
    loads = version == _version() and folder is not None and any(folder.glob(f"{LOWERED}*"))
    kind, other, factor, basis = (
        (LATER, FIRST, AGAIN, "after the first run") if loads else (FIRST, LATER, 1.0 / AGAIN, "compiling first")
    )
    command, digest = _typed()
    for name, words in ((digest, "as the last time"), (command, "as a run like it")):
        if (seconds := runs.get(f"{name} {kind}")) is not None:
            return Estimate(seconds, words, alike=True)
    if (seconds := runs.get(f"{digest} {other}")) is not None:
        return Estimate(seconds * factor, basis)
    return Estimate(ASSUMED, "assumed: no such run is recorded here")


def record(seconds: float, on_programs: float) -> None:
    """Keep the seconds of the command that was typed, if it runs in a process of its own.

    **Arguments:**

    - `on_programs`: of `seconds`, those in which programs were compiled or loaded.
    """
    path = _path()
    if path is None or not records_runs():
        return
    kind = FIRST if on_programs > COMPILED * seconds else LATER
    own = {f"{name} {kind}": seconds for name in _typed()}
    runs = {name: value for name, value in _read()[1].items() if name not in own} | own
    last = dict([*runs.items()][-2 * RECORDED :])
    with contextlib.suppress(OSError):
        make_private(path.parent)
        write_whole(path, json.dumps({"version": _version(), "runs": last}).encode())


def _path() -> Path | None:
    own = own_folder()
    return None if own is None or why_not_private(own) is not None else own / FILE


def _read() -> tuple[str, dict[str, float]]:
    """The version of this package that ran last, and all recorded runs; nothing if the file is missing or damaged."""
    path = _path()
    try:
        tree = json.loads("" if path is None else path.read_text(encoding="utf-8"))
        runs = {str(name): float(seconds) for name, seconds in tree["runs"].items()}
        return (str(tree["version"]), runs) if all(0.0 <= each < math.inf for each in runs.values()) else ("", {})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", {}


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
