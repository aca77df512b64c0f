"""Predictions from profiles at the highest limit for lower limits, other workloads and batches."""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energymodel.calibration import device_power
from energymodel.calibration.best_setting import lowest_energy
from energymodel.calibration.constant_priors import ConstantPriors
from energymodel.calibration.device_power import NOISE, OPTIONS
from energymodel.calibration.least_squares import FitProblem, FitResult, fit, held_out_errors

DATA = Path(__file__).parents[1] / "data"
GPUS = ("V100", "A40", "P100")
BUSY = ("imagenet", "squad", "sentiment140", "librispeech")  # workloads that a GPU spends its time on
REFERENCE = {
    "V100": {"time": 4.4, "power": 2.9, "energy": 5.5},
    "A40": {"time": 8.0, "power": 3.4, "energy": 8.6},
    "P100": {"time": 3.0, "power": 4.0, "energy": 4.2},
}
"""Errors of the five-constant transfer of docs/physics.md B2.1, in percent."""


class Traces(NamedTuple):
    """Settings of one GPU: data set, workload, batch, limit, and their profiles; which rows are profiles."""

    dataset: np.ndarray
    workload: np.ndarray
    batch: np.ndarray
    limit: np.ndarray
    runs: device_power.Profiles
    is_profile: np.ndarray


