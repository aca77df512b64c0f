"""Predicted memory against runs of nanotron that failed, each group predicted without itself."""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from cluster_fit import fit_cluster
from clusters import CLUSTERS, MEMORY, system_of
from scipy.optimize import minimize

from energymodel.calibration.layout_table import layouts
from energymodel.calibration.step_prediction import predict, with_constants
from energymodel.performance.memory_footprint import out_of_memory_probability

SPREAD, SPREAD_LOG = 0.06, 0.5  # prior of the spread of memory about its prediction, and of the logarithm of it
LAPSE = 0.01  # share of runs that end as they do for a reason that is not their memory
LEAST_USABLE = 0.6  # of a chip's memory; what driver, kernels, communication and allocator take leaves more
RISKS = (0.0, 0.1, 0.5, 0.9, 1.0)


class MemoryCheck(NamedTuple):
    """Relative errors of the memory of successes, and of all runs the risk and whether they failed."""

    errors: np.ndarray
    risk: np.ndarray
    failed: np.ndarray

    @property
    def label_accuracy(self) -> float:
        """Share of runs that the risk classifies correctly [1]."""
        return float(np.mean((self.risk > 0.5) == self.failed))

    @property
    def brier(self) -> float:
        """Mean square of risk less outcome [1]."""
        return float(np.mean((self.risk - self.failed) ** 2))

    def by_risk(self) -> list[dict[str, Any]]:
        """How many of the runs at each predicted risk failed."""
        rows = []
        for low, high in pairwise(RISKS):
            inside = (self.risk >= low) & (self.risk <= high)
            if not inside.any():
                continue
            rows.append(
                {
                    "risk_from": low,
                    "risk_to": high,
                    "runs": int(inside.sum()),
                    "mean_risk": float(self.risk[inside].mean()),
                    "failed": float(self.failed[inside].mean()),
                }
            )
        return rows


def check(rows: list[dict[str, Any]]) -> tuple[MemoryCheck, dict[str, dict[str, float]]]:
    """Held-out predictions of each run's memory and risk, and the constants of each cluster from all of its runs."""
    table = layouts(rows)
    metered, failed = np.isfinite(table.columns["memory_b"]), table.columns["out_of_memory"] > 0.5
    groups = np.asarray([row["group"] for row in rows])
    errors, risk = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    constants: dict[str, dict[str, float]] = {}
    for name in map(str, np.unique(table.columns["cluster"])):
        own = table.columns["cluster"] == name
        if np.sum(metered & own) < len(MEMORY) + 2:
            continue
        system = system_of(CLUSTERS[name])
        fitted = fit_cluster(system, table.select(metered & own), MEMORY, groups[metered & own].tolist(), "memory_b")
        print(f"\nmemory of {name}, {own.sum()} runs\n{fitted}")
        errors[metered & own] = np.expm1(fitted.held_out)
        needed = np.full(len(rows), np.nan)
        needed[own] = predict(table.select(own), {name: with_constants(system, fitted.by_path)}).prediction.allocated
        needed[metered & own] = table.columns["memory_b"][metered & own] * np.exp(fitted.held_out)
        share = needed / float(system.accelerator.memory_capacity)
        for group in np.unique(groups[own]):
            rest, inside = own & (groups != group), own & (groups == group)
            usable, spread = risk_law(share[rest], failed[rest])
            with jax.enable_x64(True):
                risk[inside] = out_of_memory_probability(share[inside], usable, spread)
        usable, spread = risk_law(share[own], failed[own])
        reserve = (1.0 - usable) * float(system.accelerator.memory_capacity)
        constants[name] = {**fitted.by_path, "software.reserved_memory": reserve, "software.memory_spread": spread}
        print(f"  usable {usable:.3f}, spread {spread:.3f}")
    predicted = np.isfinite(risk)
    return MemoryCheck(errors[metered & predicted], risk[predicted], failed[predicted]), constants


def risk_law(share: np.ndarray, failed: np.ndarray) -> tuple[float, float]:
    """Usable share of a chip's memory and spread of the logistic law, of most likelihood with a prior of the spread.

    A few runs fail or succeed against all memory (`LAPSE`), and should not widen the law for all others.
    """
    x, sign = np.log(share), np.where(failed, 1.0, -1.0)

    def surprise(point: np.ndarray) -> float:
        chance = 0.5 + 0.5 * np.tanh(0.5 * sign * (x - point[0]) / np.exp(point[1]))
        prior = 0.5 * ((point[1] - np.log(SPREAD)) / SPREAD_LOG) ** 2
        return float(prior - np.log(LAPSE / 2.0 + (1.0 - LAPSE) * chance).sum())

    start = np.array([np.log(0.9), np.log(SPREAD)])
    ends = [(np.log(LEAST_USABLE), 0.0), (np.log(SPREAD) - 3.0, np.log(SPREAD) + 3.0)]
    solution = minimize(surprise, start, bounds=ends, method="Nelder-Mead")
    return float(np.exp(solution.x[0])), float(np.exp(solution.x[1]))
