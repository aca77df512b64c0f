"""Predict published step times and memory with constants fitted to other groups, and say the error.

`python experiments/01_step_time/run.py [--data FOLDER] [--write-presets]`
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import adapters
import numpy as np
import runs
import throughput
from clusters import CLUSTERS, MEMORY, Cluster, tables, unit_of
from table_clusters import TABLE_CLUSTERS

from energymodel.calibration.fit import Fit, fit, with_constants
from energymodel.calibration.predict import predict
from energymodel.calibration.table import layouts
from energymodel.presets.scenario import load_scenario

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
PRESETS = HERE.parents[1] / "energymodel" / "presets" / "clusters"
GIB = 2.0**30
ALL_CLUSTERS = {**CLUSTERS, **TABLE_CLUSTERS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    parser.add_argument("--write-presets", action="store_true", help="write fitted constants to the cluster presets")
    chosen = parser.parse_args()
    rows = read_all(chosen.data)
    result: dict[str, Any] = {"sets": {}, "constants": {}}
    fits: dict[str, Fit] = {}
    errors: list[tuple[dict[str, Any], float]] = []
    for name, cluster in ALL_CLUSTERS.items():
        own = [row for row in rows if row["cluster"] == name and row["step_time_s"] != ""]
        own = [row for row in own if not row.get("degraded")]
        if len(own) < len(cluster.constants) + 2:
            continue
        began = time.perf_counter()
        fits[name] = found = fit(
            system_of(cluster), layouts(own), cluster.constants, [row["group"] for row in own], starts=4
        )
        errors += list(zip(own, found.held_out, strict=True))
        print(f"\n{name}: {cluster.title}, {len(own)} rows, {time.perf_counter() - began:.0f} s\n{found}", flush=True)
        result["constants"][name] = {
            one.path: [float(value), float(low), float(high)]
            for one, value, low, high in zip(found.constants, found.values, found.low, found.high, strict=True)
        }
    errors += unfitted(chosen.data, fits)
    for name, pairs in by_set(errors).items():
        result["sets"][name] = summary(np.asarray([error for _, error in pairs]))
        print_set(name, pairs, result["sets"][name])
    result["regret"] = regret([pair for pair in errors if pair[0]["set"] in ("nanotron", "vtrain-multi")])
    print(f"\nbest layout: {result['regret']}")
    result["memory"], memory_constants = memory_of([row for row in rows if row["set"] == "nanotron"])
    print(f"\nmemory: {result['memory']}")
    (HERE / "result.json").write_text(json.dumps(rounded(result), indent=2) + "\n", encoding="utf-8")
    draw(by_set(errors))
    if chosen.write_presets:
        write_presets(fits, memory_constants)


def read_all(folder: Path) -> list[dict[str, Any]]:
    """All sets that the folder has, in the columns of the table."""
    sources = [
        ("megatron_a100_iteration_times.csv", adapters.korthikanti),
        ("vtrain_a100_iteration_times.csv", adapters.vtrain),
        ("nanotron_h100_sweep.csv", adapters.nanotron),
        ("throughput_tables.csv", adapters.mpt),
        ("throughput_tables.csv", throughput.megatron_bridge),
        ("throughput_tables.csv", throughput.torchtitan),
        ("throughput_tables.csv", throughput.maxtext),
        ("throughput_tables.csv", throughput.nemo),
    ]
    rows: list[dict[str, Any]] = []
    for name, adapter in sources:
        if (folder / name).is_file():
            rows += adapter(adapters.read(folder / name))
    return rows


def unfitted(folder: Path, fits: dict[str, Fit]) -> list[tuple[dict[str, Any], float]]:
    """Log errors of runs that no fit has seen, with the constants of a cluster like theirs."""
    rows: list[dict[str, Any]] = []
    for name, adapter in (("published_parallelism_points.csv", runs.parallelism_points),
                          ("mlperf_gpt3_h100.csv", runs.mlperf)):  # fmt: skip
        if (folder / name).is_file():
            rows += adapter(adapters.read(folder / name))
    rows = [row for row in rows if row["cluster"] in fits]
    if not rows:
        return []
    names = {row["cluster"] for row in rows}
    systems = {
        name: with_constants(system_of(ALL_CLUSTERS[name]), fits[name].constants, fits[name].values) for name in names
    }
    predicted = predict(layouts(rows), systems).table()["step_time_s"]
    measured = [float(row["step_time_s"]) for row in rows]
    return list(zip(rows, np.log(predicted / np.asarray(measured)), strict=True))


def system_of(cluster: Cluster, values: dict[str, float] | None = None) -> Any:
    return load_scenario({"base": "test-1b-h100", "name": cluster.title, "system": tables(cluster, values)}).system


def by_set(errors: list[tuple[dict[str, Any], float]]) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Rows and log errors by set; nanotron also where the measured utilization is above a quarter."""
    found: dict[str, list[tuple[dict[str, Any], float]]] = defaultdict(list)
    for row, error in errors:
        found[row["set"]].append((row, error))
        if row["set"] == "nanotron" and row["mfu_measured"] > 0.25:
            found["nanotron, MFU > 25 %"].append((row, error))
    return dict(found)


