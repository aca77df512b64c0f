"""Whose row is it, where a table interleaves the rows of several devices and names none?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.log_records import PowerReading
from energymodel.readers.power.lines import Skipped

MOST_ROWS = 256
"""Rows that are read ahead to count the devices; fewer where the pattern is plain."""
CUT = "row of a sample that is not whole"


def with_places(rows: Iterable[PowerReading], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings named "0", "1" ... by their place in their sample.

    A sample that is cut at the start of the file holds its last devices, one cut at the end its first; in between it is
    left out and counted.

    **Raises:** `InputError` if no number of devices explains the pauses between rows.
    """
    rows = iter(rows)
    ahead: list[PowerReading] = []
    pattern = None
    for row in rows:
        ahead.append(row)
        if len(ahead) in (24, 48, 96) and (pattern := _pattern([one.time for one in ahead], settled=True)):
            break
        if len(ahead) == MOST_ROWS:
            break
    if not ahead:
        return
    pattern = pattern or _pattern([one.time for one in ahead], settled=False)
    if pattern is None:
        raise InputError(f"{name}: cannot tell which row is of which device. Add index to the query of nvidia-smi.")
    devices, pause = pattern
    for sample in _samples(_both(ahead, rows), devices, pause, skipped):
        for place, row in sample:
            if row.power == row.power or row.energy == row.energy:
                yield replace(row, device=str(place))


def _both(first: list[PowerReading], then: Iterator[PowerReading]) -> Iterator[PowerReading]:
    yield from first
    yield from then


def _pattern(times: list[float], settled: bool) -> tuple[int, float] | None:
    """Number of devices, and the pause between samples [s], if the pauses show them."""
    gaps = np.abs(np.diff(np.asarray(times)))
    best: tuple[float, int, float] | None = None
    for share in (0.3, 0.5, 0.75, 0.9, 0.95, 0.98, 1.0):
        pause = 0.5 * float(np.quantile(gaps, share)) if gaps.size else 0.0
        ends = np.flatnonzero(gaps > pause)
        inner = np.diff(ends)  # samples between two pauses are whole
        if inner.size == 0:
            continue
        sizes, counts = np.unique(inner, return_counts=True)
        size = int(sizes[np.argmax(counts)])
        agree = float(np.sum(inner[inner % size == 0])) / float(np.sum(inner))
        if settled and (agree < 1 or inner.size < 3 or len(sizes) > 1):
            continue
        if best is None or agree > best[0]:
            best = (agree, size, pause)
    if best is None:
        # One sample, or rows without any pause between them.
        return None if settled else ((len(times), np.inf) if not np.any(gaps > 0.05) else (1, 0.0))
    return (best[1], best[2]) if best[0] >= 0.6 else None


def _samples(
    rows: Iterable[PowerReading], devices: int, pause: float, skipped: Skipped
) -> Iterator[list[tuple[int, PowerReading]]]:
    """Rows of one sample after the other, with their places."""
    pending: list[PowerReading] = []
    first = True
    last = None
    for row in rows:
        if last is not None and abs(row.time - last) > pause and pending:
            if first:
                yield list(enumerate(pending, start=devices - len(pending)))
                pending = []
            elif len(pending) != devices:
                skipped[CUT] += len(pending)
                pending = []
            first = False
        pending.append(row)
        last = row.time
        if len(pending) == devices:
            yield list(enumerate(pending))
            pending = []
            first = False
    if pending:
        yield list(enumerate(pending))
