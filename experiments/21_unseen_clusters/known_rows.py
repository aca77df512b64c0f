"""The constants of an unseen cluster once a few of its rows are known."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pooled_fit import TAILS, ClusterRuns, grouped_sums, pooled_spread

from energymodel.scenarios.step_population import Coordinates, StepPopulation

STEPS = 25
ROUNDS = 10  # of searches, each with the scatter that the one before it finds
GROUP = 0.12
"""Error that all runs of one model have in common, where it was held out of its cluster, as a standard deviation of the
logarithm of a step time. In a fit to all runs the constants take it up."""


class KnownCluster(NamedTuple):
    """What is known of the constants of a cluster, and the standard deviation of the logarithm of a time about them:
    of a row about its group, and of the group.
    """

    coordinates: Coordinates
    row: float
    group: float = GROUP

    @property
    def scatter(self) -> float:
        """Of a run of a model that the cluster has not run."""
        return float(np.hypot(self.row, self.group))


def unseen(population: StepPopulation, labels: Mapping[str, str]) -> KnownCluster:
    """What a population says of a cluster that it has not seen."""
    return KnownCluster(population.of(labels), population.row_scatter)


def updated(
    cluster: KnownCluster, rows: ClusterRuns, start: Float[np.ndarray, " constants"] | None = None
) -> KnownCluster:
    """Constants after some rows, by Gauss-Newton with Student's weights from what was known before.

    Rows of one group, which are runs of one model, share an error: more of them say little more of the cluster. What
    was known of the scatter counts as some rows. The search may start elsewhere than at the mean.
    """
    result = cluster if start is None else cluster._replace(coordinates=cluster.coordinates._replace(mean=start))
    for _ in range(ROUNDS):
        result = _search(cluster.coordinates, result, rows)
        errors, slopes = rows.errors(result.coordinates)
        squares, shared = [], []
        for group in grouped_sums(errors, slopes, rows.groups, result.row / TAILS, result.group):
            own = slopes[group.rows] - np.average(slopes[group.rows], 0, group.weights)
            uncertain = np.einsum("ri,ij,rj->r", own, result.coordinates.covariance, own)
            squares.append(group.row_squares + group.weights * uncertain)
            shared.append(group.group_square)
        row = TAILS * pooled_spread(cluster.row / TAILS, np.concatenate(squares))
        result = result._replace(row=row, group=pooled_spread(cluster.group, np.array(shared)))
    return result


def _search(prior: Coordinates, start: KnownCluster, rows: ClusterRuns) -> KnownCluster:
    """Constants of the highest posterior density for a given scatter."""
    information = np.linalg.inv(prior.covariance)
    trial, best, damping = start.coordinates.mean, np.inf, 1e-3
    z, gradient, matrix = trial, np.zeros(len(trial)), information
    for _ in range(STEPS):
        errors, slopes = rows.errors(Coordinates(trial, prior.covariance))
        own = list(grouped_sums(errors, slopes, rows.groups, start.row / TAILS, start.group))
        away = trial - prior.mean
        objective = 0.5 * away @ information @ away + sum(group.objective for group in own)
        gained = best - objective
        if objective < best:
            best, z, damping = objective, trial, 0.2 * damping
            gradient = information @ away + sum(group.gradient for group in own)
            matrix = information + sum(group.matrix for group in own)
        else:
            damping *= 8.0
        move = np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
        if 0.5 * gradient @ move < 0.01 or (0 < gained < 0.01):
            break
        trial = z - min(1.0, 1.5 / np.max(np.abs(move))) * move
    return start._replace(coordinates=Coordinates(z, np.linalg.inv(matrix)))
