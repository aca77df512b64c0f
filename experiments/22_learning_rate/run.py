"""The loss that a wrong learning rate, a batch and a schedule cost: tables and figure.

Prints five tables, draws `learning_rate` and writes `result.json` beside this file.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import learning_rate_fits
import numpy as np
from figures import COLORS, add_axes, new_figure

from energymodel.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
SCHEDULES = ("wsd", "wsdld", "constant")


def compute(runs: learning_rate_fits.Runs) -> dict[str, list[dict[str, Any]]]:
    """All tables."""
    constants = learning_rate_fits.fitted(runs)
    sizes = learning_rate_fits.held_out_by_size(runs)
    return {
        "constants": [
            {"constant": name, "value": float(value)}
            for name, value in zip(learning_rate_fits.NAMES, constants, strict=True)
        ],
        "held_out_sizes": sizes,
        "batches": learning_rate_fits.by_batch(runs),
        "schedules": [
            {"schedule": kind, **row} for kind in SCHEDULES for row in learning_rate_fits.schedule_worth(kind)
        ],
        "accuracy": [
            outputs.accuracy(
                "loss against size, tokens, batch and learning rate",
                np.array([row["loss_error_nat"] for row in sizes]) / float(np.mean(runs.loss)),
                "size of the model",
                "215 million to 1.07 billion parameters, within a factor of four of the best learning rate",
            )
        ],
    }


def figure(tables: outputs.Tables, runs: learning_rate_fits.Runs) -> Any:
    """Excess loss against the learning rate over the best, and the error that is left at each batch."""
    drawn = new_figure(7.2, 3.4)
    axes = add_axes(drawn, 1, 2, 1)
    for size, color in zip(np.unique(runs.size), COLORS, strict=False):
        part = runs.part(runs.size == size)
        for key in {*zip(part.tokens, part.batch, strict=True)}:
            same = (part.tokens == key[0]) & (part.batch == key[1])
            best = int(np.argmin(part.loss[same]))
            ratio, excess = part.rate[same] / part.rate[same][best], part.loss[same] - part.loss[same][best]
            axes.plot(ratio, excess, ".", color=color, markersize=2)
    ratio = np.geomspace(0.25, 4.0)
    stiffness = next(row["value"] for row in tables["constants"] if row["constant"] == "stiffness")
    axes.plot(ratio, 0.5 * stiffness * np.log(ratio) ** 2, color="black", linewidth=1.0)
    axes.set_xscale("log")
    axes.set_ylim(0.0, 0.1)
    axes.set_xlabel("learning rate over the best")
    axes.set_ylabel("added loss [nat/token]")
    axes = add_axes(drawn, 1, 2, 2)
    axes.plot(
        [row["batch_token"] for row in tables["batches"]], [row["mean_error_nat"] for row in tables["batches"]], "o-"
    )
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("batch [token]")
    axes.set_ylabel("mean error of the loss [nat/token]")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, default=learning_rate_fits.SHARED / learning_rate_fits.STEP_LAW)
    path = parser.parse_args().runs
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. The runs of Li et al. 2025 (step-law/steplaw) have no licence; fetch them."
        )
    with jax.enable_x64(True):
        runs = learning_rate_fits.step_law_runs(path)
        tables = compute(runs)
    outputs.draw(figure(tables, runs), FOLDER, "learning_rate")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
