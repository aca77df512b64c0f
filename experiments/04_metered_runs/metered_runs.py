"""Metered training runs: idle power, start, power supplies, and node power by benchmark."""

import csv
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import preset_nodes

from energymodel.calibration.constant_priors import Values
from energymodel.calibration.intervals import laplace_intervals, undetermined
from energymodel.calibration.least_squares import FitProblem, FitResult, fit, held_out_errors
from energymodel.calibration.node_power import CONSTANTS, NodeRuns, idle_reading, node_power_errors, node_runs
from energymodel.scenarios.scenario import load_scenario

DATA = Path(__file__).parents[1] / "data"
METERS = {"AC": "smc-ac-power", "DC": "smc-dc-power"}
"""Two meters on the same runs, before and behind the power supplies."""
START = 0.5  # of the way from the lowest power of the first minute to the plateau
FIRST = 60.0  # [s] after the start of a run, in which programs are compiled and loaded


def rows_of(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def runs() -> list[dict[str, Any]]:
    """Runs of one submission, system and benchmark, averaged; powers at both meters where there are two."""
    result: dict[Any, list[dict[str, str]]] = defaultdict(list)
    for row in rows_of("mlperf_power_runs.csv"):
        if row["status"] == "success":
            result[row["system"], row["benchmark"], row["submitter"]].append(row)
    rows = []
    for (system, benchmark, submitter), group in result.items():
        if submitter == METERS["DC"]:
            continue
        mean = {
            key: statistics.fmean(float(row[key]) for row in group)
            for key in ("run_time_s", "nodes_energy_j", "mean_power_per_node_w", "n_accelerators", "n_nodes_with_power")
        }
        other = result.get((system, benchmark, METERS["DC"]), []) if submitter == METERS["AC"] else []
        pairs = {row["run"]: float(row["nodes_energy_j"]) for row in other}
        ratios = [pairs[row["run"]] / float(row["nodes_energy_j"]) for row in group if row["run"] in pairs]
        counts = [float(row["samples_count_at_stop"]) for row in group if row["samples_count_at_stop"]]
        rows.append(
            {
                "submitter": submitter,
                "system": system,
                "benchmark": benchmark,
                "runs": len(group),
                "nodes": mean["n_nodes_with_power"],
                "chips": mean["n_accelerators"],
                "time_s": mean["run_time_s"],
                "energy_j": mean["nodes_energy_j"],
                "node_power_w": mean["mean_power_per_node_w"],
                "supply_efficiency": statistics.fmean(ratios) if ratios else None,
                "samples": statistics.fmean(counts) if counts else None,
            }
        )
    return rows


def traces() -> list[dict[str, Any]]:
    """Idle power, time to start, steepest rise and plateau, from one trace of each system and benchmark."""
    result: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for row in rows_of("mlperf_power_traces.csv"):
        key = row["submitter"], row["system"], row["benchmark"]
        result[key].append((float(row["t_since_run_start_s"]), float(row["mean_node_power_w"])))
    rows = []
    for (submitter, system, benchmark), points in result.items():
        time, power = np.array(sorted(points)).T
        after = time >= 0.0
        plateau = float(np.median(power[after]))
        # Some runs fall back while programs compile: the start lasts until the power stays up. A run that is warm
        # when its clock starts falls no lower than it does between epochs.
        early = after & (time < FIRST)
        low = float(power[early].min())
        cold = low < 0.6 * plateau
        below = np.flatnonzero(early & (power < low + START * (plateau - low)) & cold)
        rows.append(
            {
                "submitter": submitter,
                "system": system,
                "benchmark": benchmark,
                "idle_w": float(power[~after].min()) if np.any(~after) else None,
                "least_w": float(power.min()),
                "plateau_w": plateau,
                "start_s": float(time[below[-1] + 1]) if len(below) else 0.0,
                "steepest_w_per_s": float(np.max(np.diff(power) / np.diff(time))),
            }
        )
    return rows


def idle_power(metered: list[dict[str, Any]], submitter: str) -> float:
    """Power of an idle node [W]: the lowest reading of each trace, but for those that began warm.

    **Raises:** `ValueError` if every run began warm.
    """
    rows = [row for row in metered if row["submitter"] == submitter]
    power, _, _ = idle_reading(np.array([row["least_w"] for row in rows]), np.array([row["plateau_w"] for row in rows]))
    if power is None:
        raise ValueError(f"{submitter}: no trace falls below half of its plateau. Take the idle power of a preset.")
    return power


def relative_rates(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Rate per chip over that of one node by itself; other counts of samples are as logged, equal batches need none."""
    rates = {}
    for row in rows:
        alone = next((other for other in rows if other["benchmark"] == row["benchmark"] and other["nodes"] == 1), None)
        if alone is not None:
            samples = row["samples"] / alone["samples"] if row["samples"] and alone["samples"] else 1.0
            rates[row["system"], row["benchmark"]] = (
                samples * alone["time_s"] * alone["chips"] / (row["time_s"] * row["chips"])
            )
    return rates


def table_of(rows: list[dict[str, Any]], idle: float, rates: dict[tuple[str, str], float]) -> NodeRuns:
    """The table that the constants are fitted to: immersed nodes, which have no fans."""
    chip = load_scenario("gpt3-175b-h100").system.accelerator
    rated = float(chip.rated_power)
    return node_runs(
        np.array([row["node_power_w"] for row in rows]),
        idle_power=idle,
        chips=8.0,
        rated_power=rated,
        busy_power=float(chip.busy_power) / rated,
        idle_chip=float(chip.idle_power) / rated,
        efficiency=statistics.median(row["supply_efficiency"] for row in rows if row["supply_efficiency"]),
        relative_rate=np.array([rates[row["system"], row["benchmark"]] for row in rows]),
        fan_effort=0.0,
    )


def errors_from(table: NodeRuns, fitted: FitResult, idle: float, groups: list[str] | None) -> np.ndarray:
    """Relative errors with an idle power [W], and constants of the other groups or (`None`) of no run."""
    if groups is None:
        values: Values = {name: np.asarray(constant.median) for name, constant in CONSTANTS.items()}
        logarithmic = np.asarray(node_power_errors(values, table))[:, 0]
    else:
        logarithmic = held_out_errors(fitted, groups)[:, 0]
    predicted = np.asarray(table.power) * np.exp(logarithmic) + idle - np.asarray(table.idle_power)
    return predicted / np.asarray(table.power) - 1.0


def compute() -> dict[str, Any]:
    """Tables of runs, traces and node power, and the constants that GPT-3's own rows did not fit."""
    table, shapes = runs(), traces()
    rates = relative_rates(table)
    idle = idle_power(shapes, METERS["AC"])
    ours = [row for row in table if (row["system"], row["benchmark"]) in rates and row["submitter"] == METERS["AC"]]
    node_runs = table_of(ours, idle, rates)
    fitted = fit(FitProblem(node_power_errors, CONSTANTS, node_runs, noise=0.03))
    ends, unknown = laplace_intervals(fitted), undetermined(fitted)
    efficiency = float(node_runs.efficiency[0])
    presets = preset_nodes.compute({**fitted.values, "supply_efficiency": efficiency})
    preset_idle = next(row["idle_w"] for row in presets if "immersed" in row["node"])
    parts = node_runs.chips * node_runs.rated_power * (1.0 - node_runs.idle_chip) / node_runs.efficiency
    by = {word: [row[word] for row in ours] for word in ("benchmark", "system")}
    errors = {
        f"{knowledge}{suffix}": errors_from(node_runs, fitted, power, groups)
        for knowledge, power in (("", idle), ("preset_idle_", preset_idle))
        for suffix, groups in (
            ("benchmark_held_out", by["benchmark"]),
            ("system_held_out", by["system"]),
            ("priors_alone", None),
        )
    }
    errors["rated"] = np.asarray((idle + parts) / node_runs.power - 1.0)
    nodes = [
        {
            "system": row["system"],
            "benchmark": row["benchmark"],
            "node_power_w": row["node_power_w"],
            "relative_rate": float(node_runs.relative_rate[index]),
            "held_out_w": row["node_power_w"] * (1.0 + float(errors["benchmark_held_out"][index])),
            **{f"{name}_error": float(values[index]) for name, values in errors.items()},
        }
        for index, row in enumerate(ours)
    ]
    return {
        "runs": table,
        "traces": shapes,
        "constants": [
            {"name": name, "value": float(value), "lower": float(lower), "upper": float(upper)}
            | ({"determined": "no"} if name in unknown else {})
            for name, value, lower, upper in zip(
                fitted.names, fitted.values.values(), ends.lower, ends.upper, strict=True
            )
        ]
        + [{"name": "idle_node_w", "value": idle}, {"name": "supply_efficiency", "value": efficiency}],
        "nodes": nodes,
        "preset_nodes": presets,
        "summary": [
            {
                "known": name.replace("_", " "),
                "mean_error": float(np.mean(np.abs(values))),
                "largest_error": float(np.max(np.abs(values))),
            }
            for name, values in errors.items()
        ],
    }
