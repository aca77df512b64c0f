"""The loss that a wrong learning rate, a batch and a schedule cost, with sizes held out."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from energymodel.learning.critical_batch import PowerCriticalBatch, sharp_batch_penalty
from energymodel.learning.recipe import mismatch_loss
from energymodel.scenarios.files import read_preset

SHARED = Path(__file__).parents[3] / "shared" / "data"
CURVES = Path(__file__).parents[1] / "data" / "multipowerlaw_schedule_curves.csv"
STEP_LAW = "steplaw_dense_lr_batch_loss.csv"
SEQUENCE = 2048.0
"""Tokens of a sequence in the runs of Li et al. 2025."""
WIDEST = np.log(4.0)
"""Runs whose learning rate is farther than this factor from the best of their size, tokens and batch are left out."""
DIVERGED = 0.15
"""Loss above the best run of a size and tokens [nat/token] from which a run counts as diverged."""
NOISE = 0.005  # nat/token, of the fit's robust loss
PIVOT_SIZE, PIVOT_TOKENS, PIVOT_BATCH = 4e8, 2e10, 5e5
NAMES = ("floor", "size term", "size exponent", "data term", "data exponent", "best rate", "by size", "by tokens")
NAMES = (*NAMES, "by batch", "stiffness")
START = np.array([1.6, 0.35, 0.35, 0.35, 0.35, np.log(2e-3), -0.5, 0.2, 0.3, 0.02])


class Runs(NamedTuple):
    """Runs of Li et al. 2025: size [1], tokens, batch [token], learning rate [1], smoothed loss [nat/token]."""

    size: np.ndarray
    tokens: np.ndarray
    batch: np.ndarray
    rate: np.ndarray
    loss: np.ndarray

    def part(self, chosen: np.ndarray) -> "Runs":
        """Some of the runs."""
        return Runs(*(column[chosen] for column in self))


def step_law_runs(path: Path | None = None) -> Runs:
    """Runs within a factor of four of the best learning rate of their size, tokens and batch."""
    with (path or SHARED / STEP_LAW).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["smooth_loss"]]
    names = ("params_non_embedding", "tokens", "batch_sequences", "lr", "smooth_loss")
    size, tokens, batch, rate, loss = np.array([[float(row[name]) for name in names] for row in rows]).T
    runs = Runs(size, tokens, batch * SEQUENCE, rate, loss)
    best, lowest = np.full(len(rate), np.nan), np.full(len(rate), np.nan)
    for key in {*zip(size, tokens, batch, strict=True)}:
        same = (size == key[0]) & (tokens == key[1]) & (batch == key[2])
        best[same] = rate[same][np.argmin(loss[same])]
        lowest[same] = np.min(loss[(size == key[0]) & (tokens == key[1])])
    return runs.part((np.abs(np.log(rate / best)) <= WIDEST) & (loss <= lowest + DIVERGED))


def batch_law() -> PowerCriticalBatch:
    """The default law of the critical batch, fitted to other runs (experiment 06)."""
    table = read_preset("laws", "zhang-2024-runs")
    return PowerCriticalBatch(*(table[name]["value"] for name in PowerCriticalBatch.__dataclass_fields__))


def effective_tokens(runs: Runs) -> np.ndarray:
    """Effective tokens by that law: nothing of the batch penalty is fitted here."""
    law, x = batch_law(), runs.tokens.copy()
    for _ in range(60):
        x = runs.tokens / np.asarray(sharp_batch_penalty(runs.batch, law.run_level(x, np.asarray(3.0)), law.sharpness))
    return x


def predicted(z: np.ndarray, runs: Runs, effective: np.ndarray) -> np.ndarray:
    """`E + A N^-a + b x^-c + (k/2) ln^2(eta/eta_best)`, `eta_best = e N^f D^g B^h`, all at pivots."""
    size, data = np.log(runs.size / PIVOT_SIZE), np.log(effective / PIVOT_TOKENS)
    rest = z[0] + z[1] * np.exp(-z[2] * size) + z[3] * np.exp(-z[4] * data)
    best = z[5] + z[6] * size + z[7] * np.log(runs.tokens / PIVOT_TOKENS) + z[8] * np.log(runs.batch / PIVOT_BATCH)
    return rest + np.asarray(mismatch_loss(runs.rate, np.exp(best), z[9]))


def fitted(runs: Runs, weights: np.ndarray | None = None) -> np.ndarray:
    """The ten constants, by robust least squares."""
    effective = effective_tokens(runs)
    weights = np.ones(len(runs.loss)) if weights is None else weights
    solution = least_squares(
        lambda z: weights * (predicted(z, runs, effective) - runs.loss) / NOISE, START, loss="soft_l1", max_nfev=2000
    )
    return solution.x


def held_out_by_size(runs: Runs) -> list[dict[str, Any]]:
    """Each size predicted from the others: its loss, and the excess over the best run of its tokens."""
    effective, rows = effective_tokens(runs), []
    for size in np.unique(runs.size):
        chosen = runs.size == size
        part, constants = runs.part(chosen), fitted(runs.part(~chosen))
        guess = predicted(constants, part, effective[chosen])
        excess, guessed = np.zeros(len(guess)), np.zeros(len(guess))
        for tokens in np.unique(part.tokens):
            same = part.tokens == tokens
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


def by_batch(runs: Runs) -> list[dict[str, float]]:
    """Mean error of the fit to all runs at each batch: what the law of the critical batch leaves."""
    error = predicted(fitted(runs), runs, effective_tokens(runs)) - runs.loss
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
