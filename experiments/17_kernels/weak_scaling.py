"""Slowdown of steps with the number of chips beyond what communication explains.

`python experiments/17_kernels/weak_scaling.py [--data FOLDER]`

A family is one model in one layout on one cluster, with as many sequences per chip, on several numbers of chips: only
data parallelism grows.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import INPUTS, MEASURED, WORDS, layouts
from energymodel.calibration.step_prediction import predict
from energymodel.scenarios.clusters import UNFITTED
from energymodel.system.training_system import TrainingSystem

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "01_step_time"))
import adapters  # pyright: ignore[reportMissingImports]
import outputs
import throughput  # pyright: ignore[reportMissingImports]
from clusters import CLUSTERS  # pyright: ignore[reportMissingImports]

DATA = Path(__file__).parents[1] / "data"
KNOWN = {column.name for column in (*INPUTS, *MEASURED)} | set(WORDS)
NOT_THE_SAME = ("chips", "batch_sequences", "step_time_s", "memory_b", "out_of_memory")
SPANS_MORE_THAN = 16.0  # chips: below, families say more about one node than about growth
DRAWS = 2000
# Hybrid layers, which the model does not have; its data-parallel traffic hides behind 24 micro-batches.
NOT_A_TRANSFORMER = "Nemotron-H 56b FP8"


class Family(NamedTuple):
    """Chips of each member, and the logarithm of its measured over its predicted step time."""

    cluster: str
    name: str
    chips: np.ndarray
    excess: np.ndarray

    @property
    def per_doubling(self) -> float:
        """Growth of the excess with every doubling of the chips [1]."""
        doublings = np.log2(self.chips)
        centered = doublings - np.mean(doublings)
        return float(centered @ self.excess / (centered @ centered))


def without_stragglers(cluster: str) -> TrainingSystem:
    """A cluster as fitted, but that its chips all take the same time."""
    return eqx.tree_at(lambda system: system.reliability.straggler_variation, cluster_scenario(cluster).system, 0.0)


def of_its_kind(cluster: str) -> TrainingSystem:
    """What framework and chip say of a cluster, without its own rows."""
    presets = CLUSTERS[cluster].presets
    return cluster_scenario(UNFITTED.join([presets["accelerator"], presets["software"]])).system


SYSTEMS: Mapping[str, Callable[[str], TrainingSystem]] = {
    "cluster preset": lambda cluster: cluster_scenario(cluster).system,
    "without stragglers": without_stragglers,
    "framework and chip": of_its_kind,
}


def families(data: Path, system_of: Callable[[str], TrainingSystem]) -> list[Family]:
    """Weak-scaling families of the published tables, predicted with the system of each cluster."""
    tables = adapters.read(data / "throughput_tables.csv")
    rows = adapters.mpt(tables) + throughput.maxtext(tables) + throughput.torchtitan(tables)
    rows += throughput.megatron_bridge(tables) + throughput.nemo(tables)
    rows += [
        row
        for row in adapters.nanotron(adapters.read(data / "nanotron_h100_sweep.csv"))
        if row["step_time_s"] != "" and not row["degraded"]
    ]
    table = layouts([{key: value for key, value in row.items() if key in KNOWN} for row in rows])
    systems = {str(name): system_of(str(name)) for name in np.unique(table.columns["cluster"])}
    columns = table.columns
    excess = np.log(columns["step_time_s"] / predict(table, systems).table()["step_time_s"])
    members: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        # As text, because a number that is not given equals no other.
        own = [str(columns[name][index]) for name in columns if name not in NOT_THE_SAME]
        share = round(columns["batch_sequences"][index] / columns["chips"][index], 4)
        words = [row["cluster"], *(str(row.get(key, "")) for key in ("group", "release", "precision", "note"))]
        if row["set"] == "nanotron":
            words[1] = ""
        members[(*words, *own, share)].append(index)
    result = [
        Family(key[0], key[1] or "nanotron", columns["chips"][places], excess[places])
        for key, places in members.items()
        if len(set(columns["chips"][places])) > 1
    ]
    hybrid = [row for row in tables if row["model"] == NOT_A_TRANSFORMER]
    times = np.asarray([float(row["step_time_s"]) for row in hybrid])
    chips = np.asarray([float(row["n_accelerators"]) for row in hybrid])
    result.append(Family("nemo-h100", NOT_A_TRANSFORMER, chips, np.log(times)))
    return [family for family in result if max(family.chips) >= SPANS_MORE_THAN]


def interval(measured: list[Family]) -> tuple[float, float]:
    """95 % interval of the median growth with every doubling, from whole clusters drawn with replacement [1]."""
    draw = np.random.default_rng(0)
    clusters = sorted({family.cluster for family in measured})
    drawn = [
        np.median(
            [
                family.per_doubling
                for name in draw.choice(clusters, len(clusters))
                for family in measured
                if family.cluster == name
            ]
        )
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    data = parser.parse_args().data
    result = {what: families(data, system_of) for what, system_of in SYSTEMS.items()}
    rows = [
        {"cluster": family.cluster, "model": family.name, "chips": f"{min(family.chips):g} to {max(family.chips):g}"}
        | {what: 100.0 * own[index].per_doubling for what, own in result.items()}
        for index, family in enumerate(next(iter(result.values())))
    ]
    print(f"Growth of measured over predicted time, % a doubling of the chips\n{outputs.table(rows)}\n")
    for what, own in result.items():
        left = np.array([family.per_doubling for family in own])
        low, high = interval(own)
        print(
            f"{what}: {100.0 * np.median(left):.2f} % a doubling in the median (95 % interval {100.0 * low:.2f} to "
            f"{100.0 * high:.2f} %), slower than predicted in {np.sum(left > 0.0)} of {len(left)}"
        )


if __name__ == "__main__":
    main()
