"""How are the population and its clusters kept as presets of energymodel?"""

from functools import reduce
from typing import Any

import numpy as np
from clusters import CLUSTERS, Cluster, tables

from energymodel.presets.files import ROOT, read_toml
from energymodel.presets.step_population import FOLDER, LEVELS, NAMES, StepPopulation
from energymodel.presets.unseen_cluster import with_coordinates
from energymodel.report import toml_text

SOURCE = "experiments/14_unseen_clusters"
MEMORY = ("activation_copies", "gather_buffers", "usable_memory", "memory_spread")
"""Numbers of software that experiments/01_step_time fits to memory."""


def write_population(found: StepPopulation) -> None:
    """Means, and the lower triangle of a root of the covariance, a line for each effect but those of clusters."""
    keys = [place for place, (level, *_) in enumerate(found.effects.keys) if level != "cluster"]
    root = np.linalg.cholesky(found.covariance[np.ix_(keys, keys)])
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "step-time.csv").open("w", encoding="utf-8", newline="") as file:
        for at, place in enumerate(keys):
            file.write(",".join(f"{value:.4g}" for value in [found.mean[place], *root[at, : at + 1]]) + "\n")
    table: dict[str, Any] = {"title": "Constants of a training step on all measured clusters", "source": SOURCE}
    for level in LEVELS[1:-1]:
        table[level] = sorted({label for own, label, _ in found.effects.keys if own == level})
    table["scatter"] = {"group": round(found.group_scatter, 4), "row": round(found.row_scatter, 4)}
    table["spread"] = {
        level: {name: float(f"{one:.3g}") for name, one in zip(NAMES, spread, strict=True)}
        for level, spread in found.spreads.items()
    }
    (FOLDER / "step-time.toml").write_text(toml_text.dumps(table), encoding="utf-8")


def write_clusters(found: StepPopulation) -> None:
    """A preset for each cluster: its parts, its own numbers, and the fitted constants with their covariance."""
    for name, cluster in CLUSTERS.items():
        labels = {**cluster.labels, "cluster": cluster.timed_as or name}
        if not any(label == labels["cluster"] for level, label, _ in found.effects.keys if level == "cluster"):
            continue
        path = ROOT / "clusters" / f"{name}.toml"
        system = _with_memory(tables(cluster), path)
        written = with_coordinates({"system": system}, found.of(labels), found.scatter, _origin(cluster), "measured")
        written["calibration"]["step-time"] |= {
            "covariance": [[float(f"{one:.6g}") for one in row] for row in found.of(labels).covariance.tolist()],
            "coordinates": [round(one, 4) for one in found.of(labels).mean.tolist()],
            "slopes": [float(f"{one:.4g}") for one in written["calibration"]["step-time"]["slopes"]],
            "scatter": round(found.scatter, 4),
        }
        path.write_text(toml_text.dumps({"title": cluster.title, **written}), encoding="utf-8")


def _origin(cluster: Cluster) -> str:
    return f"fitted together with all other clusters to {cluster.source} ({SOURCE})"


def _with_memory(system: dict[str, Any], path: Any) -> dict[str, Any]:
    """The system with what an earlier preset of the cluster says of its memory."""
    if path.is_file():
        earlier = reduce(lambda table, key: table.get(key, {}), ("system", "software"), read_toml(path))
        system["software"] |= {name: earlier[name] for name in MEMORY if name in earlier}
    return system
