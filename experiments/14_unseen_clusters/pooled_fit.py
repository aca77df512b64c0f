"""What do all clusters together say of the constants of chips, frameworks and clusters?

Effects of `energymodel.presets.step_population`, fitted together by Gauss-Newton with the damping of Levenberg and
Marquardt. Errors have Student's distribution, so that outliers lose their weight, about an error that runs of one group
(a model) have in common, which is integrated out. The covariance is Laplace's.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from energymodel.calibration.step_slopes import log_step_times
from energymodel.presets.step_population import (
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

FREEDOM = 4.0  # of Student's distribution
TAILS = 1.3  # standard deviation of the normal distribution with as wide a 90 % interval, of Student's of scale 1
SHARED_ROUNDS = 5  # of the error that a group has in common, and the weights that it depends on
PSEUDO = 4.0  # labels for which what is assumed of a spread counts
MOST_STEPS = 25
LEFT = 0.1  # of the objective, half a deviance, that a converged search may leave to gain
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

    def errors(self, known: Coordinates) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of predicted over measured times, and their slopes by coordinate."""
        found, slopes = log_step_times(known.mean, self.system, self.columns)
        return found - np.log(self.measured), slopes


class Spreads(NamedTuple):
    """Standard deviations: of effects by level and constant; of the logarithm of a time, of what a group has in common
    and of the rest.
    """

    effects: Mapping[str, np.ndarray]
    group: float
    row: float

    def of(self, effects: Effects) -> np.ndarray:
        """Of each effect."""
        return np.array([self.effects[level][at] for level, _, at in effects.keys])


def first_spreads() -> Spreads:
    """Before any measurement."""
    each = STEP_CONSTANTS.values()
    return Spreads({level: np.array([one.spread(level) for one in each]) for level in LEVELS}, 0.06, 0.05)


class _Sums(NamedTuple):
    """Objective, gradient and Gauss-Newton matrix; squares of what groups have in common, and of the rest."""

    objective: float
    gradient: np.ndarray
    matrix: np.ndarray
    group_squares: np.ndarray
    row_squares: np.ndarray


def pooled_fit(
    runs: Sequence[ClusterRuns],
    *,
    start: StepPopulation | None = None,
    hints: Mapping[tuple[str, str, str], float] = MappingProxyType({}),
    spreads: Spreads | None = None,
    rounds: int = 3,
    progress: Callable[[str], None] = lambda _: None,
) -> StepPopulation:
    """Fit the effects of all levels to the runs of some clusters, and how far they spread [Dempster et al. 1977].

    **Arguments:**

    - `start`: a fit to other runs, from whose effects the search starts.
    - `hints`: effects by level, label and constant from which it starts otherwise.
    - `spreads`: with which the first of some `rounds` begins, each of which estimates them anew.
    """
    effects = effects_of({level: {one.labels[level] for one in runs} for level in runs[0].labels})
    theta = np.array([hints.get((level, label, NAMES[at]), 0.0) for level, label, at in effects.keys])
    spreads = spreads or first_spreads()
    if start is not None:
        earlier = dict(zip(start.effects.keys, start.mean, strict=True))
        theta = np.array([earlier.get(key, own) for key, own in zip(effects.keys, theta, strict=True)])
    for at in range(rounds - 1):
        theta, found = _search(runs, effects, theta, spreads, lambda text, at=at: progress(f"round {at}, {text}"))
        spreads = _estimated(effects, theta, np.linalg.inv(found.matrix), found, spreads)
    theta, found = _search(runs, effects, theta, spreads, lambda text: progress(f"last round, {text}"))
    covariance = np.linalg.inv(found.matrix)
    return StepPopulation(effects, theta, covariance, spreads.effects, spreads.group, TAILS * spreads.row)