def summary(error: np.ndarray) -> dict[str, float]:
    absolute = np.abs(np.expm1(error))
    return {
        "rows": len(error), "mean_percent": 100 * absolute.mean(), "median_percent": 100 * np.median(absolute),
        "largest_percent": 100 * absolute.max(), "mean_log_ratio": float(error.mean()),
    }  # fmt: skip


def print_set(name: str, pairs: list[tuple[dict[str, Any], float]], numbers: dict[str, float]) -> None:
    print(f"\n{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in numbers.items()))
    groups: dict[str, list[float]] = defaultdict(list)
    for row, error in pairs:
        groups[row["group"]].append(error)
    for group, values in sorted(groups.items()):
        one = summary(np.asarray(values))
        print(
            f"  {group:14s} {one['rows']:5d} rows  mean {one['mean_percent']:6.2f} %"
            f"  median {one['median_percent']:6.2f} %  log ratio {one['mean_log_ratio']:+.3f}"
        )
    keys = ("chips", "tensor", "pipeline", "microbatch", "batch_sequences", "hidden")
    for row, error in sorted(pairs, key=lambda pair: -abs(pair[1]))[:5]:
        where = ", ".join(f"{key} {row.get(key, 1)}" for key in keys)
        word = "slower than any resource explains" if error < 0 else "faster than predicted"
        print(f"  worst: {np.expm1(error):+.0%} at {where}: measured {float(row['step_time_s']):.3g} s, {word}")


def regret(errors: list[tuple[dict[str, Any], float]]) -> dict[str, float]:
    """What the layout that the model picks loses against the measured best, by model and GPU count."""
    groups: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for row, error in errors:
        measured = float(row["step_time_s"]) / float(row["batch_sequences"])
        key = (row["set"], row["cluster"], row["hidden"], row["layers"], row["chips"])
        groups[key].append((measured * np.exp(error), measured))
    losses = []
    for pairs in groups.values():
        if len(pairs) < 3:
            continue
        picked = min(pairs)[1]
        losses.append(picked / min(measured for _, measured in pairs) - 1.0)
    return {
        "groups": len(losses),
        "mean_percent": 100 * float(np.mean(losses)),
        "median_percent": 100 * float(np.median(losses)),
    }


def memory_of(rows: list[dict[str, Any]]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Memory of successes and the out-of-memory label, each group predicted without itself, and the constants."""
    if not rows:
        return {}, {}
    constants: dict[str, dict[str, float]] = {}
    table = layouts(rows)
    known, failed = np.isfinite(table.columns["memory_b"]), table.columns["out_of_memory"] > 0.5
    groups = np.asarray([row["group"] for row in rows])
    needed, errors, capacity = np.empty(len(rows)), np.full(len(rows), np.nan), 0.0
    for name in np.unique(table.cluster):
        own = table.cluster == name
        system = system_of(CLUSTERS[name])
        found = fit(system, table.select(known & own), MEMORY, list(groups[known & own]), starts=4, quantity="memory_b")
        print(f"\nmemory of {name}\n{found}")
        errors[known & own] = found.held_out
        fitted = {str(name): with_constants(system, MEMORY, found.values)}
        needed[own] = predict(table.select(own), fitted).prediction.memory
        needed[known & own] = table.columns["memory_b"][known & own] * np.exp(found.held_out)
        values = zip((one.path for one in MEMORY), map(float, found.values), strict=True)
        constants[str(name)], capacity = dict(values), float(system.accelerator.memory_capacity)
    chance = np.empty(len(rows))
    for group in np.unique(groups):
        inside = groups == group
        usable, spread = risk_law(needed[~inside], failed[~inside])
        chance[inside] = 1.0 / (1.0 + (usable / needed[inside]) ** (1.0 / spread))
    usable, spread = risk_law(needed, failed)
    numbers = {
        **{f"memory_{key}": value for key, value in summary(errors[known]).items()},
        "label_rows": len(rows), "label_accuracy_percent": 100 * float(np.mean((chance > 0.5) == failed)),
        "label_brier": float(np.mean((chance - failed) ** 2)), "usable_gib": usable / GIB, "spread": spread,
    }  # fmt: skip
    for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
        inside = (chance >= low) & (chance <= high)
        if inside.any():
            print(f"  predicted risk {low:.0%} to {high:.0%}: mean {chance[inside].mean():.3f}, "
                  f"failed {failed[inside].mean():.3f} of {inside.sum()}")  # fmt: skip
    for each in constants.values():
        each |= {"software.usable_memory": usable / capacity, "software.memory_spread": spread}
    return numbers, constants


def risk_law(needed: np.ndarray, failed: np.ndarray) -> tuple[float, float]:
    """Limit and spread of the logistic law with most likelihood, by Newton's method on its two coefficients."""
    x = np.log(needed / np.median(needed[~failed]))
    design = np.stack([np.ones_like(x), x], 1)
    beta = np.array([-5.0, 5.0])
    for _ in range(60):
        p = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -30, 30)))
        hessian = design.T @ (design * (p * (1.0 - p) + 1e-6)[:, None])
        beta = beta + np.clip(np.linalg.solve(hessian, design.T @ (failed - p)), -5.0, 5.0)
    return float(np.median(needed[~failed]) * np.exp(-beta[0] / beta[1])), float(1.0 / beta[1])


