"""Runs of single recipes as rows of the energymodel table: verification cards, tests of Megatron-LM, tuned recipes."""

from typing import Any

from adapters import Row, number
from throughput import MODELS, narrow

SHAPES: dict[str, dict[str, Any]] = {
    # The 62nd layer predicts a second token (multi-token prediction).
    "deepseek_v3": MODELS["DeepSeekV3"],
    "moonlight_16b_a3b": {
        "gated": 1,
        "layers": 27,
        "hidden": 2048,
        "heads": 16,
        "kv_heads": 16,
        "head_size": 128,
        "feed_forward": 1408,
        "experts": 64,
        "active_experts": 6,
        "shared_experts": 2,
        "dense_layers": 1,
        "dense_feed_forward": 11264,
        "vocabulary": 163840,
    },
    "qwen3_8b": {
        "gated": 1,
        "layers": 36,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "head_size": 128,
        "feed_forward": 12288,
        "vocabulary": 151936,
    },
    "qwen3-30b-a3b": MODELS["Qwen3_30B_a3B"],
    "gpt-oss-120b": MODELS["GPT OSS 120B"],
    "gpt-oss-20b": {**MODELS["GPT OSS 120B"], "layers": 24, "experts": 32},
    "kimi-k2": MODELS["Kimi_K2"],
}
CARD_CLUSTERS = {"H100": "h100", "GB200": "gb200-26.06", "GB300": "gb300-26.06"}
CI_CLUSTERS = {"dgx_a100": "megatron-ci-a100", "dgx_h100": "megatron-ci-h100", "dgx_gb200": "megatron-ci-gb200"}


def verification_cards(rows: list[Row]) -> list[Row]:
    """Pretraining of the model verification cards of Megatron-Bridge, where the model is a transformer."""
    degrees = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep", "virtual_stages": "vp"}
    return [
        {
            **{ours: number(row, theirs, 1.0) for ours, theirs in degrees.items()},
            "microbatch": number(row, "mbs", 1.0),
            **SHAPES[row["model"]],
            **narrow(row["precision"]),
            "set": "verification cards",
            "group": row["model"],
            "cluster": f"megatron-bridge-{CARD_CLUSTERS[row['hardware']]}",
            "sequence": number(row, "seq"),
            "chips": number(row, "n_gpus"),
            "batch_sequences": number(row, "gbs"),
            "flash": 1,
            "zero": 1,
            "expert_imbalance": 1.15 if row["item"] == "pretrain" and "experts" in SHAPES[row["model"]] else 1.0,
            **({"optimizer_bytes": 8.0} if row["model"] == "deepseek_v3" else {}),
            "step_time_s": number(row, "step_time_ms") / 1e3,
        }
        for row in rows
        if row["model"] in SHAPES and row["item"].startswith("pretrain")
    ]


def megatron_tests(rows: list[Row]) -> list[Row]:
    """Functional tests of Megatron-LM on eight chips, dense: the fastest run of each chip, shape and layout.

    Tests check more than speed, so that the fastest one of a layout is the nearest to a run. Where none is stated,
    the vocabulary is that of GPT-2, or 131,072 of the 7B model.
    """
    fastest: dict[tuple[str, ...], Row] = {}
    for row in rows:
        is_plain = not any(row[key] not in ("", "0") for key in ("experts", "recompute", "hybrid", "mla", "fsdp"))
        if (
            row["platform"] not in CI_CLUSTERS
            or row["family"] != "gpt"
            or not (_is_large(row) or row["n_gpus_recipe"] == "8")
            or not is_plain
            or "distill" in row["case"]
            or (row["cp"], row["precision"], row["suspect_copy"]) != ("1", "bf16", "")
        ):
            continue
        keys = ("platform", "num_layers", "hidden", "seq", "micro_batch", "global_batch", "tp", "pp")
        key = (*(row[name] for name in keys), row["layers_per_virtual_stage"])
        fastest[key] = min(fastest.get(key, row), row, key=lambda row: number(row, "iteration_time_median_s"))
    result = []
    for row in fastest.values():
        layers, pipeline = number(row, "num_layers"), number(row, "pp")
        is_large = _is_large(row)
        result.append(
            {
                "set": "megatron tests",
                "group": row["num_layers"] + ("" if is_large else f" layers {row['tp']} {row['pp']}"),
                "cluster": CI_CLUSTERS[row["platform"]],
                "gated": number(row, "swiglu", 0.0),
                "layers": layers,
                "hidden": row["hidden"],
                "heads": row["heads"],
                "kv_heads": row["kv_groups"] or row["heads"],
                "feed_forward": 4.0 * number(row, "hidden"),
                "vocabulary": 131072 if is_large else 50304,
                "tied": float(not is_large),
                "sequence": row["seq"],
                "chips": 8,
                "batch_sequences": row["global_batch"],
                "tensor": row["tp"],
                "pipeline": pipeline,
                "virtual_stages": layers / pipeline / number(row, "layers_per_virtual_stage", layers / pipeline),
                "microbatch": row["micro_batch"],
                "sequence_parallel": number(row, "sequence_parallel", 0.0),
                "zero": number(row, "distributed_optimizer", 0.0),
                "flash": 1,
                "step_time_s": row["iteration_time_median_s"],
            }
        )
    return result


def _is_large(row: Row) -> bool:
    """Whether a test is one of the 7B model."""
    return row["case"].startswith("gpt3_7b")


def automodel(rows: list[Row]) -> list[Row]:
    """Recipes of NeMo Automodel that were tuned on H100."""
    degrees = "tensor", "pipeline", "virtual_stages", "context", "expert"
    names = ("chips", "sequence", "batch_sequences", "microbatch", *degrees)
    result = []
    for row in rows:
        if not row["origin"].endswith("Automodel"):
            continue
        common = {name: number(row, name, 1.0) for name in names}
        sharded = ("shard_parameters", 3), ("shard_gradients", 2), ("shard_optimizer", 1)
        rate = number(row, "tokens_per_s_per_chip") * common["chips"]
        result.append(
            {
                **common,
                **SHAPES.get(row["model"], {"model": row["model"]}),
                "expert_imbalance": 1,
                "set": "automodel",
                "group": row["model"],
                "cluster": "automodel-h100",
                "zero": next((stage for key, stage in sharded if number(row, key, 0.0) > 0), 0),
                "recompute_full": number(row, "recompute_full", 0.0),
                "flash": 1,
                "step_time_s": common["sequence"] * common["batch_sequences"] / rate,
            }
        )
    return result
