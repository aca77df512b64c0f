"""Headings of logs of power: columns of times, names and units."""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

from energymodel.readers.columns import unit_factor
from energymodel.readers.lines import cells, separator_of

NAMES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "columns.toml").read_text("utf-8"))
TIMES = frozenset(NAMES["table"]["times"])
UNIT = re.compile(r"(.*?)[ _.]*(?:[\[(] *([A-Za-z%]+) *[\])]|(?<=[_ .])([A-Za-z%]+))", re.ASCII)
OTHER_UNITS = ("mw", "mj", "c", "degc", "celsius", "k")
TIME_UNITS = ("", "s", "sec", "second", "seconds", "ms", "us", "ns", "min", "h")


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
