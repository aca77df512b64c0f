"""Power, time and best clock of GPU kernels below the highest clock, and the front of time and energy of a pipeline.

Prints thirteen tables, draws `kernel_clocks` and `frontiers` and writes `result.json` beside this file.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import frontiers
import kernel_runs
import numpy as np
from scipy.linalg import block_diag

from energymodel.calibration.kernel_clock import CONSTANTS
from energymodel.calibration.least_squares import FitResult
from energymodel.calibration.power_population import KERNELS, PowerPopulation

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, COLORS, GRAY, add_axes, new_figure

FOLDER = Path(__file__).parent
SHOWN = ("matrixMul", "binomialOptions", "BlackScholes", "fastWalshTransform", "transpose")


def kernel_tables(gpu: str) -> tuple[outputs.Tables, kernel_runs.Measured, kernel_runs.Protocol]:
    """Tables of one GPU, its measurements, and its prediction with the benchmark held out."""
    data = kernel_runs.measured(gpu)
    tables: outputs.Tables = {"kernel_errors": [], "kernel_choices": []}
    first: kernel_runs.Protocol | None = None
    for protocol in kernel_runs.protocols(gpu):
        first = first or protocol
        tables["kernel_errors"].append(
            {
                "gpu": gpu,
                "known": protocol.name,
                "held_out": protocol.held_out,
                "constants": len(protocol.fit.values),
                "count": int(np.sum(protocol.judged)),
                **kernel_runs.percent_of(protocol.errors[protocol.judged]),
            }
        )
        if protocol.held_out == "benchmark" and protocol.errors.shape[1] == 2:
            tables["kernel_choices"].append(
                _choice(gpu, f"least predicted, {protocol.name}", kernel_runs.choices(data, protocol.errors))
            )
        print(f"{gpu}: {protocol.name}, {protocol.held_out} held out", flush=True)
    assert first is not None
    clocks = np.unique(data.clock_hz[np.asarray(data.runs.clock) >= kernel_runs.LOWEST])
    for index in (int(np.searchsorted(clocks, 0.68 * clocks[-1])), len(clocks) - 1):
        choice = kernel_runs.choices(data, None, lambda _, index=index: index)
        tables["kernel_choices"].append(_choice(gpu, f"{clocks[index] / 1e6:.0f} MHz for all", choice))
    tables["kernel_constants"] = [
        {"gpu": gpu, "constant": name, "value": float(value), "unit": kernel_runs.CONSTANTS[name].unit}
        for name, value in first.fit.values.items()
    ]
    tables["kernel_by_clock"] = [
        {
            "gpu": gpu,
            "clock_hz": float(clock),
            "tested": bool(np.all(first.judged[data.clock_hz == clock])),
            **kernel_runs.percent_of(first.errors[data.clock_hz == clock]),
        }
        for clock in np.unique(data.clock_hz)[:-1]
    ]
    tables["kernel_split"] = _splits(gpu, data, first)
    return tables, data, first


def _choice(gpu: str, rule: str, choice: kernel_runs.Choice) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "rule": rule,
        "mean_regret": float(np.mean(choice.regret)),
        "largest_regret": float(np.max(choice.regret)),
        "best_found": int(np.sum(choice.best == choice.chosen)),
        "kernels": len(choice.kernels),
        "mean_saving_of_best": float(np.mean(choice.saving)),
    }


def _splits(gpu: str, data: kernel_runs.Measured, protocol: kernel_runs.Protocol) -> list[dict[str, Any]]:
    """By benchmark: shares of power at the highest clock, best and chosen clocks, mean over its kernels."""
    shares, choice = kernel_runs.split(data, protocol.fit), kernel_runs.choices(data, protocol.errors)
    top = np.asarray(data.runs.clock) == 1.0
    order = [data.kernel[top].tolist().index(name) for name in choice.kernels]
    benchmark = data.benchmark[top][order]
    power = np.asarray(data.runs.power)[top][order]
    return [
        {
            "gpu": gpu,
            "benchmark": name,
            "kernels": int(np.sum(benchmark == name)),
            "power_w": float(np.mean(power[benchmark == name])),
            **{part: float(np.mean(share[order][benchmark == name])) for part, share in shares.items()},
            "best_clock_hz": float(np.mean(choice.best[benchmark == name])),
            "chosen_clock_hz": float(np.mean(choice.chosen[benchmark == name])),
            "mean_regret": float(np.mean(choice.regret[benchmark == name])),
        }
        for name in dict.fromkeys(benchmark.tolist())
    ]


def kernel_accuracy(gpu: str, data: kernel_runs.Measured, errors: np.ndarray) -> list[dict[str, Any]]:
    """Rows for the page on trust."""
    count = len({*data.kernel.tolist()})
    within = f"{count} kernels on {gpu}, {100 * kernel_runs.LOWEST:.0f} % of the highest clock and above"
    judged = errors[data.tested]
    parts = {"time": judged[:, 0], "power": judged[:, 1], "energy": judged.sum(axis=1)}
    return [
        outputs.accuracy(
            f"{name} of a kernel at a lower clock, from its profile at the highest",
            np.expm1(part),
            "benchmark; shared constants from all others",
            within,
        )
        for name, part in parts.items()
    ]


def frontier_tables() -> tuple[outputs.Tables, list[frontiers.Front]]:
    """Energy at later deadlines through `evaluate`, with floor and knee of the voltage from other fronts."""
    result = frontiers.fronts()
    groups = {word: [getattr(front, word) for front in result] for word in ("layout", "method", "model")}
    protocols: dict[str, list[Any]] = {"nothing": [frontiers.fitted([True] * len(result)).values] * len(result)}
    protocols["preset"] = [frontiers.preset_values(front.key) for front in result]
    protocols["everything"] = [frontiers.prior_values()] * len(result)
    for word, labels in groups.items():
        if len(set(labels)) > 1:
            by = {
                label: frontiers.fitted([other != label for other in labels]).values for label in dict.fromkeys(labels)
            }
            protocols[word] = [by[label] for label in labels]
    tables: outputs.Tables = {
        "frontier_constants": [
            {"constant": name, "value": float(value), "unit": frontiers.CONSTANTS[name].unit}
            for name, value in protocols["nothing"][0].items()
        ],
        "frontier_summary": [],
        "frontier_means": [{"energy": "measured", **_means([front.measured(frontiers.SHOWN) for front in result])}],
        "frontiers": [
            {"method": f.method, "model": f.model, "layout": f.layout, "outlier": f.is_outlier} for f in result
        ],
    }
    errors: dict[str, np.ndarray] = {}
    for word, values in protocols.items():
        curves = [frontiers.curve(front, own) for front, own in zip(result, values, strict=True)]
        errors[word] = np.array([curve / front.measured() - 1.0 for front, curve in zip(result, curves, strict=True)])
        shown = [frontiers.curve(front, own, frontiers.SHOWN) for front, own in zip(result, values, strict=True)]
        tables["frontier_means"].append({"energy": f"predicted, {word} held out", **_means(shown)})
        print(f"fronts: {word} held out", flush=True)
    keys = list(dict.fromkeys(front.key for front in result))
    for per in ("rank", "operation"):
        plans = {key: frontiers.planned(key, protocols["nothing"][0], per) for key in keys}
        errors[f"clocks by {per}"] = np.array([plans[front.key] / front.measured() - 1.0 for front in result])
        print(f"fronts: clocks by {per}", flush=True)
    for word, error in errors.items():
        tables["frontier_summary"].append(_summary(word, result, error))
        for row, own in zip(tables["frontiers"], error, strict=True):
            row[f"error_{word.replace(' ', '_')}"] = float(np.mean(np.abs(own)))
    within = f"{len(result)} fronts on 16 A100, 2 stages; time up to {frontiers.STRETCHES[-1]:.2g} x the shortest"
    tables["accuracy"] = [
        outputs.accuracy(
            "energy of a pipelined step at a later deadline, over that of its fastest plan, through evaluate",
            errors[word].ravel(),
            f"{word}; voltage from all others",
            within,
        )
        for word in groups
        if word in errors
    ]
    return tables, result


def _means(rows: list[np.ndarray]) -> dict[str, float]:
    """Means over the fronts at some times over that of the fastest plan."""
    means = np.mean(rows, axis=0)
    names = [f"+{100.0 * (stretch - 1.0):.0f} %" for stretch in frontiers.SHOWN]
    return dict(zip(names, means.tolist(), strict=True))


def _summary(word: str, fronts: list[frontiers.Front], errors: np.ndarray) -> dict[str, Any]:
    sizes, means = np.abs(errors), np.mean(errors, axis=0)
    usual = sizes[[not front.is_outlier for front in fronts]]
    return {
        "held_out": word,
        "fronts": len(fronts),
        "mean_error": float(np.mean(sizes)),
        "largest_error": float(np.max(sizes)),
        "fronts_within_3_percent": int(np.sum(np.mean(sizes, axis=1) <= 0.03)),
        "mean_without_outlier": float(np.mean(usual)),
        "largest_error_of_the_mean": float(means[np.argmax(np.abs(means))]),
    }


def kernel_figure(data: kernel_runs.Measured, errors: np.ndarray) -> Any:
    """Power measured and predicted, and energy over the clock with both best clocks."""
    drawn = new_figure(7.4, 3.5)
    axes = add_axes(drawn, 1, 2, 1)
    measured = np.asarray(data.runs.power)
    predicted = measured * np.exp(errors[:, 1])
    for suite, color in (("microbenchmark", GRAY), ("real", BLUE)):
        rows = data.tested & (data.suite == suite)
        axes.plot(measured[rows], predicted[rows], "o", color=color, markersize=2.5, label=suite)
    ends = [measured[data.tested].min(), measured.max()]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured power [W]", ylabel="predicted power [W]")
    ticks = [30, 50, 100, 200]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [str(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_title("from the highest clock, benchmark held out", fontsize=9, loc="left")
    axes.legend(fontsize=7)
    axes = add_axes(drawn, 1, 2, 2)
    energy = np.asarray(data.runs.time) * measured
    for name, color in zip(SHOWN, COLORS, strict=False):
        own = np.flatnonzero((data.benchmark == name) & (np.asarray(data.runs.clock) >= kernel_runs.LOWEST))
        own = own[np.argsort(data.clock_hz[own])]
        clock, top = data.clock_hz[own] / 1e6, energy[own[-1]]
        predicted = energy[own] * np.exp(np.where(clock < clock[-1], errors[own].sum(axis=1), 0.0)) / top
        axes.plot(clock, energy[own] / top, "o", color=color, markersize=4, label=name)
        axes.plot(clock, predicted, color=color, linewidth=1.2)
        axes.plot(clock[np.argmin(predicted)], predicted.min(), "v", color=color, markersize=8, fillstyle="none")
    axes.set(xlabel="core clock [MHz]", ylabel="energy over that at the highest clock")
    axes.set_title("lines: predicted, triangles: their minimum", fontsize=9, loc="left")
    axes.legend(fontsize=7)
    return drawn


def frontier_figure(result: list[frontiers.Front]) -> Any:
    """Measured fronts as points, energies over the clock through `evaluate` with the preset as lines, by method."""
    methods, layouts = (list(dict.fromkeys(getattr(front, name) for front in result)) for name in ("method", "layout"))
    colors = dict(zip(layouts, COLORS, strict=False))
    models = list(dict.fromkeys(front.model for front in result))
    drawn, stretches = new_figure(7.4, 3.1), np.linspace(1.0, 1.4, 41)
    for index, method in enumerate(methods):
        axes = add_axes(drawn, 1, len(methods), index + 1)
        for front in result:
            if front.method == method:
                color, marker = colors.get(front.layout, GRAY), "os^v"[models.index(front.model) % 4]
                axes.plot(front.stretch, front.ratio, marker, color=color, markersize=3.5)
                line = frontiers.curve(front, frontiers.preset_values(front.key), stretches)
                axes.plot(stretches, line, color=color, linewidth=1.2)
        axes.set(xlabel="time / shortest", xlim=(0.98, 1.45), ylim=(0.72, 1.02))
        axes.set_title(method.replace("_", " "), fontsize=9, loc="left")
        if index == 0:
            axes.set_ylabel("energy / that of the fastest plan")
            for layout, color in colors.items():
                axes.plot([], [], "o", color=color, markersize=3.5, label=layout)
            axes.legend(fontsize=6)
    return drawn


def write_population(fits: dict[str, FitResult], errors: list[dict[str, Any]]) -> None:
    """Constants of kernels of all cards, the prior of `calibrate power` for another card."""
    cards = tuple(fits)
    parts = list(fits.values())
    order = [index + card * len(CONSTANTS) for index in range(len(CONSTANTS)) for card in range(len(cards))]
    mean = np.concatenate([part.coordinates for part in parts])[order]
    covariance = np.asarray(block_diag(*(part.covariance for part in parts)))[np.ix_(order, order)]
    usual = {
        name: float(np.log1p(np.mean([row[f"{name}_error"] for row in errors if row["held_out"] == "benchmark"])))
        for name in ("time", "power", "energy")
    }
    result = PowerPopulation(
        CONSTANTS, cards, mean, covariance, {name: round(error, 4) for name, error in usual.items()}
    )
    outputs.write_population(result, KERNELS, "Constants of power of kernels at clocks of all measured cards", FOLDER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-population", action="store_true", help="write what the cards say of another")
    chosen = parser.parse_args()
    tables: outputs.Tables = {"accuracy": []}
    fits: dict[str, FitResult] = {}
    for index, gpu in enumerate(kernel_runs.gpus()):
        part, data, blind = kernel_tables(gpu)
        tables["accuracy"] += kernel_accuracy(gpu, data, blind.errors)
        fits[gpu] = blind.fit
        for name, rows in part.items():
            tables.setdefault(name, []).extend(rows)
        name = "kernel_clocks" if index == 0 else f"kernel_clocks_{gpu.lower()}"
        outputs.draw(kernel_figure(data, blind.errors), FOLDER, name)
    if chosen.write_population:
        write_population(fits, [row for row in tables["kernel_errors"] if row["known"] == "one clock"])
    part, result = frontier_tables()
    tables["accuracy"] += part.pop("accuracy")
    tables |= part
    outputs.draw(frontier_figure(result), FOLDER, "frontiers")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
