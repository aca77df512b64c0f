"""Where do the records of a run come from: files as they are, or a recorded run at any speed?"""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep, PowerReading
from energymodel.readers.power_log import read_power
from energymodel.readers.step_log import read_steps

Record = LoggedStep | LogEvent | PowerReading


def recorded(logs: Sequence[str | Path], powers: Sequence[str | Path]) -> Iterator[Record]:
    """The records of files in the order of their times; those without a time follow the ones before them.

    **Raises:** `InputError` for a file of no known kind.
    """
    parts = [_timed(read_steps(path)) for path in logs] + [_timed(read_power(path)) for path in powers]
    return (record for _, _, record in heapq.merge(*(_keyed(part, place) for place, part in enumerate(parts))))


def _timed(records: Iterable[Record]) -> Iterator[tuple[float, Record]]:
    """Records with the time at which they come: their own, or that of the one before."""
    now = -math.inf
    for record in records:
        now = max(now, record.time) if math.isfinite(record.time) else now
        yield now, record


def _keyed(timed: Iterable[tuple[float, Record]], place: int) -> Iterator[tuple[float, tuple[int, int], Record]]:
    """The same with a key that never compares records."""
    for count, (moment, record) in enumerate(timed):
        yield moment, (place, count), record


def replayed(records: Iterable[Record], speed: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[Record]:
    """Records at the pace of their times, so many times as fast.

    **Raises:** `InputError` for a speed that is none.
    """
    if not (math.isfinite(speed) and speed > 0.0):
        raise InputError(f"replay: {speed} is no speed. Give for example 1000.")
    before = math.nan
    for record in records:
        own = record.time
        if not math.isfinite(own) and isinstance(record, LoggedStep) and record.step_time > 0.0:
            own = before + record.step_time if math.isfinite(before) else 0.0
        if own > before:
            sleep((own - before) / speed)
        before = own if math.isfinite(own) else before
        yield record
