"""What does `nvidia-smi --query-gpu` say in CSV, with or without units, with or without a column of devices?

Without `index`, `uuid` or `pci.bus_id` the rows of the devices of one sample follow each other within milliseconds, in
the order of the index; the number of devices is the number of rows between two longer pauses (`interleaved.py`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from energymodel.errors import InputError
from energymodel.readers.cells import MOST_POWER, between, kelvin, measure, throttled_by_mask, time_of, unit_factor
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped, cells
from energymodel.readers.log_records import NOT_SAID, PowerReading
from energymodel.readers.power.interleaved import with_places

QUERY = (
    "nvidia-smi --query-gpu=timestamp,index,power.draw,clocks.sm,temperature.gpu,utilization.gpu,power.limit"
    " --format=csv -l 1"
)
DEVICE = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial", "minor_number")
POWER = ("power.draw", "power.draw.average", "power.draw.instant", "gpu.power.draw", "module.power.draw.average")
LIMIT = ("enforced.power.limit", "power.limit")
CLOCK = ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr")
ENERGY = ("total_energy_consumption", "energy.total", "total_energy", "energy.consumption.total", "energy.consumption")
REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")
TOLD = ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
STAMPED = re.compile(r"(?:^|, ?)\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:,|$)", re.ASCII)


def is_nvidia_smi(lines: list[str]) -> bool:
    """Whether lines are such a table."""
    return any(columns_of(line) for line in lines) or any(STAMPED.search(line) for line in lines)


def columns_of(line: str) -> dict[str, tuple[int, float]]:
    """Place and unit of each column, if a line is a header; otherwise nothing."""
    if "power" not in line.lower() and "energy" not in line.lower():
        return {}
    found: dict[str, tuple[int, float]] = {}
    for place, cell in enumerate(cells(line)):
        name, _, unit = cell.partition("[")
        found.setdefault(name.strip().lower(), (place, unit_factor(unit.rstrip("] "))))
    return found if any(name in found for name in (*POWER, *ENERGY)) else {}


def read_nvidia_smi(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[PowerReading]:
    """Readings of the rows of a table, device by device.

    **Raises:** `InputError` without a header, without a column of times, and where the devices cannot be told apart.
    """
    columns: dict[str, tuple[int, float]] = {}
    waiting: list[str] = []
    rows = iter(lines)
    for line in rows:
        if columns := columns_of(line):
            break
        waiting.append(line)
        if STAMPED.search(line) or len(waiting) > 1000:
            break
    if not columns:
        raise InputError(f"{name}: the table of nvidia-smi has no header. Leave out noheader: {QUERY}")
    if "timestamp" not in columns:
        raise InputError(f"{name}: the table of nvidia-smi has no column timestamp. Ask for it: {QUERY}")
    found = readings(rows, columns, skipped)
    yield from found if any(one in columns for one in DEVICE) else with_places(found, name, skipped)


def readings(
    lines: Iterable[str], columns: Mapping[str, tuple[int, float]], skipped: Skipped
) -> Iterator[PowerReading]:
    """One reading a row; rows of no known device are those of device ""."""
    named = any(one in columns for one in DEVICE)
    for line in lines:
        # A file that several calls have written has several headers.
        if (line[:1].isalpha() or line[:1] == '"') and (again := columns_of(line)):
            readable = "timestamp" in again and named == any(one in again for one in DEVICE)
            columns = again if readable else {}
            continue
        row = cells(line)
        place, _ = columns.get("timestamp", (len(row), NOT_SAID))
        time = time_of(row[place]) if place < len(row) else NOT_SAID
        if time != time:
            skipped[UNREAD] += 1
            continue
        whole = len(row) >= sum(1 for one in columns if one)
        reading = reading_of(row, columns, time) if whole else PowerReading(time=time, device="")
        if reading.power != reading.power and reading.energy != reading.energy:
            skipped[NO_VALUE] += 1
            if named:
                continue  # without a name its row still counts
        yield reading


def reading_of(row: list[str], columns: Mapping[str, tuple[int, float]], time: float) -> PowerReading:
    """What a row says."""

    def first(names: Iterable[str], factor: float, largest: float) -> float:
        for one in names:
            place, unit = columns.get(one, (len(row), NOT_SAID))
            if place < len(row):
                value = between(measure(row[place], unit if unit == unit else factor), 0.0, largest)
                if value == value:
                    return value
        return NOT_SAID

    return PowerReading(
        time=time,
        device=next((row[columns[one][0]] for one in DEVICE if one in columns and columns[one][0] < len(row)), ""),
        power=first(POWER, 1.0, MOST_POWER),
        energy=first(ENERGY, 1e-3, 1e15),
        clock=first(CLOCK, 1e6, 1e11),
        temperature=kelvin(first(("temperature.gpu",), 1.0, 300.0)),
        utilization=first(("utilization.gpu",), 0.01, 1.0),
        power_limit=first(LIMIT, 1.0, MOST_POWER) or NOT_SAID,
        throttled=throttled(row, columns),
    )


def throttled(row: list[str], columns: Mapping[str, tuple[int, float]]) -> float:
    """Whether a row names power or heat as a reason for a lower clock."""
    said = NOT_SAID
    for name, (place, _) in columns.items():
        if not name.startswith(REASONS) or place >= len(row):
            continue
        reason = name.rpartition(".")[2]
        value = NOT_SAID
        if reason == "active":
            value = throttled_by_mask(row[place])
        elif reason in TOLD:
            value = {"active": 1.0, "not active": 0.0}.get(row[place].lower(), NOT_SAID)
        if value == value:
            said = value if said != said else max(said, value)
    return said
