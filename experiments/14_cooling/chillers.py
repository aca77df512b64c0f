"""Constants of `physics.chiller.lift_cop` fitted to machines in catalogs and to a plant that ran."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from energymodel.physics.chiller import lift_cop, part_load_power

CATALOG = Path(__file__).parents[1] / "data" / "chiller_cop_grid.csv"
PLANT = "chiller_plant_hourly_vanderbilt_2018.csv"
LOADS = (0.25, 0.5, 0.75, 1.0)
FOLDS = 5
RATED_LIFT = {"air": 28.0, "water": 23.0}  # K, of water of 7 °C in air of 35 °C, or with tower water of 30 °C


class Readings(NamedTuple):
    """Readings of chillers, one row each: lift [K], COP at full load [1], power over full-load power at `LOADS` [1]."""

    chiller: np.ndarray
    lift: np.ndarray
    cop: np.ndarray
    power: np.ndarray


class Fit(NamedTuple):
    """Constants of a kind of chiller: `rated_cop` of the median one, its spread as a standard deviation of the log."""

    rated_cop: float
    scale: float
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
        lift=column("condenser_entering_c") - column("chilled_leaving_c"),
        cop=cop[:, -1],
        power=np.array(LOADS) * cop[:, -1:] / cop,
    )


def fit(readings: Readings, rated_lift: float) -> Fit:
    """One scale of the lift for all chillers by least squares of the log, and a rated COP for each chiller."""
    own, count = readings.chiller, np.maximum(np.bincount(readings.chiller), 1)
    mean_lift, mean_log = (np.bincount(own, values) / count for values in (readings.lift, np.log(readings.cop)))
    apart = readings.lift - mean_lift[own]
    scale = -np.sum(apart**2) / np.sum(apart * (np.log(readings.cop) - mean_log[own]))
    rated = (mean_log + (mean_lift - rated_lift) / scale)[np.bincount(own) > 0]
    return Fit(float(np.exp(np.median(rated))), float(scale), float(np.std(rated, ddof=1)))


def held_out_errors(readings: Readings, rated_lift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Relative errors for chillers that no fit has seen, at readings that are not known.

    Of the COP at full load with that of the median machine, and with one reading of the own machine; of the COP at all
    loads with that reading and the powers at half and at a quarter of the load beside it.
    """
    blind, with_one, with_three = [], [], []
    for fold in range(FOLDS):
        unseen = readings.chiller % FOLDS == fold
        fitted = fit(Readings(*(column[~unseen] for column in readings)), rated_lift)
        for chiller in np.unique(readings.chiller[unseen]):
            machine = Readings(*(column[readings.chiller == chiller] for column in readings))
            blind.append(lift_cop(machine.lift, fitted.rated_cop, rated_lift, fitted.scale) / machine.cop - 1.0)
            for known in range(len(machine.cop)):
                full = lift_cop(machine.lift, machine.cop[known], machine.lift[known], fitted.scale) / machine.cop
                with_one.append(np.delete(full, known) - 1.0)
                quarter, half, *_ = machine.power[known]
                at_loads = part_load_power(np.array(LOADS), half, quarter) / machine.power
                others = np.outer(full, np.ones(len(LOADS))) / at_loads
                seen = np.isin(LOADS, (0.25, 0.5, 1.0)) & (np.arange(len(machine.cop)) == known)[:, None]
                with_three.append((others - 1.0)[~seen & np.isfinite(others)])
    return np.concatenate(blind), np.concatenate(with_one), np.concatenate(with_three)


def part_load_errors(readings: Readings) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of power at part load: by the parabola of other machines, and in proportion to the load."""
    loads, full = np.array(LOADS[:-1]), np.isfinite(readings.power).all(axis=1)
    parabola, chiller = [], readings.chiller[full]
    power = readings.power[full, :-1]
    for fold in range(FOLDS):
        unseen = chiller % FOLDS == fold
        quarter, half, _ = np.median(power[~unseen], axis=0)
        parabola.append(np.asarray(part_load_power(loads, half, quarter)) / power[unseen] - 1.0)
    return np.concatenate(parabola).ravel(), (loads / power - 1.0).ravel()


def plant(folder: Path, constants: Fit) -> tuple[list[dict[str, Any]], np.ndarray]:
    """How the median machine compares with the hours of two that ran, and the errors of constants of their own.

    A quarter of the days gives a machine its rated COP, its scale, and its powers at half and at a quarter of the load;
    the errors are those of the other days.
    """
    with (folder / PLANT).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    result, errors, rated_lift = [], [], RATED_LIFT["water"]
    for number in ("1", "2"):
        hours = [row for row in rows if row["chiller"] == number]

        def column(name: str, hours: list[dict[str, str]] = hours) -> np.ndarray:
            return np.array([float(row[name]) for row in hours])

        lift, load, cop = column("cond_in_c") - column("evap_out_c"), column("load_fraction"), column("cop")

        def log_error(own: np.ndarray, lift: Any = lift, load: Any = load, cop: Any = cop) -> np.ndarray:
            """Logarithm of predicted over measured COP, of constants of a machine."""
            full = lift_cop(lift, np.exp(own[0]), rated_lift, np.exp(own[1]))
            return np.asarray(jnp.log(full * load / part_load_power(load, own[2], own[3]) / cop))

        median = np.array([np.log(constants.rated_cop), np.log(constants.scale), 0.5, 0.25])
        days = np.unique([row["hour_local"][:10] for row in hours], return_inverse=True)[1]
        for quarter in range(4):
            known = days * 4 // (days.max() + 1) == quarter
            own = least_squares(lambda own, error=log_error, at=known: error(own)[at], median).x
            errors.append(np.expm1(log_error(own)[~known]))
        rejected = column("cooling_kw") * (1.0 + 1.0 / cop)
        result.append(
            {
                "chiller": number,
                "hours": len(hours),
                "median_cop": float(np.median(cop)),
                "rated_cop": float(constants.rated_cop * np.exp(-np.median(log_error(median)))),
                "scatter": float(np.std(log_error(median))),
                "other_days_percent": 100.0 * float(np.mean(np.abs(np.concatenate(errors[-4:])))),
                "tower_fans_over_rejected": float(np.median(column("tower_fans_kw") / rejected)),
                "condenser_pump_over_rejected": float(np.median(column("condenser_pump_kw") / rejected)),
                "chilled_pump_over_heat": float(np.median(column("chilled_pump_kw") / column("cooling_kw"))),
                "tower_approach_k": float(np.median(column("cond_in_c") - column("wet_bulb_c"))),
            }
        )
    return result, np.concatenate(errors)
