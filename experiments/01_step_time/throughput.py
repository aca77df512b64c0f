"""Published throughput tables as rows of the energymodel table.

Each row of `throughput_tables.csv` is one configuration. What a table leaves out (recomputation, the shape of a named
model) is filled in here, with the reason.
"""

from typing import Any

from adapters import Row, number

GPT = {"gated": 0, "tied": 1}
MODELS: dict[str, dict[str, Any]] = {
    "LLAMA2-7B": {"model": "llama-2-7b"},
    "LLAMA2-13B": {"model": "llama-2-13b"},
    "LLAMA2-70B": {"model": "llama-2-70b"},
    "LLAMA3-8B": {"model": "llama-3.1-8b"},
    "LLAMA3-70B": {"model": "llama-3.1-70b"},
    "LLAMA3_70B": {"model": "llama-3.1-70b"},
    "LLAMA3.1_405B": {"model": "llama-3.1-405b"},
    "Llama-3.1-8B": {"model": "llama-3.1-8b"},
    "Llama-3.1-70B": {"model": "llama-3.1-70b"},
    "Llama-3.1-405B": {"model": "llama-3.1-405b"},
    "Llama3.1 405b": {"model": "llama-3.1-405b"},
    "Llama 2 70B": {"model": "llama-2-70b"},
    "Llama 3.1 8B": {"model": "llama-3.1-8b"},
    "Llama 3.1 70B": {"model": "llama-3.1-70b"},
    "Llama 3.1 405B": {"model": "llama-3.1-405b"},
    "GPT3-175B": {"model": "gpt3-175b"},
    "Deepseek V3": {"model": "deepseek-v3", "expert_imbalance": 1},
    # The 62nd layer predicts a second token (multi-token prediction).
    "DeepSeekV3": {"model": "deepseek-v3", "layers": 62, "expert_imbalance": 1},
    "DeepSeekV3 (w/o MTP)": {"model": "deepseek-v3", "expert_imbalance": 1},
    "Nemotron-8B": {
        **GPT,
        "tied": 0,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "feed_forward": 16384,
        "vocabulary": 256000,
    },
    "Nemotron4 15b": {
        **GPT,
        "tied": 0,
        "layers": 32,
        "hidden": 6144,
        "heads": 48,
        "kv_heads": 8,
        "feed_forward": 24576,
        "vocabulary": 256000,
    },
    "Nemotron-340B": {
        **GPT,
        "tied": 0,
        "layers": 96,
        "hidden": 18432,
        "heads": 96,
        "kv_heads": 8,
        "feed_forward": 73728,
        "vocabulary": 256000,
    },
    "GPT OSS 120B": {
        "gated": 1,
        "layers": 36,
        "hidden": 2880,
        "heads": 64,
        "kv_heads": 8,
        "head_size": 64,
        "feed_forward": 2880,
        "experts": 128,
        "active_experts": 4,
        "vocabulary": 201088,
    },
    "Qwen3_30B_a3B": {
        "gated": 1,
        "layers": 48,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 4,
        "head_size": 128,
        "feed_forward": 768,
        "experts": 128,
        "active_experts": 8,
        "vocabulary": 151936,
    },
    "Qwen3_235B_a22B": {
        "gated": 1,
        "layers": 94,
        "hidden": 4096,
        "heads": 64,
        "kv_heads": 4,
        "head_size": 128,
        "feed_forward": 1536,
        "experts": 128,
        "active_experts": 8,
        "vocabulary": 151936,
    },
    # Latent attention as grouped queries of as many parameters, like the preset deepseek-v3.
    "Kimi_K2": {
        "gated": 1,
        "layers": 61,
        "hidden": 7168,
        "heads": 64,
        "kv_heads": 4,
        "head_size": 104,
        "feed_forward": 2048,
        "experts": 384,
        "active_experts": 8,
        "shared_experts": 1,
        "dense_layers": 1,
        "dense_feed_forward": 18432,
        "vocabulary": 163840,
    },
    "Grok1 314b": {
        "gated": 1,
        "layers": 64,
        "hidden": 6144,
        "heads": 48,
        "kv_heads": 8,
        "head_size": 128,
        "feed_forward": 32768,
        "experts": 8,
        "active_experts": 2,
        "vocabulary": 131072,
        "tied": 1,
    },
    "LLAMA4 maverick 400b": {
        "gated": 1,
        "layers": 48,
        "hidden": 5120,
        "heads": 40,
        "kv_heads": 8,
        "head_size": 128,
        "feed_forward": 8192,
        "experts": 128,
        "active_experts": 1,
        "shared_experts": 1,
        "dense_layers": 24,
        "alternating_dense": 1,
        "dense_feed_forward": 16384,
        "vocabulary": 202048,
    },
    "Mixtral 8X7B": {
        "gated": 1,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "feed_forward": 14336,
        "experts": 8,
        "active_experts": 2,
        "vocabulary": 32000,
    },
    "Mixtral 8X22B": {
        "gated": 1,
        "layers": 56,
        "hidden": 6144,
        "heads": 48,
        "kv_heads": 8,
        "feed_forward": 16384,
        "experts": 8,
        "active_experts": 2,
        "vocabulary": 32768,
    },
    "900B dense": {
        "gated": 1,
        "layers": 128,
        "hidden": 16384,
        "heads": 64,
        "kv_heads": 16,
        "head_size": 256,
        "feed_forward": 131072,
        "vocabulary": 32000,
    },
    "700B MoE": {
        "gated": 1,
        "layers": 56,
        "hidden": 8192,
        "heads": 128,
        "kv_heads": 8,
        "head_size": 256,
        "feed_forward": 32768,
        "experts": 16,
        "active_experts": 2,
        "vocabulary": 32000,
    },
    "700B MoE initial": {
        "gated": 1,
        "layers": 72,
        "hidden": 8192,
        "heads": 32,
        "kv_heads": 8,
        "head_size": 256,
        "feed_forward": 24576,
        "experts": 16,
        "active_experts": 2,
        "vocabulary": 32000,
    },
    "10T MoE": {
        "gated": 1,
        "layers": 128,
        "hidden": 10240,
        "heads": 64,
        "kv_heads": 16,
        "head_size": 256,
        "feed_forward": 40960,
        "experts": 64,
        "active_experts": 2,
        "vocabulary": 32000,
    },
}
MODELS["Nemotron 340b"] = MODELS["Nemotron4 340b"] = MODELS["Nemotron-340B"]
MODELS["LLAMA4 Maverick 400b"] = MODELS["LLAMA4 maverick 400b"]
NARROW_MOMENTS = ("DeepSeekV3", "Qwen3_235B")
"""Models whose recipes keep both moments in 16 bits (use_precision_aware_optimizer)."""
LAYERS_OF_MIXTURES = {"hybrid state-space layers": ("Nemotron_3", "Nemotron-H"), "latent experts": ("DeepSeekV4",)}


