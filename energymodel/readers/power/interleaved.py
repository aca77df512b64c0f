"""Devices of the rows of a table that interleaves several and names none."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.lines import Skipped
from energymodel.readers.log_records import PowerReading

MOST_ROWS = 256  # rows that are read ahead to count the devices; fewer where the pattern is plain
PAUSE = 0.4  # a pause between samples, relative to a long gap between rows; gaps within a sample are shorter than that
SHORTEST_PAUSE = 0.003  # rows of one sample come within this time of each other, whatever else [s]
MOST_DEVICES = 16
ONE_SAMPLE = 0.02  # no more rows than devices, this close to each other, are one sample, taken without `-l` [s]
AGREE = 0.9  # share of the rows that samples of one size must hold
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
        if len(ahead) in (24, 48, 96) and (pattern := _pattern([row.time for row in ahead], settled=True)):
            break
        if len(ahead) == MOST_ROWS:
            break
    if not ahead:
        return
    pattern = pattern or _pattern([row.time for row in ahead], settled=False)
    if pattern is None:
        raise InputError(f"{name}: cannot tell which row is of which device. Add index to the query of nvidia-smi.")
    devices, pause = pattern
    for sample in _samples(chain(ahead, rows), devices, pause, skipped):
        for index, row in sample:
            if row.power == row.power or row.energy == row.energy:
                yield replace(row, device=str(index))


def _pattern(times: list[float], settled: bool) -> tuple[int, float] | None:
    """Number of devices, and the pause between samples [s], if the pauses show them."""
    gaps = np.abs(np.diff(np.asarray(times)))
    if not gaps.size:
        return None if settled else (1, 0.0)
    best = (0.0, 1, 0.0)
    parted = False
    for share in (0.5, 0.75, 0.9, 0.95, 0.98, 1.0):
        pause = max(PAUSE * float(np.quantile(gaps, share)), SHORTEST_PAUSE)
        long = gaps > pause
        if np.all(long) or not np.any(long):
            continue
        parted = parted or 0.2 * gaps.size < np.count_nonzero(~long)
        size, agree = _usual(np.flatnonzero(long), len(times))
        if agree > 0 and agree >= best[0]:  # the longest pause that fits: rows of a busy host come slowly
            best = (agree, size, pause)
    if settled:
        if best[0] == 1.0:
            return best[1], best[2]
        # A device of its own comes as evenly as it is asked for.
        return (1, 0.0) if float(np.min(gaps)) > max(0.5 * float(np.max(gaps)), SHORTEST_PAUSE) else None
    if best[0] >= AGREE:
        return best[1], best[2]
    # Rows that come evenly are of one device; rows in bunches of changing size could be of any.
    if parted:
        return None
    one_sample = len(times) <= MOST_DEVICES and float(np.max(gaps)) < ONE_SAMPLE
    return (len(times), math.inf) if one_sample else (1, 0.0)


def _usual(ends: np.ndarray, rows: int) -> tuple[int, float]:
    """Usual number of rows between pauses, and the share of rows in samples of that number, or twice that, ..."""
    groups = np.diff(np.concatenate([[-1], ends, [rows - 1]]))
    inner = groups[1:-1] if groups.size > 3 else groups
    sizes, counts = np.unique(inner, return_counts=True)
    size = int(sizes[np.argmax(counts * sizes)])
    return size, float(np.sum(inner[inner % size == 0])) / float(np.sum(inner)) if size > 1 else 0.0


def _samples(
    rows: Iterable[PowerReading], devices: int, pause: float, skipped: Skipped
) -> Iterator[list[tuple[int, PowerReading]]]:
    """Rows of one sample after the other, with their places."""
    held: list[PowerReading] = []  # what a pause ended before it was whole
    rows_now: list[PowerReading] = []
    first = True
    last = math.nan
    for row in rows:
        if rows_now and abs(row.time - last) > pause:
            if held and len(held) + len(rows_now) == devices:  # nvidia-smi was held up within a sample
                yield list(enumerate(held + rows_now))
                held, first = [], False
            else:
                yield from _left(held, devices, first, skipped)
                first = first and not held
                held = rows_now
            rows_now = []
        rows_now.append(row)
        last = row.time
        if len(rows_now) == devices:
            yield from _left(held, devices, first, skipped)
            yield list(enumerate(rows_now))
            held, rows_now, first = [], [], False
    if len(held) + len(rows_now) <= devices and held and rows_now:
        yield list(enumerate(held + rows_now))
        return
    yield from _left(held, devices, first and bool(rows_now), skipped)
    if rows_now:
        yield list(enumerate(rows_now))


def _left(
    rows: list[PowerReading], devices: int, first: bool, skipped: Skipped
) -> Iterator[list[tuple[int, PowerReading]]]:
    """What is left of a sample: of the first one of a file its end; of another one an unknown part."""
    if rows and first:
        yield list(enumerate(rows, start=devices - len(rows)))
    elif rows:
        skipped[CUT] += len(rows)
