"""CSV of `nvidia-smi --query-gpu`, with or without units, with or without a column of devices.

Without a column of devices the number of devices is that of the rows between two longer pauses.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from energymodel.errors import InputError
from energymodel.readers.columns import unit_factor
from energymodel.readers.lines import UNREAD, cells, measure, reading_of, throttled_by_mask, time_of
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.table import NAMES

QUERY = (
    "nvidia-smi --query-gpu=timestamp,index,power.draw,clocks.sm,temperature.gpu,utilization.gpu,power.limit"
    " --format=csv -l 1"
)
COLUMNS = NAMES["nvidia_smi"]
UNITS = {"power": 1.0, "energy": 1e-3, "clock": 1e6, "temperature": 1.0, "utilization": 0.01, "power_limit": 1.0}
"""Of numbers whose column and cell name none."""
REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")
STAMPED = re.compile(r"(?:^|, ?)\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:,|$)", re.ASCII)
MOST_ROWS = 256  # rows that are read ahead to count the devices; fewer where the pattern is plain
PAUSE = 0.4  # a pause between samples, relative to a long gap between rows; gaps within a sample are shorter than that
SHORTEST_PAUSE = 0.003  # rows of one sample come within this time of each other, however long the pauses [s]
MOST_DEVICES = 16
ONE_SAMPLE = 0.02  # no more rows than devices, this close to each other, are one sample, taken without `-l` [s]
AGREE = 0.9  # share of the rows that samples of one size must hold
CUT = "row of a sample that is not whole"
Columns = Mapping[str, tuple[int, float]]


def is_nvidia_smi(lines: list[str]) -> bool:
    """Whether lines are such a table."""
    return any(columns_of(line) for line in lines) or any(STAMPED.search(line) for line in lines)


def columns_of(line: str) -> Columns:
    """Index and unit of each column, if a line is a header; otherwise nothing."""
    if "power" not in line.lower() and "energy" not in line.lower():
        return {}
    columns: dict[str, tuple[int, float]] = {}
    for index, cell in enumerate(cells(line)):
        name, _, unit = cell.partition("[")
        columns.setdefault(name.strip().lower(), (index, unit_factor(unit.rstrip("] "))))
    return columns if not columns.keys().isdisjoint((*COLUMNS["power"], *COLUMNS["energy"])) else {}


def read_nvidia_smi(lines: Iterable[str], name: str) -> Iterator[PowerReading | str]:
    """Readings of the rows of a table, device by device.

    **Raises:** `InputError` without a header, without a column of times, and where the devices cannot be told apart.
    """
    rows = iter(lines)
    columns: Columns = {}
    for count, line in enumerate(rows):
        if (columns := columns_of(line)) or STAMPED.search(line) or count >= 1000:
            break
    if not columns:
        raise InputError(f"{name}: the table of nvidia-smi has no header. Leave out noheader: {QUERY}")
    if "timestamp" not in columns:
        raise InputError(f"{name}: the table of nvidia-smi has no column timestamp. Ask for it: {QUERY}")
    readings = _readings(rows, columns)
    yield from readings if _names_devices(columns) else with_places(readings, name)


def _names_devices(columns: Columns) -> bool:
    return not columns.keys().isdisjoint(COLUMNS["device"])


def _readings(lines: Iterable[str], columns: Columns) -> Iterator[PowerReading | str]:
    """One reading a row; rows of no known device are those of device ""."""
    named = _names_devices(columns)
    for line in lines:
        # A file that several calls have written has several headers.
        if (line[:1].isalpha() or line[:1] == '"') and (again := columns_of(line)):
            columns = again if "timestamp" in again and named == _names_devices(again) else {}
            continue
        row = cells(line)
        index, _ = columns.get("timestamp", (len(row), NOT_SAID))
        time = time_of(row[index]) if index < len(row) else NOT_SAID
        if math.isnan(time):
            yield UNREAD
            continue
        complete = len(row) >= sum(1 for column in columns if column)
        yield _reading(row, columns, time) if complete else PowerReading(time=time, device="")


def _reading(row: list[str], columns: Columns, time: float) -> PowerReading:
    at = {name: column for name, column in columns.items() if column[0] < len(row)}
    values = {}
    for key, default in UNITS.items():
        cells_of_key = ((row[at[name][0]], at[name][1]) for name in COLUMNS[key] if name in at)
        numbers = (measure(cell, default if math.isnan(unit) else unit) for cell, unit in cells_of_key)
        values[key] = next((value for value in numbers if value >= 0.0), NOT_SAID)
    reasons = [NOT_SAID]
    for name, (index, _) in at.items():
        reason = name.rpartition(".")[2] if name.startswith(REASONS) else ""
        if reason == "active":
            reasons.append(throttled_by_mask(row[index]))
        elif reason in COLUMNS["throttled"]:
            reasons.append({"active": 1.0, "not active": 0.0}.get(row[index].lower(), NOT_SAID))
    values["throttled"] = max((reason for reason in reasons if not math.isnan(reason)), default=NOT_SAID)
    device = next((row[at[name][0]] for name in COLUMNS["device"] if name in at), "")
    return reading_of(device, time, **values)


def with_places(rows: Iterator[PowerReading | str], name: str) -> Iterator[PowerReading | str]:
    """Readings named "0", "1" ... by their place in their sample.

    A sample that is cut at the start of the file holds its last devices, one cut at the end its first; in between it is
    left out and counted.

    **Raises:** `InputError` if no number of devices explains the pauses between rows.
    """
    ahead: list[PowerReading | str] = []
    times: list[float] = []
    pattern = None
    for row in rows:
        ahead.append(row)
        if not isinstance(row, str):
            times.append(row.time)
        if len(times) in (24, 48, 96) and (pattern := _pattern(times, settled=True)):
            break
        if len(times) == MOST_ROWS:
            break
    if not times:
        yield from ahead
        return
    pattern = pattern or _pattern(times, settled=False)
    if pattern is None:
        raise InputError(f"{name}: cannot tell which row is of which device. Add index to the query of nvidia-smi.")
    yield from _samples(chain(ahead, rows), *pattern)


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


def _samples(rows: Iterable[PowerReading | str], devices: int, pause: float) -> Iterator[PowerReading | str]:
    """Rows of one sample after the other, named by their places."""
    held: list[PowerReading] = []  # what a pause ended before it was whole
    sample: list[PowerReading] = []
    first = True
    last = math.nan
    for row in rows:
        if isinstance(row, str):
            yield row
            continue
        if sample and abs(row.time - last) > pause:
            if held and len(held) + len(sample) == devices:  # nvidia-smi was held up within a sample
                yield from _placed(held + sample)
                held, first = [], False
            else:
                yield from _left(held, devices, first)
                first = first and not held
                held = sample
            sample = []
        sample.append(row)
        last = row.time
        if len(sample) == devices:
            yield from (*_left(held, devices, first), *_placed(sample))
            held, sample, first = [], [], False
    if held and sample and len(held) + len(sample) <= devices:
        yield from _placed(held + sample)
    else:
        yield from (*_left(held, devices, first and bool(sample)), *_placed(sample))


def _placed(rows: list[PowerReading], start: int = 0) -> list[PowerReading]:
    return [replace(row, device=str(index)) for index, row in enumerate(rows, start)]


def _left(rows: list[PowerReading], devices: int, first: bool) -> Sequence[PowerReading | str]:
    """What is left of a sample: of the first one of a file its end; of another one an unknown part."""
    return _placed(rows, devices - len(rows)) if first else [CUT] * len(rows)
