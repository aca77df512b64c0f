"""The loss that a wrong learning rate, a batch and a schedule cost, with sizes held out."""

import csv
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.optimize import least_squares

from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.learning_rate import PIVOT_BATCH, PIVOT_SIZE, best_learning_rate, mismatch_loss
from energymodel.scenarios.scenario import load_scenario

sys.path.insert(0, str(Path(__file__).parents[1]))
import step_law
from step_law import Runs

CURVES = Path(__file__).parents[1] / "data" / "multipowerlaw_schedule_curves.csv"
WIDEST = np.log(4.0) + 1e-9
"""Runs whose learning rate is farther than this factor from the best of their size, tokens and batch are left out."""
DIVERGED = 0.15
"""Loss above the best run of a size and tokens [nat/token] from which a run counts as diverged."""
NOISE = 0.005  # nat/token, of the fit's robust loss
PIVOT_TOKENS = 2e10
RATE_NAMES = ("rate at the pivot", "exponent of the size", "exponent of the batch")
NAMES = ("floor", "size term", "size exponent", "data term", "data exponent", "stiffness")
START = np.array([1.6, 0.35, 0.35, 0.35, 0.35, 0.02])


def near_best(runs: Runs) -> Runs:
    """Runs within a factor of four of the best learning rate of their size, tokens and batch."""
    kept = []
    for same in runs.by_batch():
        lowest = np.min(runs.loss[runs.setting == same.setting[0]])
        best = same.rate[np.argmin(same.loss)]
        kept.append(same.part((np.abs(np.log(same.rate / best)) <= WIDEST) & (same.loss <= lowest + DIVERGED)))
    return Runs(*map(np.concatenate, zip(*kept, strict=True)))


def effective_tokens(runs: Runs) -> np.ndarray:
    """Effective tokens by the default law of the critical batch: nothing of the batch penalty is fitted here."""
    learning = load_scenario("test-1b-h100").system.learning
    assert isinstance(learning, CriticalBatchLearning)
    with jax.enable_x64(True):
        return np.asarray(learning.run(runs.size, runs.tokens, runs.batch)[1])


def rate_law(runs: Runs) -> np.ndarray:
    """Constants of `best_learning_rate` by least squares of the logarithm of the best rates inside the grid.

    Only runs of enough steps count: warmup counts in steps.
    """
    rows = [(same, step_law.vertex(same)) for same in runs.by_batch()]
    rows = [(same, best) for same, best in rows if best is not None]
    size, batch = np.array([(same.size[0], same.batch[0]) for same, _ in rows]).T
    by = np.stack([np.ones(len(rows)), np.log(PIVOT_SIZE / size), np.log(batch / PIVOT_BATCH)], axis=1)
    level, *exponents = np.linalg.lstsq(by, np.array([best for _, best in rows]), rcond=None)[0]
    return np.array([np.exp(level), *exponents])


def predicted(z: np.ndarray, rate: np.ndarray, runs: Runs, effective: np.ndarray) -> np.ndarray:
    """`E + A N^-a + b x^-c + (k/2) ln^2(eta/eta_best)`, all at pivots."""
    size, data = np.log(runs.size / PIVOT_SIZE), np.log(effective / PIVOT_TOKENS)
    rest = z[0] + z[1] * np.exp(-z[2] * size) + z[3] * np.exp(-z[4] * data)
    best = np.asarray(best_learning_rate(runs.size, runs.batch, *rate))
    return rest + np.asarray(mismatch_loss(runs.rate, best, z[5]))


def fitted(runs: Runs, rate: np.ndarray) -> np.ndarray:
    """The other constants, by robust least squares."""
    effective = effective_tokens(runs)
    solution = least_squares(
        lambda z: (predicted(z, rate, runs, effective) - runs.loss) / NOISE, START, loss="soft_l1", max_nfev=2000
    )
    return solution.x


def held_out_by_size(all_runs: Runs) -> list[dict[str, Any]]:
    """Each size predicted from the others: its loss, and the excess over the best run of its tokens."""
    runs, rows = near_best(all_runs), []
    for size in np.unique(runs.size):
        part, others = runs.part(runs.size == size), runs.part(runs.size != size)
        rate = rate_law(long_enough(all_runs.part(all_runs.size != size)))
        constants = fitted(others, rate)
        guess = predicted(constants, rate, part, effective_tokens(part))
        excess, guessed = np.zeros(len(guess)), np.zeros(len(guess))
        for setting in np.unique(part.setting):
            same = part.setting == setting
            best = int(np.argmin(part.loss[same]))
            excess[same] = part.loss[same] - part.loss[same][best]
            guessed[same] = guess[same] - guess[same][best]
        rows.append(
            {
                "size": float(size),
                "runs": len(guess),
                "loss_error_nat": float(np.mean(np.abs(guess - part.loss))),
                "excess_error_nat": float(np.mean(np.abs(guessed - excess))),
                "excess_nat": float(np.mean(excess)),
                "stiffness_of_others": float(constants[-1]),
            }
        )
    return rows


