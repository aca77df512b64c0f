"""CSV of `nvidia-smi --query-gpu`, with or without units, with or without a column of devices.

Without `index`, `uuid` or `pci.bus_id` the rows of the devices of one sample follow each other within milliseconds, in
the order of the index; the number of devices is the number of rows between two longer pauses (`interleaved.py`).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from energymodel.errors import InputError
from energymodel.readers.cells import measure, reading_of, throttled_by_mask, time_of
from energymodel.readers.columns import unit_factor
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped, cells
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.headings import NAMES
from energymodel.readers.power.interleaved import with_places

QUERY = (
    "nvidia-smi --query-gpu=timestamp,index,power.draw,clocks.sm,temperature.gpu,utilization.gpu,power.limit"
    " --format=csv -l 1"
)
COLUMNS = NAMES["nvidia_smi"]
UNITS = {"power": 1.0, "energy": 1e-3, "clock": 1e6, "temperature": 1.0, "utilization": 0.01, "power_limit": 1.0}
"""Of numbers whose column and cell name none."""
REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")
STAMPED = re.compile(r"(?:^|, ?)\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:,|$)", re.ASCII)
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


def read_nvidia_smi(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
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
    readings = _readings(rows, columns, skipped)
    yield from readings if _names_devices(columns) else with_places(readings, name, skipped)


def _names_devices(columns: Columns) -> bool:
    return not columns.keys().isdisjoint(COLUMNS["device"])


def _readings(lines: Iterable[str], columns: Columns, skipped: Skipped) -> Iterator[PowerReading]:
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
            skipped[UNREAD] += 1
            continue
        complete = len(row) >= sum(1 for column in columns if column)
        reading = _reading(row, columns, time) if complete else PowerReading(time=time, device="")
        if math.isnan(reading.power) and math.isnan(reading.energy):
            skipped[NO_VALUE] += 1
            if named:
                continue  # without a name its row still counts
        yield reading


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
