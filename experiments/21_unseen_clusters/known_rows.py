"""The constants of an unseen cluster once a few of its rows are known."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pooled_fit import FREEDOM, TAILS, ClusterRuns, pooled_spread

from energymodel.scenarios.step_population import Coordinates

STEPS = 25
ROUNDS = 10  # of searches, each with the scatter that the one before it finds


class KnownCluster(NamedTuple):
    """What is known of the constants of a cluster, and the standard deviation of the logarithm of a time about them."""

    coordinates: Coordinates
    scatter: float


def updated(
    cluster: KnownCluster, rows: ClusterRuns, start: Float[np.ndarray, " constants"] | None = None
) -> KnownCluster:
    """Constants after some rows, by Gauss-Newton with Student's weights from what was known before.

    What was known of the scatter counts as some rows. The search may start elsewhere than at the mean.
    """
    result = cluster if start is None else cluster._replace(coordinates=cluster.coordinates._replace(mean=start))
    for _ in range(ROUNDS):
        result = _search(cluster.coordinates, result, rows)
        scale = result.scatter / TAILS
        errors, slopes = rows.errors(result.coordinates)
        squares = errors**2 + np.einsum("ri,ij,rj->r", slopes, result.coordinates.covariance, slopes)
        squares *= (FREEDOM + 1) / (FREEDOM + (errors / scale) ** 2)
        result = result._replace(scatter=TAILS * pooled_spread(cluster.scatter / TAILS, squares))
    return result


def held(coordinates: Coordinates, at: int, value: float, deviation: float) -> Coordinates:
    """What is known once one coordinate is within a standard deviation of a value, by conditioning."""
    mean, covariance = coordinates
    slope = covariance[:, at] / covariance[at, at]
    covariance = covariance + np.outer(slope, slope) * (deviation**2 - covariance[at, at])
    return Coordinates(mean + slope * (value - mean[at]), covariance)


def _search(prior: Coordinates, start: KnownCluster, rows: ClusterRuns) -> KnownCluster:
    """Constants of the highest posterior density for a given scatter."""
    information, scale = np.linalg.inv(prior.covariance), start.scatter / TAILS
    trial, best, damping = start.coordinates.mean, np.inf, 1e-3
    z, gradient, matrix = trial, np.zeros(len(trial)), information
    for _ in range(STEPS):
        e, J = rows.errors(Coordinates(trial, prior.covariance))
        away = trial - prior.mean
        objective = 0.5 * away @ information @ away + 0.5 * (FREEDOM + 1) * np.sum(np.log1p((e / scale) ** 2 / FREEDOM))
        gained = best - objective
        if objective < best:
            weight = (FREEDOM + 1) / (FREEDOM + (e / scale) ** 2) / scale**2
            best, z, damping = objective, trial, 0.2 * damping
            gradient, matrix = information @ away + J.T @ (weight * e), information + (J.T * weight) @ J
        else:
            damping *= 8.0
        move = np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
        if 0.5 * gradient @ move < 0.01 or (0 < gained < 0.01):
            break
        trial = z - min(1.0, 1.5 / np.max(np.abs(move))) * move
    return start._replace(coordinates=Coordinates(z, np.linalg.inv(matrix)))
