"""How do steps to a loss depend on the batch, and are sizes and batches predicted that were held out?

Prints nine tables, draws `critical_batch` and writes `result.json` beside this file.
"""

import sys
from pathlib import Path
from typing import Any

import batch_fits

from energymodel.report.figure import COLORS, GRAY, add_axes, new_figure

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent


def figure(tables: outputs.Tables) -> Any:
    """Steps against batch by size, and samples against batch by benchmark: points measured, lines held out."""
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
    points = tables["convergence_points"]
    for name, color in zip(dict.fromkeys(row["benchmark"] for row in points), COLORS, strict=False):
        rows = [row for row in points if row["benchmark"] == name and row["reference_point"]]
        least_batch, least = rows[0]["batch"], min(row["samples"] for row in rows)
        ratios = [row["batch"] / least_batch for row in rows]
        axes.plot(ratios, [row["samples"] / least for row in rows], "o", color=color, markersize=4, label=name)
        axes.plot(ratios, [row["held_out"] / least for row in rows], color=color, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("batch over the least")
    axes.set_ylabel("samples to converge, over the least")
    axes.set_title("MLPerf reference points, batch held out", fontsize=9, loc="left")
    axes.legend(fontsize=7)
    return drawn


def main() -> None:
    tables = batch_fits.compute()
    outputs.draw(figure(tables), FOLDER, "critical_batch")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
