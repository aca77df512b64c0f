"""The power limit for a workload, found from its own epochs.

One device whose chip and host overlap [docs/physics.md B2]: the chip takes `(1 - mu) / phi + mu` of its time at full
clock, draws `P_s + kappa phi v^2` when busy, and the power limit holds for that. Before the first epoch all constants
are the priors of docs/physics.md B2 and B10; every epoch weighs their draws anew.
"""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, qmc

from energymodel.physics.voltage import voltage_fraction

DATA = Path(__file__).parents[1] / "data" / "zeus_nsdi23_power.csv"
EPOCHS = 10
"""Length of a run; Zeus' targets take from one to some hundreds."""
DRAWS = 2**13
CLOCKS = np.linspace(0.15, 1.0, 86)
OVERLAP = 3.9  # exponent of chip and host
ERROR = 0.04  # of time and power that the model explains no better
WIDTH = 0.03  # of the voltage knee
CURIOSITY = 0.5  # standard deviations by which a limit may be better than expected, and is worth an epoch
IDLE = {"V100": 37.8, "A40": 86.1, "P100": 34.5}
"""Power without work, which a meter shows before the run [W] [docs/physics.md B2.1]."""
LEAST = 1.25  # least limit over idle power: below, chips do not hold their limit [docs/physics.md B2.1]


class Cell(NamedTuple):
    """A workload on a device: time [s] and mean power [W] of an epoch at each limit [W], in falling order."""

    gpu: str
    workload: str
    limits: np.ndarray
    time: np.ndarray
    power: np.ndarray

    @property
    def energy(self) -> np.ndarray:
        """Energy of an epoch at each limit [J]."""
        return self.time * self.power


def cells() -> list[Cell]:
    """All workloads, batches and optimizers that were profiled at all limits of their device."""
    by_cell: dict[Any, dict[float, tuple[float, float]]] = defaultdict(dict)
    with DATA.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["gpu"], "{dataset} {network} {batch_size} {optimizer}".format(**row)
            by_cell[key][float(row["power_limit_w"])] = float(row["epoch_time_s"]), float(row["average_power_w"])
    most: dict[str, int] = defaultdict(int)
    for (gpu, _), limits in by_cell.items():
        most[gpu] = max(most[gpu], len(limits))
    result = []
    for (gpu, workload), limits in by_cell.items():
        if len(limits) == most[gpu]:
            order = np.array(sorted(limits, reverse=True))
            time, power = np.array([limits[limit] for limit in order]).T
            result.append(Cell(gpu, workload, order, time, power))
    return result


def draws(rated: float, idle: float, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of time at each limit, up to a common factor, and of mean power [W], of draws from the priors."""
    share = qmc.Sobol(6, rng=0).random(DRAWS)
    normal = ndtri(np.clip(share, 1e-9, 1.0 - 1e-9))
    busy = rated * np.exp(0.25 * normal[:, 0])  # at full clock, were there no limit
    static = np.maximum(1.05 * idle, rated * 0.22 * np.exp(0.3 * normal[:, 1]))
    still = beta.ppf(share[:, 2], 3.0, 6.0)  # share of the time that no clock shortens
    floor = np.clip(0.80 + 0.08 * normal[:, 3], 0.5, 0.97)
    knee = np.clip(0.60 + 0.08 * normal[:, 4], 0.3, 0.9)
    host = 0.3 * np.exp(1.5 * normal[:, 5])  # time of the host over that of the chip at full clock
    with jax.enable_x64(True):
        voltage = np.asarray(voltage_fraction(CLOCKS, floor[:, None], knee[:, None], WIDTH))
    power = static[:, None] + np.maximum(busy - static, 0.05 * rated)[:, None] * CLOCKS * voltage**2
    chip = (1.0 - still)[:, None] / CLOCKS + still[:, None]
    time = (chip**OVERLAP + host[:, None] ** OVERLAP) ** (1.0 / OVERLAP)
    mean = idle + chip / time * (power - idle)
    logs: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for limit in limits:
        index = np.maximum(np.sum(power <= limit, axis=1) - 1, 0)
        for target, values in zip(logs, (time, mean), strict=True):
            target.append(np.log(values[np.arange(DRAWS), index]))
    return np.stack(logs[0], axis=1), np.stack(logs[1], axis=1)


def replay(cell: Cell, log_time: np.ndarray, log_power: np.ndarray) -> list[int]:
    """The limit of each epoch: the best that may be by what is known before it, from priors and all epochs until then.

    A limit that was run counts as it was measured; another counts as a little better than expected, the more the less
    is known of it.
    """
    chosen: list[int] = []
    allowed = cell.limits >= LEAST * IDLE[cell.gpu]
    log_energy = log_time + log_power
    for _ in range(EPOCHS):
        seen = list(dict.fromkeys(chosen))
        misfit = np.zeros(DRAWS)
        reference = log_energy.mean(axis=1, keepdims=True)
        if seen:
            slow = np.log(cell.time[seen]) - log_time[:, seen]
            slow -= slow.mean(axis=1, keepdims=True)  # the work of an epoch is not known before
            strong = np.log(cell.power[seen]) - log_power[:, seen]
            misfit = np.sum(slow**2 + strong**2, axis=1) / (2.0 * ERROR**2)
            reference = log_energy[:, seen].mean(axis=1, keepdims=True)
        weight = np.exp(np.min(misfit) - misfit)
        weight /= np.sum(weight)
        relative = log_energy - reference
        merit = weight @ relative
        if seen:
            spread = np.sqrt(np.maximum(weight @ relative**2 - merit**2, 0.0))
            merit = merit - CURIOSITY * spread
            measured = np.log(cell.energy[seen])
            merit[seen] = measured - measured.mean()
        chosen.append(int(np.argmin(np.where(allowed, merit, np.inf))))
    return chosen


def compute() -> dict[str, list[dict[str, Any]]]:
    """Excess energy over the best limit: planned once, replanned after each epoch, and at the highest limit."""
    rows = []
    prepared: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for cell in cells():
        if cell.gpu not in prepared:
            prepared[cell.gpu] = draws(float(cell.limits[0]), IDLE[cell.gpu], cell.limits)
        chosen = replay(cell, *prepared[cell.gpu])
        energy, best = cell.energy, float(np.min(cell.energy))
        rows.append(
            {
                "gpu": cell.gpu,
                "workload": cell.workload,
                "best_limit_w": float(cell.limits[int(np.argmin(energy))]),
                "planned_once_w": float(cell.limits[chosen[0]]),
                "last_w": float(cell.limits[chosen[-1]]),
                "limits_tried": len(set(chosen)),
                "highest": float(energy[0]) / best - 1.0,
                "planned_once": float(energy[chosen[0]]) / best - 1.0,
                "replanned": float(np.mean(energy[chosen])) / best - 1.0,
                "in_the_end": float(energy[chosen[-1]]) / best - 1.0,
            }
        )
    summary = []
    for gpu in dict.fromkeys(row["gpu"] for row in rows):
        group = [row for row in rows if row["gpu"] == gpu]
        line: dict[str, Any] = {"gpu": gpu, "workloads": len(group)}
        for key in ("highest", "planned_once", "replanned", "in_the_end"):
            line[key] = float(np.mean([row[key] for row in group]))
            line[f"{key}_largest"] = float(np.max([row[key] for row in group]))
        line["limits_tried"] = float(np.mean([row["limits_tried"] for row in group]))
        summary.append(line)
    return {"power_limits": rows, "power_limits_summary": summary}
