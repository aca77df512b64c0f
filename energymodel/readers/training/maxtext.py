"""What does a MaxText file say: that of a model, or that of a run over `base.yml`?"""

import dataclasses
import math
import re
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.config import Shape, TrainingConfig, settle
from energymodel.readers.training.keys import Keys, shown, understood
from energymodel.readers.training.names import preset_of

AXES = (
    "data", "pipeline", "fsdp", "fsdp_transpose", "sequence", "context", "context_usp_ulysses", "tensor",
    "tensor_transpose", "tensor_sequence", "expert", "autoregressive", "context_autoregressive", "diloco",
)  # fmt: skip
REST = {"ici": "fsdp", "dcn": "data"}
"""Axes that take the accelerators that are left where a run file is silent."""
RUN_KEYS = {
    "base_config", "per_device_batch_size", "max_target_length", "steps", "remat_policy", "run_name", "hardware",
    "dcn_data_parallelism", "ici_fsdp_parallelism", "ici_tensor_parallelism", "ici_data_parallelism",
    "dcn_fsdp_parallelism",
}  # fmt: skip
REMATERIALIZED = {
    "full": "full",
    "minimal_with_context": "none",
    "none": "none",
    "save_out_proj": "full",
    "save_qkv_proj": "full",
}
OTHER_BLOCKS = re.compile(
    r"qwen3_next|qwen3_5\w*|\w*mamba\w*|nemotron_h|kimi_(linear|k3)|simple\w*|gemma(3n|4\w*)|deepseek_?v?4\w*|envy\w*"
)
OTHER_KEYS = {
    "use_indexer": "attention to the keys that an indexer chooses",
    "share_kv_projections": "layers of different shapes",
    "global_head_dim": "layers of different shapes",
    "global_num_kv_heads": "layers of different shapes",
}
"""Keys of models that `Transformer` cannot describe."""
WINDOWED = {"gemma2": 0.5, "gpt_oss": 0.5, "gemma3": 5 / 6, "olmo3": 3 / 4}
"""Share of the layers that have the sliding window, where not all have."""


def read_maxtext(table: dict[str, Any], where: str, kind: str = "maxtext") -> TrainingConfig:
    """The model of a model file, and the run if the file is one of a run."""
    keys = Keys(table, where)
    notes: list[str] = []
    scale = keys.whole("global_parameter_scale", default=1)
    if scale is not None and scale > 1:
        raise keys.refuse("global_parameter_scale", scale, "1; write the sizes that it makes")
    name = keys.word("model_name")
    name = None if name == "default" else name
    shape = _shape(keys, notes)
    if not RUN_KEYS & keys.values.keys():
        keys.skip(*understood("maxtext"))
        config = TrainingConfig(
            kind=kind, model_name=name, model=shape, notes=("a model file: it says nothing of a run", *notes)
        )
        return _with_unread(config, keys)
    degrees, free = _degrees(keys)
    tensor = _product(degrees, "tensor", "tensor_transpose", "tensor_sequence")
    context = _product(degrees, "context", "sequence", "context_usp_ulysses", "context_autoregressive")
    pipeline, expert = _product(degrees, "pipeline"), _product(degrees, "expert")
    states = _product(degrees, "fsdp", "fsdp_transpose")
    data = _product(degrees, "data", "fsdp", "fsdp_transpose", "expert", "diloco")
    if free:
        notes.append(f"{' and '.join(sorted(free))} take the accelerators that are left")
    if silent := [key for key in ("per_device_batch_size", "max_target_length") if key not in keys]:
        notes.append(f"{' and '.join(silent)}: of base.yml, since the file is silent")
    micro, accumulation = _batch(keys, tensor, pipeline, context)
    keys.skip("num_pipeline_microbatches")
    policy = keys.word("remat_policy", default="full") or "full"
    recomputed = REMATERIALIZED.get(policy.removesuffix("_offloaded"), "selective")
    if policy not in ("full", "none"):
        notes.append(f'remat_policy {policy}: taken as recomputation "{recomputed}"')
    offload = [
        name
        for name, on in (
            ("optimizer", keys.on("optimizer_memory_host_offload")),
            ("parameters", keys.on("parameter_memory_host_offload")),
        )
        if on
    ]
    if "offload" in policy or "offload" in [value for value in keys.values.values() if isinstance(value, str)]:
        offload.append("activations")
    sharded = keys.on("shard_optimizer_over_data")
    repeats = keys.whole("num_pipeline_repeats", lowest=-1)
    keys.skip(*understood("maxtext"), "num_layers_per_pipeline_stage")
    precision, recipe = _precision(keys, notes)
    both = degrees.get("data") is not None and (degrees["data"] or 1) > 1 and states is not None and states > 1
    config = TrainingConfig(
        kind=kind,
        model_name=name,
        preset=None if shape else preset_of(name),
        model=shape,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        interleave=repeats if repeats and repeats > 0 else 1 if pipeline == 1 else None,
        context=context,
        context_collective="all_to_all" if (degrees.get("context_usp_ulysses") or 1) > 1 else None,
        expert=expert,
        micro_batch=micro,
        accumulation=accumulation,
        sequence=keys.whole("max_target_length", default=2048),
        precision=precision,
        precision_recipe=recipe,
        recomputation=recomputed,
        sharding=3 if states is None or states > 1 else int(sharded),
        shard_size=states if both else None,
        sequence_parallel=None if tensor is None else tensor > 1,
        optimizer=keys.word("opt_type", default="adamw"),
        schedule=None if pipeline is None else "1f1b",
        overlaps=("data",),
        steps=_steps(keys),
        offload=tuple(offload),
        notes=tuple(notes),
    )
    return settle(_with_unread(config, keys))


