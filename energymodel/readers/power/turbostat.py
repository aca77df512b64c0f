"""What does the table of `turbostat` say of the power of processors and memory?

A header names the columns, and is printed again for each sample; below it the row of the whole machine comes first, or
has "-" for its processor. Times are those of the column Time_Of_Day_Seconds (`--enable Time_Of_Day_Seconds`), else
`interval` apart.
"""

import math
from collections.abc import Iterable, Iterator

from energymodel.readers.cells import MOST_SITE_POWER, between, number, time_of
from energymodel.readers.lines import NO_VALUE, Skipped
from energymodel.readers.log_records import NOT_SAID, PowerReading

POWERS = {"PkgWatt": "cpu", "RAMWatt": "ram", "CorWatt": "cores", "GFXWatt": "integrated gpu"}
PLACES = ("CPU", "Core", "Package", "Node", "Die")
TIME = "Time_Of_Day_Seconds"


def is_turbostat(lines: list[str]) -> bool:
    """Whether a line is the header of such a table."""
    return any(_columns(line) for line in lines)


def _columns(line: str) -> dict[str, int]:
    words = line.split()
    known = any(word in POWERS for word in words) and any(word in ("Avg_MHz", "Busy%", "Bzy_MHz") for word in words)
    return {word: place for place, word in reversed(list(enumerate(words)))} if known else {}


def read_turbostat(
    lines: Iterable[str], name: str, skipped: Skipped, interval: float | int | None = None
) -> Iterator[PowerReading]:
    """Readings "cpu", "ram", "cores" and "integrated gpu" of the whole machine."""
    columns: dict[str, int] = {}
    count = 0
    for line in lines:
        if found := _columns(line):
            columns = found
            continue
        row = line.split()
        whole = all(row[columns[one]] == "-" for one in PLACES if one in columns and columns[one] < len(row))
        if not columns or not whole or len(row) <= max(columns[one] for one in POWERS if one in columns):
            continue
        time = time_of(row[columns[TIME]]) if TIME in columns else float(count * interval) if interval else NOT_SAID
        count += 1
        for column, device in POWERS.items():
            power = between(number(row[columns[column]]), 0.0, MOST_SITE_POWER) if column in columns else NOT_SAID
            if not math.isnan(power):
                yield PowerReading(time=time, device=device, power=power)
            else:
                skipped.update([NO_VALUE] if column in columns else [])
