"""Constants of chips, frameworks and clusters from all clusters together.

Effects of `energymodel.scenarios.step_population`, fitted together by Gauss-Newton with the damping of Levenberg and
Marquardt. Errors have Student's distribution, so that outliers lose their weight, about an error that runs of one group
(a model) have in common, which is integrated out. The covariance is Laplace's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from energymodel.calibration.step_prediction import log_step_times
from energymodel.scenarios.step_population import (
    EVERYWHERE,
    LEVELS,
    NAMES,
    STEP_CONSTANTS,
    Coordinates,
    Effects,
    StepPopulation,
    effects_of,
)
from energymodel.system.training_system import TrainingSystem

FREEDOM = 2.0  # of Student's distribution
TAILS = 1.8  # standard deviation of the normal distribution with as wide a 90 % interval, of Student's of scale 1
SHARED_ROUNDS = 5  # of the error that a group has in common, and the weights that it depends on
PSEUDO = 4.0  # labels or rows for which what is assumed of a spread counts
FIRST_GROUP, FIRST_ROW = 0.06, 0.05  # spreads of a group and of the rest, before any measurement
ROUNDS = 6  # of searches, each with the spreads that the one before it finds
MOST_STEPS = 30
LEFT = 0.1  # of the objective, half a deviance, that a converged search may leave to gain
SMALL = 3  # steps in a row that gain less: at a kink of the model, what is left to gain says little
FARTHEST = 1.5  # that a coordinate moves in one step


class ClusterRuns(NamedTuple):
    """Measured steps of one cluster: its labels by level, the system with its fixed numbers, the columns of a layout
    table, times [s], and the group of each row.
    """

    labels: Mapping[str, str]
    system: TrainingSystem
    columns: Mapping[str, np.ndarray]
    measured: np.ndarray
    groups: np.ndarray

    @property
    def name(self) -> str:
        """Of the cluster."""
        return self.labels["cluster"]

    def select(self, chosen: np.ndarray) -> "ClusterRuns":
        """Some of the rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return self._replace(columns=columns, measured=self.measured[chosen], groups=self.groups[chosen])

    def errors(self, coordinates: Coordinates) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of predicted over measured times, and their slopes by coordinate."""
        result, slopes = log_step_times(coordinates.mean, self.system, self.columns)
        return result - np.log(self.measured), slopes


class Spreads(NamedTuple):
    """Standard deviations: of effects by level and constant; of the logarithm of a time, of what a group has in common
    and, by cluster, of the rest.
    """

    effects: Mapping[str, np.ndarray]
    group: float
    row: Mapping[str, float]

    @property
    def typical_row(self) -> float:
        """Of the rows of a cluster that is not known."""
        return float(np.median(list(self.row.values())))

    def of_clusters(self, names: Collection[str]) -> "Spreads":
        """Without those of other clusters."""
        return self._replace(row={name: row for name, row in self.row.items() if name in names})

    def of(self, effects: Effects) -> np.ndarray:
        """Of each effect."""
        return np.array([self.effects[level][at] for level, _, at in effects.keys])


def first_spreads(runs: Sequence[ClusterRuns]) -> Spreads:
    """Before any measurement."""
    each = STEP_CONSTANTS.values()
    effects = {level: np.array([effect.spread(level) for effect in each]) for level in LEVELS}
    return Spreads(effects, FIRST_GROUP, {run.name: FIRST_ROW for run in runs})


class _Sums(NamedTuple):
    """Objective, gradient and Gauss-Newton matrix; squares of what groups share, and by cluster of the rest."""

    objective: float
    gradient: np.ndarray
    matrix: np.ndarray
    group_squares: np.ndarray
    row_squares: Mapping[str, np.ndarray]


class PooledFit(NamedTuple):
    """What all runs together say, and the spreads with which they do."""

    population: StepPopulation
    spreads: Spreads


def pooled_fit(
    runs: Sequence[ClusterRuns],
    *,
    start: PooledFit | None = None,
    hints: Mapping[tuple[str, str, str], float] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda _: None,
) -> PooledFit:
    """Fit the effects of all levels to the runs of some clusters, and how far they spread [Dempster et al. 1977].

    **Arguments:**

    - `start`: a fit to more runs, whose spreads are kept, and from whose effects the search starts.
    - `hints`: effects by level, label and constant from which it starts otherwise.
    """
    effects = effects_of({level: {run.labels[level] for run in runs} for level in runs[0].labels})
    theta = np.array([hints.get((level, label, NAMES[at]), 0.0) for level, label, at in effects.keys])
    spreads, rounds = first_spreads(runs), ROUNDS
    if start is not None:
        earlier = dict(zip(start.population.effects.keys, start.population.mean, strict=True))
        theta = np.array([earlier.get(key, own) for key, own in zip(effects.keys, theta, strict=True)])
        spreads, rounds = start.spreads.of_clusters({run.name for run in runs}), 1
    for at in range(rounds - 1):
        theta, result = _search(runs, effects, theta, spreads, lambda text, at=at: progress(f"round {at}, {text}"))
        spreads = _estimated(effects, theta, np.linalg.inv(result.matrix), result, first_spreads(runs))
    theta, result = _search(runs, effects, theta, spreads, lambda text: progress(f"last round, {text}"))
    covariance = np.linalg.inv(result.matrix)
    row = TAILS * spreads.typical_row
    return PooledFit(StepPopulation(effects, theta, covariance, spreads.effects, spreads.group, row), spreads)


def _estimated(effects: Effects, theta: np.ndarray, covariance: np.ndarray, sums: _Sums, first: Spreads) -> Spreads:
    """Spreads by expectation and maximization, with the first ones counting as much as some labels.

    Those of effects are roots of the mean variance: few labels leave it open [Gelman et al. 2013, sec. 2.6].
    """
    squares = theta**2 + np.diag(covariance)
    new = {"mean": first.effects["mean"]}
    for level in LEVELS[1:]:
        total, count = PSEUDO * first.effects[level] ** 2, np.full(len(NAMES), PSEUDO)
        for (own, _, at), square in zip(effects.keys, squares, strict=True):
            if own == level:
                total[at] += square
                count[at] += 1.0
        new[level] = np.sqrt(total / (count - 2.0))
    group = pooled_spread(first.group, sums.group_squares)
    row = {name: pooled_spread(first.row[name], own) for name, own in sums.row_squares.items()}
    return Spreads(new, group, row)


def pooled_spread(first: float, squares: np.ndarray) -> float:
    """Root of the mean of squares, with a first guess that counts as some of them."""
    return float(np.sqrt((PSEUDO * first**2 + np.sum(squares)) / (PSEUDO + len(squares))))


def _search(
    runs: Sequence[ClusterRuns], effects: Effects, theta: np.ndarray, spreads: Spreads, progress: Callable[[str], None]
) -> tuple[np.ndarray, _Sums]:
    best, damping, small = _sums(runs, effects, theta, spreads), 1e-3, 0
    for step in range(MOST_STEPS):
        move = np.linalg.solve(best.matrix + damping * np.diag(np.diag(best.matrix)), best.gradient)
        left = 0.5 * float(best.gradient @ move)
        progress(f"step {step}: {best.objective:.3f}, {left:.3g} left")
        if left < LEFT or small == SMALL:
            break
        farthest = max(float(np.max(np.abs(effects.design(_all(run)) @ move))) for run in runs)
        trial = theta - min(1.0, FARTHEST / max(farthest, 1e-12)) * move
        sums = _sums(runs, effects, trial, spreads)
        if sums.objective < best.objective:
            small = small + 1 if best.objective - sums.objective < LEFT else 0
            theta, best, damping = trial, sums, 0.2 * damping
        else:
            damping *= 8.0
    return theta, best


def _all(runs: ClusterRuns) -> dict[str, str]:
    return {"mean": EVERYWHERE, **runs.labels}


def _sums(runs: Sequence[ClusterRuns], effects: Effects, theta: np.ndarray, spreads: Spreads) -> _Sums:
    no_covariance, own_spread = np.zeros((len(theta), len(theta))), spreads.of(effects)
    population = StepPopulation(effects, theta, no_covariance, spreads.effects, spreads.group, spreads.typical_row)
    objective, gradient = 0.5 * float(np.sum((theta / own_spread) ** 2)), theta / own_spread**2
    matrix = np.diag(1.0 / own_spread**2)
    group_squares: list[float] = []
    row_squares: dict[str, list[float]] = {run.name: [] for run in runs}
    for run in runs:
        row = spreads.row[run.name]
        design = effects.design(_all(run))
        errors, slopes = run.errors(population.of(run.labels))
        slopes = slopes @ design
        for own in grouped_sums(errors, slopes, run.groups, row, spreads.group):
            matrix += own.matrix
            gradient = gradient + own.gradient
            objective += own.objective
            group_squares.append(own.group_square)
            row_squares[run.name] += own.row_squares.tolist()
    squares = {name: np.array(own) for name, own in row_squares.items()}
    return _Sums(objective, gradient, matrix, np.array(group_squares), squares)


class GroupSums(NamedTuple):
    """What one group of rows adds to objective, gradient and matrix; the square of what it shares; and of its rows,
    where they are, their squares and, as shares of a row of no error, their weights.
    """

    rows: np.ndarray
    objective: float
    gradient: np.ndarray
    matrix: np.ndarray
    group_square: float
    row_squares: np.ndarray
    weights: np.ndarray


def grouped_sums(
    errors: np.ndarray, slopes: np.ndarray, groups: np.ndarray, row: float, group: float
) -> Iterator[GroupSums]:
    """Of each group of rows: Student's errors about an error, Student's as well, that the group has in common.

    **Arguments:**

    - `errors`, `slopes`: logarithms of predicted over measured times of all rows, and their slopes by unknown.
    - `row`, `group`: standard deviations of the error of a row and of that of a group.
    """
    for name in dict.fromkeys(groups.tolist()):
        own = groups == name
        e, J = errors[own], slopes[own]
        weight, shared, tie = _shared_error(e, row, group)
        inner = 1.0 / (tie + float(np.sum(weight)))
        WJ, We = weight[:, None] * J, weight * e
        apart = np.append((e - shared) / row, shared / group)
        yield GroupSums(
            np.flatnonzero(own),
            0.5 * (FREEDOM + 1.0) * float(np.sum(np.log1p(apart**2 / FREEDOM))),
            J.T @ We - inner * np.sum(WJ, 0) * np.sum(We),
            J.T @ WJ - inner * np.outer(np.sum(WJ, 0), np.sum(WJ, 0)),
            tie * group**2 * shared**2 + inner,
            weight * row**2 * ((e - shared) ** 2 + inner / len(e)),
            weight * row**2,
        )


def _shared_error(errors: np.ndarray, row: float, group: float) -> tuple[np.ndarray, float, float]:
    """Weights of the errors of a group, the error that they share, and the weight with which that is held at zero."""
    shared = np.zeros(1)
    for _ in range(SHARED_ROUNDS):
        weight, tie = _weights(errors - shared, row), _weights(shared, group)
        shared = np.sum(weight * errors) / (tie + np.sum(weight))
    return _weights(errors - shared, row), float(shared[0]), float(_weights(shared, group)[0])


def _weights(errors: np.ndarray, scale: float) -> np.ndarray:
    """Inverse variances of errors by Student's distribution."""
    return (FREEDOM + 1.0) / (FREEDOM + (errors / scale) ** 2) / scale**2
