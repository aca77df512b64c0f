"""Plain tables of times and powers.

The header names a column of times and one or several of powers with their unit (`power_w`, `mean_w`, `power [kW]`,
`watts`). Of `mean_`, `min_` and `max_` the mean is read. Columns `device`, `gpu`, `node`, ... name the device. Other
columns before the time tell several runs of a table apart, and stand before the device's name ("1:node").
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from energymodel.errors import InputError
from energymodel.readers.cells import MOST_SITE_POWER, between, kelvin, measure, time_of, unit_factor
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped, cells
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.names import NAMES, name_and_unit, split_line, time_column, time_factor
from energymodel.readers.table import decimal_point, separator_of

UNDERSTOOD = (
    "a column time, second, timestamp, elapsed_s or t_since_run_start_s, and one of power with its unit: power_w,"
    " mean_w, watts, power_kw, gpu0_power_w or power [W]"
)
WATTS = ("w", "kw", "watt", "watts", "uw")
TABLE = NAMES["table"]
NO_POWER = re.compile(r"(?:^|_)(?:min|max|minimum|maximum|std|sd|limit|cap|peak|tdp|p\d\d?|median|var)(?:_|$)")
NUMBERED = re.compile(r"(?:gpu|device|power|card|rank)_?(\d+)(?:_|$)", re.ASCII)


@dataclass(frozen=True)
class Columns:
    """Where the columns of a table stand."""

    time: int
    time_factor: float
    clock: int | None
    """Column of the time of day, where the time is a date alone."""
    powers: dict[int, tuple[str, float]]
    """Device and unit [W] of each column of powers."""
    devices: tuple[int, ...]
    groups: tuple[int, ...]
    others: dict[str, tuple[int, float]]
    width: int
    """Cells of a whole row."""


def is_table(lines: list[str]) -> bool:
    """Whether a line looks like a header of such a table, with or without units."""
    for line in lines[:20]:
        row = split_line(line)
        words = [cell.lower() for cell in row]
        if len(row) > 1 and time_column(row) is not None and any("power" in word or "watt" in word for word in words):
            return True
        if columns_of(row) is not None:
            return True
    return any(_of_cells(split_line(header), split_line(row)) for header, row in itertools.pairwise(lines[:20]))


def columns_of(row: list[str]) -> Columns | None:
    """The columns of a header; None if a line is none."""
    time = time_column(row)
    if time is None or len(row) < 2:
        return None
    names = [name_and_unit(cell) for cell in row]
    words = [re.sub(r"[ .]+", "_", name) for name, _ in names]
    powers = {
        index: (_device(words[index]), _watts(unit, words[index]))
        for index, (_, unit) in enumerate(names)
        if index != time and _is_power(words[index], unit) and not NO_POWER.search(words[index])
    }
    if not powers:
        return None
    named = [index for index in powers if NUMBERED.search(words[index])]
    if not named and len(powers) > 1:
        powers = _of_several(powers, words)
    elif named:
        powers = {index: powers[index] for index in named}
    clock = words.index("time") if words[time] == "date" and "time" in words else None
    taken = {time, *powers} if clock is None else {time, clock, *powers}
    free = {word: index for index, word in reversed(list(enumerate(words))) if index not in taken}
    named = [free[word] for word in (*TABLE["hosts"], *TABLE["devices"]) if word in free]
    hosts = [free[word] for word in TABLE["hosts"] if word in free][:1]
    devices = (*hosts, *[free[word] for word in TABLE["devices"] if word in free][:1])
    others = {}
    for key, names_of_it in TABLE["others"].items():
        for index, word in enumerate(words):
            if word in names_of_it and index not in taken and len(powers) == 1:
                unit = names[index][1]
                factor = unit_factor("MHz" if key == "clock" and not unit else unit) if unit or key == "clock" else 0.0
                others.setdefault(key, (index, factor))
    read = {*taken, *named, *(index for index, _ in others.values())}
    groups = tuple(
        index
        for index in range(time)
        if index not in read
        and row[index]
        and words[index] not in TABLE["aside"]
        and not _is_power(words[index], names[index][1])
    )
    width = sum(1 for cell in row if cell)
    return Columns(time, time_factor(row[time]), clock, powers, devices, groups, others, width)


def _of_cells(header: list[str], row: list[str]) -> Columns | None:
    """The columns of a header without units, if cells of the first row have one of power."""
    if len(header) != len(row) or time_column(header) is None:
        return None
    units = [match[1] if (match := re.fullmatch(r"[\d.,]+ ?(m?W|kW|MW)", cell)) else "" for cell in row]
    if not any(units):
        return None
    return columns_of([f"{name} [{unit}]" if unit else name for name, unit in zip(header, units, strict=True)])


def _of_several(powers: dict[int, tuple[str, float]], words: list[str]) -> dict[int, tuple[str, float]]:
    """Of several columns of powers the mean, or those of the parts, or the total, or each as a device of its own."""
    means = [index for index in powers if re.search(r"mean|average|avg", words[index])]
    if means:
        return {means[0]: powers[means[0]]}
    parts = {index: power for index, power in powers.items() if power[0] != "node"}
    if len({device for device, _ in parts.values()}) == len(parts) > 1:
        return parts
    total = [index for index in powers if re.search(r"total|draw", words[index]) or words[index] == "power"]
    if total:
        return {total[0]: powers[total[0]]}
    return {index: (words[index], factor) for index, (_, factor) in powers.items()}


def _is_power(word: str, unit: str) -> bool:
    """Whether a column is one of powers with a known unit."""
    return (unit[1:] == "W" and unit[:1] in "mMk") or unit.lower() in WATTS or word in TABLE["powers"]


def _watts(unit: str, word: str) -> float:
    return unit_factor(unit or ("kw" if word == "kw" else "w"))


def _device(word: str) -> str:
    """Device that the name of a column says."""
    if match := NUMBERED.search(word):
        return match[1]
    return next((part for part in ("node", "cpu", "dram", "ram", "gpu") if part in word.split("_")), "node")


def read_table(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings of the rows of a table.

    **Raises:** `InputError` if no line names a time, and a power with its unit.
    """
    columns: Columns | None = None
    separator = ","
    seen: list[str] = []
    for line in lines:
        row = cells(line, separator)
        if columns is None or not _starts_as_number(row):
            header = split_line(line)
            if columns is None and seen and (first := _of_cells(split_line(seen[-1]), header)):
                columns, separator = first, separator_of(line)
                yield from _row(header, columns, skipped, separator)
                continue
            if again := columns_of(header):
                columns, separator = again, separator_of(line)
                continue
        if columns is None:
            seen.append(line)
            if len(seen) > 100:
                break
            continue
        yield from _row(row, columns, skipped, separator)
    if columns is None:
        start = seen[0][:80] if seen else ""
        raise InputError(f'{name}: no columns of time and power are known in "{start}". Name them: {UNDERSTOOD}.')