def narrow(precision: str) -> dict[str, float]:
    """Shares of products on 8 and on 4 bits: all products with weights."""
    word = precision.upper()
    return {"fp8": float("FP8" in word), "fp4": float("FP4" in word)}


def _common(row: Row) -> Row:
    """Columns that mean the same in every table."""
    layout = {"tensor": "tp", "pipeline": "pp", "context": "cp", "virtual_stages": "vp", "expert": "ep"}
    return {
        **{name: number(row, source, 1.0) for name, source in layout.items()},
        "chips": number(row, "n_accelerators"),
        "sequence": number(row, "seq_len_tokens"),
        "microbatch": number(row, "microbatch_sequences", 1.0),
        "batch_sequences": number(row, "global_batch_sequences"),
        "flash": 1,
        **narrow(row["precision"]),
    }


def _timed(row: Row, flops_per_token: float = float("nan")) -> float:
    """Time of a step: as published, from tokens per second, or from operations per second as the table counts them."""
    tokens = row["batch_sequences"] * row["sequence"]
    if number(row, "step_time_s") > 0:
        return number(row, "step_time_s")
    if number(row, "tokens_per_s_per_accelerator") > 0:
        return tokens / (number(row, "tokens_per_s_per_accelerator") * row["chips"])
    return tokens * flops_per_token / (number(row, "model_tflops_per_accelerator") * 1e12 * row["chips"])


def megatron_bridge(rows: list[Row]) -> list[Row]:
    """Megatron-Bridge's recipes on Hopper and Blackwell; expert load is forced even; two generations of the software.

    Left out: models with layers that are no transformer's, and LoRA, whose backward pass is another.
    """
    result = []
    for row in rows:
        if row["dataset"] != "Megatron-Bridge perf summary" or "LoRA" in row["section"]:
            continue
        name = row["model"].removesuffix(" (tokendrop)").removesuffix(" (dropless)")
        if name not in MODELS or row["precision"] in ("", "-"):
            continue
        common = {**row, **_common(row)}
        release = row["framework"].removeprefix("Megatron-Bridge ").split(" ")[0]
        late = tuple(map(int, release.split(".")[:2])) >= (26, 6) and row["accelerator"].startswith("GB")
        unsplit = common["tensor"] * common["pipeline"] * common["expert"] == 1
        result.append(
            {
                **_common(row),
                **MODELS[name],
                "set": "megatron-bridge",
                "group": name.split(" (")[0],
                "cluster": f"megatron-bridge-{row['accelerator'].lower()}" + ("-26.06" if late else ""),
                # Without other sharding a model of this size fits only if its parameters are sharded.
                "zero": 3 if number(row, "fsdp", 0.0) > 1 or unsplit else 1,
                # Of 80 layers 20 to 40 are offloaded (cpu_offloading_num_layers).
                "offload_activations": 0.5 if unsplit and name == "LLAMA3_70B" else 0.0,
                **({"optimizer_bytes": 8.0} if name.startswith(NARROW_MOMENTS) else {}),
                "step_time_s": _timed(common),
                "release": release,
                "precision": row["precision"],
            }
        )
    return result


