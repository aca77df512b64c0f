"""The loss that a wrong learning rate, a batch and a schedule cost: tables and figure.

Prints its tables, draws `learning_rate` and writes `result.json` beside this file.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import learning_rate_fits as fits
import numpy as np
import schedule_curves
from figures import COLORS, add_axes, new_figure

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
import step_law

FOLDER = Path(__file__).parent
SCHEDULES = ("wsd", "wsdld", "constant")


def compute(runs: step_law.Runs) -> dict[str, list[dict[str, Any]]]:
    """All tables."""
    rate = fits.rate_law(fits.long_enough(runs))
    constants = fits.fitted(fits.near_best(runs), rate)
    sizes, chosen, errors = fits.held_out_by_size(runs), fits.chosen_runs(runs), fits.rate_errors(runs)
    regrets = {name: [row[name] for row in chosen] for name in ("regret_nat", "regret_best_rate_nat")}
    curves = schedule_curves.luo()
    of_schedules, unseen = schedule_curves.fitted(curves), schedule_curves.held_out(curves)
    final = {
        out: np.array([row["final_error_nat"] / row["loss"] for row in unseen if row["held_out"] == out])
        for out in ("curve", "size")
    }
    return {
        "constants": [
            {"constant": name, "value": float(value)}
            for name, value in zip((*fits.RATE_NAMES, *fits.NAMES), (*rate, *constants), strict=True)
        ],
        "held_out_sizes": sizes,
        "batches": fits.by_batch(runs, rate),
        "chosen_runs": chosen,
        "chosen_summary": [
            *(
                {"quantity": name, "mean": float(np.mean(values)), "largest": float(np.max(values))}
                for name, values in regrets.items()
            ),
            {"quantity": "standard deviation of ln(predicted/best rate)", "mean": float(np.std(errors))},
        ],
        "schedules": [{"schedule": kind, **row} for kind in SCHEDULES for row in fits.schedule_worth(kind)],
        "schedule_constants": [
            {"constant": name, "value": float(value)}
            for name, value in zip(schedule_curves.NAMES, of_schedules, strict=True)
        ],
        "held_out_schedules": unseen,
        "other_laboratory": schedule_curves.other_laboratory(of_schedules),
        "accuracy": [
            *(
                outputs.accuracy(
                    "final loss under schedules in stages, cosine, WSD and constant rates",
                    errors_of,
                    "whole loss curve" if out == "curve" else "size of the model, but for two of its curves",
                    "25 to 400 million parameters, peaks of 0.04 to 0.2 of the best, Luo et al. 2025",
                )
                for out, errors_of in final.items()
            ),
            outputs.accuracy(
                "loss against size, tokens, batch and learning rate",
                np.array([row["loss_error_nat"] for row in sizes]) / float(np.mean(runs.loss)),
                "size of the model",
                "215 million to 1.07 billion parameters, within a factor of four of the best learning rate",
            ),
            outputs.accuracy(
                "best learning rate by size and batch",
                np.expm1(errors),
                "size of the model",
                "215 million to 1.07 billion parameters, batches of 33 thousand to 4.2 million tokens",
            ),
        ],
    }


def figure(tables: outputs.Tables, runs: step_law.Runs) -> Any:
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
    parser.add_argument("--runs", type=Path, default=step_law.DENSE)
    runs = step_law.read(parser.parse_args().runs)
    tables = compute(runs)
    outputs.draw(figure(tables, fits.near_best(runs)), FOLDER, "learning_rate")
    outputs.keep(tables, FOLDER)


if __name__ == "__main__":
    main()
