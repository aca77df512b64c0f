"""Searches of at most eight runs for the lowest energy to a target, against the whole grid.

A run trains to the target at one batch, reads all power limits in its first epoch, and goes on at the best of them.
`best_setting.next_batch` chooses the next batch; nothing is fitted.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from power_limits import FIRST_BATCH, Traces

from energymodel.calibration.best_setting import next_batch

RUNS = 8


def search_job(
    run: Callable[[float], float], batches: Sequence[float], first: float, runs: int = 8
) -> dict[float, float]:
    """Energy by batch that was tried [J], in the order of the runs, each chosen by `next_batch`.

    **Arguments:**

    - `run`: trains to the target at a batch, and returns the energy at the best limit [J]; infinite where it fails.
    """
    tried: dict[float, float] = {}
    while (batch := next_batch(batches, tried, first, runs - len(tried))) is not None:
        tried[batch] = float(run(batch))
    return tried


def grid(data: Traces, dataset: str, epochs: dict[tuple[str, float], float]) -> dict[float, tuple[float, float, float]]:
    """By batch of a job: lowest energy to the target [J], the limit that has it [W], and the time there [s]."""
    result: dict[float, tuple[float, float, float]] = {}
    for row in np.flatnonzero(data.dataset == dataset):
        # One optimizer of each, as in the published epochs.
        if data.workload[row].endswith("/adam") and dataset != "movielens-1m":
            continue
        batch = float(data.batch[row])
        time = epochs.get((dataset, batch), np.inf) * float(data.runs.time[row])
        energy = time * float(data.runs.power[row])
        result[batch] = min(result.get(batch, (np.inf, 0.0, np.inf)), (energy, float(data.limit[row]), time))
    return result


def at_highest(data: Traces, dataset: str, epochs: dict[tuple[str, float], float], batch: float) -> tuple[float, float]:
    """Energy [J] and time [s] to the target at a batch and the highest limit."""
    row = np.flatnonzero((data.dataset == dataset) & (data.batch == batch) & data.is_profile)[0]
    time = epochs.get((dataset, batch), np.inf) * float(data.runs.time[row])
    return time * float(data.runs.power[row]), time


def play(gpu: str, data: Traces, epochs: dict[tuple[str, float], float]) -> list[dict[str, Any]]:
    """The search for every workload of a GPU whose epochs are published."""
    rows = []
    for dataset in dict.fromkeys(data.dataset.tolist()):
        job = grid(data, dataset, epochs)
        best = min(job, key=lambda batch: job[batch])
        if not np.isfinite(job[best][0]):
            continue
        tried = search_job(lambda batch, job=job: job[batch][0], list(job), FIRST_BATCH[dataset], RUNS)
        batch = min(tried, key=lambda batch_size: tried[batch_size])
        first_energy, first_time = at_highest(data, dataset, epochs, next(iter(tried)))
        rows.append(
            {
                "gpu": gpu,
                "workload": dataset,
                "runs": len(tried),
                "runs_to_best": list(tried).index(batch) + 1,
                "batches": len(job),
                "batch": batch,
                "limit_w": job[batch][1],
                "best_batch": best,
                "best_limit_w": job[best][1],
                "excess_percent": 100.0 * (tried[batch] / job[best][0] - 1.0),
                "saving_percent": 100.0 * (1.0 - tried[batch] / first_energy),
                "grid_saving_percent": 100.0 * (1.0 - job[best][0] / first_energy),
                "time_change_percent": 100.0 * (job[batch][2] / first_time - 1.0),
            }
        )
    return rows


def from_every_batch(data: Traces, epochs: dict[tuple[str, float], float]) -> list[float]:
    """Energy above the grid's least after eight runs, in percent, from each batch of each job as the first."""
    excess = []
    for dataset in dict.fromkeys(data.dataset.tolist()):
        energy = {batch: best[0] for batch, best in grid(data, dataset, epochs).items()}
        least = min(energy.values())
        if np.isfinite(least):
            ends = [min(search_job(energy.__getitem__, list(energy), first, RUNS).values()) for first in energy]
            excess += [100.0 * (end / least - 1.0) for end in ends]
    return excess
