"""Chip hours, energy and carbon of disclosed training runs, predicted and disclosed.

Fits the slowdown of production runs, prints six tables, draws `disclosed_runs` and writes `result.json` beside this
file.
"""

import sys
from pathlib import Path
from typing import Any

import disclosed
import numpy as np
import slowdown
from figures import BLUE, GRAY, GREEN, ORANGE, add_axes, new_figure

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
MARKS = {
    "metered": (GREEN, "o"),
    "hours times rated power": (ORANGE, "s"),
    "not stated": (BLUE, "^"),
    "none": (GRAY, "v"),
}

PANELS = (("chip_hours", "Chip hours"), ("power", "Power per chip"), ("energy", "Energy"))


def figure(runs: list[dict[str, Any]]) -> Any:
    """Predicted over disclosed, of hours, power per chip and energy, run by run."""
    drawn = new_figure(7.4, 4.0)
    places = np.arange(len(runs))[::-1]
    for column, (key, title) in enumerate(PANELS):
        axes = add_axes(drawn, 1, len(PANELS), column + 1)
        axes.axvline(1.0, color=GRAY, linewidth=0.9)
        for basis, (color, marker) in MARKS.items():
            chosen = [
                (1.0 + row[f"{key}_error"], index)
                for row, index in zip(runs, places, strict=True)
                if row["basis"] == basis and row[f"{key}_error"] is not None
            ]
            if chosen:
                label = "energy " + ("not disclosed" if basis == "none" else basis)
                axes.plot(*zip(*chosen, strict=True), marker, color=color, label=label)
        axes.set_xlim(0.4, 1.4)
        axes.set_ylim(-0.7, len(runs) - 0.3)
        names = [row["model"].split(" (")[0] for row in runs]
        axes.set_yticks(places, names if column == 0 else [""] * len(runs), fontsize=8)
        axes.set_xlabel("predicted / disclosed")
        axes.set_title(title, fontsize=9, loc="left")
    drawn.legend(
        *drawn.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8, frameon=False
    )
    return drawn


def compute() -> outputs.Tables:
    runs = disclosed.compute()
    constants, held_out = slowdown.fit(runs)
    return {
        "runs": runs,
        "summary": disclosed.summary(runs),
        "constants": constants,
        "held_out": held_out,
        "skipped": disclosed.skipped(),
        "accuracy": disclosed.accuracy(runs, held_out),
    }


def main() -> None:
    tables = compute()
    outputs.draw(figure(tables["runs"]), FOLDER, "disclosed_runs")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