def torchtitan(rows: list[Row]) -> list[Row]:
    """Torchtitan's Llama 3.1 on H100 at a 500 W limit; eight micro-batches where pipelined.

    Selective checkpointing keeps every other product of a layer. Sequences per replica: as its tables say, one for
    the 8B model with context parallelism, eight for the 405B model with it.
    """
    result = []
    for row in rows:
        if not row["dataset"].startswith("torchtitan") or not row["accelerator"].startswith("H100"):
            continue
        common = _common(row)
        data = common["chips"] / (common["tensor"] * common["pipeline"] * common["context"])
        if not number(row, "global_batch_sequences") > 0:
            common["batch_sequences"] = data * (8.0 if common["pipeline"] > 1 else 1.0)
        if common["pipeline"] > 1:
            common["microbatch"] = common["batch_sequences"] / data / common["pipeline"]
            common["virtual_stages"] = 2.0 if "nterleaved" in row["note"] else 1.0
        result.append(
            {
                **common,
                **MODELS[row["model"]],
                "set": "torchtitan",
                "cluster": "torchtitan-h100",
                "group": row["model"] + ("" if number(row, "seq_len_tokens") <= 8192 else " long"),
                "zero": 3,
                "recompute_full": 1.0 if row["activation_checkpointing"] == "full" else 0.5,
                "async_tensor": float("asynctp" in row["note"].lower().replace(" ", "")),
                # Scales of rows: with them fp8 products are no faster than bf16.
                **({"fp8_efficiency": 0.5} if "rowwise" in row["note"] else {}),
                "step_time_s": _timed({**row, **common}),
                "note": row["note"],
            }
        )
    return result


# A compiler leaves out what gradients do not need: of a recomputed layer the last product, a quarter of its work; with
# projections kept, only gate and up projection are repeated.
AGAIN, ONLY_UP = 0.75, 0.55
# Per-chip sequences, tensor degree and recomputed share of MaxText's scripts for each scale, sequences of 2,048.
V5P = {
    "32B": (7, 4, 0.0),
    "64B": (3, 4, 0.0),
    "128B": (1, 8, 0.0),
    "256B": (1, 8, 0.0),
    "512B": (2, 8, AGAIN),
    "1024B": (2, 8, AGAIN),
    "1160B": (2, 16, AGAIN),
}
V5E = {"16B": (6, 1, AGAIN), "32B": (4, 1, AGAIN), "64B": (2, 1, AGAIN), "128B": (1, 16, 0.0)}
# Sequences per chip, tensor, expert, recomputed share, expert load: recipes of MaxText for v6e and larger models.
RECIPES = {
    "Llama 2 70B": (4, 1, 1, AGAIN, 1.0),
    "Llama 3.1 8B": (4, 1, 1, ONLY_UP, 1.0),
    "Llama 3.1 70B": (4, 1, 1, ONLY_UP, 1.0),
    "Llama 3.1 405B": (1, 4, 1, AGAIN, 1.0),
    "Mixtral 8X7B": (12, 1, 1, ONLY_UP, 1.25),
    "Mixtral 8X22B": (8, 1, 1, ONLY_UP, 1.25),
    "900B dense": (1, 16, 1, AGAIN, 1.0),
    "700B MoE initial": (2, 1, 16, AGAIN, 1.0),
    "700B MoE experimental": (2, 1, 16, AGAIN, 1.0),
    "700B MoE final": (2, 1, 16, AGAIN, 1.5),
    "10T MoE": (0.5, 4, 64, AGAIN, 1.0),
}


def scaled_shape(scale: int) -> dict[str, Any]:
    """MaxText's model of `scale` billion parameters: heads and inner width, hidden size, layers doubled in turn."""
    thirds, rest = divmod(scale.bit_length() - 1, 3)
    return {
        "gated": 1,
        "vocabulary": 32000,
        "head_size": 128,
        "heads": 16 * 2 ** (thirds + (rest > 0)),
        "feed_forward": 7168 * 2 ** (thirds + (rest > 0)),
        "hidden": 2048 * 2 ** (thirds + (rest > 1)),
        "layers": 16 * 2**thirds,
    }


