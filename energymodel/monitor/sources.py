"""Records of a run: from files as they are, replayed, or followed while they grow.

Each file that is followed has a thread that reads it. While one of them still has lines to read, the others wait, so
that a run that began long ago comes in its order; once all are read to their ends, records come as they are written.
"""

import heapq
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from energymodel.errors import InputError
from energymodel.readers.lines import LONGEST
from energymodel.readers.log_records import LoggedStep, Record
from energymodel.readers.power_log import power_kind, power_of, read_power
from energymodel.readers.step_log import log_kind, read_steps, steps_of

POLL = 0.5  # between two looks at a file that grows [s]
SOON = 0.01  # between two looks at what the threads have read [s]
UNKNOWN = 1 << 20  # bytes of a growing file after which its kind must be known
MOST_HELD = 10_000  # records of a file that wait for those of the others


def recorded(logs: Sequence[str | Path], powers: Sequence[str | Path]) -> Iterator[Record]:
    """The records of files in the order of their times; those without a time follow the ones before them.

    **Raises:** `InputError` for a file of no known kind.
    """

    def timed(records: Iterable[Record]) -> Iterator[tuple[float, Record]]:
        """Records with the time at which they come: their own, or that of the one before."""
        now = -math.inf
        for record in records:
            now = max(now, record.time) if math.isfinite(record.time) else now
            yield now, record

    parts = [timed(read_steps(path)) for path in logs] + [timed(read_power(path)) for path in powers]
    return (record for _, record in heapq.merge(*parts, key=lambda item: item[0]))


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


class _Tail:
    """A file that is read in a thread of its own."""

    def __init__(self, path: Path, is_log: bool, stop: threading.Event, poll: float) -> None:
        self.path, self.is_log, self._stop, self._poll = path, is_log, stop, poll
        self.at_end = threading.Event()  # set while the file has nothing more to read
        self.head: Record | None = None
        self.time = -math.inf  # of the head, or of the record before it if it has none
        self._held: queue.Queue[Record | InputError] = queue.Queue(MOST_HELD)
        threading.Thread(target=self._read, daemon=True, name=f"follow {path}").start()

    def is_waited_for(self) -> bool:
        """Look for the next record, and say whether there is none and one may come at once."""
        at_end = self.at_end.is_set()  # first: what is read afterwards is in the queue
        if self.head is None:
            try:
                record = self._held.get_nowait()
            except queue.Empty:
                return not at_end
            if isinstance(record, InputError):
                raise record
            self.head = record
            self.time = record.time if math.isfinite(record.time) else self.time
        return False

    def _read(self) -> None:
        name = str(self.path)
        try:
            kind = self._kind()
            if kind is not None:
                lines = self._lines()
                records: Iterable[Record] = steps_of(lines, kind, name) if self.is_log else power_of(lines, kind, name)
                for record in records:
                    self._put(record)
        except InputError as error:
            if not self._stop.is_set():
                self._put(error)
        finally:
            self.at_end.set()

    def _put(self, record: Record | InputError) -> None:
        while not self._stop.is_set() or not self._held.full():
            try:
                self._held.put(record, timeout=self._poll)
            except queue.Full:
                continue
            return

    def _kind(self) -> str | None:
        """The kind of the file, once its lines tell it; None if stopped."""
        while not self._stop.is_set():
            try:
                return log_kind(self.path) if self.is_log else power_kind(self.path)
            except InputError:
                if self.path.exists() and self.path.stat().st_size > UNKNOWN:
                    raise
                self.at_end.set()
                self._stop.wait(self._poll)
        return None

    def _lines(self) -> Iterator[str]:
        """Whole lines as they are written; a file that is truncated or replaced is read from its start."""
        held = ""
        file = self.path.open(encoding="utf-8-sig", errors="replace")
        try:
            while True:
                text = file.read(LONGEST)
                if text:
                    self.at_end.clear()
                    *lines, held = (held + text).split("\n")
                    yield from lines
                    held = held[-LONGEST:]
                    continue
                self.at_end.set()
                if self._stop.is_set():
                    return
                if self._is_replaced(file):
                    file.close()
                    file, held = self.path.open(encoding="utf-8-sig", errors="replace"), ""
                self._stop.wait(self._poll)
        finally:
            file.close()

    def _is_replaced(self, file: TextIO) -> bool:
        """Whether another file has the name now, or the file was cut."""
        try:
            named, opened = self.path.stat(), os.fstat(file.fileno())
        except OSError:
            return False
        return named.st_ino != opened.st_ino or opened.st_size < file.tell()


def followed(
    logs: Sequence[str | Path], powers: Sequence[str | Path], stop: threading.Event, poll: float = POLL
) -> Iterator[Record]:
    """Records of files as they are written, until `stop` is set; a file that is not there yet is waited for.

    **Raises:** `InputError` for a file of no known kind, and one that has no step or reading at its end.
    """
    tails = [_Tail(Path(path), True, stop, poll) for path in logs]
    tails += [_Tail(Path(path), False, stop, poll) for path in powers]
    try:
        while True:
            stopped = stop.is_set()
            waited = [tail for tail in tails if tail.is_waited_for()]
            ready = [tail for tail in tails if tail.head is not None]
            if (waited and not stopped) or not ready:
                if stopped and not ready:
                    return
                stop.wait(SOON)
                continue
            first = min(ready, key=lambda tail: tail.time)
            record, first.head = first.head, None
            if record is not None:
                yield record
    except InputError:
        stop.set()
        raise
