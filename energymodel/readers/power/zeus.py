"""What do the monitors of Zeus write?

- `ZeusMonitor(log_file=...)`: a line a window, `start_time,window_name,elapsed_time,gpu0_energy,...` [s, J].
- `PowerMonitor(power_csv_path=...)`: no header, `time,power of GPU 0,power of GPU 1,...` [s, W].
- `python -m zeus.monitor power`: a line a sample, `2024-05-01 12:00:00 {'GPU0': 65.1}` [W].
- The monitor of 2022: `Time,Power` [mW], a file a GPU.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from energymodel.errors import InputError
from energymodel.readers.cells import MOST_POWER, between, number, time_of
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped, cells
from energymodel.readers.log_records import NOT_SAID, PowerReading

ENERGY = re.compile(r"(gpu|cpu|dram)(\d+)_energy", re.ASCII)
POWER = re.compile(r"power_?(\d*)|gpu_?(\d+)(?:_?power)?", re.ASCII | re.IGNORECASE)
PRINTED = re.compile(r"['\"]?GPU(\d+)['\"]?: *([\d.]+)", re.ASCII)
DICTIONARY = re.compile(r"\{(.*)\}")
OVERLAPS = "window that overlaps another one"
WINDOW = "start_time,window_name,elapsed_time"


def is_zeus(lines: list[str]) -> bool:
    """Whether lines are one of these files."""
    first = next((line for line in lines if line), "")
    if first.lower().startswith(WINDOW) or _powers_of(first) or any("{" in line and _printed(line) for line in lines):
        return True
    # The last line of a file that grows may be half of one.
    return bool(lines) and all(_plain(line) for line in lines[: max(len(lines) - 1, 1)])


def _powers_of(line: str) -> dict[int, str]:
    """Devices by column, if a line is the header of a table of powers."""
    row = cells(line)
    if len(row) < 2 or row[0].lower() != "time":
        return {}
    found: dict[int, str] = {}
    for place, cell in enumerate(row[1:], start=1):
        match = POWER.fullmatch(cell)
        if match is None:
            return {}
        found[place] = match[1] or match[2] or str(place - 1)
    return found


def _plain(line: str) -> bool:
    """Whether a line has a time since 1970 and powers, and nothing else."""
    row = [number(cell) for cell in line.split(",")]
    return len(row) > 1 and 1e9 <= row[0] < 1e10 and all(0 <= one < MOST_POWER for one in row[1:])


def _printed(line: str) -> list[tuple[str, str]]:
    found = DICTIONARY.search(line)
    return PRINTED.findall(found[1]) if found else []


def read_zeus(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings of one of these files.

    **Raises:** `InputError` for a log of windows without the energy of a device.
    """
    powers: Mapping[int, str] = {}
    factor, before = 1.0, NOT_SAID
    rows = iter(lines)
    for line in rows:
        if line.lower().startswith(WINDOW):
            yield from _windows(cells(line), rows, name, skipped)
            return
        if found := _powers_of(line):
            powers = found
            # The monitor of 2022 wrote what NVML gives; the later one columns without capitals.
            factor = 1e-3 if cells(line) == ["Time", "Power"] else 1.0
            continue
        if printed := _printed(line):
            time = time_of(line.partition("{")[0])
            yield from _row(before if time != time else time, dict(printed), 1.0, skipped)
            continue
        row = cells(line)
        if len(row) == 1:  # a table that is too wide is printed below its time
            before = time_of(line)
            continue
        named = powers or {place: str(place - 1) for place in range(1, len(row))}
        said = {device: row[place] for place, device in named.items() if place < len(row)}
        yield from _row(time_of(row[0]), said, factor, skipped)


def _row(time: float, said: Mapping[str, str], factor: float, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings of the powers of a line."""
    if time != time or not said:
        skipped[UNREAD] += 1
        return
    for device, text in said.items():
        power = between(number(text) * factor, 0.0, MOST_POWER)
        if power == power:
            yield PowerReading(time=time, device=device, power=power)
        else:
            skipped[NO_VALUE] += 1


def _windows(header: list[str], lines: Iterator[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Two readings a window and device, its start and its end; of windows that overlap the first to end counts."""
    devices = {
        place: found[2] if found[1] == "gpu" else found[1] + found[2]
        for place, cell in enumerate(header)
        if (found := ENERGY.fullmatch(cell.lower()))
    }
    if not devices:
        raise InputError(
            f"{name}: the log of ZeusMonitor has no column such as gpu0_energy. Give it the GPUs' indices."
        )
    sums = dict.fromkeys(devices.values(), 0.0)
    until = -1e300
    for line in lines:
        row = cells(line)
        extra = max(len(row) - len(header), 0)
        row[1 : 2 + extra] = [",".join(row[1 : 2 + extra])]  # the name of a window may have commas
        start, elapsed = (number(row[0]), number(row[2])) if len(row) > 2 else (NOT_SAID, NOT_SAID)
        if start != start or not 0 < elapsed < 1e9:
            skipped[UNREAD] += 1
            continue
        if start < until - 1e-3 * elapsed:
            skipped[OVERLAPS] += 1
            continue
        apart = start > until + max(1e-3, 0.01 * elapsed)
        until = start + elapsed
        for place, device in devices.items():
            energy = between(number(row[place]), 0.0, MOST_POWER * elapsed) if place < len(row) else NOT_SAID
            if energy != energy:
                skipped[NO_VALUE] += 1
                continue
            power = energy / elapsed
            yield PowerReading(time=start, device=device, power=power, energy=sums[device], fresh=apart)
            sums[device] += energy
            yield PowerReading(time=until, device=device, power=power, energy=sums[device])
