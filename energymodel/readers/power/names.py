"""Which column of a plain table holds what, by its name?"""

import math
import re

from energymodel.readers.cells import unit_factor
from energymodel.readers.lines import cells

TIMES = (
    "time", "t", "timestamp", "ts", "ms", "ns", "s", "sec", "secs", "second", "seconds", "date", "datetime",
    "date_time", "elapsed", "elapsed_time", "epoch", "unix_time", "unix_timestamp", "timestamp_unix", "wall_time",
    "local_time", "sample_time", "relative_time", "time_relative", "time_since_start", "t_since_run_start",
    "timestamp_utc", "time_utc", "utc",
)  # fmt: skip
UNIT = re.compile(r"(.*?)[ _.]*(?:[\[(] *([A-Za-z%]+) *[\])]|(?<=[_ .])([A-Za-z%]+))", re.ASCII)


def separator_of(line: str) -> str:
    """What parts the cells of a line: what stands in it most often of comma, semicolon and tab."""
    return max(",;\t", key=line.count)


def split_line(line: str) -> list[str]:
    """Cells of a line."""
    return cells(line, separator_of(line))


def name_and_unit(column: str) -> tuple[str, str]:
    """Name of a column without its unit, and the unit as it is written; "" without one."""
    found = UNIT.fullmatch(column)
    if found:
        unit = found[2] or found[3]
        if not math.isnan(unit_factor(unit)) or unit.lower() in ("mw", "mj", "c", "degc", "celsius", "k"):
            return found[1].strip(" _.").lower(), unit
    return column.lower(), ""


def time_column(row: list[str]) -> int | None:
    """Place of the column of times."""
    for place, cell in enumerate(row):
        name = re.sub(r"[ .]+", "_", name_and_unit(cell)[0])
        if name in TIMES or cell.lower() in TIMES:
            return place
    return None


def time_factor(column: str) -> float:
    """Seconds in one step of a column of times, if its name says so."""
    name, unit = name_and_unit(column)
    factor = unit_factor(unit) if unit else {"ms": 1e-3, "ns": 1e-9}.get(name, math.nan)
    return factor if unit.lower() in ("s", "sec", "second", "seconds", "ms", "us", "ns", "min", "h", "") else math.nan
