"""How close to the grid's lowest energy to a target does a search of at most eight runs come?

A run trains to the target at one batch and one power limit and shows time, mean power and epochs. The first runs are at
the highest limit: they are profiles, from which constants of the GPU (fitted on other workloads) predict all lower
limits. Golden-section search over the batch brackets the best; what is left of the eight runs tries limits there: those
of lowest predicted energy, or, where the model cannot tell the limits apart, limits far from those that were tried.
"""

from typing import Any

import jax
import numpy as np
from power_limits import FIRST_BATCH, Traces, constants_without, predictor

from energymodel.calibration.device_power import Profiles, overhead_share

RUNS = 8
RUNS_FOR_BATCH = 5
GOLDEN = 0.381966


class Job:
    """One workload on one GPU: what a run would show, what was run, and what the model makes of it."""

    def __init__(
        self, data: Traces, dataset: str, epochs: dict[tuple[str, float], float], values: Any, error: float
    ) -> None:
        rows = np.flatnonzero(
            (data.dataset == dataset)
            & np.array([not name.endswith("/adam") or dataset == "movielens-1m" for name in data.workload])
        )
        self.batches = np.array(sorted({float(data.batch[row]) for row in rows}))
        self.limits = np.unique(data.limit[rows])
        self.time = np.full((len(self.batches), len(self.limits)), np.nan)
        self.power = self.time.copy()
        for row in rows:
            place = np.searchsorted(self.batches, data.batch[row]), np.searchsorted(self.limits, data.limit[row])
            self.time[place], self.power[place] = data.runs.time[row], data.runs.power[row]
        self.epochs = np.array([epochs.get((dataset, one), np.inf) for one in self.batches])
        self.truth = self.epochs[:, None] * self.time * self.power
        self.idle, self.rated = float(data.runs.idle_power[0]), float(data.runs.rated_power[0])
        self.values, self.error, self.predict = values, error, predictor()
        self.tried: dict[tuple[int, int], float] = {}

    def run(self, batch: int, limit: int) -> float:
        """Energy to the target of a run; infinite where a run does not reach it."""
        energy = self.truth[batch, limit]
        self.tried[batch, limit] = float(energy if np.isfinite(energy) else np.inf)
        return self.tried[batch, limit]

    def outlook(self, batch: int) -> np.ndarray:
        """Predicted energy to the target at every limit, of a batch that was profiled at the highest one."""
        top = len(self.limits) - 1
        known = sorted({one for one, limit in self.tried if limit == top})
        overhead = overhead_share(self.time[known, top], self.batches[known])[known.index(batch)]
        count = len(self.limits)
        profiles = Profiles(
            workload=np.zeros(count, int),
            limit=self.limits,
            clock=np.ones(count),
            reference_time=np.full(count, self.time[batch, top]),
            reference_power=np.full(count, self.power[batch, top]),
            overhead=np.full(count, overhead),
            idle_power=np.full(count, self.idle),
            rated_power=np.full(count, self.rated),
            time=np.ones(count),
            power=np.ones(count),
        )
        with jax.enable_x64(True):
            time, watt = (np.asarray(one) for one in self.predict(self.values, profiles))
        outlook = self.epochs[batch] * time * watt
        for (one, limit), energy in self.tried.items():
            if one == batch:
                outlook[limit] = energy
        return outlook

    def value(self, batch: int) -> float:
        """Lowest predicted energy over the limits of a batch, which is profiled if it was not yet."""
        top = len(self.limits) - 1
        if (batch, top) not in self.tried:
            self.run(batch, top)
        return float(np.min(self.outlook(batch)))


def search(job: Job, first: int) -> None:
    """At most eight runs; `first` is the batch to begin with, by its place in the grid."""
    values: dict[int, float] = {}

    def value(batch: int) -> float:
        if batch not in values:
            values[batch] = job.value(batch)
        return values[batch]

    low, high = 0, len(job.batches) - 1
    value(first)
    while high > low and len(values) < RUNS_FOR_BATCH:
        inside = [one for one in values if low <= one <= high]
        best = min(inside, key=value) if inside else (low + high) // 2
        wider_above = high - best >= best - low
        side = range(best + 1, high + 1) if wider_above else range(low, best)
        if not len(side):
            break
        place = round(GOLDEN * (len(side) - 1))
        trial = side[place] if wider_above else side[len(side) - 1 - place]
        value(trial)
        center = min((one for one in values if low <= one <= high), key=value)
        low = max([low, *(one + 1 for one in values if one < center)])
        high = min([high, *(one - 1 for one in values if one > center)])
        if low > high:
            break
    best = min(values, key=value)
    saving = np.log(job.tried[best, len(job.limits) - 1] / value(best))
    if saving < job.error:
        spread_limits(job, best)
    else:
        try_limits(job, [one for one in values if np.isfinite(values[one])])


def try_limits(job: Job, batches: list[int]) -> None:
    """Runs at the limits of lowest predicted energy, while they promise some."""
    while len(job.tried) < RUNS:
        options = [
            (job.outlook(batch)[limit], batch, limit)
            for batch in batches
            for limit in range(len(job.limits))
            if (batch, limit) not in job.tried
        ]
        if not options:
            break
        lowest, batch, limit = min(options)
        if lowest > 1.05 * min(job.tried.values()):
            break
        job.run(batch, limit)


def spread_limits(job: Job, batch: int) -> None:
    """Runs at limits as far as can be from those that were tried."""
    while len(job.tried) < RUNS:
        tried = [limit for one, limit in job.tried if one == batch]
        left = [limit for limit in range(len(job.limits)) if limit not in tried]
        if not left:
            break
        job.run(batch, max(left, key=lambda limit: np.min(np.abs(job.limits[limit] - job.limits[tried]))))


def play(gpu: str, data: Traces, epochs: dict[tuple[str, float], float]) -> list[dict[str, Any]]:
    """The search for every workload of a GPU whose epochs are published."""
    rows = []
    for dataset in dict.fromkeys(data.dataset.tolist()):
        if not any(name == dataset for name, _ in epochs):
            continue
        job = Job(data, dataset, epochs, *constants_without(data, dataset))
        first = int(np.argmin(np.abs(np.log(job.batches / FIRST_BATCH[dataset]))))
        search(job, first)
        (batch, limit), lowest = min(job.tried.items(), key=lambda item: item[1])
        finite = np.where(np.isfinite(job.truth), job.truth, np.inf)
        at_first, first_time = finite[first, -1], job.epochs[first] * job.time[first, -1]
        place = np.unravel_index(np.argmin(finite), finite.shape)
        rows.append(
            {
                "gpu": gpu,
                "workload": dataset,
                "runs": len(job.tried),
                "batch": float(job.batches[batch]),
                "limit_w": float(job.limits[limit]),
                "best_batch": float(job.batches[place[0]]),
                "best_limit_w": float(job.limits[place[1]]),
                "excess_percent": float(100 * (lowest / finite.min() - 1)),
                "saving_percent": float(100.0 * (1.0 - lowest / at_first)),
                "grid_saving_percent": float(100.0 * (1.0 - finite.min() / at_first)),
                "time_change_percent": float(100.0 * (job.epochs[batch] * job.time[batch, limit] / first_time - 1.0)),
            }
        )
    return rows