def long_enough(runs: Runs) -> Runs:
    """Runs whose warmup is a small part of their steps."""
    return runs.part(runs.tokens >= step_law.FEWEST_STEPS * runs.batch)


def chosen_runs(all_runs: Runs) -> list[dict[str, Any]]:
    """The run that the default law of the batch and the rate law of the other sizes choose, by size and tokens.

    Batch and rate are the nearest of the grid; the regret is its loss over the lowest of its size and tokens.
    """
    runs, rows = long_enough(all_runs), []
    for setting in np.unique(runs.setting):
        own = runs.part(runs.setting == setting)
        law = rate_law(runs.part(runs.size != own.size[0]))
        one_rate = own.part(np.unique(own.batch, return_index=True)[1])
        batch = one_rate.batch[np.argmax(effective_tokens(one_rate))]
        same = own.part(own.batch == batch)
        rate = float(best_learning_rate(own.size[0], batch, *law))
        nearest = int(np.argmin(np.abs(np.log(same.rate / rate))))
        rows.append(
            {
                "size": float(own.size[0]),
                "tokens": float(own.tokens[0]),
                "batch_token": float(batch),
                "rate": rate,
                "best_rate": float(same.rate[np.argmin(same.loss)]),
                "regret_nat": float(same.loss[nearest] - np.min(own.loss)),
                "regret_best_rate_nat": float(np.min(same.loss) - np.min(own.loss)),
            }
        )
    return rows


def rate_errors(all_runs: Runs) -> np.ndarray:
    """Logarithm of the predicted best rate over the best one inside the grid, sizes held out."""
    runs, errors = long_enough(all_runs), []
    for size in np.unique(runs.size):
        law = rate_law(runs.part(runs.size != size))
        for same in runs.part(runs.size == size).by_batch():
            best = step_law.vertex(same)
            if best is not None:
                errors.append(float(np.log(best_learning_rate(same.size[0], same.batch[0], *law))) - best)
    return np.array(errors)


def by_batch(all_runs: Runs, rate: np.ndarray) -> list[dict[str, float]]:
    """Mean error of the fit to all runs at each batch: what the law of the critical batch leaves."""
    runs = near_best(all_runs)
    error = predicted(fitted(runs, rate), rate, runs, effective_tokens(runs)) - runs.loss
    return [
        {
            "batch_token": float(batch),
            "runs": int(np.sum(runs.batch == batch)),
            "mean_error_nat": float(np.mean(error[runs.batch == batch])),
        }
        for batch in np.unique(runs.batch)
    ]


def final_losses() -> dict[tuple[float, str, int], float]:
    """Final loss of the runs of Luo et al. 2025 by size, kind of schedule and steps."""
    with CURVES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    last = {(float(row["params"]), row["schedule"]): float(row["loss"]) for row in rows}
    return {(size, name.split("_")[0], int(name.split("_")[-1])): loss for (size, name), loss in last.items()}


def schedule_worth(kind: str) -> list[dict[str, float]]:
    """Tokens that one token is worth with another schedule than cosine, by size; each size held out.

    `w = exp((L_cosine - L) / s)`, with `s = -dL/dln D` of the size from runs of 24,000 and 72,000 steps: cosine ones,
    or constant ones where there is one cosine run only. The error is that of the loss with the mean of the other sizes.
    """
    losses, rows = final_losses(), []
    for size in sorted({key[0] for key in losses}):
        pair = next(name for name in ("cosine", "constant") if (size, name, 72000) in losses)
        slope = (
            (losses[size, pair, 24000] - losses[size, pair, 72000]) / np.log(3.0)
            if (size, pair, 24000) in losses
            else None
        )
        steps = next(
            (count for count in (24000, 72000) if {(size, "cosine", count), (size, kind, count)} <= set(losses)), None
        )
        if slope is None or steps is None:
            continue
        gap = losses[size, "cosine", steps] - losses[size, kind, steps]
        rows.append(
            {"size": size, "steps": steps, "slope_nat": slope, "gap_nat": gap, "worth": float(np.exp(gap / slope))}
        )
    for row in rows:
        others = [np.log(other["worth"]) for other in rows if other is not row]
        row["held_out_error_nat"] = (
            float(abs(np.mean(others) * row["slope_nat"] - row["gap_nat"])) if others else np.nan
        )
    return rows
