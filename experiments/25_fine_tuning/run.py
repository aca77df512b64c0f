"""Memory and speed of published fine-tuning runs, predicted by what their authors state.

Prints its tables and writes `result.json` beside this file.
"""

import csv
import sys
import warnings
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

from energymodel.scenarios.pieces import scenario_of_pieces
from energymodel.system.evaluate import evaluate_once
from energymodel.system.memory import reserved_memory

FOLDER = Path(__file__).parent
DATA = FOLDER.parent / "data" / "fine_tuning.csv"
NEAR_MEMORY, NEAR_SPEED = 0.15, 0.30


def predicted(row: dict[str, str]) -> dict[str, Any]:
    """A published run beside what is predicted of it."""
    model = str(FOLDER / row["model"]) if row["model"].endswith(".json") else row["model"]
    words: dict[str, Any] = {name: row[name] for name in ("tuning", "optimizer")}
    words |= {name: row[name] == "1" for name in ("chunked_loss", "fused_backward")}
    words |= {"rank": int(row["rank"])} if row["rank"] else {}
    words |= {"trained_format": row["trained_format"]} if row["trained_format"] else {}
    words |= {"targets": row["targets"].split()} if row["targets"] else {}
    chips, sequences = int(row["chips"]), int(row["micro_batch"]) * int(row["accumulation"])
    batch = sequences * chips * int(row["sequence"])
    layout = {
        "microbatch": row["micro_batch"],
        "zero": row["zero"],
        "recomputation": "full" if row["checkpointed"] == "1" else "none",
        "offload_activations": row["offloads_activations"],
        **dict.fromkeys(("tensor", "pipeline", "context"), "1"),
    }
    changes = [f"plan.layout.{name}={value}" for name, value in layout.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = scenario_of_pieces(
            model,
            row["accelerator"],
            chips,
            batch * 1e3,
            batch=batch,
            sequence=row["sequence"],
            framework=row["framework"],
            tuning=words,
            changes=changes,
        )
    system, plan = made.scenario.system, made.scenario.plan
    outcome = jax.device_get(evaluate_once(system, plan))
    memory = float(outcome.memory_per_chip)
    if row["memory_of"] == "tensors":
        memory -= float(reserved_memory(system, plan))
    result: dict[str, Any] = {"run": row["run"], "memory_gb": float(row["memory_gb"]), "predicted_gb": memory / 1e9}
    result["memory_error"] = result["predicted_gb"] / result["memory_gb"] - 1.0
    if row["tokens_per_s"]:
        speed = float(outcome.token_rate)
        result |= {"tokens_per_s": float(row["tokens_per_s"]), "predicted_tokens_per_s": speed}
        result["speed_error"] = speed / result["tokens_per_s"] - 1.0
    far = [
        name
        for name, most in (("memory", NEAR_MEMORY), ("speed", NEAR_SPEED))
        if abs(result.get(f"{name}_error", 0.0)) > most
    ]
    return {**result, "off": ", ".join(far)}


def compute() -> outputs.Tables:
    """All tables."""
    with DATA.open(encoding="utf-8") as file:
        rows = [predicted(row) for row in csv.DictReader(file)]
    unseen = [row for row in rows if row["run"].startswith("torchtune")]
    kept = "torchtune: nothing is fitted to its runs but the cost to make 4-bit weights 16-bit numbers"
    within = "Llama 2 and 3, 3 to 70 billion parameters, on one RTX 4090, one and eight A100; full, LoRA and QLoRA"
    accuracy = [
        outputs.accuracy(what, [row[name] for row in unseen if name in row], kept, within)
        for what, name in (("memory of fine-tuning", "memory_error"), ("speed of fine-tuning", "speed_error"))
    ]
    return {"runs": rows, "accuracy": accuracy}


if __name__ == "__main__":
    with jax.enable_x64(True):
        outputs.keep(compute(), FOLDER)