def draw(sets: dict[str, list[tuple[dict[str, Any], float]]]) -> None:
    """Predicted against measured time, and the residual, of every set."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for name, pairs in sets.items():
        measured = np.asarray([float(row["step_time_s"]) for row, _ in pairs])
        ratio = np.exp([error for _, error in pairs])
        axes[0].loglog(measured, measured * ratio, ".", ms=3, label=name)
        axes[1].semilogx(measured, 100 * (ratio - 1.0), ".", ms=3)
    axes[0].plot([0.05, 1000.0], [0.05, 1000.0], color="k", lw=0.5)
    axes[0].set(xlabel="measured step time [s]", ylabel="predicted, group held out [s]")
    axes[1].set(xlabel="measured step time [s]", ylabel="predicted over measured, less one [%]", ylim=(-60, 60))
    axes[0].legend(fontsize=7)
    figure.savefig(HERE / "predicted.png", dpi=110)


def write_presets(fits: dict[str, Fit], memory: dict[str, dict[str, float]]) -> None:
    """Cluster presets with fitted constants, their 95 % intervals and their origin."""
    for name, found in fits.items():
        cluster = ALL_CLUSTERS[name]
        lines = [f'title = "{cluster.title}"']
        blocks: dict[str, list[str]] = {}
        for path, (value, unit) in cluster.fixed.items():
            blocks[path] = quantity(value, unit, "prior", "held fixed in experiments/01_step_time; assumed")
        for one, value, low, high in zip(found.constants, found.values, found.low, found.high, strict=True):
            origin = f"fitted to {cluster.source}, 95 % interval {low:.4g} to {high:.4g} (experiments/01_step_time)"
            spread = f"lognormal {np.log(high / low) / 3.92:.2g}"
            blocks[one.path] = quantity(value, unit_of(one.path), "derived", origin, spread)
        for path, value in memory.get(name, {}).items():
            origin = "fitted to reserved memory and out-of-memory labels (experiments/01_step_time)"
            blocks[path] = quantity(value, unit_of(path), "derived", origin)
        for kind, preset in {**cluster.presets, "software": "megatron", "reliability": "llama-3"}.items():
            lines += ["", f"[system.{kind}]", f'preset = "{preset}"']
        for path, block in blocks.items():
            lines += ["", f"[system.{path}]", *block]
        (PRESETS / f"{name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def quantity(value: float, unit: str, kind: str, source: str, distribution: str = "") -> list[str]:
    """Lines of one number of a preset."""
    lines = [f"value = {float(f'{value:.5g}')!r}", f'unit = "{unit}"', f'kind = "{kind}"']
    return lines + ([f'distribution = "{distribution}"'] if distribution else []) + [f'source = "{source}"']


def rounded(tree: Any) -> Any:
    """Numbers with five digits, so that a result differs only where it matters."""
    if isinstance(tree, dict):
        return {key: rounded(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [rounded(value) for value in tree]
    return float(f"{tree:.5g}") if isinstance(tree, float | np.floating) else tree


if __name__ == "__main__":
    sys.exit(main())