def maxtext(rows: list[Row]) -> list[Row]:
    """MaxText on TPU v5e, v5p and v6e: sharded parameters in a slice, utilization without a causal mask."""
    result = []
    for row in rows:
        if not row["dataset"].startswith("MaxText"):
            continue
        chips, generation = number(row, "n_accelerators"), row["accelerator"].removeprefix("TPU ")
        name, common = row["model"].removeprefix("MaxText-"), _common(row)
        if row["dataset"] == "MaxText README":
            sequences, tensor, recomputed = (V5E if generation == "v5e" else V5P)[name]
            # The script of the 1,160B model is not published: the next smaller one with more layers.
            shape = scaled_shape(1024) | {"layers": 149} if name == "1160B" else scaled_shape(int(name[:-1]))
            expert, load, sequence = 1, 1.0, 2048
        else:
            sequences, tensor, expert, recomputed, load = RECIPES[name]
            shape = MODELS[name if name == "700B MoE initial" or "MoE" not in name else " ".join(name.split()[:2])]
            sequence = common["sequence"] if common["sequence"] > 0 else 4096.0
        pods = chips / 256 if name == "10T MoE" else 1.0
        common |= {
            "chips": chips,
            "sequence": sequence,
            "batch_sequences": sequences * chips,
            "tensor": tensor,
            "expert": expert,
            "microbatch": sequences * tensor,
            "pipeline": pods,
            "expert_imbalance": load,
        }
        if pods > 1:
            common["microbatch"] = 1.0
        result.append(
            {
                **common,
                **shape,
                "set": "maxtext",
                "group": name,
                "cluster": f"maxtext-{generation}",
                "zero": 3,
                "recompute_full": recomputed,
                "recompute_attention": 1,
                # Recipes for v6e keep inputs of layers in host memory (decoder_layer_input=offload).
                "offload_activations": float(name in RECIPES or (generation == "v5e" and tensor > 1)),
                **(NARROW_STATES if name in RECIPES and name.split()[0] in ("900B", "700B", "10T") else {}),
                "step_time_s": _timed({**row, **common, **_rate(row)}, unmasked_flops({**common, **shape})),
            }
        )
    return result


NARROW_STATES = {"gradient_bytes": 2.0, "optimizer_bytes": 4.0}
"""Without a master copy: with one the largest models do not fit into the chips that they ran on."""
PEAK_TFLOPS = {"TPU v5e": 197.0, "TPU v5p": 459.0, "TPU v6e": 918.0}


def _rate(row: Row) -> Row:
    """Operations per second, from utilization where only that is stated."""
    if row["model_tflops_per_accelerator"] or row["tokens_per_s_per_accelerator"]:
        return {}
    return {"model_tflops_per_accelerator": number(row, "mfu_frac") * PEAK_TFLOPS[row["accelerator"]]}


def unmasked_flops(row: Row) -> float:
    """Operations per token as frameworks count them: `6 N + 12 L a d s` without embedding and without a mask."""
    from energymodel.calibration.layout_table import SHAPE, layouts
    from energymodel.performance.workload import Transformer

    shape = {key: value for key, value in row.items() if key not in ("set", "group")}
    table = layouts([{**shape, "cluster": "any"}])
    model = Transformer(**{column.name: table.columns[column.name][0] for column in SHAPE})
    embedding = float(model.vocabulary) * float(model.hidden)
    parameters = float(model.active_layer_parameters) + embedding
    return 6.0 * parameters + 12.0 * float(model.layers * model.attention_width * model.sequence)


def nemo(rows: list[Row]) -> list[Row]:
    """NeMo's summary of July 2024, its long sequences with context parallelism, and dgxc-benchmarking of June 2025."""
    result = []
    for row in rows:
        table = row["dataset"].split(" ")[0]
        if table not in ("NeMo", "dgxc-benchmarking") or row["task"] == "LoRA" or row["note"].startswith("without CP"):
            continue
        name = row["model"].removesuffix(" Strong Scaling")
        for word in (" H100", " GB200", " BF16", " FP8"):
            name = name.removesuffix(word)
        if name not in MODELS:
            continue
        common, shape = _common(row), MODELS[name]
        if table == "NeMo" and not row["microbatch_sequences"]:
            common["microbatch"] = 1.0
        result.append(
            {
                **common,
                **shape,
                "set": "nemo" if table == "NeMo" else "dgxc",
                "group": name,
                "cluster": f"nemo-{row['accelerator'].lower()}",
                "zero": 1,
                "step_time_s": _timed({**row, **common}, unmasked_flops({**common, **shape})),
            }
        )
    return result
