"""Where do the records of a run come from: files as they are, files that grow, or a recorded run at any speed?"""

import heapq
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from energymodel.errors import InputError
from energymodel.readers.lines import LONGEST
from energymodel.readers.log_records import LogEvent, LoggedStep, PowerReading
from energymodel.readers.power_log import power_kind, power_of, read_power
from energymodel.readers.step_log import log_kind, read_steps, steps_of

Record = LoggedStep | LogEvent | PowerReading
POLL = 0.5
"""Between two looks at a file that grows [s]."""
UNKNOWN = 1 << 20
"""Bytes of a growing file after which its kind must be known."""


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


def followed(
    logs: Sequence[str | Path], powers: Sequence[str | Path], stop: threading.Event, poll: float = POLL
) -> Iterator[Record]:
    """Records of files as they are written, until `stop` is set; a file that is not there yet is waited for."""
    waiting: queue.Queue[Record | Exception] = queue.Queue()

    def read(path: Path, is_log: bool) -> None:
        try:
            head = _head(path, stop, poll, is_log)
            if head is None:
                return
            kind, lines = head
            for record in steps_of(lines, kind, str(path)) if is_log else power_of(lines, kind, str(path)):
                waiting.put(record)
        except InputError as error:
            if not stop.is_set():
                waiting.put(error)

    for path, is_log in [*((one, True) for one in logs), *((one, False) for one in powers)]:
        threading.Thread(target=read, args=(Path(path), is_log), daemon=True, name=f"follow {path}").start()
    while not stop.is_set() or not waiting.empty():
        try:
            found = waiting.get(timeout=poll)
        except queue.Empty:
            continue
        if isinstance(found, Exception):
            stop.set()
            raise found
        yield found


def _head(path: Path, stop: threading.Event, poll: float, is_log: bool) -> tuple[str, Iterable[str]] | None:
    """The kind of a file that grows, once its lines tell it, and its lines from the first; nothing if stopped."""
    while not stop.is_set():
        try:
            kind = log_kind(path) if is_log else power_kind(path)
        except InputError:
            if path.exists() and path.stat().st_size > UNKNOWN:
                raise
            stop.wait(poll)
            continue
        return kind, _growing_lines(path, stop, poll)
    return None


def _growing_lines(path: Path, stop: threading.Event, poll: float) -> Iterator[str]:
    """Whole lines of a file as they are written; one that is truncated or replaced is read from its start."""
    held = ""
    file = path.open(encoding="utf-8-sig", errors="replace")
    try:
        while True:
            text = file.read(LONGEST)
            if text:
                *lines, held = (held + text).split("\n")
                yield from lines
                held = held[-LONGEST:]
                continue
            if stop.is_set():
                return
            if path.exists() and path.stat().st_size < file.tell():
                file.close()
                file, held = path.open(encoding="utf-8-sig", errors="replace"), ""
            stop.wait(poll)
    finally:
        file.close()