def _with_unread(config: TrainingConfig, keys: Keys) -> TrainingConfig:
    return dataclasses.replace(config, ignored=keys.unread())


def _steps(keys: Keys) -> int | None:
    steps = keys.whole("steps", lowest=-1)
    return steps if steps and steps > 0 else keys.whole("learning_rate_schedule_steps")


def _degrees(keys: Keys) -> tuple[dict[str, int | None], set[str]]:
    """Degree of each axis over both networks, None for one that takes the rest; and the keys that take it."""
    degrees: dict[str, int | None] = {}
    free: set[str] = set()
    for axis in AXES:
        total: int | None = 1
        for network in ("ici", "dcn"):
            key = f"{network}_{axis}_parallelism"
            degree = keys.whole(key, lowest=-1, default=-1 if REST[network] == axis else 1)
            if degree == 0:
                raise keys.refuse(key, 0, "a degree of at least 1, or -1 for the accelerators that are left")
            if degree == -1:
                free.add(key)
                total = None
            elif total is not None:
                total *= degree or 1
        degrees[axis] = total
    return degrees, free


def _product(degrees: dict[str, int | None], *axes: str) -> int | None:
    values = [degrees[axis] for axis in axes]
    return None if None in values else math.prod(value for value in values if value is not None)


def _batch(
    keys: Keys, tensor: int | None, pipeline: int | None, context: int | None
) -> tuple[float | None, int | None]:
    """Micro-batch of a replica [sequences] and micro-batches of a step; a batch is stated for each accelerator."""
    each = keys.number("per_device_batch_size", default=12.0)
    steps = keys.whole("gradient_accumulation_steps", default=1) or 1
    parts = keys.whole("num_pipeline_microbatches", lowest=-1)
    if each == 0.0:
        raise keys.refuse("per_device_batch_size", 0, "a number of sequences above 0")
    if each is None or tensor is None or pipeline is None or context is None:
        return None, None
    parts = parts if parts and parts > 0 else pipeline
    return each * tensor * pipeline * context / parts, steps * parts


def _precision(keys: Keys, notes: list[str]) -> tuple[str, str | None]:
    dtype = keys.word("dtype", default="bfloat16") or "bfloat16"
    words = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    if dtype not in words:
        raise keys.refuse("dtype", dtype, f"one of {', '.join(words)}")
    quantized = keys.word("quantization")
    keys.skip("use_qwix_quantization")
    if not quantized:
        return words[dtype], None
    if "int" in quantized:
        notes.append(f"quantization {quantized}: taken as fp8, products in 8 bits")
    return "fp8", quantized


