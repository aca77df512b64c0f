"""Runs of Li et al. 2025 ("Step law"): loss over learning rate and batch, of dense models and mixtures of experts.

They have no licence, so that the files are read from beside this repository and not part of it.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from energymodel.errors import InputError

SHARED = Path(__file__).parents[2] / "shared" / "data"
DENSE, MIXTURES = SHARED / "steplaw_dense_lr_batch_loss.csv", SHARED / "steplaw_moe_lr_batch_loss.csv"
SEQUENCE = 2048.0
"""Tokens of a sequence."""
FEWEST_STEPS = 5000.0
"""Of a run: warmup counts in steps, and large batches of shorter runs are worse for it."""
PARABOLA = 2
"""Learning rates on each side of the best that its parabola is laid through."""
MODEL = ("params_non_embedding", "active_params", "topk", "experts", "expert_hidden", "shared_expert_dim")
"""Columns that tell models apart."""


class Runs(NamedTuple):
    """Number of the model and its tokens, active parameters [1], tokens, batch [token], rate [1], loss [nat/token]."""

    setting: np.ndarray
    size: np.ndarray
    tokens: np.ndarray
    batch: np.ndarray
    rate: np.ndarray
    loss: np.ndarray

    def part(self, chosen: np.ndarray) -> "Runs":
        """Some of the runs."""
        return Runs(*(column[chosen] for column in self))

    def by_batch(self) -> list["Runs"]:
        """The runs of each setting at each batch, by learning rate."""
        ordered = self.part(np.lexsort((self.rate, self.batch, self.setting)))
        begins = np.flatnonzero((np.diff(ordered.setting) != 0) | (np.diff(ordered.batch) != 0)) + 1
        return [Runs(*columns) for columns in zip(*(np.split(column, begins) for column in ordered), strict=True)]

    def best(self) -> "Runs":
        """The run with the best learning rate of each setting and batch."""
        rows = [same.part(np.array([np.argmin(same.loss)])) for same in self.by_batch()]
        return Runs(*map(np.concatenate, zip(*rows, strict=True)))


def read(path: Path = DENSE, fewest_steps: float = 0.0) -> Runs:
    """Runs with a smoothed loss; the last one is that of a single batch.

    **Raises:** `InputError` where the file is not there.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. The runs of Li et al. 2025 (step-law/steplaw) have no licence; fetch them."
        )
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["smooth_loss"]]
    keys = [(*(row.get(name, "") for name in MODEL), row["tokens"]) for row in rows]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    names = ("tokens", "batch_sequences", "lr", "smooth_loss")
    tokens, batch, rate, loss = np.array([[float(row[name]) for name in names] for row in rows]).T
    size = np.array([float(row.get("active_params") or row["params_non_embedding"]) for row in rows])
    runs = Runs(np.array([numbers[key] for key in keys]), size, tokens, batch * SEQUENCE, rate, loss)
    return runs.part(tokens >= fewest_steps * runs.batch)


def vertex(same: Runs) -> float | None:
    """Logarithm of the best learning rate by the parabola through the rates around it; None at an edge of the grid.

    **Arguments:**

    - `same`: runs of one setting and batch, by learning rate.
    """
    best = int(np.argmin(same.loss))
    if not 0 < best < len(same.loss) - 1:
        return None
    near = slice(max(best - PARABOLA, 0), best + PARABOLA + 1)
    logs = np.log(same.rate)
    bend, slope, _ = np.polyfit(logs[near] - logs[best], same.loss[near], 2)
    shift = -0.5 * slope / bend if bend > 0.0 else 0.0
    return float(logs[best] + np.clip(shift, logs[best - 1] - logs[best], logs[best + 1] - logs[best]))
