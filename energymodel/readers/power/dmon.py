"""What does the table of `nvidia-smi dmon` say, in columns or as CSV?

Two header lines name the columns and their units; they are printed again after some samples. `-o T` puts the time of
day before each row, and `-o DT` the date as well. Without a date, times are seconds since the first midnight; without
either, `interval` is the time between samples, and without that times are NaN.
"""

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from energymodel.readers.cells import MOST_POWER, between, kelvin, number
from energymodel.readers.lines import NO_VALUE, UNREAD, Skipped
from energymodel.readers.log_records import NOT_SAID, PowerReading

COLUMNS = ("date", "time", "gpu", "pwr", "gtemp", "sm", "pclk", "pviol", "tviol")
SPLIT = re.compile(r"\s*,\s*|\s+")
CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)", re.ASCII)
DAY = 86400.0


def is_dmon(lines: list[str]) -> bool:
    """Whether a line is the header of such a table."""
    return any(columns_of(line) for line in lines)


def columns_of(line: str) -> dict[str, int]:
    """Places of the columns, if a line is the first of the header; a table without power is none."""
    if not line.startswith("#"):
        return {}
    found: dict[str, int] = {}
    for place, word in enumerate(SPLIT.split(line.lstrip("# ").lower())):
        if word in COLUMNS:
            found.setdefault(word, place)
    return found if "gpu" in found and "pwr" in found else {}


def read_dmon(
    lines: Iterable[str], name: str, skipped: Skipped, interval: float | int | None = None
) -> Iterator[PowerReading]:
    """Readings of the rows of a table."""
    columns: dict[str, int] = {}
    counts: dict[str, int] = {}
    midnights, last = 0.0, NOT_SAID
    for line in lines:
        if line.startswith("#"):
            columns = columns_of(line) or columns
            continue
        row = SPLIT.split(line.strip())
        if not columns or len(row) <= max(columns.values()):
            skipped[UNREAD] += 1
            continue
        said = {key: row[place] for key, place in columns.items()}
        device = said["gpu"]
        counts[device] = counts.get(device, -1) + 1
        time = _time(said)
        if "time" in said and "date" not in said:
            midnights += DAY if last - time > 0.5 * DAY else 0.0
            last, time = time, time + midnights
        elif "time" not in said:
            time = float(counts[device] * interval) if interval else NOT_SAID
        power = between(number(said["pwr"]), 0.0, MOST_POWER)
        if math.isnan(power) or not device.isdecimal():
            skipped[NO_VALUE] += 1
            continue
        violations = [number(said[key]) for key in ("pviol", "tviol") if key in said]
        yield PowerReading(
            time=time,
            device=device,
            power=power,
            clock=between(number(said.get("pclk", "")) * 1e6, 1.0, 1e11),
            temperature=kelvin(number(said.get("gtemp", ""))),
            utilization=between(number(said.get("sm", "")) * 0.01, 0.0, 1.0),
            throttled=float(any(one > 0.0 for one in violations)) if violations else NOT_SAID,
        )


def _time(said: dict[str, str]) -> float:
    """When [s since 1970], or of the day where no date is said."""
    found = CLOCK.fullmatch(said.get("time", ""))
    if found is None:
        return NOT_SAID
    hour, minute, second = (int(part) for part in found.groups())
    if "date" not in said:
        return 3600.0 * hour + 60.0 * minute + second
    try:
        day = datetime.strptime(said["date"], "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return NOT_SAID
    return day.timestamp() + 3600.0 * hour + 60.0 * minute + second
