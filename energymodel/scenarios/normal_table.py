"""How is a normal distribution of several numbers kept in a file: their mean, and a root of their covariance?

A CSV file without a header, a line for each number: its mean, then its row of the lower triangle of the root.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Normal(NamedTuple):
    """Mean and covariance of some numbers."""

    mean: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]


def read_normal(path: Path) -> Normal:
    """The distribution in a file that `write_normal` wrote."""
    with path.open(encoding="utf-8") as file:
        rows = [[float(text) for text in row] for row in csv.reader(file)]
    root = np.zeros((len(rows), len(rows)))
    for at, row in enumerate(rows):
        root[at, : at + 1] = row[1:]
    return Normal(np.array([row[0] for row in rows]), root @ root.T)


def write_normal(path: Path, known: Normal) -> None:
    """Keep a distribution with four digits."""
    root = np.linalg.cholesky(known.covariance)
    with path.open("w", encoding="utf-8", newline="") as file:
        for at, mean in enumerate(known.mean):
            file.write(",".join(f"{value:.4g}" for value in [mean, *root[at, : at + 1]]) + "\n")
