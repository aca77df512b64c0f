"""Constants of the loss law refitted to the points of Hoffmann et al. 2022, with their uncertainty."""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.calibration.constant_priors import flat_values
from energymodel.calibration.intervals import bootstrap, quantiles
from energymodel.calibration.kinds.loss import CONSTANTS, TrainedModels, loss_law_problem
from energymodel.calibration.least_squares import FitResult, fit, held_out_errors

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

DATA = Path(__file__).parents[1] / "data"
SOURCE = "Besiroglu et al. 2024"
NAMES = {
    "parameter_coefficient": "A",
    "data_coefficient": "B",
    "entropy_floor": "E",
    "parameter_exponent": "alpha",
    "data_exponent": "beta",
}
DRAWS = 400
LEVELS = (0.8, 0.95)
SIZE_GROUP = 2.0
"""Sizes within a factor of this are one held-out group."""


def models() -> TrainedModels:
    """The 240 points that the refit uses; five outliers are left out, as there."""
    with (DATA / "chinchilla_points.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["epoch_outlier_excluded"] == "0"]

    def column(name: str) -> np.ndarray:
        return np.array([float(row[name]) for row in rows])

    return TrainedModels(column("params_n"), column("tokens_d_derived"), column("loss_nats"))


def published() -> dict[str, dict[str, float]]:
    """Value, standard error and 95 % interval of each constant."""
    with (DATA / "chinchilla_fits.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["parameter"]: {key: float(row[key]) for key in ("value", "standard_error", "ci95_low", "ci95_high")}
            for row in csv.DictReader(file)
            if row["source"].startswith(SOURCE)
        }


def constants_table(fitted: FitResult, draws: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Constants beside the published ones, with bootstrap errors and intervals where there are draws."""
    reference = published()
    rows = []
    for index, (name, value) in enumerate(zip(fitted.names, flat_values(CONSTANTS, fitted.coordinates), strict=True)):
        printed = reference[NAMES[name]]
        row: dict[str, Any] = {
            "constant": NAMES[name],
            "value": float(value),
            "published": printed["value"],
            "off_standard_errors": float(abs(value - printed["value"]) / printed["standard_error"]),
            "published_error": printed["standard_error"],
        }
        if draws is not None:
            row["error"] = float(np.std(draws[:, index]))
            for level in LEVELS:
                ends = quantiles(draws, level)
                row[f"low_{100 * level:.0f}"] = float(ends.lower[index])
                row[f"high_{100 * level:.0f}"] = float(ends.upper[index])
            row["published_low_95"], row["published_high_95"] = printed["ci95_low"], printed["ci95_high"]
        rows.append(row)
    return sorted(rows, key=lambda row: list(NAMES.values()).index(row["constant"]))


def held_out(table: TrainedModels, fitted: FitResult) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Error of the loss of sizes that were left out, by size and by point."""
    bins = np.floor(np.log(table.parameters) / np.log(SIZE_GROUP)).astype(int)
    result = np.expm1(held_out_errors(fitted, bins)[:, 0])
    rows = []
    for number in np.unique(bins):
        chosen = bins == number
        rows.append(
            {
                "least_parameters": float(table.parameters[chosen].min()),
                "most_parameters": float(table.parameters[chosen].max()),
                "points": int(chosen.sum()),
                "mean_error": float(np.mean(np.abs(result[chosen]))),
                "bias": float(np.mean(result[chosen])),
            }
        )
    return rows, result


def compute() -> tuple[dict[str, list[dict[str, Any]]], TrainedModels, FitResult]:
    """All tables, the points and the fit."""
    table = models()
    fitted = fit(loss_law_problem(table))
    draws = bootstrap(fitted, np.arange(len(table.loss)), DRAWS)
    sizes, by_point = held_out(table, fitted)
    summary = [
        {
            "points": len(table.loss),
            "rms_log_error": float(np.sqrt(np.mean(fitted.errors**2))),
            "mean_error": float(np.mean(np.abs(np.expm1(fitted.errors)))),
            "held_out_error": float(np.mean(np.abs(by_point))),
            "draws": DRAWS,
        }
    ]
    accuracy = [
        outputs.accuracy(
            "loss of a model from its parameters and tokens",
            by_point,
            "size, within a factor of two",
            "57 million to 16 billion parameters, one data set",
        )
    ]
    tables = {"constants": constants_table(fitted, draws), "held_out": sizes, "summary": summary, "accuracy": accuracy}
    return tables, table, fitted
