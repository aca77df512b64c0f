"""The law of `performance.kernels` fitted to measured fused attention kernels of each chip.

Prints constants with 95 % intervals, and errors held out by shape and by context length.
"""

import argparse
import csv
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import least_squares

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import outputs  # noqa: E402

from energymodel.performance.kernels import exponential_slowdown, forward_attention_time  # noqa: E402
from energymodel.scenarios.scenario import load_scenario  # noqa: E402

DATA = HERE.parent / "data"
HEAD = 128.0  # head size of all kernels: 2 b a s^2 d over the time is the rate that the table states
START = (0.6, 500.0, 2e4)
SCALE = 0.1  # of ln(time): larger residuals count less than quadratically
FOLDS = 5
PRESETS = {
    "a100_sxm": "a100-sxm4-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "gb200": "gb200",
    "b300_sxm": "b300-sxm",
}
NAMES = ("attention_efficiency", "attention_half_keys", "attention_tail")


class Kernels(NamedTuple):
    """Measured forward passes of one chip."""

    batch: np.ndarray
    length: np.ndarray
    heads: np.ndarray
    time: np.ndarray

    @property
    def operations(self) -> np.ndarray:
        """Of scores and values that the causal mask leaves [FLOP]."""
        return 2.0 * self.batch * self.heads * self.length**2 * HEAD

    @property
    def fold(self) -> np.ndarray:
        """Group of a shape (batch, context and heads); kernels that differ in key-value heads stay together."""
        batch, length, heads = (np.round(np.log2(size)) for size in (self.batch, self.length, self.heads))
        return (batch + 2.0 * length + 3.0 * heads) % FOLDS


def read(path: Path) -> dict[str, Kernels]:
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    chips = {}
    for system in dict.fromkeys(row["system"] for row in rows):
        own = [row for row in rows if row["system"] == system]
        columns = [[float(row[name]) for row in own] for name in ("batch_size", "isl", "num_heads", "latency_ms")]
        batch, length, heads, milliseconds = map(np.asarray, columns)
        chips[system] = Kernels(batch, length, heads, 1e-3 * milliseconds)
    return chips


def predicted(logs: np.ndarray, kernels: Kernels, peak: float, half_head: float) -> np.ndarray:
    efficiency, half_keys, tail = np.exp(logs)
    rate = efficiency * peak / exponential_slowdown(HEAD, half_head)
    rows = kernels.batch * kernels.heads * kernels.length
    return np.asarray(
        forward_attention_time(kernels.operations, rate, 0.5 * kernels.length, rows, half_keys, tail), np.float64
    )


def fit(kernels: Kernels, chosen: np.ndarray, peak: float, half_head: float) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the constants, and their standard errors from the residuals."""

    def residuals(logs: np.ndarray) -> np.ndarray:
        return np.log(predicted(logs, kernels, peak, half_head) / kernels.time)[chosen]

    solution = least_squares(residuals, np.log(START), loss="soft_l1", f_scale=SCALE)
    own = residuals(solution.x)
    variance = np.sum(own**2) / (own.size - len(START))
    return solution.x, np.sqrt(variance * np.diag(np.linalg.inv(solution.jac.T @ solution.jac)))


def held_out(kernels: Kernels, groups: np.ndarray, peak: float, half_head: float) -> np.ndarray:
    """Relative errors of kernels whose group no fit has seen."""
    errors = np.empty_like(kernels.time)
    for group in np.unique(groups):
        logs, _ = fit(kernels, groups != group, peak, half_head)
        out = groups == group
        errors[out] = (predicted(logs, kernels, peak, half_head) / kernels.time - 1.0)[out]
    return errors


def drawn(measured: list[float], fitted: list[float]) -> Figure:
    """Predicted against measured times, shapes held out."""
    figure = Figure(figsize=(4.5, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.loglog(measured, fitted, ".", markersize=3)
    axes.loglog([1e-5, 1.0], [1e-5, 1.0], color="black", linewidth=0.8)
    axes.set(xlabel="measured time (s)", ylabel="predicted time, shapes held out (s)")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    parser.add_argument("--output", type=Path, default=HERE, help="folder for the figure")
    options = parser.parse_args()
    constants, errors, measured, guessed = [], [], [], []
    for system, kernels in read(options.data / "attention_forward_measured.csv").items():
        chip = load_scenario("test-1b-h100", {"system.accelerator": PRESETS[system]}).system.accelerator
        half_head = float(chip.attention_half_head)
        peak = float(chip.peak_flops)
        logs, deviations = fit(kernels, np.ones(kernels.time.size, bool), peak, half_head)
        for name, log, deviation in zip(NAMES, logs, deviations, strict=True):
            low, value, high = np.exp(log + np.array([-1.96, 0.0, 1.96]) * deviation)
            constants.append({"chip": system, "constant": name, "value": value, "low": low, "high": high})
        by_shape = held_out(kernels, kernels.fold, peak, half_head)
        by_length = held_out(kernels, kernels.length, peak, half_head)
        errors.append(
            {
                "chip": system,
                "kernels": kernels.time.size,
                "median by shape": float(np.median(np.abs(by_shape))),
                "mean by shape": float(np.mean(np.abs(by_shape))),
                "largest tenth above": float(np.quantile(np.abs(by_shape), 0.9)),
                "median by length": float(np.median(np.abs(by_length))),
            }
        )
        measured.extend(kernels.time)
        guessed.extend(kernels.time * (1.0 + by_shape))
    print(outputs.table(constants), outputs.table(errors), sep="\n\n")
    outputs.draw(drawn(measured, guessed), options.output, "attention")


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
