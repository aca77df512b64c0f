"""What do energy and its carbon cost, and how warm is it outside, hour by hour: a CSV of a person, or a named region?

A file has either a row for each hour (`hour`, counted up), or the mean of each hour of the day in each month (`month`,
`utc_hour`), from which a year of 365 days is made that repeats. Columns of values: `price_usd_per_mwh`,
`ci_direct_g_per_kwh` or `ci_lifecycle_g_per_kwh`, `temp_c` with `wet_bulb_c`; a column `zone` holds several places.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from energymodel.constants import ZERO_CELSIUS
from energymodel.economics.cost import OwnedPrice
from energymodel.errors import InputError
from energymodel.physics.weather import LEAST_SPREAD
from energymodel.readers.text_file import is_file
from energymodel.system.training_system import TrainingSystem

PRICE, DRY, WET = "price_usd_per_mwh", "temp_c", "wet_bulb_c"
CARBON = ("ci_direct_g_per_kwh", "ci_lifecycle_g_per_kwh")
PER_MWH, GRAM_PER_KWH = 1.0 / 3.6e9, 1e-3 / 3.6e6
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
BLOCK = 730  # hours of a month where the hours are not those of a year
FEWEST_HOURS = 24
MOST_ROWS = 200_000
LOWEST, HIGHEST = -90.0, 65.0  # outside air of a place with people [°C]
ROUNDING = 0.3  # wet bulb above dry bulb [K] that formulas and rounding leave in saturated air


class GridHours(NamedTuple):
    """Series of a place, one value per hour; None for what is not known by the hour.

    - `price` [USD/J], `carbon` [kg/J], `dry_bulb` and `wet_bulb` [K] outside.
    - `spread`: standard deviation of days about the mean of month and hour [K].
    - `month`: billing month of each hour.
    - `repeats`: whether the first hour follows the last one, as in a mean year.
    - `first`: number of the first hour in the file.
    """

    name: str
    price: np.ndarray | None
    carbon: np.ndarray | None
    dry_bulb: np.ndarray | None
    wet_bulb: np.ndarray | None
    spread: float
    month: np.ndarray
    repeats: bool
    first: int = 0
    notes: tuple[str, ...] = ()

    @property
    def hours(self) -> int:
        """Number of hours."""
        return len(self.month)

    def window(self, start: int, hours: int) -> "GridHours":
        """Some of the hours, from a first one on; a year that repeats goes on from its end."""
        index = np.arange(start, start + hours)
        index = index % self.hours if self.repeats else index[index < self.hours]
        price, carbon, dry, wet = (
            None if one is None else one[index] for one in (self.price, self.carbon, self.dry_bulb, self.wet_bulb)
        )
        turns = np.concatenate([[0], np.cumsum(np.diff(self.month[index]) != 0)])  # a second January is another month
        return GridHours(self.name, price, carbon, dry, wet, self.spread, turns, False, self.first + start)


def region_hours(system: TrainingSystem) -> GridHours:
    """A year at the prices and carbon intensity of a system's market, with the weather of its facility.

    Hours count from the coldest night of the year, since weather of a preset has no dates.
    """
    market, weather, hours = system.market, system.facility.cooling.weather, np.arange(8760)
    year, day = -np.cos(2.0 * np.pi * hours / 8760), -np.cos(2.0 * np.pi * hours / 24)
    price = float(market.price.electricity) if isinstance(market.price, OwnedPrice) else None
    outside = (
        float(weather.dry_bulb) + float(weather.dry_bulb_year) * year + float(weather.dry_bulb_day) * day,
        float(weather.wet_bulb) + float(weather.wet_bulb_year) * year + float(weather.wet_bulb_day) * day,
    )
    return GridHours(
        "system.market",
        None if price is None else np.full(8760, price),
        np.full(8760, float(market.carbon.intensity)),
        *outside,
        float(weather.spread),
        np.repeat(np.arange(12), [24 * days for days in DAYS]),
        True,
        notes=(
            "Price and carbon intensity are those of system.market, the same in every hour; only the weather varies, "
            "and hours count from the coldest night. Give the hours of a grid: --grid FILE.csv.",
        ),
    )


def read_grid(
    path: str | Path,
    zone: str | None = None,
    *,
    needs: Sequence[str] = ("price", "carbon"),
    weather: bool = True,
    spread: float = 0.0,
) -> GridHours:
    """Read the hours of a grid from a CSV file.

    **Arguments:**

    - `zone`: which one, where the file has several.
    - `needs`: which of "price" and "carbon" must be there. The other is read where each of its rows has a number.
    - `weather`: whether temperatures are read, if there are columns of them.
    - `spread`: of days about the means of a month [K], for a file of such means.

    **Raises:** `InputError` that names file, row and column of what is missing or is no number.
    """
    path = Path(path)
    header, rows = _rows(path)
    rows = _of_zone(path, header, rows, zone)
    name = f"{path.name}, {zone}" if zone else path.name
    if "hour" in header:
        number = _column(path, rows, "hour")
        steps = np.flatnonzero(np.diff(number) != 1.0)
        if len(steps):
            at = steps[0]
            raise InputError(
                f"{path}, line {rows[at + 1][0]}: hour {number[at + 1]:g} follows {number[at]:g}. Give all, "
                "each once and in order."
            )
        order, repeats, first, spread = np.arange(len(rows)), False, int(number[0]), LEAST_SPREAD
        month = _months(first, len(rows))
    elif {"month", "utc_hour"} <= set(header):
        order, month = _mean_year(path, rows)
        repeats, first = True, 0
    else:
        raise InputError(f"{path}: no column hour, nor month and utc_hour. Its columns are {', '.join(header)}.")
    carbon = next((column for column in CARBON if column in header), CARBON[0])
    found: dict[str, np.ndarray | None] = {}
    notes = []
    for kind, columns in (("price", (PRICE,)), ("carbon", (carbon,)), ("weather", (DRY, WET))):
        missing = [column for column in columns if column not in header]
        empty = [column for column in columns if not missing and not any(row[column] for _, row in rows)]
        partial = [column for column in columns if not missing and not all(row[column] for _, row in rows)]
        needed = kind in needs or (kind == "weather" and weather and not missing and len(empty) < len(columns))
        if needed and (missing or empty):
            lacks = f"no column {missing[0]}" if missing else f"column {empty[0]} is empty"
            raise InputError(f"{name}: {lacks}, and {kind} is needed. {_advice(kind)}")
        unused = missing or (partial and not needed) or (kind == "weather" and not weather)
        for column in columns:
            found[column] = None if unused else _column(path, rows, column, _advice(kind))[order]
        if partial and not needed and not empty and kind != "weather":
            notes.append(f"{name}: {partial[0]} has empty rows, so that {kind} is not used.")
    price, intensity, dry, wet = found[PRICE], found[carbon], found[DRY], found[WET]
    _plausible(path, carbon, intensity, dry, wet)
    if intensity is not None and carbon == CARBON[0] and CARBON[1] in header:
        notes.append(f"{name}: carbon is {CARBON[0]}, without what building and fueling the plants emits.")
    return GridHours(
        name,
        None if price is None else price * PER_MWH,
        None if intensity is None else intensity * GRAM_PER_KWH,
        None if dry is None else dry + ZERO_CELSIUS,
        None if wet is None else wet + ZERO_CELSIUS,
        max(spread, LEAST_SPREAD),
        month,
        repeats,
        first,
        tuple(notes),
    )


Row = tuple[int, Mapping[str, str]]


def _rows(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    if not is_file(path):
        raise InputError(f"{path}: no such file. Give a CSV file with a row for each hour.")
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
        reader = csv.reader(lines)
        header = tuple(cell.strip() for cell in next(reader, []))
        rows = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise InputError(f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} columns.")
            rows.append((reader.line_num, {key: cell.strip() for key, cell in zip(header, cells, strict=True)}))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8: {error}.") from None
    if len(rows) < FEWEST_HOURS or len(rows) > MOST_ROWS:
        raise InputError(f"{path}: {len(rows)} rows. Give {FEWEST_HOURS} to {MOST_ROWS} hours.")
    if len(set(header)) < len(header):
        raise InputError(f"{path}: a column stands twice: {', '.join(header)}. Keep one.")
    return header, rows


def _of_zone(path: Path, header: Sequence[str], rows: list[Row], zone: str | None) -> list[Row]:
    if "zone" not in header:
        if zone is not None:
            raise InputError(f'{path}: no column zone, so that there is no zone "{zone}". Leave out --zone.')
        return rows
    zones = sorted({row["zone"] for _, row in rows})
    if zone is None and len(zones) > 1:
        raise InputError(f"{path}: {len(zones)} zones. Choose one with --zone: {', '.join(zones)}.")
    if zone is not None and zone not in zones:
        raise InputError(f'{path}: no zone "{zone}". It has {", ".join(zones)}.')
    return [one for one in rows if zone is None or one[1]["zone"] == zone]


def _column(path: Path, rows: Sequence[Row], column: str, advice: str = "Write a number.") -> np.ndarray:
    values = np.empty(len(rows))
    for index, (line, row) in enumerate(rows):
        text = row[column]
        try:
            values[index] = float(text)
        except ValueError:
            values[index] = math.nan
        if not math.isfinite(values[index]):
            shown = f'"{text}"' if text else "empty"
            raise InputError(f"{path}, line {line}: {column} is {shown}. {advice}")
    return values


def _advice(kind: str) -> str:
    if kind == "weather":
        return "Fill it, or take the scenario's weather: --weather scenario."
    other = "carbon_operational" if kind == "price" else "money"
    return f"Fill it, or ask what does without {kind}: --minimize {other}."


def _plausible(
    path: Path, column: str, carbon: np.ndarray | None, dry: np.ndarray | None, wet: np.ndarray | None
) -> None:
    if carbon is not None and np.min(carbon) < 0.0:
        raise InputError(f"{path}: {column} is {np.min(carbon):g} somewhere; an intensity is at least 0.")
    for name, values in ((DRY, dry), (WET, wet)):
        if values is not None and (np.min(values) < LOWEST or np.max(values) > HIGHEST):
            raise InputError(f"{path}: {name} runs from {np.min(values):g} to {np.max(values):g} °C. Give °C outside.")
    if dry is not None and wet is not None and np.max(wet - dry) > ROUNDING:
        raise InputError(f"{path}: {WET} is {np.max(wet - dry):g} K above {DRY} somewhere. Are the columns swapped?")


def _months(first: int, hours: int) -> np.ndarray:
    """Month of each hour that a year counts from 0; blocks of 730 hours where they are not those of a year."""
    number = np.arange(first, first + hours)
    if first < 0 or number[-1] >= 8784:
        return (number - first) // BLOCK
    leap = int(number[-1] >= 8760)
    ends = np.cumsum([24 * (days + leap * (month == 1)) for month, days in enumerate(DAYS)])
    return np.searchsorted(ends, number, side="right")


def _mean_year(path: Path, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Which row holds for each hour of a year of 365 days, and the month of each."""
    place: dict[tuple[float, float], int] = {}
    month, hour = (_column(path, rows, column) for column in ("month", "utc_hour"))
    for index, key in enumerate(zip(month, hour, strict=True)):
        if key in place:
            raise InputError(
                f"{path}, line {rows[index][0]}: month {key[0]:g}, hour {key[1]:g} stands twice. Keep one."
            )
        place[key] = index
    wanted = [(month + 1, hour) for month, days in enumerate(DAYS) for _ in range(days) for hour in range(24)]
    missing = [key for key in wanted if key not in place]
    if missing:
        raise InputError(f"{path}: no row for month {missing[0][0]}, hour {missing[0][1]}. Give all 12 x 24.")
    return np.array([place[key] for key in wanted]), np.array([month - 1 for month, _ in wanted])
