"""Errors of each group of runs, predicted by all other runs of its cluster and of all others.

Constants of all clusters are those of experiments/21_unseen_clusters. A group of runs is held out of its cluster: what
the other clusters know of it, from a fit without the cluster, is updated by its other groups.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "21_unseen_clusters"))
import measured_runs
from known_rows import unseen, updated
from pooled_fit import ClusterRuns, PooledFit, pooled_fit

MOST_ROWS = 100  # of a cluster that are fitted, drawn by chance; all rows are predicted
FEW_ROWS, DRAWS = 10, 5  # of a cluster that has no others, and how often they are drawn


class Error(NamedTuple):
    """A measured row and the logarithm of predicted over measured time.

    - `log`: with the group held out, or by a preset.
    - `unfitted`: with the whole cluster held out.
    - `few`: with `FEW_ROWS` of the cluster known, by draw; none where it has no more than twice as many.
    """

    row: dict[str, Any]
    log: float
    unfitted: float = np.nan
    few: tuple[float, ...] = ()


def held_out_errors(rows: list[dict[str, Any]], clusters: Collection[str] = ()) -> Iterator[Error]:
    """Timed rows of all clusters, or of some, with their group held out."""
    timed = measured_runs.timed(rows)
    fitted = measured_runs.cluster_runs(rows, MOST_ROWS)
    full = pooled_fit(fitted, hints=measured_runs.HINTS, progress=lambda text: print(text, flush=True))
    for own, everything in zip(fitted, measured_runs.cluster_runs(rows), strict=True):
        if clusters and own.name not in clusters:
            continue
        others = [cluster for cluster in fitted if cluster.name != own.name]
        errors, unfitted, few = _errors(full, others, own, everything)
        print(f"{own.name}: {len(errors)} rows, {100 * np.median(np.abs(np.expm1(errors))):.1f} %", flush=True)
        of_cluster = (row for row in timed if row["cluster"] == own.name)
        for row, error, blind, draws in zip(of_cluster, errors.tolist(), unfitted.tolist(), few.tolist(), strict=True):
            yield Error(row, error, blind, tuple(draws))


def _errors(
    full: PooledFit, others: Sequence[ClusterRuns], fitted: ClusterRuns, everything: ClusterRuns
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors of all rows of a cluster, of which some are fitted: by group, unfitted, and by draws of few rows."""
    population = pooled_fit(others, start=full).population
    before = unseen(population, fitted.labels)
    start = full.population.of(fitted.labels).mean
    errors, count = np.zeros(len(everything.measured)), len(everything.measured)
    for group in np.unique(everything.groups):
        rest, inside = fitted.select(fitted.groups != group), everything.groups == group
        result = updated(before, rest, start) if len(rest.measured) else before
        errors[inside] = everything.select(inside).errors(result.coordinates)[0]
    generator, few = np.random.default_rng(0), np.zeros((count, DRAWS if count > 2 * FEW_ROWS else 0))
    for draw in range(few.shape[1]):
        seen = everything.select(generator.choice(count, FEW_ROWS, replace=False))
        few[:, draw] = everything.errors(updated(before, seen).coordinates)[0]
    return errors, everything.errors(before.coordinates)[0], few
