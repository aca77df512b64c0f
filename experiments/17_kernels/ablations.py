"""Changes of a step by one change of the run, predicted and measured.

`python experiments/17_kernels/ablations.py [--data FOLDER]`

Megatron-Bridge's performance cards change one thing at a time on one workload. They state memory as allocated by
tensors, and leave out layout or batch of some rows: what is filled in here is said beside it. Levels are those of the
cluster preset; the changes are what is compared.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import INPUTS, layouts
from energymodel.calibration.step_prediction import predict_row

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "01_step_time"))
import outputs
from adapters import Row, number, read  # pyright: ignore[reportMissingImports]
from throughput import MODELS  # pyright: ignore[reportMissingImports]

DATA = Path(__file__).parents[1] / "data"
CLUSTER = "megatron-bridge-h100"
MOONLIGHT = {"model": "moonlight-16b", "sequence": 4096, "expert_imbalance": 1}
QWEN = {**MODELS["Qwen3_30B_a3B"], "sequence": 4096, "chips": 16, "zero": 1}
NARROW = {"optimizer_bytes": 8.0}  # 16-bit moments
HIDDEN, EXPOSED = {"expert_overlap": 1.0}, {"expert_overlap": 0.0}
# Experts are divided by tensor x expert here, by EP alone (with TP 1 for experts) in Megatron.
SMALL = {**MOONLIGHT, "chips": 8, "batch_sequences": 4, "tensor": 2, "expert": 4, "zero": 1}
GRAPHS = {**QWEN, "batch_sequences": 32, "tensor": 2, "pipeline": 2, "expert": 2}  # batch assumed
OVERLAP = {**QWEN, "batch_sequences": 1024, "expert": 16, "recompute_full": 0}
OFFLOAD = {**QWEN, "batch_sequences": 16, "expert": 16}  # chips, layout and batch assumed
LLAMA = {"model": "llama-3.1-70b", "sequence": 4096, "chips": 32, "batch_sequences": 32, "virtual_stages": 5, "fp8": 1}


class Change(NamedTuple):
    """Two rows of a study, by variant, and what they are to the model: columns, and numbers of its software."""

    study: str
    model: str
    variants: tuple[str, str]
    before: dict[str, Any]
    after: dict[str, Any]
    software: tuple[dict[str, float], dict[str, float]] = ({}, {})


def _offload(share: str) -> Change:
    after = {**OFFLOAD, "offload_optimizer": float(share.split()[0]) / 100.0}
    return Change("optimizer_offload", "Qwen3-30B-A3B", ("0 %", share), OFFLOAD, after)


CHANGES = (
    *(
        Change(
            "recompute",
            "Moonlight 16B",
            ("none", modules),
            SMALL,
            {**SMALL, "recomputation": modules},
            (NARROW, NARROW),
        )
        for modules in ("core_attn", "mla_up_proj", "mla_up_proj+mlp", "moe_act", "layernorm+moe_act")
    ),
    *(_offload(share) for share in ("25 %", "50 %", "75 %", "100 %")),
    Change(
        "cuda_graphs", "Qwen3-30B-A3B", ("off", "attention+router+preprocess"), GRAPHS, {**GRAPHS, "cuda_graphs": 0.5}
    ),
    Change("expert_overlap", "Qwen3-30B-A3B", ("off (HybridEP)", "on (HybridEP)"), OVERLAP, OVERLAP, (EXPOSED, HIDDEN)),
    Change(
        "layout",
        "Llama3 70B (SFT)",
        ("tp4 pp4 expandable_segments", "tp4 pp8"),
        {**LLAMA, "tensor": 4, "pipeline": 4},
        {**LLAMA, "tensor": 4, "pipeline": 8},
    ),
    Change(
        "layout",
        "Llama3 70B (SFT)",
        ("tp4 pp4 expandable_segments", "tp8 pp4"),
        {**LLAMA, "tensor": 4, "pipeline": 4},
        {**LLAMA, "tensor": 8, "pipeline": 4},
    ),
)


def predicted(columns: dict[str, Any], software: dict[str, float]) -> tuple[float, float]:
    """Step time [s] and memory of tensors [B] of a row on the cluster, with some numbers of its software changed."""
    with jax.enable_x64(True):
        system = cluster_scenario(CLUSTER).system
        for name, value in software.items():
            system = eqx.tree_at(lambda s, name=name: getattr(s.software, name), system, value)
        table = layouts([{"cluster": CLUSTER, "zero": 1, **columns}])
        result = jax.jit(predict_row)(system, {column.name: table.columns[column.name][0] for column in INPUTS})
        return float(result.step_time.total), float(result.allocated)


def compare(change: Change, rows: list[Row]) -> dict[str, Any]:
    """Measured and predicted change of step time and memory."""
    own = [row for row in rows if row["study"] == change.study and row["model"] == change.model]
    old, new = (next(row for row in own if row["variant"] == name) for name in change.variants)
    (before, memory), (other, new_memory) = (
        predicted(columns, software)
        for columns, software in zip((change.before, change.after), change.software, strict=True)
    )
    if old["step_ms"]:
        measured = number(new, "step_ms") / number(old, "step_ms") - 1.0
    else:  # step times at equal work
        measured = number(old, "tflops_per_gpu") / number(new, "tflops_per_gpu") - 1.0
    result = {
        "study": change.study,
        "change": f"{change.variants[0]} -> {change.variants[1]}"[:44],
        "time, %": 100.0 * measured,
        "predicted, %": 100.0 * (other / before - 1.0),
        "time, s": (number(new, "step_ms") - number(old, "step_ms")) / 1e3 if old["step_ms"] else None,
        "predicted, s": other - before if old["step_ms"] else None,
    }
    if old["peak_allocated_gb"] and new["peak_allocated_gb"]:
        result["memory, GB"] = number(new, "peak_allocated_gb") - number(old, "peak_allocated_gb")
        result["predicted, GB"] = (new_memory - memory) / 1e9
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    rows = read(parser.parse_args().data / "megatron_bridge_ablations.csv")
    print(outputs.table([compare(change, rows) for change in CHANGES]))
    first = next(row for row in rows if row["variant"] == "none")
    memory = predicted(SMALL, NARROW)[1] / 1e9
    print(f"\nMoonlight 16B allocates {number(first, 'peak_allocated_gb'):.1f} GB, predicted {memory:.1f} GB")


if __name__ == "__main__":
    main()