def _estimated(effects: Effects, theta: np.ndarray, covariance: np.ndarray, found: _Sums, spreads: Spreads) -> Spreads:
    """Spreads by expectation and maximization, with the first ones counting as much as some labels."""
    first, squares = first_spreads(), theta**2 + np.diag(covariance)
    new = {"mean": first.effects["mean"]}
    for level in LEVELS[1:]:
        total, count = PSEUDO * first.effects[level] ** 2, np.full(len(NAMES), PSEUDO)
        for (own, _, at), square in zip(effects.keys, squares, strict=True):
            if own == level:
                total[at] += square
                count[at] += 1.0
        new[level] = np.sqrt(total / count)
    group = np.sqrt((PSEUDO * first.group**2 + np.sum(found.group_squares)) / (PSEUDO + len(found.group_squares)))
    row = np.sqrt((PSEUDO * first.row**2 + np.sum(found.row_squares)) / (PSEUDO + len(found.row_squares)))
    return Spreads(new, float(group), float(row))


def _search(
    runs: Sequence[ClusterRuns], effects: Effects, theta: np.ndarray, spreads: Spreads, progress: Callable[[str], None]
) -> tuple[np.ndarray, _Sums]:
    best, damping, gained = _sums(runs, effects, theta, spreads), 1e-3, np.inf
    for step in range(MOST_STEPS):
        move = np.linalg.solve(best.matrix + damping * np.diag(np.diag(best.matrix)), best.gradient)
        left = 0.5 * float(best.gradient @ move)
        progress(f"step {step}: {best.objective:.3f}, {left:.3g} left")
        if min(left, gained) < LEFT:
            break
        farthest = max(float(np.max(np.abs(effects.design(_all(one)) @ move))) for one in runs)
        trial = theta - min(1.0, FARTHEST / max(farthest, 1e-12)) * move
        found, gained = _sums(runs, effects, trial, spreads), np.inf
        if found.objective < best.objective:
            gained = best.objective - found.objective
            theta, best, damping = trial, found, 0.2 * damping
        else:
            damping *= 8.0
    return theta, best


def _all(runs: ClusterRuns) -> dict[str, str]:
    return {"mean": EVERYWHERE, **runs.labels}


def _sums(runs: Sequence[ClusterRuns], effects: Effects, theta: np.ndarray, spreads: Spreads) -> _Sums:
    no_covariance, own_spread = np.zeros((len(theta), len(theta))), spreads.of(effects)
    population = StepPopulation(effects, theta, no_covariance, spreads.effects, spreads.group, spreads.row)
    objective, gradient = 0.5 * float(np.sum((theta / own_spread) ** 2)), theta / own_spread**2
    matrix = np.diag(1.0 / own_spread**2)
    group_squares, row_squares = [], []
    for one in runs:
        design = effects.design(_all(one))
        errors, slopes = one.errors(population.of(one.labels))
        slopes = slopes @ design
        for group in dict.fromkeys(one.groups.tolist()):
            own = one.groups == group
            e, J = errors[own], slopes[own]
            weight, inner, shared = _shared_error(e, spreads)
            WJ, We = weight[:, None] * J, weight * e
            matrix += J.T @ WJ - inner * np.outer(np.sum(WJ, 0), np.sum(WJ, 0))
            gradient = gradient + J.T @ We - inner * np.sum(WJ, 0) * np.sum(We)
            objective += 0.5 * (FREEDOM + 1.0) * float(np.sum(np.log1p(((e - shared) / spreads.row) ** 2 / FREEDOM)))
            objective += 0.5 * shared**2 / spreads.group**2
            group_squares.append(shared**2 + inner)
            row_squares += (weight * spreads.row**2 * ((e - shared) ** 2 + inner / len(e))).tolist()
    return _Sums(objective, gradient, matrix, np.array(group_squares), np.array(row_squares))


def _shared_error(errors: np.ndarray, spreads: Spreads) -> tuple[np.ndarray, float, float]:
    """Weights of the errors of a group by Student's distribution, and the error that they share, with its variance."""

    def weights(shared: float) -> np.ndarray:
        return (FREEDOM + 1.0) / (FREEDOM + ((errors - shared) / spreads.row) ** 2) / spreads.row**2

    shared = 0.0
    for _ in range(SHARED_ROUNDS):
        weight = weights(shared)
        shared = float(np.sum(weight * errors)) / (1.0 / spreads.group**2 + float(np.sum(weight)))
    weight = weights(shared)
    return weight, 1.0 / (1.0 / spreads.group**2 + float(np.sum(weight))), shared
