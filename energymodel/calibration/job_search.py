"""Which batch should a job that is trained again and again try next, to reach its target with the least energy?

A run trains to the target at one batch. Within it every power limit is read for a while, so that it shows the energy at
the best of them [You et al. 2023, sec. 4.2]. What is left to choose are batches, whose energies may have more than one
minimum: large batches need more samples, small ones keep a device waiting.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.special import ndtr

from energymodel.errors import InputError

OCTAVES = 2.0  # of the batch, after which energies are hardly alike [prior]
FAILED = np.log(1.3)  # that a batch which misses the target counts above the worst that reached it [prior]
NOISE = 0.01  # least standard deviation of the logarithm of an energy [prior]
LEAST_SCALE = 0.3  # of the logarithm of energies over batches


def next_batch(
    batches: Sequence[float], tried: Mapping[float, float], first: float, runs_left: int, noise: float = 0.0
) -> float | None:
    """The batch of the next run: of the largest expected improvement [Jones et al. 1998], under a Gaussian process over
    the logarithm of the batch; the last runs are for the neighbours of the best, on both sides.

    **Arguments:**

    - `batches`: that may be run.
    - `tried`: energy to the target by batch [J]; infinite where it was not reached.
    - `first`: batch to begin with; the nearest of `batches` is taken.
    - `runs_left`: including the one that is asked for.
    - `noise`: standard deviation of the logarithm of the energy of a repeated run [1].

    **Returns:** one of `batches`, or `None` if no run or no batch is left.

    **Raises:** `InputError` for batches that are not positive, or for tried ones that are not among them.
    """
    grid = np.unique(np.asarray(batches, np.float64))
    if not len(grid) or grid[0] <= 0.0 or not np.all(np.isfinite(grid)):
        raise InputError(f"batches: {list(batches)}: give the batches that may be run, all of them above 0.")
    unknown = [one for one in tried if one not in grid]
    if unknown:
        raise InputError(f"tried: batch {unknown[0]:g} is not one of the batches {', '.join(f'{b:g}' for b in grid)}.")
    open_places = [place for place, one in enumerate(grid) if one not in tried]
    if runs_left < 1 or not open_places:
        return None
    if not tried:
        return float(grid[np.argmin(np.abs(np.log(grid / first)))])
    known = [place for place in range(len(grid)) if place not in open_places]
    energy = np.array([tried[float(grid[place])] for place in known])
    reached = np.isfinite(energy)
    if not np.any(reached):
        # Far from all that failed.
        distance = np.abs(np.log(grid[open_places][:, None] / grid[known][None])).min(axis=1)
        return float(grid[open_places[int(np.argmax(distance))]])
    best = known[int(np.argmin(energy))]
    beside = [place for place in (best - 1, best + 1) if place in open_places]
    log = np.log(np.where(reached, energy, np.max(energy[reached])))
    log = np.where(reached, log, np.max(log) + FAILED)
    gain = _expected_improvement(np.log2(grid), known, log, max(noise, NOISE))
    options = beside if beside and runs_left <= len(beside) else open_places
    return float(grid[max(options, key=lambda place: gain[place])])


def _expected_improvement(x: np.ndarray, known: list[int], log: np.ndarray, noise: float) -> np.ndarray:
    """At all x, below the lowest that is known, with a process of Matern's kernel with smoothness 5/2."""
    scale = max(float(np.std(log)), LEAST_SCALE)
    distance = np.sqrt(5.0) * np.abs(x[:, None] - x[None]) / OCTAVES
    kernel = scale**2 * (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    inverse = np.linalg.inv(kernel[np.ix_(known, known)] + noise**2 * np.eye(len(known)))
    middle = float(np.mean(log))
    mean = middle + kernel[:, known] @ inverse @ (log - middle)
    variance = np.maximum(
        np.diag(kernel) - np.einsum("ak,kl,al->a", kernel[:, known], inverse, kernel[:, known]), 1e-12
    )
    spread, below = np.sqrt(variance), float(np.min(log)) - mean
    z = below / spread
    return below * ndtr(z) + spread * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)


def search_job(
    run: Callable[[float], float], batches: Sequence[float], first: float, runs: int = 8, noise: float = 0.0
) -> dict[float, float]:
    """Energies by batch of as many runs as there are, each chosen by `next_batch`.

    **Arguments:**

    - `run`: trains to the target at a batch, and returns the energy at the best limit [J]; infinite where it fails.

    **Returns:** energy by batch that was tried [J], in the order of the runs.
    """
    tried: dict[float, float] = {}
    while (batch := next_batch(batches, tried, first, runs - len(tried), noise)) is not None:
        tried[batch] = float(run(batch))
    return tried