def traces(gpu: str) -> Traces:
    """The Zeus traces of a GPU."""
    with (DATA / "zeus_nsdi23_power.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == gpu]
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    workload = np.array(["/".join((row["dataset"], row["network"], row["optimizer"])) for row in rows])
    batch, limit = column["batch_size"].astype(float), column["power_limit_w"].astype(float)
    runs, is_profile = device_power.profiles(
        workload, batch, limit, column["epoch_time_s"].astype(float), column["average_power_w"].astype(float)
    )
    return Traces(column["dataset"], workload, batch, limit, runs, is_profile)


def fitted(data: Traces, rows: np.ndarray, constants: ConstantPriors) -> FitResult:
    """Constants of some rows; profiles, whose error is none, do not count."""
    weights = (rows & ~data.is_profile).astype(float)
    return fit(FitProblem(device_power.power_errors, constants, data.runs, weights, NOISE, OPTIONS))


def percent(errors: np.ndarray) -> dict[str, float]:
    """Mean absolute error of time, power and energy."""
    parts = {"time": errors[:, 0], "power": errors[:, 1], "energy": errors.sum(axis=1)}
    return {name: float(100.0 * np.mean(np.abs(np.expm1(part)))) for name, part in parts.items()}


def transfer(data: Traces) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Each workload from its profiles and the other workloads' lower limits; also the errors of all rows, and which of
    them are of workloads that keep the GPU busy.
    """
    fit_result = fitted(data, np.ones(len(data.batch), bool), device_power.power_constants())
    blind = held_out_errors(fit_result, data.dataset)
    lower = ~data.is_profile
    busy = lower & np.isin(data.dataset, BUSY)
    by = {name: percent(blind[lower & (data.dataset == name)]) for name in dict.fromkeys(data.dataset.tolist())}
    values = {name: float(value) for name, value in fit_result.values.items()}
    answer = {"busy": percent(blind[busy]), "all": percent(blind[lower]), "by_workload": by, "constants": values}
    return answer, blind, busy


def interpolation(data: Traces) -> tuple[dict[str, Any], np.ndarray]:
    """Every second limit between the highest and the lowest, from the others; constants for all, and by workload. Also
    the errors of the former.
    """
    limits = np.unique(data.limit)
    inner = limits[1:-1]
    held = np.isin(data.limit, inner[::2])
    busy = held & np.isin(data.dataset, BUSY)
    names = tuple(dict.fromkeys(data.workload.tolist()))
    answer: dict[str, Any] = {"held_out_limits": inner[::2].tolist()}
    errors = np.zeros((0, 2))
    shared = device_power.power_constants()
    own = ("waiting_exponent", "memory_share", "overlap")
    by_workload = {name: prior._replace(labels=names if name in own else ()) for name, prior in shared.items()}
    for word, constants in (("one for all", shared), ("by workload", by_workload)):
        fit_result = fitted(data, ~held, constants)
        count = sum(constant.size for constant in constants.values())
        answer[word] = {"constants": count, **percent(fit_result.errors[busy])}
        errors = errors if len(errors) else fit_result.errors[busy]
    return answer, errors


def other_batches(data: Traces) -> dict[str, Any]:
    """Every second batch between the smallest and the largest: its profile is interpolated in logarithms."""
    runs, used = data.runs, np.zeros(len(data.batch), bool)
    time, watt = np.array(runs.reference_time), np.array(runs.reference_power)
    overhead, held = np.array(runs.overhead), np.zeros(len(data.batch), bool)
    for name in dict.fromkeys(data.workload.tolist()):
        rows = data.workload == name
        batches = np.unique(data.batch[rows])
        out = batches[1:-1:2]
        profiled = np.setdiff1d(batches, out)
        first = [int(np.flatnonzero(rows & data.is_profile & (data.batch == batch))[0]) for batch in profiled]
        new = rows & np.isin(data.batch, out)
        held |= new
        at = np.log(data.batch[new])
        time[new] = np.exp(np.interp(at, np.log(profiled), np.log(runs.reference_time[first])))
        watt[new] = np.exp(np.interp(at, np.log(profiled), np.log(runs.reference_power[first])))
        fastest = runs.reference_time[first].min()
        best = profiled[int(np.argmin(runs.reference_time[first]))]
        overhead[rows] = np.where(data.batch[rows] < best, 1.0 - fastest / np.maximum(time[rows], fastest), 0.0)
        used |= rows & ~new
    table = runs._replace(reference_time=time, reference_power=watt, overhead=overhead)
    fit_result = fitted(data._replace(runs=table), used, device_power.power_constants())
    busy = held & np.isin(data.dataset, BUSY)
    return percent(fit_result.errors[busy])


def best_limit_regret(data: Traces, blind: np.ndarray, epochs: dict[tuple[str, float], float]) -> dict[str, float]:
    """Energy to the target of the (batch, limit) that the transfer chooses, over the grid's minimum, by workload.

    With the epochs of every batch known; `epochs` holds them by data set and batch. The error of predictions is that of
    all other workloads.
    """
    energy = np.asarray(data.runs.time) * np.asarray(data.runs.power)
    error = np.where(data.is_profile, 0.0, blind.sum(axis=1))
    predicted = energy * np.exp(error)
    regret: dict[str, float] = {}
    for name in dict.fromkeys(data.workload.tolist()):
        rows = [row for row in np.flatnonzero(data.workload == name) if (data.dataset[row], data.batch[row]) in epochs]
        if not rows:
            continue
        count = np.array([epochs[data.dataset[row], data.batch[row]] for row in rows])
        usual = float(np.mean(np.abs(error[~data.is_profile & (data.dataset != data.dataset[rows[0]])])))
        chosen = rows[lowest_energy(predicted[rows] * count, data.is_profile[rows], usual)]
        lowest = np.min(energy[rows] * count)
        regret[name] = float(100.0 * (energy[chosen] * epochs[data.dataset[chosen], data.batch[chosen]] / lowest - 1.0))
    return regret


def epochs_to_target() -> dict[tuple[str, float], float]:
    """Mean epochs to the target metric of Zeus, by data set and batch, where every published run reached it."""
    counts: dict[tuple[str, float], list[float]] = defaultdict(list)
    with (DATA / "zeus_nsdi23_train.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if float(row["target_metric"]) == TARGETS[row["dataset"]]:
                epochs = float(row["target_epoch"]) if row["target_epoch"] else np.inf
                counts[row["dataset"], float(row["batch_size"])].append(epochs)
    means = {key: float(np.mean(values)) for key, values in counts.items()}
    return {key: value for key, value in means.items() if np.isfinite(value)}


TARGETS = {
    "cifar100": 0.6,
    "imagenet": 0.65,
    "movielens-1m": 0.41,
    "sentiment140": 0.84,
    "librispeech": 40.0,
    "squad": 84.0,
}
"""Target metrics of Zeus's own simulations of these workloads [You et al. 2023, trace-driven examples]."""
FIRST_BATCH = {
    "cifar100": 1024,
    "imagenet": 256,
    "movielens-1m": 1024,
    "sentiment140": 128,
    "librispeech": 256,
    "squad": 32,
}
"""Batches that Zeus starts from, where the GPU holds them."""
