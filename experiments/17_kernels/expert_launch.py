"""Launch overhead of a layer with experts beyond that of a layer without.

`python experiments/17_kernels/expert_launch.py [--data FOLDER]`

Megatron-LM's functional tests run models of hidden size 512, whose steps wait for the host to launch kernels. Models
with and without experts in the same layout on the same machine differ by what experts launch: router, permutation,
grouped products, and the token counts that the host reads back.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "01_step_time"))
import outputs
from adapters import Row, number, read  # pyright: ignore[reportMissingImports]

DATA = Path(__file__).parents[1] / "data"
SMALL, LAYERS = 512.0, 12.0  # hidden size and layers of the models that are compared
OTHERWISE = ("muon", "cudagraph", "offload", "grpo", "mla")
"""Words in the names of tests that change more than experts."""


class Pair(NamedTuple):
    """Step time with experts over that without, in one layout on one platform."""

    platform: str
    layout: str
    ratio: float
    runs: int


def pairs(data: Path) -> list[Pair]:
    """All layouts that were run both with and without experts, on their median times."""
    runs: dict[tuple[str, ...], dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read(data / "megatron_ci_iteration_times.csv"):
        if row["family"] in ("gpt", "moe") and _comparable(row):
            degrees = [f"{name}{number(row, name, 1.0):g}" for name in ("tp", "pp", "cp")]
            rest = (row["n_gpus_recipe"], row["micro_batch"], row["global_batch"], row["precision"], row["recompute"])
            key = (row["platform"].removesuffix("_2nd"), row["environment"], " ".join(degrees), *rest)
            runs[key][number(row, "experts", 0.0) > 0].append(number(row, "iteration_time_median_s"))
    return [
        Pair(
            key[0],
            f"{key[1]} {key[2]}",
            float(np.median(both[True]) / np.median(both[False])),
            sum(map(len, both.values())),
        )
        for key, both in sorted(runs.items())
        if len(both) == 2
    ]


def _comparable(row: Row) -> bool:
    small = number(row, "hidden") == SMALL and number(row, "num_layers") == LAYERS
    plain = not any(word in row["case"] for word in OTHERWISE) and row["fsdp"] != "1" and row["hybrid"] != "1"
    return small and plain and row["n_gpus_recipe"] != "" and row["suspect_copy"] != "1"


def excess(pairs: list[Pair]) -> tuple[float, float, float]:
    """Launch overhead of experts over that of a layer without: median, and 95 % interval of the median [1]."""
    ratios = np.asarray([pair.ratio for pair in pairs])
    draw = np.random.default_rng(0)
    medians = np.median(draw.choice(ratios, (2000, len(ratios))), axis=1) - 1.0
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(np.median(ratios) - 1.0), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    result = pairs(parser.parse_args().data)
    print(outputs.table([pair._asdict() for pair in result]))
    value, low, high = excess(result)
    print(f"\nsoftware.expert_launch {value:.2f}, 95 % interval {low:.2f} to {high:.2f}, {len(result)} pairs")
    for platform in sorted({pair.platform for pair in result}):
        own = [pair for pair in result if pair.platform == platform]
        left = [pair for pair in result if pair.platform != platform]
        print(f"{platform}: {excess(own)[0]:.2f}, from the other platforms {excess(left)[0]:.2f}, {len(own)} pairs")


if __name__ == "__main__":
    main()
