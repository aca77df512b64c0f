"""What the monitors of Zeus write.

- `ZeusMonitor(log_file=...)`: a line a window, `start_time,window_name,elapsed_time,gpu0_energy,...` [s, J].
- `PowerMonitor(power_csv_path=...)`: no header, `time,power of GPU 0,power of GPU 1,...` [s, W].
- `python -m zeus.monitor power`: a line a sample, `2024-05-01 12:00:00 {'GPU0': 65.1}` [W].
- The monitor of 2022: `Time,Power` [mW], a file a GPU.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from energymodel.errors import InputError
from energymodel.readers.lines import MOST_POWER, UNREAD, between, cells, number, time_of
from energymodel.readers.log_records import NOT_SAID, PowerReading

ENERGY = re.compile(r"(gpu|cpu|dram)(\d+)_energy", re.ASCII)
POWER = re.compile(r"power_?(\d*)|gpu_?(\d+)(?:_?power)?", re.ASCII | re.IGNORECASE)
PRINTED = re.compile(r"['\"]?GPU(\d+)['\"]?: *([\d.]+)(?=.*\})", re.ASCII)
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
    time, *names = cells(line)
    matches = [POWER.fullmatch(name) for name in names]
    if time.lower() != "time" or not all(matches):
        return {}
    return {index: match[1] or match[2] or str(index - 1) for index, match in enumerate(matches, start=1) if match}


def _plain(line: str) -> bool:
    """Whether a line has a time since 1970 and powers, and nothing else."""
    time, *powers = (number(cell) for cell in line.split(","))
    return bool(powers) and 1e9 <= time < 1e10 and all(0 <= power < MOST_POWER for power in powers)


def _printed(line: str) -> dict[str, str]:
    return dict(PRINTED.findall(line.partition("{")[2]))


def read_zeus(lines: Iterable[str], name: str) -> Iterator[PowerReading | str]:
    """Readings of one of these files.

    **Raises:** `InputError` for a log of windows without the energy of a device.
    """
    powers: Mapping[int, str] = {}
    factor, before = 1.0, NOT_SAID
    rows = iter(lines)
    for line in rows:
        row = cells(line)
        if line.lower().startswith(WINDOW):
            yield from _windows(row, rows, name)
            return
        if header := _powers_of(line):
            powers = header
            # The monitor of 2022 wrote what NVML gives; the later one columns without capitals.
            factor = 1e-3 if row == ["Time", "Power"] else 1.0
            continue
        texts: Mapping[str, str] = _printed(line)
        if texts:
            time = time_of(line.partition("{")[0])
            time, unit = before if math.isnan(time) else time, 1.0
        elif len(row) == 1:  # a table that is too wide is printed below its time
            before = time_of(line)
            continue
        else:
            names = powers or {index: str(index - 1) for index in range(1, len(row))}
            texts = {device: row[index] for index, device in names.items() if index < len(row)}
            time, unit = time_of(row[0]), factor
        if math.isnan(time) or not texts:
            yield UNREAD
            continue
        for device, text in texts.items():
            yield PowerReading(time=time, device=device, power=between(number(text) * unit, 0.0, MOST_POWER))


def _windows(header: list[str], lines: Iterator[str], name: str) -> Iterator[PowerReading | str]:
    """Two readings a window and device, its start and its end; of windows that overlap the first to end counts."""
    devices = {
        index: match[2] if match[1] == "gpu" else match[1] + match[2]
        for index, cell in enumerate(header)
        if (match := ENERGY.fullmatch(cell.lower()))
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
        if math.isnan(start) or not 0 < elapsed < 1e9:
            yield UNREAD
            continue
        if start < until - 1e-3 * elapsed:
            yield OVERLAPS
            continue
        apart = start > until + max(1e-3, 0.01 * elapsed)
        until = start + elapsed
        for index, device in devices.items():
            energy = between(number(row[index]), 0.0, MOST_POWER * elapsed) if index < len(row) else NOT_SAID
            if math.isnan(energy):
                yield PowerReading(start, device)
                continue
            power = energy / elapsed
            yield PowerReading(time=start, device=device, power=power, energy=sums[device], fresh=apart)
            sums[device] += energy
            yield PowerReading(time=until, device=device, power=power, energy=sums[device])