def _time(row: list[str], columns: Columns) -> float:
    """When a row was written, of one cell or of a date and a time."""
    indices = [columns.time, *([] if columns.clock is None else [columns.clock])]
    if max(indices) >= len(row):
        return NOT_SAID
    return time_of(" ".join(row[index] for index in indices), columns.time_factor)


def _starts_as_number(row: list[str]) -> bool:
    return sum(math.isfinite(measure(cell)) for cell in row) > 1


def _row(row: list[str], columns: Columns, skipped: Skipped, separator: str) -> Iterator[PowerReading]:
    row = row if separator == "," else [decimal_point(cell) for cell in row]
    time = _time(row, columns)
    if math.isnan(time) or len(row) < columns.width:
        skipped[UNREAD] += 1
        return
    group = "/".join(row[index] for index in columns.groups if index < len(row))
    named = ":".join(row[index] for index in columns.devices if index < len(row))

    def other(key: str) -> float:
        index, factor = columns.others.get(key, (len(row), 1.0))
        return measure(row[index], factor or 1.0) if index < len(row) else NOT_SAID

    for index, (device, factor) in columns.powers.items():
        power = between(measure(row[index], factor), 0.0, MOST_SITE_POWER) if index < len(row) else NOT_SAID
        if math.isnan(power):
            skipped[NO_VALUE] += 1
            continue
        part = f"{named}:{device}" if named and len(columns.powers) > 1 else named or device
        busy = other("utilization")
        unitless = columns.others.get("utilization", (0, 0.0))[1] == 0.0
        yield PowerReading(
            time=time,
            device=f"{group}:{part}" if group else part,
            group=group,
            power=power,
            clock=between(other("clock"), 1.0, 1e11),
            temperature=kelvin(other("temperature")),
            utilization=between(busy * 0.01 if unitless and busy > 1 else busy, 0.0, 1.0),
            power_limit=between(other("power_limit"), 1.0, MOST_SITE_POWER),
        )
