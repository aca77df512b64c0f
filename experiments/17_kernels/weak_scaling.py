"""By how much do steps slow down with the number of chips, beyond what communication explains?

`python experiments/17_kernels/weak_scaling.py [--data FOLDER]`

A family is one model in one layout on one cluster, with as many sequences per chip, on several numbers of chips: only
data parallelism grows. Constants of a cluster shift the level of its families, not their slope.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from energymodel.calibration.cluster_source import cluster_system
from energymodel.calibration.layout_table import INPUTS, MEASURED, WORDS, layouts
from energymodel.calibration.step_prediction import predict
from energymodel.performance.reliability import largest_deviation, straggler_factor
from energymodel.presets.files import read_preset

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "01_step_time"))
import adapters  # pyright: ignore[reportMissingImports]
import outputs
import throughput  # pyright: ignore[reportMissingImports]

DATA = Path(__file__).parents[1] / "data"
KNOWN = {column.name for column in (*INPUTS, *MEASURED)} | set(WORDS)
NOT_THE_SAME = ("chips", "batch_sequences", "step_time_s", "memory_b", "out_of_memory")
SPANS_MORE_THAN = 16.0  # chips: below, families say more about one node than about growth
DRAWS = 2000
# Hybrid layers, which the model does not have; its data-parallel traffic hides behind 24 micro-batches.
NOT_A_TRANSFORMER = "Nemotron-H 56b FP8"


class Family(NamedTuple):
    """Chips of each member, and the logarithm of its measured over its predicted step time without stragglers."""

    cluster: str
    name: str
    chips: np.ndarray
    excess: np.ndarray

    def slope(self, variation: float, per: np.ndarray) -> tuple[float, float]:
        """Growth of the excess with `per` that a variation leaves, and the squares of `per` about its mean."""
        left = self.excess - np.log(np.asarray(straggler_factor(self.chips, variation)))
        centered = per - np.mean(per)
        return float(centered @ left / (centered @ centered)), float(centered @ centered)

    def per_doubling(self, variation: float) -> float:
        """Growth that a variation leaves with every doubling of the chips [1]."""
        return self.slope(variation, np.log2(self.chips))[0]


def families(data: Path) -> list[Family]:
    """Weak-scaling families of the published tables."""
    tables = adapters.read(data / "throughput_tables.csv")
    rows = adapters.mpt(tables) + throughput.maxtext(tables) + throughput.torchtitan(tables)
    rows += throughput.megatron_bridge(tables) + throughput.nemo(tables)
    rows += [
        row
        for row in adapters.nanotron(adapters.read(data / "nanotron_h100_sweep.csv"))
        if row["step_time_s"] != "" and not row["degraded"]
    ]
    table = layouts([{key: value for key, value in row.items() if key in KNOWN} for row in rows])
    systems = {
        str(name): eqx.tree_at(lambda system: system.reliability.straggler_variation, cluster_system(str(name)), 0.0)
        for name in np.unique(table.cluster)
    }
    columns = table.columns
    excess = np.log(columns["step_time_s"] / predict(table, systems).table()["step_time_s"])
    members: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        own = [float(columns[name][index]) for name in columns if name not in NOT_THE_SAME]
        share = round(columns["batch_sequences"][index] / columns["chips"][index], 4)
        words = [row["cluster"], *(str(row.get(key, "")) for key in ("group", "release", "precision", "note"))]
        if row["set"] == "nanotron":
            words[1] = ""
        members[(*words, *own, share)].append(index)
    found = [
        Family(key[0], key[1] or "nanotron", columns["chips"][places], excess[places])
        for key, places in members.items()
        if len(set(columns["chips"][places])) > 1
    ]
    hybrid = [row for row in tables if row["model"] == NOT_A_TRANSFORMER]
    times = np.asarray([float(row["step_time_s"]) for row in hybrid])
    chips = np.asarray([float(row["n_accelerators"]) for row in hybrid])
    found.append(Family("nemo-h100", NOT_A_TRANSFORMER, chips, np.log(times)))
    return [one for one in found if max(one.chips) >= SPANS_MORE_THAN]


def fitted_variation(found: list[Family]) -> float:
    """Variation at the median of the families' slopes against the largest deviation, weighted by their span [1]."""
    slopes = [one.slope(0.0, np.asarray(largest_deviation(one.chips))) for one in found]
    values, weights = np.asarray(slopes).T
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / np.sum(weights)
    return float(values[order][np.searchsorted(passed, 0.5)])


def interval(found: list[Family]) -> tuple[float, float]:
    """95 % interval of the variation, from whole clusters drawn with replacement."""
    draw = np.random.default_rng(0)
    clusters = sorted({one.cluster for one in found})
    drawn = [
        fitted_variation([one for name in draw.choice(clusters, len(clusters)) for one in found if one.cluster == name])
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def held_out(found: list[Family]) -> list[float]:
    """Growth with every doubling that is left in each family when its cluster is left out of the fit [1]."""
    return [
        one.per_doubling(fitted_variation([other for other in found if other.cluster != one.cluster])) for one in found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    found = families(parser.parse_args().data)
    before, after = [one.per_doubling(0.0) for one in found], held_out(found)
    rows = [
        {
            "cluster": one.cluster,
            "model": one.name,
            "chips": f"{min(one.chips):g} to {max(one.chips):g}",
            "% a doubling": 100.0 * old,
            "held out": 100.0 * new,
        }
        for one, old, new in zip(found, before, after, strict=True)
    ]
    print(outputs.table(rows))
    low, high = interval(found)
    value = float(read_preset("reliability", "llama-3")["straggler_variation"]["value"])
    print(
        f"\nstraggler_variation {fitted_variation(found):.4f}, 95 % interval {low:.4f} to {high:.4f}; preset {value:g}"
    )
    for name, left in ("without", before), ("with, held out", after):
        positive = sum(one > 0.0 for one in left)
        print(f"{name}: {100.0 * np.median(left):.2f} % a doubling in the median, slower in {positive} of {len(left)}")


if __name__ == "__main__":
    main()
