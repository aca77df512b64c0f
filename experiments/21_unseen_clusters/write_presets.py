"""The population and its clusters as presets of energymodel."""

import json
import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from clusters import CLUSTERS, Cluster, tables
from known_rows import KnownCluster

from energymodel.report import toml_text
from energymodel.scenarios.clusters import constant_table, with_coordinates
from energymodel.scenarios.files import ROOT, read_toml
from energymodel.scenarios.step_population import (
    FOLDER,
    LEVELS,
    NAMES,
    STEP_CONSTANTS,
    Coordinates,
    StepPopulation,
    write_normal,
)

SOURCE = "experiments/21_unseen_clusters"
UNSEEN = "what a cluster that nobody has fitted has"
FRAMEWORKS = {
    "_mixed-precision": ("", "of all frameworks"),
    "fsdp": ("torchtitan", "with torchtitan"),
    "llm-foundry": ("llm-foundry", "with llm-foundry"),
    "maxtext": ("maxtext", "with MaxText"),
    "megatron": ("megatron", "with Megatron-Bridge, NeMo and MLPerf submissions"),
    "megatron-2022": ("megatron-2022", "with Megatron-LM of 2021 and 2022"),
    "megatron-deepspeed": ("megatron-deepspeed", "with the Megatron-DeepSpeed of MT-NLG"),
    "megatron-deepspeed-2023": ("megatron-deepspeed-2023", "with the Megatron-DeepSpeed of vTrain"),
    "nanotron": ("nanotron", "with nanotron"),
}
"""Presets of software, each with its label in the population, if it has one, and the clusters that say most of it."""
KNOWN = 0.93  # of the spread before any measurement: a constant that is hardly surer is left out
MEMORY = ("activation_copies", "gather_buffers", "reserved_memory", "memory_spread")
"""Numbers of software that experiments/01_step_time fits to memory."""


def write_population(population: StepPopulation) -> None:
    """Mean and covariance of all effects but those of clusters, and a table of spreads and labels."""
    keys = [index for index, (level, *_) in enumerate(population.effects.keys) if level != "cluster"]
    FOLDER.mkdir(exist_ok=True)
    write_normal(
        FOLDER / "step-time.csv", Coordinates(population.mean[keys], population.covariance[np.ix_(keys, keys)])
    )
    table: dict[str, Any] = {"title": "Constants of a training step on all measured clusters", "source": SOURCE}
    for level in LEVELS[1:-1]:
        table[level] = sorted({label for own, label, _ in population.effects.keys if own == level})
    table["scatter"] = {"group": round(population.group_scatter, 4), "row": round(population.row_scatter, 4)}
    table["spread"] = {
        level: {name: float(f"{deviation:.3g}") for name, deviation in zip(NAMES, spread, strict=True)}
        for level, spread in population.spreads.items()
    }
    (FOLDER / "step-time.toml").write_text(toml_text.dumps(table), encoding="utf-8")


def write_frameworks(population: StepPopulation) -> None:
    """What each framework has on a cluster that nobody has fitted, into the presets of software; times of the host
    into those of all accelerators.
    """
    count = sum(not cluster.timed_as for cluster in CLUSTERS.values())
    for preset, (label, words) in FRAMEWORKS.items():
        source = f"fitted together to {count} measured clusters, here those {words} ({SOURCE}): {UNSEEN}"
        _write_numbers(ROOT / "software" / f"{preset}.toml", "software", population.of({"framework": label}), source)
    source = f"host time, fitted together to {count} measured clusters ({SOURCE}): {UNSEEN}"
    _write_numbers(ROOT / "hardware" / "_accelerator.toml", "accelerator", population.of({}), source)


def _write_numbers(path: Path, part: str, coordinates: Coordinates, source: str) -> None:
    """The constants of a part of which the population knows something; all other text of a preset is kept."""
    text = path.read_text(encoding="utf-8")
    spread = np.sqrt(np.diag(coordinates.covariance))
    for (name, constant), z, deviation in zip(
        STEP_CONSTANTS.items(), coordinates.mean.tolist(), spread.tolist(), strict=True
    ):
        owner, _, key = name.rpartition(".")
        if owner != part:
            continue
        assumed = np.sqrt(sum(constant.spread(level) ** 2 for level in LEVELS))
        is_written = path.stem.startswith("_") or deviation < KNOWN * assumed  # what all share has a number for each
        number = constant_table(constant, z, deviation, source, "measured") if is_written else {}
        section = "".join(f"{word} = {json.dumps(own)}\n" for word, own in number.items())
        section = f"[{key}]\n{section}\n" * bool(number)
        text, count = re.subn(rf"\[{key}\]\n(?:[^\[\n].*\n)*\n?", lambda _, new=section: new, text)
        text = text if count else f"{text}\n{section}" * bool(section) or text
        text = text.rstrip("\n") + "\n"
    path.write_text(text, encoding="utf-8")


def write_clusters(clusters: Mapping[str, KnownCluster]) -> None:
    """A preset for each cluster: its parts, its own numbers, and the fitted constants with their covariance."""
    for name, cluster in CLUSTERS.items():
        if (cluster.timed_as or name) not in clusters:
            continue
        path = ROOT / "clusters" / f"{name}.toml"
        system = _with_memory(tables(cluster), path)
        known = clusters[cluster.timed_as or name]
        fitted, scatter = known.coordinates, known.scatter
        written = with_coordinates({"system": system}, fitted, scatter, _origin(cluster), "measured")
        written["calibration"]["step-time"] |= {
            "covariance": [[float(f"{entry:.6g}") for entry in row] for row in fitted.covariance.tolist()],
            "coordinates": [round(coordinate, 4) for coordinate in fitted.mean.tolist()],
            "slopes": [float(f"{slope:.4g}") for slope in written["calibration"]["step-time"]["slopes"]],
            "scatter": round(scatter, 4),
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
