"""Samples of Linux powercap counters (RAPL) and `perf stat -e power/energy-pkg/ -I 1000 -x,`.

Powercap: a table of times and counters [µJ], `time,package-0,dram` with `energy_uj` or `_uj` in a name, or
`time,zone,energy_uj`; without a header two columns, time and counter. perf: energy of each interval [J].
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from energymodel.errors import InputError
from energymodel.readers.lines import UNREAD, between, cells, number, time_of, time_within
from energymodel.readers.log_records import PowerReading
from energymodel.readers.power.table import split_line, time_column

EVENT = re.compile(r"power/energy-(\w+)/\w*", re.ASCII)
NAMES = {"pkg": "cpu", "ram": "ram", "cores": "cores", "gpu": "integrated gpu", "psys": "psys"}
COUNTER = re.compile(r"(?:.*[_ .\[(])?uj[\])]?|.*energy_uj.*|intel-rapl[:\w]*", re.ASCII | re.IGNORECASE)
ZONES = ("zone", "domain", "package", "name", "device", "socket")
BESIDE = re.compile(r"([,;|\t:])Joules")  # what parts the cells of perf's lines, as `-x` asks for it
RANGE = "max_energy_range"  # a column that is no counter
MOST_ZONE_POWER = 3000.0  # power that no socket draws [W]


class Header(NamedTuple):
    """Columns of a table of counters: the time, zones by column, and the zone of a row."""

    time: int
    zones: dict[int, str]
    zone: int | None = None


BARE = Header(0, {1: "cpu"})  # a table without a header


def is_rapl(lines: list[str]) -> bool:
    """Whether lines are samples of powercap counters, or what perf prints of them."""
    return any(EVENT.search(line) for line in lines) or any(_header(line) for line in lines[:20])


def _header(line: str) -> Header | None:
    row = split_line(line)
    time, names = time_column(row), [name.lower() for name in row]
    zones = {}
    for index, name in enumerate(row):
        if index != time and COUNTER.fullmatch(name) and RANGE not in names[index]:
            zone = re.sub(r"[_ .:/\[(-]*(?:energy)?_?uj[\])]?$", "", name, flags=re.IGNORECASE).strip("_ .")
            zones[index] = zone or "cpu"  # a single counter is that of the processor
    if time is None or not zones:
        return None
    return Header(time, zones, next((index for index, name in enumerate(names) if name in ZONES), None))


def read_rapl(lines: Iterable[str], name: str) -> Iterator[PowerReading | str]:
    """Readings of each zone.

    **Raises:** `InputError` if perf gives no times.
    """
    header: Header | None = None
    start, sums = 0.0, {}
    for line in lines:
        if line.startswith("#"):
            time = time_within(line)
            start = start if math.isnan(time) or sums else time
        elif EVENT.search(line):
            yield from _of_perf(line, name, start, sums)
        elif again := _header(line):
            header = again
        else:
            row = split_line(line)
            row = line.split() if header is None and len(row) == 1 else row
            yield from _samples(row, header or BARE)


def _samples(row: list[str], header: Header) -> Iterator[PowerReading | str]:
    """Counters of one line of a table."""

    def cell(index: int | None) -> str:
        return row[index] if index is not None and index < len(row) else ""

    time, prefix = time_of(cell(header.time)), cell(header.zone)
    if math.isnan(time):
        yield UNREAD
        return
    for index, zone in header.zones.items():
        device = (prefix if len(header.zones) == 1 else f"{prefix}:{zone}") if prefix else zone
        yield PowerReading(time, device, energy=between(number(cell(index)) * 1e-6, 0.0, 1e12))


def _of_perf(line: str, name: str, start: float, sums: dict[str, tuple[float, float]]) -> list[PowerReading]:
    """The interval of a line of perf, with a reading at its start where it is the first.

    `sums` are time and energy so far.

    **Raises:** `InputError` for a line without a time.
    """
    beside = BESIDE.search(line)
    row = cells(line, beside[1]) if beside else line.split()
    if beside and beside[1] != ",":  # a decimal comma
        row = [re.sub(r"^(\d+),(\d+)$", r"\1.\2", cell) for cell in row]
    joules = next((index for index, cell in enumerate(row) if cell.lower() == "joules"), 0)
    if joules == 1:
        raise InputError(f"{name}: perf gives no times. Let it print intervals: perf stat -I 1000 -x,")
    match = EVENT.search(line)
    if not joules or not match:
        return [PowerReading(start, "")]
    time, energy = number(row[0]), number(row[joules - 1].replace(",", ""))
    socket = [row[1]] if re.match(r"S\d|CPU\d|N\d", row[1]) else []
    device = ":".join([*socket, NAMES.get(match[1], match[1])])
    last, total = sums.get(device, (0.0, 0.0))
    if not time > last or not 0 <= energy <= MOST_ZONE_POWER * 64 * (time - last):
        return [PowerReading(start + time, device)]
    sums[device] = (time, total + energy)
    begin = [PowerReading(time=start, device=device, energy=0.0, fresh=True)] if not last else []
    power = energy / (time - last)
    return [*begin, PowerReading(time=start + time, device=device, energy=total + energy, power=power)]
