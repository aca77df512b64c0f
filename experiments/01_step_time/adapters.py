"""Columns of each published data set as those of the energymodel table."""

import csv
from pathlib import Path
from typing import Any

Row = dict[str, Any]
GIB = 2.0**30
EARLY_FABRIC = 443e9  # B/s: all-reduce within a node; two environments lie at 425 and 458 GB/s, nothing between
EARLY_JOBS = 1.36e7  # the numbers of runs that failed, and measured no fabric: between two sessions of the sweep
TIED = ("2048", "3072")  # hidden sizes whose embeddings are tied; runs that failed do not say it
DEGRADED_FABRIC = 300e9  # B/s: below it a node's links were broken


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(row: Row, name: str, default: float = float("nan")) -> float:
    text = row.get(name, "")
    return default if text in ("", None) else float(text)


def _megatron_gpt(row: Row) -> Row:
    """What both tables of GPT models on A100 say in the same columns."""
    return {
        "layers": row["num_layers"],
        "hidden": row["hidden_size"],
        "heads": row["num_heads"],
        "vocabulary": 51200,
        "tied": 1,
        "sequence": row["seq_len_tokens"],
        "flash": 0,
        "chips": row["n_gpu"],
        "batch_sequences": row["global_batch_sequences"],
        "tensor": row["tp"],
        "pipeline": row["pp"],
        "zero": 0,
        "step_time_s": row["iteration_time_s"],
    }


def korthikanti(rows: list[Row]) -> list[Row]:
    """Eight steps of Megatron-LM; one sequence per micro-batch, four for 22B [Korthikanti et al. 2022, table 3]."""
    result = []
    for row in rows:
        if not row["source"].startswith("Korthikanti"):
            continue
        result.append(
            {
                "set": "korthikanti",
                "group": row["model"],
                "cluster": "megatron-a100",
                **_megatron_gpt(row),
                "virtual_stages": row["interleaved_chunks"] or 1,
                "microbatch": 4 if row["model"] == "GPT-22B" else 1,
                "sequence_parallel": row["sequence_parallel"],
                "recomputation": row["recompute"],
            }
        )
    return result


def vtrain(rows: list[Row]) -> list[Row]:
    """Megatron-DeepSpeed with full recomputation and unfused attention; one node, or 64 to 512 GPUs."""
    result = []
    for row in rows:
        single = "single" in row["set"]
        result.append(
            {
                "set": "vtrain-single" if single else "vtrain-multi",
                "group": f"{row['hidden_size']}x{row['num_layers']}" if single else f"{row['hidden_size']}-{row['pp']}",
                "cluster": "megatron-deepspeed-a100-node" if single else "megatron-deepspeed-a100",
                **_megatron_gpt(row),
                "microbatch": row["microbatch_sequences"],
                "sequence_parallel": 0,
                "recomputation": "full",
            }
        )
    return result


def nanotron(rows: list[Row]) -> list[Row]:
    """Hugging Face's sweep on H100, with its out-of-memory labels.

    Two environments, distinguished by what NCCL measured; in the later one, memory differs before and after the
    pipelines were fixed.
    """
    result = []
    for row in rows:
        if row["status"] not in ("Success", "OOM"):
            continue
        fabric = number(row, "allreduce_intranode_bytes_per_s")
        fixed = row["run_after_pp_fix"] == "True"
        if fabric >= EARLY_FABRIC or (fabric != fabric and number(row, "job_id") < EARLY_JOBS):
            cluster = "nanotron-h100"
        else:
            cluster = "nanotron-h100-ring" if fixed else "nanotron-h100-ring-before-fix"
        failed = row["status"] == "OOM"
        timed = not failed and (fixed or int(row["pp"]) == 1)
        hidden = row["hidden_size"]
        tied = hidden in TIED if failed else row["tie_word_embeddings"] == "True"
        # Runs that failed state their batch in tokens, so that it is counted from the layout for all.
        sequences = number(row, "dp") * number(row, "microbatch_sequences") * number(row, "grad_accumulation")
        inner = row["ffn_hidden_size"] or {"8192": 28672, "16384": 53248, "4096": 14336}.get(hidden, 8192)
        result.append(
            {
                "set": "nanotron",
                "group": f"{hidden}-{row['n_gpu']}",
                "cluster": cluster,
                "layers": row["num_layers"],
                "hidden": hidden,
                "heads": row["num_heads"],
                "kv_heads": row["num_kv_heads"] or row["num_heads"],
                "feed_forward": inner,
                "gated": 1,
                "vocabulary": row["vocab_size"],
                "tied": float(tied),
                "sequence": row["seq_len_tokens"],
                "flash": 1,
                "chips": row["n_gpu"],
                "batch_sequences": sequences,
                "tensor": row["tp"],
                "pipeline": row["pp"],
                "microbatch": row["microbatch_sequences"],
                "sequence_parallel": 1,
                "zero": row["zero_stage"],
                "recomputation": "none",
                "step_time_s": row["iteration_time_s"] if timed else "",
                "memory_b": float(row["memory_reserved_gib"]) * GIB if row["memory_reserved_gib"] else "",
                "out_of_memory": float(failed),
                "degraded": float(fabric < DEGRADED_FABRIC),
                "mfu_measured": number(row, "model_tflops_per_gpu", 0.0) / 989.4,
            }
        )
    return result


MPT_SHAPES = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}


def mpt(rows: list[Row]) -> list[Row]:
    """llm-foundry's FSDP throughput; layers are recomputed where hardware and model utilization differ."""
    result = []
    for row in rows:
        if row["dataset"] != "llm-foundry MPT":
            continue
        layers, hidden, heads = MPT_SHAPES[row["model"].removeprefix("MPT-")]
        chips, batch = number(row, "n_accelerators"), number(row, "global_batch_sequences")
        rate = number(row, "tokens_per_s_per_accelerator") * chips
        recomputed = number(row, "hfu_frac", 1.0) > 1.1 * number(row, "mfu_frac", 1.0)
        result.append(
            {
                "set": "mpt",
                "group": row["model"],
                "cluster": "llm-foundry-h100" if row["accelerator"].startswith("h100") else "llm-foundry-a100",
                "layers": layers,
                "hidden": hidden,
                "heads": heads,
                "vocabulary": 50368,
                "tied": 1,
                "sequence": row["seq_len_tokens"],
                "flash": 1,
                "chips": chips,
                "batch_sequences": batch,
                "microbatch": row["microbatch_sequences"],
                "recomputation": "full" if recomputed else "none",
                "zero": 3 if row["sharding"] == "FULL_SHARD" else 2,
                "fp8": float(row["precision"].endswith("fp8")),
                "step_time_s": batch * number(row, "seq_len_tokens") / rate,
            }
        )
    return result
