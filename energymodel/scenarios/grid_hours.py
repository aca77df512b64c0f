"""Hours of a grid: price and carbon of its energy, and the weather, from a CSV file or of a named region.

A file has a row for each hour or part of it (`hour`, counted up, or a time), or the mean of each hour of the day in
each month (`month`, `utc_hour`), from which a year of 365 days is made that repeats. Columns of values:
`price_usd_per_mwh`, `ci_direct_g_per_kwh` or `ci_lifecycle_g_per_kwh`, `temp_c` with `wet_bulb_c`; `zone` holds
several places. Headings, units and currencies of public downloads are known (grid_hours.toml).
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from energymodel.economics.cost import HOUR, OwnedPrice
from energymodel.errors import InputError
from energymodel.physics.weather import LEAST_SPREAD
from energymodel.readers.columns import TableChoices, declared_columns, unit_value
from energymodel.readers.hours import by_hour, hour_of_year, hours_of_rows, named_columns
from energymodel.readers.table import CsvTable, Measurements, read_csv, read_table
from energymodel.scenarios.scenario import Scenario
from energymodel.system.training_system import TrainingSystem

PRICE, DRY, WET = "price_usd_per_mwh", "temp_k", "wet_bulb_k"
CARBON = ("ci_direct_g_per_kwh", "ci_lifecycle_g_per_kwh")
PER_MWH, GRAM_PER_KWH = 1.0 / 3.6e9, 1e-3 / 3.6e6
OF_FILE = {"price": PER_MWH, "carbon": GRAM_PER_KWH}
TIMES = ("time", "time_end", "local_time")
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
BLOCK = 730  # hours of a month where the hours are not those of a year
FEWEST_HOURS = 24
MOST_ROWS = 200_000
ROUNDING = 0.3  # wet bulb above dry bulb [K] that formulas and rounding leave in saturated air
DECLARED = declared_columns(Path(__file__).with_name("grid_hours.toml"))
WHEN, VALUES, WEATHER, ADVICE = (DECLARED[name] for name in ("when", "values", "weather", "advice"))
HEADINGS, PLACES = DECLARED["headings"], DECLARED["places"]
WANTED = (
    "Wanted are hour, month and utc_hour, or a time (Datetime (UTC), MTU (UTC), MTU (CET/CEST), UTC time, Delivery "
    "Start (CET)); and price_usd_per_mwh or a price with its unit (Price (EUR/MWh)), or ci_direct_g_per_kwh, "
    "ci_lifecycle_g_per_kwh or a carbon intensity with its unit"
)


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
        names = ("price", "carbon", "dry_bulb", "wet_bulb")
        some = {name: None if (series := getattr(self, name)) is None else series[index] for name in names}
        turns = np.concatenate([[0], np.cumsum(np.diff(self.month[index]) != 0)])  # a second January is another month
        return self._replace(**some, month=turns, repeats=False, first=self.first + start, notes=())

    def starts(self, start: int | None, shortest: float) -> np.ndarray:
        """Hours at which a run of at least so many seconds may begin, counted from the first: all, or one of the file.

        **Raises:** `InputError` where none or that one leaves no time for the run.
        """
        last = self.hours - 1 if self.repeats else self.hours - math.ceil(shortest / HOUR)
        if last < 0:
            raise InputError(
                f"{self.name}: {self.hours:,} hours are fewer than the {shortest / HOUR:,.0f} of the run at its "
                "highest speed. Give more hours, or more chips."
            )
        if start is None:
            return np.arange(last + 1)
        if not 0 <= start - self.first <= last:
            ends = f"{self.first} to {self.first + last}"
            raise InputError(f"start: hour {start} leaves no time for the run. Give {ends}, or any.")
        return np.array([start - self.first])


def hours_of(
    scenario: Scenario, grid: str | Path | GridHours | None, zone: str | None, weather: str, needs: Sequence[str]
) -> GridHours:
    """Hours of a file, or of the market and weather of a scenario.

    **Arguments:**

    - `weather`: "file", or "scenario" for the mean cooling of the scenario's year.
    - `zone`, `needs`: as in `read_grid`.

    **Raises:** `InputError` for an unknown weather, a zone without a file, and what `read_grid` raises.
    """
    if weather not in ("file", "scenario"):
        raise InputError(f'weather: "{weather}" is unknown. Give file or scenario.')
    if grid is None:
        if zone is not None:
            raise InputError(f'zone: "{zone}" needs the file that has it. Give --grid FILE.csv as well.')
        return region_hours(scenario.system)
    if isinstance(grid, GridHours):
        return grid
    spread = float(scenario.system.facility.cooling.weather.spread)
    usual = region_hours(scenario.system)
    return read_grid(grid, zone, needs=needs, weather=weather == "file", spread=spread, usual=usual)


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
    usual: GridHours | None = None,
) -> GridHours:
    """Read the hours of a grid from a CSV file.

    **Arguments:**

    - `zone`: which one, where the file has several.
    - `needs`: which of "price" and "carbon" must be there. The other is read where each of its rows has a number.
    - `weather`: whether temperatures are read, if there are columns of them.
    - `spread`: of days about the means of a month [K], for a file of such means.
    - `usual`: hours whose mean stands for the price or carbon that a file with the other one lacks.

    **Raises:** `InputError` that names file, line and column of what is missing or is no number.
    """
    path = Path(path)
    csv = _of_zone(read_csv(path, most_rows=MOST_ROWS), zone)
    rename, notes = _renamed(csv, zone)
    schema = (*WHEN, *VALUES, *(WEATHER if weather else ()))
    table = read_table(csv, schema, TableChoices(rename=rename), fewest=FEWEST_HOURS)
    if not table.columns.keys() & {PRICE, *CARBON, DRY}:
        raise InputError(
            f"{path}: no column of price or carbon. {WANTED}. Its columns are {named_columns(csv.header)}."
        )
    time = next((column for column in TIMES if column in table.columns), None)
    name = f"{path.name}, {zone}" if zone else path.name
    if "hour" in table.columns:
        number = _full(table, "hour", "Write a number.")
        for row in np.flatnonzero(np.diff(number) != 1.0):
            words = f"hour {number[row + 1]:g} follows {number[row]:g}. Give all, each once and in order."
            raise table.error(row + 1, words)
        order, repeats, first, spread = np.arange(len(table)), False, int(number[0]), LEAST_SPREAD
        month = _months(first, len(table))
    elif {"month", "utc_hour"} <= table.columns.keys():
        order, month = _mean_year(table)
        repeats, first = True, 0
    elif time is not None:
        rows = hours_of_rows(table, time, local=time == "local_time", ends=time == "time_end")
        table, month, repeats, first = by_hour(table, rows), rows.months, False, hour_of_year(rows.first)
        order, spread = np.arange(len(table)), LEAST_SPREAD
    else:
        raise InputError(f"{path}: no column of hours. {WANTED}. Its columns are {named_columns(csv.header)}.")
    notes += table.notes

    def series(kind: str, *names: str) -> list[np.ndarray | None]:
        """Values in every hour, or None where nobody needs them and they are not in every row."""
        values = [table.columns.get(column, np.full(len(table), np.nan)) for column in names]
        any_number = not all(np.all(np.isnan(column)) for column in values)
        same = getattr(usual, kind, None) if kind in needs and names[0] not in table.columns else None
        if same is not None:
            notes.append(f"{name}: {kind} is that of the scenario, the same in every hour; the file has none.")
            return [np.full(len(order), np.mean(same) / OF_FILE[kind])]
        if kind in needs or (kind == "weather" and any_number and all(column in table.columns for column in names)):
            return [_full(table, column, ADVICE[kind])[order] for column in names]
        if not any(np.any(np.isnan(column)) for column in values):
            return [column[order] for column in values]
        if any_number and kind != "weather":
            notes.append(f"{name}: {names[0]} has empty rows, so that {kind} is not used.")
        return [None] * len(names)

    (price,) = series("price", PRICE)
    measured = next((column for column in CARBON if column in table.columns), CARBON[0])
    (intensity,) = series("carbon", measured)
    dry, wet = series("weather", DRY, WET)
    if dry is not None and wet is not None and np.max(wet - dry) > ROUNDING:
        raise InputError(
            f"{path}: wet-bulb temperature is {np.max(wet - dry):g} K above the dry bulb somewhere. Are the columns "
            "swapped?"
        )
    if intensity is not None and measured == CARBON[0] and CARBON[1] in table.columns:
        notes.append(f"{name}: carbon is {CARBON[0]}, without what building and fueling the plants emits.")
    return GridHours(
        name,
        None if price is None else price * PER_MWH,
        None if intensity is None else intensity * GRAM_PER_KWH,
        dry,
        wet,
        max(spread, LEAST_SPREAD),
        month,
        repeats,
        first,
        tuple(notes),
    )


def _of_zone(csv: CsvTable, zone: str | None) -> CsvTable:
    """The rows of one zone, and of several rows an hour, such as of two auctions, the first."""
    plain = {heading.lower(): column for column, heading in reversed(list(enumerate(csv.header)))}
    place = next((plain[word] for word in PLACES["columns"] if word in plain), None)
    if zone is not None and _zone_headings(csv, zone):
        place = None
    elif zone is not None and place is None:
        raise InputError(f'{csv.path}: no column zone, so that there is no zone "{zone}". Leave out --zone.')
    zones = [] if place is None else sorted({row[place] for row in csv.rows})
    if zone is None and len(zones) > 1:
        raise InputError(f"{csv.path}: {len(zones)} zones. Choose one with --zone: {', '.join(zones)}.")
    if place is not None and zone is not None and zone not in zones:
        raise InputError(f'{csv.path}: no zone "{zone}". It has {", ".join(zones)}.')
    rows = [number for number, row in enumerate(csv.rows) if place is None or zone in (None, row[place])]
    for column in (plain[word] for word in PLACES["first_alone"] if word in plain):
        rows = [row for row in rows if csv.rows[row][column] == csv.rows[rows[0]][column]]
    return csv._replace(rows=tuple(csv.rows[row] for row in rows), lines=tuple(csv.lines[row] for row in rows))


def _zone_headings(csv: CsvTable, zone: str | None) -> dict[str, re.Match[str]]:
    """Headings that are the price of a zone, such as "NO1 (EUR)", of all or of one."""
    matches = {heading: re.fullmatch(PLACES["of_each"], heading.lower()) for heading in csv.header}
    return {heading: match for heading, match in matches.items() if match and zone in (None, match[1].upper())}


def _renamed(csv: CsvTable, zone: str | None) -> tuple[dict[str, str], list[str]]:
    """The columns that the headings of a public download mean, by heading, and what is assumed of their units."""
    names: dict[str, str] = {}
    for heading in csv.header:
        matches = ((re.fullmatch(pattern, heading.lower()), name) for pattern, name in HEADINGS.items())
        name = next((match.expand(name) for match, name in matches if match), None)
        if name is not None and name not in names.values():
            names[heading] = name
    each = _zone_headings(csv, zone)
    if len(each) > 1:
        zones = ", ".join(match[1].upper() for match in each.values())
        raise InputError(f"{csv.path}: prices of {len(each)} zones. Choose one with --zone: {zones}.")
    names |= {heading: f"price ({match[2]}/MWh)" for heading, match in each.items()}
    units = [
        name.partition("(")[2].strip(")").replace(" ", "") for name in names.values() if name.startswith("price (")
    ]
    foreign = [unit for unit in units if not unit.lower().startswith(("usd", "$"))]
    rates = [(unit, unit_value(unit, "USD/MWh")) for unit in foreign]
    return names, [
        f"{csv.path}: 1 {unit.upper()} is taken as {rate[0]:g} USD/MWh, the mean of 2025 (a prior)."
        for unit, rate in rates
        if rate
    ]


def _full(table: Measurements, name: str, advice: str) -> np.ndarray:
    """A column that must have a number in every row."""
    heading = name.replace("_k", "_c") if name in (DRY, WET) else name
    if name not in table.columns:
        raise InputError(f"{table.path}: no column {heading}, which is needed. {advice}")
    for row in np.flatnonzero(np.isnan(table.columns[name])):
        raise table.error(row, f"{heading} is empty. {advice}")
    return table.columns[name]


def _months(first: int, hours: int) -> np.ndarray:
    """Month of each hour that a year counts from 0; blocks of 730 hours where they are not those of a year."""
    number = np.arange(first, first + hours)
    if first < 0 or number[-1] >= 8784:
        return (number - first) // BLOCK
    leap = int(number[-1] >= 8760)
    ends = np.cumsum([24 * (days + leap * (month == 1)) for month, days in enumerate(DAYS)])
    return np.searchsorted(ends, number, side="right")


def _mean_year(table: Measurements) -> tuple[np.ndarray, np.ndarray]:
    """Which row holds for each hour of a year of 365 days, and the month of each."""
    rows: dict[tuple[float, float], int] = {}
    pairs = zip(*(_full(table, name, "Write a number.") for name in ("month", "utc_hour")), strict=True)
    for row, (month, hour) in enumerate(pairs):
        if (month, hour) in rows:
            raise table.error(row, f"month {month:g}, hour {hour:g} appears twice. Keep one.")
        rows[month, hour] = row
    hours = [(month + 1, hour) for month, days in enumerate(DAYS) for _ in range(days) for hour in range(24)]
    for month, hour in hours:
        if (month, hour) not in rows:
            raise InputError(f"{table.path}: no row for month {month}, hour {hour}. Give all 12 x 24.")
    return np.array([rows[hour] for hour in hours]), np.array([month - 1 for month, _ in hours])
