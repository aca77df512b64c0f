"""Times of matrix products and of experts' grouped products by shape, format and chip.

`python experiments/17_kernels/products.py` fits `performance.kernels.product_time`, prints the constants of each chip
and format with 90 % intervals and the errors on shapes held out, and draws `products.png` beside this file.

The constants are those of the presets of hardware.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from figures import BLUE, GRAY, add_axes, new_figure
from scipy.optimize import least_squares

from energymodel.scenarios.files import read_preset

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
DATA = FOLDER.parent / "data"
PRESETS = {
    "a100_sxm": "a100-sxm4-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
}
PEAK = {"bfloat16": "peak_flops", "fp8": "peak_flops_fp8", "nvfp4": "peak_flops_fp4"}
FOLDS = 5
SOFT = 0.03  # residual of ln(time) above which a measurement counts less: tables scatter
WITHOUT_EDGE = ("b200_sxm", "b300_sxm", "gb200", "gb300")
"""Chips whose bf16 products have no time at the ends of a tile that the tables show."""
WITHOUT_LATENCY = ("l40s",)
"""Chips whose bf16 products have no time before they start that the tables show."""
BALANCED = "balanced"


class Measured(NamedTuple):
    """Products of one chip and format: what they have of each constant, by column, and their times [s]."""

    columns: np.ndarray
    time: np.ndarray
    shape: np.ndarray


class Fit(NamedTuple):
    """Constants by name with standard deviations of their logarithms, and errors of shapes held out."""

    names: tuple[str, ...]
    values: np.ndarray
    spread: np.ndarray
    held_out: np.ndarray


def peak(system: str, name: str) -> float:
    """A rate of a chip [1/s]."""
    return float(read_preset("hardware", PRESETS[system])[name]["value"])


def products() -> dict[tuple[str, str], Measured]:
    """The table of products, by chip and format."""
    groups: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    with (DATA / "gemm_measured.csv").open() as file:
        for row in csv.DictReader(file):
            if row["system"] in PRESETS:
                sizes = [float(row[name]) for name in ("m", "n", "k")]
                groups[row["system"], row["gemm_dtype"]].append([*sizes, 1e-3 * float(row["latency_ms"])])
    result = {}
    for (system, precision), rows in groups.items():
        m, n, k, time = np.array(rows).T
        rate, bandwidth = peak(system, PEAK[precision]), peak(system, "memory_bandwidth")
        # Operations and results over the peak rate, casts of the input over the bandwidth, launches.
        columns = np.stack([2 * m * n * k / rate, 2 * m * n / rate, m * k / bandwidth, np.ones_like(m)])
        result[system, precision] = Measured(columns, time, np.arange(len(m)) % FOLDS)
    return result


def product_law(precision: str, system: str) -> tuple[tuple[str, ...], np.ndarray, Callable[..., np.ndarray]]:
    """Names of the constants, where a fit starts, and the time, `(F + d E) / (eta Fdot) + q m k / bw + t_0`."""
    casts = precision != "bfloat16"
    ranges = {
        "efficiency": True,
        "latency": casts or system not in WITHOUT_LATENCY,
        "edge": casts or system not in WITHOUT_EDGE,
        "cast_bytes": casts,
    }
    names = [name for name, shows in ranges.items() if shows]
    start = {"efficiency": 0.75, "latency": 5e-6, "edge": 100.0, "cast_bytes": 5.0}

    def time(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
        constants = dict(zip(names, values, strict=True))
        operations, edges, casts, launches = columns
        work = (operations + constants.get("edge", 0.0) * edges) / constants["efficiency"]
        return work + constants.get("cast_bytes", 0.0) * casts + constants.get("latency", 0.0) * launches

    return tuple(names), np.array([start[name] for name in names]), time


def experts() -> dict[str, Measured]:
    """The table of grouped products with an even load, by chip: three products of each expert that a rank holds."""
    groups: dict[str, list[list[float]]] = defaultdict(list)
    keys = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size", "latency_ms")
    with (DATA / "moe_grouped_gemm_measured.csv").open() as file:
        for row in csv.DictReader(file):
            if row["distribution"] == BALANCED:
                groups[row["system"]].append([float(row[key]) for key in keys])
    result = {}
    for system, rows in groups.items():
        tokens, h, f, top, count, ranks, time = np.array(rows).T
        held, pairs = count / ranks, tokens * top / ranks
        rate, bandwidth = peak(system, "peak_flops"), peak(system, "memory_bandwidth")
        weights = 3 * held * h * f
        columns = np.stack(
            [
                6 * pairs * h * f / rate,
                2 * weights / rate,
                2 * weights / bandwidth,
                2 * pairs * (h + f) / bandwidth,
                np.ones_like(h),
            ]
        )
        result[system] = Measured(columns, 1e-3 * time, np.arange(len(h)) % FOLDS)
    return result


def expert_law() -> tuple[tuple[str, ...], np.ndarray, Callable[..., np.ndarray]]:
    """Padded products under the roofline of the weights, passes over the activations, and launches."""
    names = ("efficiency", "expert_tile", "memory_efficiency", "passes", "latency")

    def time(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
        efficiency, tile, memory, passes, latency = values
        operations, padding, weights, activations, launches = columns
        compute = (operations + tile * padding) / efficiency
        return (compute**4 + (weights / memory) ** 4) ** 0.25 + passes * activations + latency * launches

    return names, np.array([0.8, 64.0, 0.85, 5.0, 4e-5]), time


def fit(measured: Measured, names: tuple[str, ...], start: np.ndarray, time: Callable[..., np.ndarray]) -> Fit:
    """Constants by robust least squares of logarithms, and the errors where a fifth of the shapes is held out."""

    def search(rows: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        def residual(z: np.ndarray) -> np.ndarray:
            return np.log(time(np.exp(z), measured.columns[:, rows]) / measured.time[rows])

        solution = least_squares(residual, np.log(start), loss="soft_l1", f_scale=SOFT)
        weight = 1.0 / np.sqrt(1.0 + (residual(solution.x) / SOFT) ** 2)
        slopes = least_squares(residual, solution.x, max_nfev=1).jac
        freedom = max(1, np.sum(rows) - len(start))
        scatter = np.sum(weight * residual(solution.x) ** 2) / freedom
        return solution.x, np.sqrt(np.diag(np.linalg.inv(slopes.T @ (weight[:, None] * slopes))) * scatter), weight

    everything = np.ones(len(measured.time), bool)
    z, spread, _ = search(everything, start)
    held_out = np.zeros(len(measured.time))
    for fold in range(FOLDS):
        own = measured.shape == fold
        values = np.exp(search(~own, np.exp(z))[0])
        held_out[own] = time(values, measured.columns[:, own]) / measured.time[own] - 1.0
    return Fit(names, np.exp(z), spread, held_out)


def main() -> None:
    fits = {
        (system, precision): fit(runs, *product_law(precision, system))
        for (system, precision), runs in products().items()
    }
    fits |= {(system, "experts"): fit(runs, *expert_law()) for system, runs in experts().items()}
    constants, errors = [], []
    for (system, kind), runs in fits.items():
        for name, value, spread in zip(runs.names, runs.values, runs.spread, strict=True):
            low, high = value * np.exp([-1.645 * spread, 1.645 * spread])
            constants.append(
                {"chip": system, "products": kind, "constant": name, "value": value, "low": low, "high": high}
            )
        size = np.abs(runs.held_out)
        errors.append(
            {
                "chip": system,
                "products": kind,
                "shapes": len(size),
                "median_percent": 100 * float(np.median(size)),
                "ninth_tenth_percent": 100 * float(np.quantile(size, 0.9)),
            }
        )
    print(outputs.table(constants) + "\n\n" + outputs.table(errors))
    figure = new_figure(8.0, 3.6)
    axes = add_axes(figure, 1, 1, 1)
    for index, ((_, kind), runs) in enumerate(fits.items()):
        color = GRAY if kind == "experts" else BLUE
        axes.plot(np.full(len(runs.held_out), index), 100 * runs.held_out, ".", ms=2, color=color, alpha=0.5)
    axes.set_xticks(range(len(fits)), [f"{system} {kind}" for system, kind in fits], rotation=90, fontsize=6)
    axes.set(ylabel="predicted over measured, less one [%]", ylim=(-60, 60))
    outputs.draw(figure, FOLDER, "products")


if __name__ == "__main__":
    main()
