"""Constants of `physics.chiller.lift_cop` fitted to machines in catalogs and to a plant that ran."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.constants import ZERO_CELSIUS
from energymodel.physics.chiller import lift_cop, part_load_power

CATALOG = Path(__file__).parents[1] / "data" / "chiller_cop_grid.csv"
PLANT = "chiller_plant_hourly_vanderbilt_2018.csv"
LOADS = (0.25, 0.5, 0.75, 1.0)
FOLDS = 5
LEAST_READINGS = 3  # at full load, of a chiller that takes part in the fit of the exchange temperature


class Readings(NamedTuple):
    """Readings of chillers, one row each: temperatures [K], COP at full load [1], power over full-load power [1]."""

    chiller: np.ndarray
    supply: np.ndarray
    condenser: np.ndarray
    cop: np.ndarray
    power: np.ndarray


class Fit(NamedTuple):
    """Constants of a kind of chiller: `quality` of the median one, its spread as a standard deviation of the log."""

    quality: float
    exchange: float
    spread: float


def catalog(kind: str) -> Readings:
    """Readings of one kind of condenser, "air" or "water"."""
    with CATALOG.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["condenser"] == kind]

    def column(name: str) -> np.ndarray:
        return np.array([float(row[name] or "nan") for row in rows])

    cop = np.stack([column(f"cop_plr{load:04.0%}".replace("%", "")) for load in LOADS], axis=1)
    return Readings(
        chiller=np.unique(column("set_id"), return_inverse=True)[1],
        supply=column("chilled_leaving_c") + ZERO_CELSIUS,
        condenser=column("condenser_entering_c") + ZERO_CELSIUS,
        cop=cop[:, -1],
        power=np.array(LOADS) * cop[:, -1:] / cop,
    )


def fit(readings: Readings) -> Fit:
    """One exchange temperature for all chillers by least squares of the log, and a quality for each chiller."""
    count = np.bincount(readings.chiller)
    many = count[readings.chiller] >= LEAST_READINGS

    def leftover(exchange: float) -> tuple[float, np.ndarray]:
        logs = _log_quality(readings, exchange)
        own = np.bincount(readings.chiller, logs) / np.maximum(count, 1)
        return float(np.sum((logs - own[readings.chiller])[many] ** 2)), own[count > 0]

    exchange = min(np.arange(5.0, 60.0, 0.5), key=lambda degrees: leftover(degrees)[0])
    own = leftover(exchange)[1]
    return Fit(float(np.exp(np.median(own))), float(exchange), float(np.std(own, ddof=1)))


def _log_quality(readings: Readings, exchange: float) -> np.ndarray:
    ideal = np.asarray(lift_cop(readings.supply, readings.condenser, 1.0, exchange))
    return np.log(readings.cop / ideal)


def held_out_errors(readings: Readings) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors for chillers that no fit has seen: with the median quality, and with one reading of their own."""
    blind, with_one = [], []
    for fold in range(FOLDS):
        unseen = readings.chiller % FOLDS == fold
        fitted = fit(Readings(*(column[~unseen] for column in readings)))
        logs = _log_quality(readings, fitted.exchange)
        blind.append(np.expm1(np.log(fitted.quality) - logs[unseen]))
        for chiller in np.unique(readings.chiller[unseen]):
            own = logs[readings.chiller == chiller]
            with_one.append(np.expm1(own[0] - own[1:]))
    return np.concatenate(blind), np.concatenate(with_one)


def part_load(readings: Readings) -> tuple[float, float]:
    """Constants `fixed` and `quadratic` of `part_load_power`, by least squares over all readings."""
    loads = np.broadcast_to(LOADS[:-1], readings.power[:, :-1].shape).ravel()
    power = readings.power[:, :-1].ravel()
    is_rated = np.isfinite(power)
    columns = np.stack([1.0 - loads, loads**2 - loads], axis=1)[is_rated]
    fixed, quadratic = np.linalg.lstsq(columns, (power - loads)[is_rated], rcond=None)[0]
    return float(fixed), float(quadratic)


def plant(folder: Path, constants: Fit, fixed: float, quadratic: float) -> list[dict[str, Any]]:
    """How the median machine of the catalogs compares with the hours of two that ran."""
    with (folder / PLANT).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    result = []
    for number in ("1", "2"):
        hours = [row for row in rows if row["chiller"] == number]

        def column(name: str, hours: list[dict[str, str]] = hours) -> np.ndarray:
            return np.array([float(row[name]) for row in hours])

        supply, condenser = column("evap_out_c") + ZERO_CELSIUS, column("cond_in_c") + ZERO_CELSIUS
        load, cop = column("load_fraction"), column("cop")
        full = np.asarray(lift_cop(supply, condenser, constants.quality, constants.exchange))
        logs = np.log(cop * np.asarray(part_load_power(load, fixed, quadratic)) / (full * load))
        rejected = column("cooling_kw") * (1.0 + 1.0 / cop)
        result.append(
            {
                "chiller": number,
                "hours": len(hours),
                "median_cop": float(np.median(cop)),
                "quality": float(constants.quality * np.exp(np.median(logs))),
                "scatter": float(np.std(logs)),
                "tower_fans_over_rejected": float(np.median(column("tower_fans_kw") / rejected)),
                "condenser_pump_over_rejected": float(np.median(column("condenser_pump_kw") / rejected)),
                "chilled_pump_over_heat": float(np.median(column("chilled_pump_kw") / column("cooling_kw"))),
                "tower_approach_k": float(np.median(column("cond_in_c") - column("wet_bulb_c"))),
            }
        )
    return result