def _shape(keys: Keys, notes: list[str]) -> Shape:
    """The words of the model, as far as the file has them."""
    block = keys.word("decoder_block", default="llama2") or "llama2"
    if OTHER_BLOCKS.fullmatch(block) or keys.values.get("attention_type") == "compressed":
        raise InputError(
            f'{keys.path("decoder_block")} is "{block}": a model with layers other than attention and feed-forward '
            "cannot be described. Describe the nearest transformer with --model."
        )
    for key, what in OTHER_KEYS.items():
        if keys.raw(key) not in (None, False, 0):
            raise InputError(
                f"{keys.path(key)} is {shown(keys.values[key])}: a model with {what} cannot be described. "
                "Describe the nearest transformer with --model."
            )
    layers, hidden = keys.whole("base_num_decoder_layers"), keys.whole("base_emb_dim")
    heads, inner = keys.whole("base_num_query_heads"), keys.whole("base_mlp_dim")
    if layers is None or hidden is None or heads is None:
        return {}
    if inner is None:
        inner = 7168
    if block == "gemma2":
        layers *= 2
        notes.append("layers counted twice: MaxText merges a local and a global layer of Gemma 2 into one")
    activations = keys.words("mlp_activations") if "mlp_activations" in keys else ("silu", "linear")
    latents = keys.word("attention_type") == "mla"
    bias = keys.on("attention_bias") or block in ("gpt3", "gpt_oss")
    head_size = keys.whole("head_dim", default=128) or 128
    found: Shape = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": keys.whole("base_num_kv_heads", default=heads) or heads,
        "head_size": head_size,
        "feed_forward": inner,
        "gated": float(len(activations) > 1),
        "tied": float(keys.on("logits_via_embedding")),
        "norm": "layer" if block == "gpt3" else "rms",
        "norms_per_layer": 2.0 + keys.on("use_post_attn_norm") + keys.on("use_post_ffw_norm"),
        "qk_norm": "latent" if latents else _query_norm(keys, block),
        "linear_bias": float(block in ("gpt3", "gpt_oss")),
        "qkv_bias": float(bias),
        "experts": 1.0,
    }
    ranks = [keys.whole(name, lowest=0) for name in ("q_lora_rank", "kv_lora_rank")]
    sizes = [keys.whole(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
    if latents:
        own, rotated, values = (size or default for size, default in zip(sizes, (128, 64, 128), strict=True))
        found |= {"head_size": own + rotated, "rope_head_size": rotated, "value_head_size": values}
        found |= {"query_rank": ranks[0] or 0, "kv_rank": ranks[1] or 512, "kv_heads": heads}
    positions = keys.whole("trainable_position_size", lowest=-1)
    if positions and positions > 0:
        found["learned_positions"] = positions
    if (vocabulary := keys.whole("vocab_size")) is not None:
        found["vocabulary"] = vocabulary
    if keys.on("attention_sink"):
        found["sinks"] = 1.0
    window = keys.whole("sliding_window_size", lowest=0)
    if window:
        found |= {"window": window, "local_layers": WINDOWED.get(block, 1.0)}
    keys.skip("inhomogeneous_layer_cycle_interval", "chunk_attn_window_size", "image_placeholder", "mlp_bias")
    _experts(keys, found, inner, block)
    return found


def _query_norm(keys: Keys, block: str) -> str:
    """What queries and keys are normalized over; Llama 4 normalizes them without weights."""
    if block == "llama4" or not (keys.on("use_qk_norm") or block == "gemma3"):
        return "none"
    return "projection" if block in ("olmo2", "olmo3") else "head"


def _experts(keys: Keys, found: Shape, inner: int, block: str) -> None:
    experts, active = keys.whole("num_experts", default=1) or 1, keys.whole("num_experts_per_tok", default=1) or 1
    width, shared = keys.whole("base_moe_mlp_dim", lowest=-1), keys.whole("shared_experts", lowest=0, default=0) or 0
    dense, step = (
        keys.whole("first_num_dense_layers", lowest=0, default=0) or 0,
        keys.whole("interleave_moe_layer_step", default=1) or 1,
    )
    bias = keys.on("routed_bias")
    if experts == 1:
        return
    if active > experts:
        raise keys.refuse("num_experts_per_tok", active, f"at most the {experts} experts")
    width = width if width is not None and width > 0 else inner
    layers = int(found["layers"])
    if dense > layers:
        raise keys.refuse("first_num_dense_layers", dense, f"at most the {layers} layers")
    found |= {"experts": experts, "active_experts": active, "feed_forward": width, "dense_feed_forward": inner}
    found |= {"shared_experts": shared, "shared_feed_forward": shared * width, "router_bias": float(bias)}
    if block == "qwen2_moe":
        found |= {"shared_experts": inner / width, "shared_feed_forward": inner, "shared_gate": 1.0}
    found["dense_layers"] = layers - layers // step if step > 1 else dense
    if step > 1:
        found["alternating_dense"] = 1.0
