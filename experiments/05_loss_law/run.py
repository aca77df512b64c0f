"""The refit to the points of Hoffmann et al. 2022 against the constants of Besiroglu et al. 2024.

Prints four tables, draws `loss_law` and writes `result.json` beside this file.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import refit
from figures import BLUE, GRAY, ORANGE, add_axes, new_figure

from energymodel.calibration.kinds.loss import TrainedModels
from energymodel.calibration.least_squares import FitResult

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent


def figure(tables: outputs.Tables, table: TrainedModels, fitted: FitResult) -> Any:
    """Errors of the fit against the loss, and each constant against the published one."""
    drawn = new_figure(7.2, 3.2)
    axes = add_axes(drawn, 1, 2, 1)
    axes.axhline(0.0, color=GRAY, linewidth=0.9)
    points = axes.scatter(
        table.loss, 100.0 * np.expm1(fitted.errors[:, 0]), c=np.log10(table.parameters), s=12, cmap="viridis"
    )
    axes.set_xlabel("measured loss [nat/token]")
    axes.set_ylabel("predicted over measured - 1 [%]")
    axes.set_title("Errors of the fit", fontsize=9, loc="left")
    drawn.colorbar(points, ax=axes, label="log10 of parameters")
    axes = add_axes(drawn, 1, 2, 2)
    rows = tables["constants"]
    places = np.arange(len(rows))[::-1]
    axes.axvline(0.0, color=GRAY, linewidth=0.9)
    for row, index in zip(rows, places, strict=True):
        unit, center = row["published_error"], row["published"]
        for key, shift, color, label in (
            ("", 0.12, BLUE, "here"),
            ("published_", -0.12, ORANGE, "Besiroglu et al. 2024"),
        ):
            low, high = ((row[f"{key}{end}_95"] - center) / unit for end in ("low", "high"))
            value = (row["published" if key else "value"] - center) / unit
            height = index + shift
            axes.plot([low, high], [height, height], color=color, linewidth=1.6)
            axes.plot(value, height, "o", color=color, label=label if index == places[0] else None)
    axes.set_yticks(places, [row["constant"] for row in rows])
    axes.set_ylim(-0.6, len(rows) + 0.5)
    axes.set_xlabel("standard errors from the published value")
    axes.set_title("Constants, 95 % intervals", fontsize=9, loc="left")
    axes.legend(fontsize=8)
    return drawn


def main() -> None:
    tables, table, fitted = refit.compute()
    outputs.draw(figure(tables, table, fitted), FOLDER, "loss_law")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
