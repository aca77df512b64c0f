"""Steps to a loss by batch, with sizes and batches held out, and the batch of the lowest loss.

Prints its tables, draws `critical_batch` and writes `result.json` beside this file.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import batch_fits
import joint_fit
import numpy as np
from figures import COLORS, GRAY, add_axes, new_figure

from energymodel.calibration.calibration_case import NORMAL_90

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
import step_law

FOLDER = Path(__file__).parent
SHOWN = ("gpt3", "llama31_8b", "llama2_70b_lora", "bert", "flux1", "resnet")
"""Benchmarks in the figure."""


def figure(tables: outputs.Tables) -> Any:
    """Steps against batch by size, held out, and samples against batch by benchmark, with the population's curve."""
    drawn = new_figure(7.2, 3.6)
    axes = add_axes(drawn, 1, 2, 1)
    points = tables["zhang_points"]
    for size, color in zip(dict.fromkeys(row["size"] for row in points), COLORS, strict=False):
        rows = [row for row in points if row["size"] == size]
        batches = [row["batch_token"] for row in rows]
        axes.plot(batches, [row["steps"] for row in rows], "o", color=color, markersize=4, label=size)
        axes.plot(batches, [row["steps_held_out"] for row in rows], color=color, linewidth=1.2)
    axes.axvline(batch_fits.ANCHOR, color=GRAY, linewidth=0.9, linestyle=(0, (5, 2)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("batch [token]")
    axes.set_ylabel("steps to a loss")
    axes.set_title("Zhang et al. 2024, size held out", fontsize=9, loc="left")
    axes.legend(fontsize=7)
    axes = add_axes(drawn, 1, 2, 2)
    points = tables["convergence_from_smallest"]
    for name, color in zip(SHOWN, COLORS, strict=False):
        rows = [row for row in points if row["benchmark"] == name]
        ratios = [row["batch_over_smallest"] for row in rows]
        axes.plot(ratios, [row["amount_over_smallest"] for row in rows], "o", color=color, markersize=4, label=name)
    multiple = tables["reference_population"][0]["multiple"]
    spread = tables["reference_population"][0]["spread"]
    ratios = np.geomspace(1.0, 64.0, 60)
    for sign in (-1.0, 0.0, 1.0):
        bound = multiple * np.exp(sign * NORMAL_90 * spread)
        style = {"linewidth": 1.2} if sign == 0.0 else {"linewidth": 0.9, "linestyle": (0, (5, 2))}
        axes.plot(ratios, (1.0 + ratios / bound) / (1.0 + 1.0 / bound), color=GRAY, **style)
    axes.set_ylim(0.8, 10.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("batch over the smallest")
    axes.set_ylabel("samples to converge, over those of the smallest")
    axes.set_title("MLPerf, from the smallest batch", fontsize=9, loc="left")
    axes.legend(fontsize=7)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, default=step_law.DENSE)
    parser.add_argument("--mixtures", type=Path, default=step_law.MIXTURES)
    options = parser.parse_args()
    runs = [step_law.read(path, step_law.FEWEST_STEPS) for path in (options.runs, options.mixtures)]
    parts = joint_fit.tables(*runs), batch_fits.compute()
    accuracy = [*parts[1]["accuracy"], *parts[0]["accuracy"]]
    tables = {**parts[1], **parts[0], "accuracy": accuracy}
    outputs.draw(figure(tables), FOLDER, "critical_batch")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
