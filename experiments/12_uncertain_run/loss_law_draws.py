"""Joint draws of the constants of the loss law: refits to resampled points as a preset.

`python experiments/12_uncertain_run/loss_law_draws.py` writes the draws of `joint/chinchilla` and where they come from.
"""

import csv
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

ROOT = Path(__file__).parents[2]
POINTS = ROOT / "experiments" / "data" / "chinchilla_points.csv"
PRESET = ROOT / "energymodel" / "presets" / "joint" / "chinchilla.toml"
DRAWS = 1000
SEED = 1
HUBER = 1e-3  # of the logarithm of the loss, as in both fits
PIVOT = np.log([1e9, 2e10])
"""Model size and tokens near the middle of the points: terms of the loss there are all but uncorrelated."""
START = np.array(
    [np.log(482.01) - 0.3478 * PIVOT[0], np.log(2085.43) - 0.3658 * PIVOT[1], np.log(1.8172), 0.3478, 0.3658]
)
COLUMNS = ("entropy_floor", "log parameter_coefficient", "parameter_exponent", "log data_coefficient", "data_exponent")


def points() -> np.ndarray:
    """Logarithms of model size, tokens and loss of the points that the refit uses."""
    with POINTS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["epoch_outlier_excluded"] == "0"]
    return np.log([[float(row[name]) for name in ("params_n", "tokens_d_derived", "loss_nats")] for row in rows])


def objective(x: np.ndarray, table: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum of Huber's losses of the logarithm of the loss, and its gradient."""
    size, data = table[:, 0] - PIVOT[0], table[:, 1] - PIVOT[1]
    terms = np.exp([x[0] - x[3] * size, x[1] - x[4] * data, np.full(len(table), x[2])])
    loss = terms.sum(0)
    residual = np.log(loss) - table[:, 2]
    bounded = np.clip(residual, -HUBER, HUBER)
    value = np.sum(weights * (bounded * residual - 0.5 * bounded**2))
    share = weights * bounded * terms / loss
    return value / HUBER, np.array([*share.sum(1), -share[0] @ size, -share[1] @ data]) / HUBER


def fitted(table: np.ndarray, weights: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Coefficients at the pivot, logarithm of the floor, exponents."""
    solution = minimize(objective, start, (table, weights), "BFGS", jac=True, options={"gtol": 1e-6, "maxiter": 1000})
    return solution.x


def constants(x: np.ndarray) -> np.ndarray:
    """Constants in the order of `COLUMNS`."""
    x = np.atleast_2d(x)
    return np.stack(
        [np.exp(x[:, 2]), x[:, 0] + x[:, 3] * PIVOT[0], x[:, 3], x[:, 1] + x[:, 4] * PIVOT[1], x[:, 4]], axis=1
    )


def draws(count: int = DRAWS) -> tuple[np.ndarray, np.ndarray]:
    """Constants of the fit to all points, and of fits to points drawn with replacement [Efron 1979]."""
    table = points()
    best = fitted(table, np.ones(len(table)), START)
    random = np.random.default_rng(SEED)
    weights = random.multinomial(len(table), np.full(len(table), 1.0 / len(table)), count)
    return constants(best)[0], constants(np.stack([fitted(table, weight.astype(float), best) for weight in weights]))


def main() -> None:
    center, result = draws()
    for name, value, column in zip(COLUMNS, center, result.T, strict=True):
        print(
            f"{name:<28} {value:9.4f}  standard error {column.std():.4f}  2.5 to 97.5 %: "
            f"{np.quantile(column, 0.025):.4f} to {np.quantile(column, 0.975):.4f}"
        )
    rows = [",".join(COLUMNS), *(",".join(f"{number:.6g}" for number in row) for row in result - center)]
    PRESET.parent.mkdir(exist_ok=True)
    PRESET.write_text(
        'title = "Constants of the Chinchilla loss law, refitted to resampled points"\n'
        f'source = "experiments/12_uncertain_run: {len(result)} refits to the {len(points())} points of '
        "chinchilla_points.csv that Besiroglu et al. 2024 (arXiv 2404.10102) keep, drawn with replacement, less the "
        'fit to all of them"\n',
        encoding="utf-8",
    )
    PRESET.with_suffix(".csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
