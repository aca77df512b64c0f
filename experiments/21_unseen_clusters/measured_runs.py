"""The measured runs on which the population of clusters rests."""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from pooled_fit import ClusterRuns

from energymodel.calibration.layout_table import INPUTS, layouts

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
sys.path.insert(0, str(HERE.parent / "01_step_time"))
import adapters  # noqa: E402
import recipes  # noqa: E402
import runs as published_runs  # noqa: E402
import throughput  # noqa: E402
from clusters import CLUSTERS, system_of  # noqa: E402

SOURCES = (
    ("megatron_a100_iteration_times.csv", adapters.korthikanti),
    ("published_parallelism_points.csv", published_runs.parallelism_points),
    ("vtrain_a100_iteration_times.csv", adapters.vtrain),
    ("nanotron_h100_sweep.csv", adapters.nanotron),
    ("throughput_tables.csv", adapters.mpt),
    ("throughput_tables.csv", throughput.megatron_bridge),
    ("throughput_tables.csv", throughput.torchtitan),
    ("throughput_tables.csv", throughput.maxtext),
    ("throughput_tables.csv", throughput.nemo),
    ("mlperf_gpt3_h100.csv", published_runs.mlperf),
    ("megatron_bridge_verification_cards.csv", recipes.verification_cards),
    ("megatron_ci_iteration_times.csv", recipes.megatron_tests),
    ("tuned_recipes.csv", recipes.automodel),
)


HINTS = {
    ("cluster", "nanotron-h100-ring", "node.scale_up.latency"): 5.0,
    ("cluster", "nanotron-h100-ring", "network.link.latency"): 4.0,
}
"""The slow rings of nanotron's second environment: each step takes some hundred times as long as elsewhere."""


def read_all(folder: Path = DATA) -> list[dict[str, Any]]:
    """All sets that the folder has, in the columns of the table."""
    rows: list[dict[str, Any]] = []
    for name, adapter in SOURCES:
        if (folder / name).is_file():
            rows += adapter(adapters.read(folder / name))
    return rows


def timed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with a time, of runs on links that were whole; each names the cluster whose times it has."""
    result = [row for row in rows if row["step_time_s"] != "" and not row.get("degraded")]
    return [{**row, "cluster": CLUSTERS[row["cluster"]].timed_as or row["cluster"]} for row in result]


def cluster_runs(rows: list[dict[str, Any]], most: int | None = None, seed: int = 0) -> list[ClusterRuns]:
    """Timed rows by cluster, at most so many of each, drawn by chance."""
    by_cluster: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in timed(rows):
        by_cluster[row["cluster"]].append(row)
    generator = np.random.default_rng(seed)
    result = []
    for name, own in by_cluster.items():
        if most is not None and len(own) > most:
            own = [own[at] for at in sorted(generator.choice(len(own), most, replace=False).tolist())]
        table, cluster = layouts(own), CLUSTERS[name]
        columns = {column.name: table.columns[column.name] for column in INPUTS}
        groups = np.array([f"{row['set']} {row['group']}" for row in own])
        labels = {**cluster.labels, "cluster": name}
        result.append(ClusterRuns(labels, system_of(cluster), columns, table.columns["step_time_s"], groups))
    return result
