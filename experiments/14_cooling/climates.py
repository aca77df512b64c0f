"""Constants of `physics.weather.Weather` fitted to the hours of places."""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.constants import ZERO_CELSIUS
from energymodel.physics.heat_rejection import free_cooling_share
from energymodel.physics.weather import Hour, Weather

MEANS = "grid_month_hour_means_2024.csv"
HOURS = "grid_hourly_texas_2024.csv"
HOURLY_ZONE = "US-TEX-ERCO"
MONTH_HOURS = 732  # a twelfth of the 8,784 hours of 2024
SPREAD = 3.5  # K, where only means are known
RISE = 12.0  # K
SOURCES = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0)  # °C to which the outside must cool


class Climate(NamedTuple):
    """Mean of dry or wet bulb [°C], amplitudes over year and day [K], and the root mean square of what is left [K]."""

    mean: float
    year: float
    day: float
    error: float


def _wave(time: np.ndarray, period: float) -> list[np.ndarray]:
    return [np.cos(2.0 * np.pi * time / period), np.sin(2.0 * np.pi * time / period)]


def climate(month: np.ndarray, hour: np.ndarray, temperature: np.ndarray) -> Climate:
    """A wave over the year and one over the day, by least squares."""
    columns = np.stack([np.ones(len(month)), *_wave(month - 0.5, 12.0), *_wave(hour, 24.0)], axis=1)
    result = np.linalg.lstsq(columns, temperature, rcond=None)[0]
    left = temperature - columns @ result
    return Climate(
        float(result[0]), float(np.hypot(*result[1:3])), float(np.hypot(*result[3:])), float(np.sqrt(np.mean(left**2)))
    )


def weather(dry: Climate, wet: Climate, spread: float) -> Weather:
    """The component with the constants of a place."""
    return Weather(dry.mean + ZERO_CELSIUS, dry.year, dry.day, wet.mean + ZERO_CELSIUS, wet.year, wet.day, spread)


def places(folder: Path) -> list[dict[str, Any]]:
    """Constants of each zone, and the largest error of the share of free cooling over `SOURCES` that they make."""
    zones: dict[str, list[dict[str, str]]] = defaultdict(list)
    with (folder / MEANS).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["temp_c"]:
                zones[row["zone"]].append(row)
    result = []
    for zone, rows in zones.items():
        month, hour, dry, wet = (
            np.array([float(row[name]) for row in rows]) for name in ("month", "utc_hour", "temp_c", "wet_bulb_c")
        )
        climates = climate(month, hour, dry), climate(month, hour, wet)
        model = weather(*climates, SPREAD)
        errors = []
        for supply in SOURCES:
            truth = np.mean(np.asarray(free_cooling_share(supply, RISE, wet, SPREAD)))
            errors.append(_free_share(model, supply) - truth)
        names = ("mean_c", "year_k", "day_k", "error_k")
        result.append(
            {"zone": zone}
            | {f"dry_{name}": value for name, value in zip(names, climates[0], strict=True)}
            | {f"wet_{name}": value for name, value in zip(names, climates[1], strict=True)}
            | {"free_share_error": float(np.max(np.abs(errors)))}
        )
    return result


def _free_share(model: Weather, supply: float) -> float:
    def share(hour: Hour) -> Any:
        return free_cooling_share(supply + ZERO_CELSIUS, RISE, hour.wet_bulb, hour.spread)

    return float(model.year_mean(share))


def hours_of_a_year(folder: Path) -> list[dict[str, Any]]:
    """Share of free cooling over the measured hours of a year, and by the constants of the place."""
    with (folder / HOURS).open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["temp_c"] and row["wet_bulb_c"]]
    time, dry, wet = (np.array([float(row[name]) for row in rows]) for name in ("hour", "temp_c", "wet_bulb_c"))
    month, hour = np.minimum(time // MONTH_HOURS, 11.0), time % 24.0
    groups = month * 24.0 + hour
    own = [np.std(dry[groups == group]) for group in np.unique(groups)]
    spread = float(np.sqrt(np.mean(np.square(own))))
    model = weather(climate(month + 1.0, hour, dry), climate(month + 1.0, hour, wet), spread)
    result = []
    for supply in SOURCES:
        measured = float(np.mean(np.clip((supply + RISE - wet) / RISE, 0.0, 1.0)))
        predicted = _free_share(model, supply)
        result.append(
            {"zone": HOURLY_ZONE, "spread_k": spread, "supply_c": supply, "measured": measured, "predicted": predicted}
        )
    return result
