"""What does a cluster that nobody has fitted look like once a few of its rows are known?"""

import numpy as np
from jaxtyping import Float
from pooled_fit import FREEDOM, ClusterRuns

from energymodel.presets.step_population import Coordinates

STEPS = 25


def updated(
    known: Coordinates, scatter: float, rows: ClusterRuns, start: Float[np.ndarray, " constants"] | None = None
) -> Coordinates:
    """Constants after some rows, by Gauss-Newton with Student's weights from what was known before.

    The search may start elsewhere than at the mean of what was known.
    """
    information = np.linalg.inv(known.covariance)
    trial = known.mean if start is None else start
    z, best, damping = trial, np.inf, 1e-3
    gradient, matrix = np.zeros(len(trial)), information
    scale = scatter / 1.3
    for _ in range(STEPS):
        e, J = rows.errors(Coordinates(trial, known.covariance))
        away = trial - known.mean
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
    return Coordinates(z, np.linalg.inv(matrix))
