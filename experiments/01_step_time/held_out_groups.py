"""Errors of each group of runs, predicted by all other runs of its cluster and of all others.

Constants of all clusters are those of experiments/21_unseen_clusters. A group of runs is held out of its cluster: what
the other clusters know of it, from a fit without the cluster, is updated by its other groups.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "21_unseen_clusters"))
import measured_runs
from known_rows import KnownCluster, updated
from pooled_fit import ClusterRuns, PooledFit, pooled_fit

MOST_ROWS = 100  # of a cluster that are fitted, drawn by chance; all rows are predicted


def held_out_errors(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], float]]:
    """Timed rows with the logarithm of predicted over measured time, their group held out."""
    timed = measured_runs.timed(rows)
    fitted = measured_runs.cluster_runs(rows, MOST_ROWS)
    full = pooled_fit(fitted, hints=measured_runs.HINTS, progress=lambda text: print(text, flush=True))
    for own, everything in zip(fitted, measured_runs.cluster_runs(rows), strict=True):
        others = [cluster for cluster in fitted if cluster.name != own.name]
        errors = _errors(full, others, own, everything)
        print(f"{own.name}: {len(errors)} rows, {100 * np.median(np.abs(np.expm1(errors))):.1f} %", flush=True)
        yield from zip((row for row in timed if row["cluster"] == own.name), errors.tolist(), strict=True)


def _errors(full: PooledFit, others: Sequence[ClusterRuns], fitted: ClusterRuns, everything: ClusterRuns) -> np.ndarray:
    """Errors of all rows of a cluster, of which some are fitted."""
    population = pooled_fit(others, start=full).population
    unseen = KnownCluster(population.of(fitted.labels), population.scatter)
    start = full.population.of(fitted.labels).mean
    errors = np.zeros(len(everything.measured))
    for group in np.unique(everything.groups):
        rest, inside = fitted.select(fitted.groups != group), everything.groups == group
        result = updated(unseen, rest, start) if len(rest.measured) else unseen
        errors[inside] = everything.select(inside).errors(result.coordinates)[0]
    return errors
