"""Samples of Linux powercap counters (RAPL) and `perf stat -e power/energy-pkg/ -I 1000 -x,`.

Powercap: a table of times and counters [µJ], `time,package-0,dram` with `energy_uj` or `_uj` in a name, or
`time,zone,energy_uj`; without a header two columns, time and counter. perf: energy of each interval [J].
"""

import math
import re
from collections.abc import Iterable, Iterator

from energymodel.errors import InputError
from energymodel.readers.cells import between, number, time_of, time_within
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped, cells
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.names import split_line, time_column

EVENT = re.compile(r"power/energy-(\w+)/\w*", re.ASCII)
NAMES = {"pkg": "cpu", "ram": "ram", "cores": "cores", "gpu": "integrated gpu", "psys": "psys"}
COUNTER = re.compile(r"(?:.*[_ .\[(])?uj[\])]?|.*energy_uj.*|intel-rapl[:\w]*", re.ASCII | re.IGNORECASE)
ZONES = ("zone", "domain", "package", "name", "device", "socket")
BESIDE = re.compile(r"([,;|\t:])Joules")
"""What parts the cells of perf's lines, as `-x` asks for it."""
RANGE = "max_energy_range"
RANGES = (65532.610987, 262143.32885)
"""Where the counters of Linux powercap wrap around, as `max_energy_range_uj` states it [J]."""
MOST_ZONE_POWER = 3000.0
"""Power that no socket draws [W]."""


class CarriedOn:
    """A counter [J] that goes on rising; `wraps_at` [J] is where it begins at zero again, if that is known."""

    def __init__(self, wraps_at: float = math.nan) -> None:
        self.wraps_at = wraps_at
        self.sum = 0.0
        self.last = self.time = math.nan

    def add(self, time: float, energy: float) -> float:
        """The counter, carried on [J]."""
        if math.isnan(self.last):
            self.sum = energy
        elif energy >= self.last:
            self.sum += energy - self.last
        else:
            self.sum += self._over(time - self.time, energy)
        self.last, self.time = energy, time
        return self.sum

    def _over(self, seconds: float, energy: float) -> float:
        """Energy since the last reading, if the counter has wrapped around; if it has started anew, what it shows."""
        ranges = RANGES if math.isnan(self.wraps_at) else (self.wraps_at,)
        for end in ranges:
            rise = energy + end - self.last
            if self.last <= end * (1 + 1e-9) and 0 <= rise <= MOST_ZONE_POWER * max(seconds, 0.0):
                return rise
        return energy if energy <= MOST_ZONE_POWER * max(seconds, 0.0) else 0.0


def is_rapl(lines: list[str]) -> bool:
    """Whether lines are samples of powercap counters, or what perf prints of them."""
    return any(EVENT.search(line) for line in lines) or any(_columns(line) for line in lines[:20])


def _columns(line: str) -> tuple[int, dict[int, str]] | None:
    """Place of the time, and zones of the other columns, if a line is a header."""
    row = split_line(line)
    time = time_column(row)
    zones = {
        index: _zone(name)
        for index, name in enumerate(row)
        if index != time and COUNTER.fullmatch(name) and RANGE not in name.lower()
    }
    return (time, zones) if time is not None and zones else None


def _zone(name: str) -> str:
    """Zone that a column names; a single counter is that of the processor."""
    zone = re.sub(r"[_ .:/\[(-]*(?:energy)?_?uj[\])]?$", "", name, flags=re.IGNORECASE).strip("_ .")
    return zone or "cpu"


def read_rapl(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings of each zone; counters that wrap around are carried on.

    **Raises:** `InputError` if perf gives no times.
    """
    columns: tuple[int, dict[int, str]] | None = None
    header: list[str] = []
    counters: dict[str, CarriedOn] = {}
    perf = Perf(name)
    for line in lines:
        if line.startswith("#"):
            perf.begin(line)
        elif EVENT.search(line):
            if reading := perf.readings(line):
                yield from reading
            else:
                skipped[NO_VALUE] += 1
        elif again := _columns(line):
            columns, header = again, [cell.lower() for cell in split_line(line)]
        else:
            row = split_line(line)
            if columns is None and len(row) == 1:
                row = line.split()
            yield from _samples(row, header, columns or (0, {1: "cpu"}), counters, skipped)


def _samples(
    row: list[str],
    header: list[str],
    columns: tuple[int, dict[int, str]],
    counters: dict[str, CarriedOn],
    skipped: Skipped,
) -> Iterator[PowerReading]:
    """Counters of one line of a table."""
    index, zones = columns
    time = time_of(row[index]) if index < len(row) else NOT_SAID
    if math.isnan(time):
        skipped[UNREAD] += 1
        return
    range_place = next((at for at, name in enumerate(header) if RANGE in name and at < len(row)), None)
    wraps = number(row[range_place]) * 1e-6 if range_place is not None else math.nan
    prefix = next((row[at] for at, name in enumerate(header) if name in ZONES and at < len(row)), "")
    for at, zone in zones.items():
        device = (prefix if len(zones) == 1 else f"{prefix}:{zone}") if prefix else zone
        raw = between(number(row[at]) * 1e-6, 0.0, 1e12) if at < len(row) else NOT_SAID
        if raw != raw:
            skipped[NO_VALUE] += 1
            continue
        counter = counters.setdefault(device, CarriedOn(wraps))
        yield PowerReading(time=time, device=device, energy=counter.add(time, raw))


class Perf:
    """Sums of the intervals that perf prints."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start = 0.0
        self.sums: dict[str, tuple[float, float]] = {}

    def begin(self, line: str) -> None:
        """Take the start of the run from perf's first line."""
        time = time_within(line)
        if time == time and not self.sums:
            self.start = time

    def readings(self, line: str) -> list[PowerReading]:
        """The interval of a line, with a reading at its start where it is the first; nothing for one not counted.

        **Raises:** `InputError` for a line without a time.
        """
        beside = BESIDE.search(line)
        row = cells(line, beside[1]) if beside else line.split()
        if beside and beside[1] != ",":  # a decimal comma
            row = [re.sub(r"^(\d+),(\d+)$", r"\1.\2", cell) for cell in row]
        joules = next((index for index, cell in enumerate(row) if cell.lower() == "joules"), None)
        if joules is None or joules < 1:
            return []
        if joules == 1:
            raise InputError(f"{self.name}: perf gives no times. Let it print intervals: perf stat -I 1000 -x,")
        time, energy = number(row[0]), number(row[joules - 1].replace(",", ""))
        match = EVENT.search(line)
        kind = match[1] if match else "pkg"
        device = ":".join([*([row[1]] if re.match(r"(?:S\d|CPU\d|N\d)", row[1]) else []), NAMES.get(kind, kind)])
        last, total = self.sums.get(device, (0.0, 0.0))
        if not time > last or not 0 <= energy <= MOST_ZONE_POWER * 64 * (time - last):
            return []
        self.sums[device] = (time, total + energy)
        power = energy / (time - last)
        begin = [PowerReading(time=self.start, device=device, energy=0.0, fresh=True)] if not last else []
        return [*begin, PowerReading(time=self.start + time, device=device, energy=total + energy, power=power)]
