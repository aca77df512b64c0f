"""Meters of whole training runs, and predictions of a GPT-3 run on 512 H100.

Prints eight tables, draws `metered_runs` and writes `result.json` beside this file.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import gpt3
import metered_runs
import numpy as np
from figures import BLUE, GRAY, GREEN, ORANGE, add_axes, new_figure

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent


def compute() -> outputs.Tables:
    """All tables, GPT-3 among the held-out benchmarks."""
    tables = metered_runs.compute()
    measured = gpt3.measured_run(tables["runs"])
    constants = {row["name"]: row["value"] for row in tables["constants"]}
    tables["gpt3"] = gpt3.compute(measured, constants)
    tables["accuracy"] = accuracy(tables)
    return tables


def accuracy(tables: outputs.Tables) -> list[dict[str, Any]]:
    """Errors of node power of held-out benchmarks, and of the energy of the GPT-3 run by what is known of it."""
    summary = {row["known"]: row for row in tables["summary"]}
    rated = summary["rated"]["mean_error"]
    cases = {
        "benchmark held out": ("mean power of a node over a run", "benchmark"),
        "system held out": ("mean power of a node over a run, idle power metered", "system"),
        "preset idle benchmark held out": ("the same, idle power of the node from presets", "benchmark"),
        "preset idle system held out": ("the same, idle power of the node from presets", "system"),
        "preset idle priors alone": ("the same, from presets and priors without a fit", "every run"),
    }
    rows = [
        outputs.accuracy(
            prediction,
            [row[f"{knowledge.replace(' ', '_')}_error"] for row in tables["nodes"]],
            held_out,
            "8 to 512 H100 of one immersed cluster, five benchmarks and one fine-tuning",
            f"rated power of the chips: {100.0 * rated:.0f} %; Newkirk et al. 2025: 11.4 %",
        )
        for knowledge, (prediction, held_out) in cases.items()
    ]
    by_knowledge = {row["known"]: row for row in tables["gpt3"]}
    for key, text in {
        "system, model, batch": "system, model and batch known",
        "and layout": "layout known, too",
        "and measured time": "layout and time known",
    }.items():
        rows.append(
            outputs.accuracy(
                f"energy of a run at the nodes, {text}",
                [by_knowledge[key]["energy_error"]],
                "the run; constants of node power from other benchmarks",
                "GPT-3 175B on 512 H100",
            )
        )
    return rows


def figure(tables: outputs.Tables) -> Any:
    """Predicted against measured node power, and the GPT-3 run over time."""
    drawn = new_figure(7.2, 3.4)
    axes = add_axes(drawn, 1, 2, 1)
    limits = np.array([4.8, 7.5])
    axes.plot(limits, limits, color=GRAY, linewidth=0.9)
    axes.fill_between(limits, 0.94 * limits, 1.06 * limits, color=GRAY, alpha=0.15, linewidth=0, label="within 6 %")
    for nodes, (color, marker) in {"1": (BLUE, "o"), "more": (ORANGE, "s")}.items():
        rows = [row for row in tables["nodes"] if (row["relative_rate"] == 1.0) == (nodes == "1")]
        axes.plot(
            [row["node_power_w"] / 1e3 for row in rows],
            [row["held_out_w"] / 1e3 for row in rows],
            marker,
            color=color,
            label="one node" if nodes == "1" else "8 to 64 nodes",
        )
    row = next(row for row in tables["gpt3"] if row["known"] == "and layout")
    meter = next(row for row in tables["gpt3"] if row["known"] == "metered")
    axes.plot(meter["node_power_w"] / 1e3, row["node_power_w"] / 1e3, "^", color=GREEN, label="GPT-3, 64 nodes")
    axes.set_xlabel("measured node power [kW]")
    axes.set_ylabel("predicted, benchmark held out [kW]")
    axes.set_title("Mean power of a node", fontsize=9, loc="left")
    axes.legend(fontsize=8)

    axes = add_axes(drawn, 1, 2, 2)
    result: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for trace in metered_runs.rows_of("mlperf_power_traces.csv"):
        if trace["system"] == gpt3.SYSTEM and trace["benchmark"] == gpt3.BENCHMARK:
            point = float(trace["t_since_run_start_s"]) / 60.0, float(trace["mean_node_power_w"]) / 1e3
            result[trace["submitter"]].append(point)
    time, power = zip(*sorted(result[metered_runs.METERS["AC"]]), strict=True)
    axes.plot(time, power, color=BLUE, linewidth=0.9, label="meter before the supplies")
    axes.axhline(row["node_power_w"] / 1e3, color=GREEN, linestyle=(0, (5, 2)), linewidth=1.6, label="predicted mean")
    axes.set_ylim(4.0, 7.6)
    axes.set_xlabel("time [min]")
    axes.set_ylabel("mean node power [kW]")
    axes.set_title("GPT-3 175B on 512 H100", fontsize=9, loc="left")
    axes.legend(fontsize=8, loc="lower right")
    return drawn


def main() -> None:
    tables = compute()
    outputs.draw(figure(tables), FOLDER, "metered_runs")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
