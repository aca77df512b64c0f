"""Plain tables of times and powers.

The header names a column of times and one or several of powers with their unit (`power_w`, `mean_w`, `power [kW]`,
`watts`). Of `mean_`, `min_` and `max_` the mean is read. Columns `device`, `gpu`, `node`, ... name the device. Other
columns before the time tell several runs of a table apart, and stand before the device's name ("1:node").
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from energymodel.errors import InputError
from energymodel.readers.columns import OF_CELSIUS, unit_factor
from energymodel.readers.expressions import data_file
from energymodel.readers.lines import (
    MOST_SITE_POWER,
    UNREAD,
    cells,
    decimal_point,
    measure,
    reading_of,
    separator_of,
    time_of,
)
from energymodel.readers.log_records import NOT_SAID, PowerReading

NAMES = data_file(__file__, "columns.toml")
TIMES = frozenset(NAMES["table"]["times"])
UNIT = re.compile(r"(.*?)[ _.]*(?:[\[(] *([A-Za-z%]+) *[\])]|(?<=[_ .])([A-Za-z%]+))", re.ASCII)
OTHER_UNITS = ("mw", "mj", "c", "degc", "celsius", "k")
TIME_UNITS = ("", "s", "sec", "second", "seconds", "ms", "us", "ns", "min", "h")
UNDERSTOOD = (
    "a column time, second, timestamp, elapsed_s or t_since_run_start_s, and one of power with its unit: power_w,"
    " mean_w, watts, power_kw, gpu0_power_w or power [W]"
)
WATTS = ("w", "kw", "watt", "watts", "uw")
TABLE = NAMES["table"]
NO_POWER = re.compile(r"(?:^|_)(?:min|max|minimum|maximum|std|sd|limit|cap|peak|tdp|p\d\d?|median|var)(?:_|$)")
NUMBERED = re.compile(r"(?:gpu|device|power|card|rank)_?(\d+)(?:_|$)", re.ASCII)


def split_line(line: str) -> list[str]:
    """Cells of a line."""
    return cells(line, separator_of(line))


def name_and_unit(heading: str) -> tuple[str, str]:
    """Name of a column without its unit, in lower case with underscores, and the unit as it is written; "" without."""
    match = UNIT.fullmatch(heading)
    unit = (match[2] or match[3]) if match else ""
    if match and (not math.isnan(unit_factor(unit)) or unit.lower() in OTHER_UNITS):
        heading = match[1].strip(" _.")
    else:
        unit = ""
    return re.sub(r"[ .]+", "_", heading.lower()), unit


def time_column(row: list[str]) -> int | None:
    """Index of the column of times."""
    return next((at for at, cell in enumerate(row) if {name_and_unit(cell)[0], cell.lower()} & TIMES), None)


def time_factor(heading: str) -> float:
    """Seconds in one step of a column of times, if its name says so."""
    name, unit = name_and_unit(heading)
    factor = unit_factor(unit) if unit else {"ms": 1e-3, "ns": 1e-9}.get(name, math.nan)
    return factor if unit.lower() in TIME_UNITS else math.nan


@dataclass(frozen=True)
class Columns:
    """Indices of the columns of a table.

    - `times`: of the time, or of a date and the time of day; `time_factor`: seconds in one step of it.
    - `powers`: device and unit [W] of each column of powers; `others`: index and unit of further quantities.
    - `devices`, `groups`: that name the device of a row, and its run; `width`: cells of a whole row.
    """

    times: tuple[int, ...]
    time_factor: float
    powers: dict[int, tuple[str, float]]
    devices: tuple[int, ...]
    groups: tuple[int, ...]
    others: dict[str, tuple[int, float]]
    width: int


def is_table(lines: list[str]) -> bool:
    """Whether a line looks like a header of such a table, with or without units."""
    rows = [split_line(line) for line in lines[:20]]
    for row in rows:
        about_power = any("power" in cell.lower() or "watt" in cell.lower() for cell in row)
        if len(row) > 1 and time_column(row) is not None and (about_power or columns_of(row)):
            return True
    return any(_of_cells(header, row) for header, row in itertools.pairwise(rows))


def columns_of(row: list[str]) -> Columns | None:
    """The columns of a header; None if a line is none."""
    time = time_column(row)
    if time is None or len(row) < 2:
        return None
    words, units = zip(*(name_and_unit(cell) for cell in row), strict=True)
    of_power = [_is_power(word, unit) for word, unit in zip(words, units, strict=True)]
    powers = {
        index: (_device(words[index]), unit_factor(units[index] or ("kw" if words[index] == "kw" else "w")))
        for index in range(len(row))
        if index != time and of_power[index] and not NO_POWER.search(words[index])
    }
    if not powers:
        return None
    numbered = {index: power for index, power in powers.items() if NUMBERED.search(words[index])}
    powers = numbered or (_of_several(powers, words) if len(powers) > 1 else powers)
    times = (time, words.index("time")) if words[time] == "date" and "time" in words else (time,)
    free = {word: index for index, word in reversed(list(enumerate(words))) if index not in (*times, *powers)}
    named = [[free[word] for word in TABLE[kind] if word in free] for kind in ("hosts", "devices")]
    others: dict[str, tuple[int, float]] = {}
    for key, names in TABLE["others"].items():
        index = next((free[word] for word in words if word in names and word in free), None)
        if index is not None and len(powers) == 1:
            unit = units[index] or ("MHz" if key == "clock" else "")
            unit = "" if key == "temperature" and unit.lower() in OF_CELSIUS else unit
            others[key] = (index, unit_factor(unit) if unit else 0.0)
    read = {*times, *powers, *named[0], *named[1], *(index for index, _ in others.values())}
    groups = (index for index in range(time) if index not in read and row[index] and not of_power[index])
    return Columns(
        times,
        time_factor(row[time]),
        powers,
        (*named[0][:1], *named[1][:1]),
        tuple(index for index in groups if words[index] not in TABLE["aside"]),
        others,
        sum(1 for cell in row if cell),
    )


def _of_cells(header: list[str], row: list[str]) -> Columns | None:
    """The columns of a header without units, if cells of the first row have one of power."""
    if len(header) != len(row):
        return None
    units = [match[1] if (match := re.fullmatch(r"[\d.,]+ ?(m?W|kW|MW)", cell)) else "" for cell in row]
    names = [f"{name} [{unit}]" if unit else name for name, unit in zip(header, units, strict=True)]
    return columns_of(names) if any(units) else None


def _of_several(powers: dict[int, tuple[str, float]], words: tuple[str, ...]) -> dict[int, tuple[str, float]]:
    """Of several columns of powers the mean, or those of the parts, or the total, or each as a device of its own."""
    if means := [index for index in powers if re.search(r"mean|average|avg", words[index])]:
        return {means[0]: powers[means[0]]}
    parts = {index: power for index, power in powers.items() if power[0] != "node"}
    if len({device for device, _ in parts.values()}) == len(parts) > 1:
        return parts
    if total := [index for index in powers if re.search(r"total|draw", words[index]) or words[index] == "power"]:
        return {total[0]: powers[total[0]]}
    return {index: (words[index], factor) for index, (_, factor) in powers.items()}


def _is_power(word: str, unit: str) -> bool:
    """Whether a column is one of powers with a known unit."""
    return (unit[1:] == "W" and unit[:1] in "mMk") or unit.lower() in WATTS or word in TABLE["powers"]


def _device(word: str) -> str:
    """Device that the name of a column says."""
    if match := NUMBERED.search(word):
        return match[1]
    return next((part for part in ("node", "cpu", "dram", "ram", "gpu") if part in word.split("_")), "node")


def read_table(lines: Iterable[str], name: str) -> Iterator[PowerReading | str]:
    """Readings of the rows of a table.

    **Raises:** `InputError` if no line names a time, and a power with its unit.
    """
    columns: Columns | None = None
    separator = ","
    seen: list[str] = []
    for line in lines:
        row = cells(line, separator)
        if columns is None or sum(math.isfinite(measure(cell)) for cell in row) < 2:
            header = split_line(line)
            first = _of_cells(split_line(seen[-1]), header) if columns is None and seen else None
            if again := first or columns_of(header):
                columns, separator = again, separator_of(line)
                if first is None:
                    continue
                row = header
        if columns is not None:
            yield from _row(row if separator == "," else list(map(decimal_point, row)), columns)
            continue
        seen.append(line)
        if len(seen) > 100:
            break
    if columns is None:
        start = seen[0][:80] if seen else ""
        raise InputError(f'{name}: no columns of time and power are known in "{start}". Name them: {UNDERSTOOD}.')


def _row(row: list[str], columns: Columns) -> Iterator[PowerReading | str]:
    is_whole = len(row) >= columns.width and max(columns.times) < len(row)
    time = time_of(" ".join(row[index] for index in columns.times), columns.time_factor) if is_whole else NOT_SAID
    if math.isnan(time):
        yield UNREAD
        return
    group, named = (
        mark.join(row[index] for index in indices if index < len(row))
        for mark, indices in (("/", columns.groups), (":", columns.devices))
    )
    others = {key: measure(row[at], factor or 1.0) for key, (at, factor) in columns.others.items() if at < len(row)}
    if columns.others.get("utilization", (0, 1.0))[1] == 0.0 and others.get("utilization", 0.0) > 1:
        others["utilization"] *= 0.01
    for index, (device, factor) in columns.powers.items():
        part = f"{named}:{device}" if named and len(columns.powers) > 1 else named or device
        power = measure(row[index], factor) if index < len(row) else NOT_SAID
        reading = reading_of(f"{group}:{part}" if group else part, time, MOST_SITE_POWER, power=power, **others)
        yield replace(reading, group=group)
