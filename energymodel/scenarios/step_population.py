"""Constants of a step of clusters that nobody has fitted, with their covariance.

Partial pooling [Gelman & Hill 2007, ch. 12]: the coordinate of each constant of a cluster is a mean plus effects of
its framework, its chip and itself, all normal about zero. `experiments/21_unseen_clusters` fits all effects to all
measured clusters together. A cluster that it has not seen has the mean, the effects of its framework and chip, as far
as known, and an effect of its own, of which only the spread is known.
"""

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from energymodel.scenarios.files import ROOT, read_toml

FOLDER = ROOT / "population"
LEVELS = ("mean", "framework", "chip", "cluster")
NEARLY = 1e-6  # of the range: values nearer to an end count as there
EVERYWHERE = "all"
"""The label of the mean."""


class StepConstant(NamedTuple):
    """A constant that is fitted to step times.

    Its coordinate is its logarithm, or below an `upper` end that of its odds, `ln(value / (upper - value))`.

    - `median`: before any measurement, with `mean`, the standard deviation of its coordinate.
    - `framework`, `chip`, `cluster`: those of the coordinate between frameworks, chips and clusters, before any
      measurement; zero where the constant is the same for all.
    """

    median: float
    mean: float
    framework: float
    chip: float
    cluster: float
    unit: str = "1"
    upper: float = math.inf

    def spread(self, level: str) -> float:
        """Standard deviation of the effects of a level, before any measurement."""
        return float(getattr(self, level))

    @property
    def middle(self) -> float:
        """Coordinate of the median."""
        return self.coordinate(self.median)

    def coordinate(self, value: float) -> float:
        """Coordinate of a value within the range."""
        if math.isinf(self.upper):
            return math.log(value)
        share = min(max(value / self.upper, NEARLY), 1.0 - NEARLY)
        return math.log(share / (1.0 - share))

    def value(self, coordinate: float) -> float:
        """Value at a coordinate, in the unit of the constant."""
        return math.exp(coordinate) if math.isinf(self.upper) else self.upper / (1.0 + math.exp(-coordinate))

    def slope(self, coordinate: float) -> float:
        """Change of the value with the coordinate."""
        value = self.value(coordinate)
        return value if math.isinf(self.upper) else value * (self.upper - value) / self.upper


STEP_CONSTANTS: Mapping[str, StepConstant] = {
    path: StepConstant(**numbers) for path, numbers in read_toml(FOLDER / "step-constants.toml").items()
}
"""The constants of a step, by path in a system."""
NAMES = tuple(STEP_CONSTANTS)


@cache
def row_scatter() -> float:
    """Error of each step time that no constant explains, as a standard deviation of the logarithm [1]."""
    return float(read_toml(FOLDER / "step-time.toml")["scatter"]["row"])


class Effects(NamedTuple):
    """Effects in the order of a vector of all: level, label and index of the constant."""

    keys: tuple[tuple[str, str, int], ...]

    def design(self, labels: Mapping[str, str]) -> Float[np.ndarray, "constants effects"]:
        """Matrix that adds up the effects of a cluster with these labels by level."""
        matrix = np.zeros((len(NAMES), len(self.keys)))
        for column, (level, label, constant) in enumerate(self.keys):
            matrix[constant, column] = float(labels.get(level) == label)
        return matrix


class Coordinates(NamedTuple):
    """Mean and covariance of numbers, such as the coordinates of a cluster's constants in the order of `NAMES`.

    A file has a line for each number: its mean, then its row of the lower triangle of a root of the covariance.
    """

    mean: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]


class StepPopulation(NamedTuple):
    """All effects with their covariance.

    - `spreads`: standard deviations of the effects of a level, by level and constant.
    - `group_scatter`, `row_scatter`: errors that no constant explains, as standard deviations of the logarithm of a
      step time: those that runs of one model have in common, and the rest.
    """

    effects: Effects
    mean: Float[np.ndarray, " effects"]
    covariance: Float[np.ndarray, "effects effects"]
    spreads: Mapping[str, Float[np.ndarray, " constants"]]
    group_scatter: float
    row_scatter: float

    @property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of the step time of a run whose constants are known."""
        return float(np.hypot(self.group_scatter, self.row_scatter))

    def of(self, labels: Mapping[str, str]) -> Coordinates:
        """Constants of a cluster with labels by level; of a label that is not in the population only the spread."""
        design = self.effects.design({"mean": EVERYWHERE, **labels})
        covariance = design @ self.covariance @ design.T
        fitted = set(self.effects.keys)
        for index in range(len(NAMES)):
            new = [level for level in LEVELS[1:] if (level, labels.get(level, ""), index) not in fitted]
            covariance[index, index] += sum(float(self.spreads[level][index]) ** 2 for level in new)
        middle = np.array([constant.middle for constant in STEP_CONSTANTS.values()])
        return Coordinates(middle + design @ self.mean, covariance)


def effects_of(labels: Mapping[str, set[str]]) -> Effects:
    """The effects of all labels by level."""
    keys = [
        (level, label, index)
        for level in LEVELS
        for label in sorted(labels.get(level, {EVERYWHERE}))
        for index, constant in enumerate(STEP_CONSTANTS.values())
        if constant.spread(level) > 0.0
    ]
    return Effects(tuple(keys))


@cache
def step_population() -> StepPopulation:
    """The population that `experiments/21_unseen_clusters` fitted."""
    tables = read_toml(FOLDER / "step-time.toml")
    effects = effects_of({level: set(tables[level]) for level in LEVELS[1:-1]} | {"cluster": set()})
    normal = read_normal(FOLDER / "step-time.csv")
    spreads = {level: np.array([tables["spread"][level][name] for name in NAMES]) for level in LEVELS}
    scatter = tables["scatter"]
    return StepPopulation(effects, normal.mean, normal.covariance, spreads, scatter["group"], scatter["row"])


def read_normal(path: Path) -> Coordinates:
    """The distribution in a file that `write_normal` wrote."""
    with path.open(encoding="utf-8") as file:
        rows = [[float(text) for text in row] for row in csv.reader(file)]
    root = np.zeros((len(rows), len(rows)))
    for index, row in enumerate(rows):
        root[index, : index + 1] = row[1:]
    return Coordinates(np.array([row[0] for row in rows]), root @ root.T)


def write_normal(path: Path, normal: Coordinates) -> None:
    """Write a distribution with four digits."""
    root = np.linalg.cholesky(normal.covariance)
    with path.open("w", encoding="utf-8", newline="") as file:
        for index, mean in enumerate(normal.mean):
            file.write(",".join(f"{value:.4g}" for value in [mean, *root[index, : index + 1]]) + "\n")
