"""Powers and energies that a log of any of the known kinds states.

Read line by line: files of any length, and files that still grow, are read alike.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from energymodel.errors import InputError, suggest
from energymodel.readers.lines import NO_VALUE, UNREAD, Lines, Skipped, clean
from energymodel.readers.log_records import PowerReading
from energymodel.readers.power.codecarbon import is_codecarbon, read_codecarbon
from energymodel.readers.power.dcgm import is_dcgm, read_dcgm
from energymodel.readers.power.nvidia_smi import is_nvidia_smi, read_nvidia_smi
from energymodel.readers.power.rapl import is_rapl, read_rapl
from energymodel.readers.power.table import is_table, read_table
from energymodel.readers.power.zeus import is_zeus, read_zeus

__all__ = ["KINDS", "Skipped", "power_kind", "power_of", "read_power"]

LONGEST_NAME = 300  # characters of the name of a device; more are junk
HEAD = 60  # lines from which the kind of a file is recognized


READERS: Mapping[str, tuple[Callable[[list[str]], bool], Callable[..., Iterator[PowerReading | str]]]] = {
    "dcgm": (is_dcgm, read_dcgm),
    "codecarbon": (is_codecarbon, read_codecarbon),
    "zeus": (is_zeus, read_zeus),
    "rapl": (is_rapl, read_rapl),
    "nvidia-smi": (is_nvidia_smi, read_nvidia_smi),
    "table": (is_table, read_table),
}
"""How a kind is recognized from its first lines, and read: its readings, and why a line or a sample is left out. In the
order in which kinds are tried."""
KINDS = ("nvidia-smi", *(kind for kind in READERS if kind != "nvidia-smi"))


def power_kind(path: str | Path) -> str:
    """Kind of a log, recognized from its first lines.

    **Raises:** `InputError` if it is none of `KINDS` or cannot be read.
    """
    path = Path(path)
    head = list(islice(clean(Lines(path), Skipped()), HEAD))
    kind = next((kind for kind, (fits, _) in READERS.items() if head and fits(head)), None)
    if kind or path.suffix == ".prom":
        return kind or "dcgm"
    what = "holds no text" if not head else "is no log of power or energy that is known"
    raise InputError(f'"{path}" {what}. Known kinds: {", ".join(KINDS)}; in Python, give one as kind= if it is one.')


def read_power(
    path: str | Path, kind: str | None = None, *, interval: float | int | None = None, skipped: Skipped | None = None
) -> Iterator[PowerReading]:
    """Readings of a log, each as soon as its line is read.

    **Arguments:**

    - `kind`: one of `KINDS`; recognized from the file where it is left out.
    - `interval`: time between samples of `dcgm` logs without times [s].
    - `skipped`: gains the number of lines that were passed over, by reason.

    **Raises:** `InputError` for an unknown kind, and where the file cannot be read or holds no reading.
    """
    path, skipped = Path(path), Skipped() if skipped is None else skipped
    lines = Lines(path, left_out=skipped)
    return power_of(lines, kind or power_kind(path), str(path), interval=interval, skipped=skipped)


def power_of(
    lines: Iterable[str], kind: str, name: str, *, interval: float | int | None = None, skipped: Skipped | None = None
) -> Iterator[PowerReading]:
    """Readings of lines that come from anywhere, such as a file that still grows; `name` is what messages call them.

    **Raises:** `InputError` for an unknown kind, and at the end of lines that held no reading.
    """
    if kind not in KINDS:
        raise InputError(f'Unknown kind of power log "{kind}". {suggest(kind, KINDS)}')
    if interval is not None and not 0 < interval < 1e9:
        raise InputError(f"{name}: interval is {interval!r} s between samples. Give a positive number.")
    return _readings(lines, kind, name, interval, Skipped() if skipped is None else skipped)


def _readings(
    lines: Iterable[str], kind: str, name: str, interval: float | int | None, skipped: Skipped
) -> Iterator[PowerReading]:
    options, empty = {"interval": interval} if kind == "dcgm" else {}, True
    for reading in READERS[kind][1](clean(lines, skipped), name, **options):
        if isinstance(reading, str):
            skipped[reading] += 1
        elif math.isnan(reading.power) and math.isnan(reading.energy):
            skipped[NO_VALUE] += 1
        elif len(reading.device) > LONGEST_NAME or not reading.device.isprintable():
            skipped[UNREAD] += 1
        else:
            empty = False
            yield reading
    if empty:
        passed = "; ".join(f"{count} times {reason}" for reason, count in skipped.items())
        raise InputError(f"{name}: no reading of kind {kind}{f' ({passed})' if passed else ''}. Is it the right file?")
